"""Contracts of dtypes: loaders copy a tensor into a parameter of another type silently.

`torch.Tensor.copy_` casts anything to anything: integer codes become numbers of some thousands, a complex
number loses its imaginary part, a boolean norm is all ones and zeros. Nothing is missing, all is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workbench.core.finding import Finding
from workbench.drafts.subject import NAMES, Subject
from workbench.loaders.outcome import KeyGroup

_CODES = ("I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "F4")
_EIGHT = ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_COMPLEX = ("C64", "C128")
# Tensors that are whole numbers or masks on purpose, by the end or a part of their name.
_WHOLE = ("d2t", "t2d", "draft_id_to_target_id", "num_batches_tracked", "position_ids", "g_idx")
_PACKED = ("packed", "qweight", "qzeros", "weight_shape", "scale", "zero_point")


def dtypes(s: Subject) -> Iterator[Finding]:
    """Check that what was loaded is of a type whose numbers survive the cast."""
    if s.engine not in NAMES and s.engine != "transformers":
        return  # a module's own parameters may well be whole numbers
    found: dict[str, list[KeyGroup]] = {}
    quantized = bool(s.get("quantization_config") or s.get("compression_config"))
    for group in s.outcome.keys:
        kind = _kind(group, quantized) if group.status == "loaded" else ""
        if kind:
            found.setdefault(kind, []).append(group)
    for kind, groups in found.items():
        yield _finding(s, kind, groups)


def _kind(group: KeyGroup, quantized: bool) -> str:
    """Return which cast destroys the numbers of these keys, "" for none."""
    name, dtype = group.tensors.template, group.tensors.dtype
    if any(part in name for part in _WHOLE):
        return ""
    if dtype in _COMPLEX:
        return "complex"
    if dtype == "BOOL":
        return "boolean"
    if quantized or any(part in name for part in _PACKED):
        return ""
    return "codes" if dtype in _CODES else "eight" if dtype in _EIGHT else ""


_TITLES: Mapping[str, str] = {
    "complex": "complex numbers lose their imaginary part",
    "boolean": "weights are stored as booleans",
    "codes": "weights are integers, and the config does not say how to scale them",
    "eight": "weights are 8-bit floating point, and the config does not say how to scale them",
}
_DETAILS: Mapping[str, str] = {
    "complex": "The parameters are real; copy_ drops the imaginary part, with a warning at most.",
    "boolean": "The cast gives ones and zeros: the result of a comparison or a mask, not a "
    "trained weight.",
    "codes": "Integer codes need their scales and a quantization_config; without one the engine "
    "uses the codes as the weight.",
    "eight": "Without a quantization_config the engine casts the stored numbers as they are. "
    "That is right only if the weight was never scaled, and such files are made with scales.",
}


def _finding(s: Subject, kind: str, groups: list[KeyGroup]) -> Finding:
    scaled = _scales(s) if kind == "eight" else []
    unsure = kind == "eight" and not scaled
    count = sum(map(len, groups))
    first = groups[0]
    shape = "x".join(map(str, first.tensors.shape)) or "scalar"
    evidence = [
        f"{count} of {len(s.table)} tensors: {first.names[0]} is {first.tensors.dtype} [{shape}]",
        "config.json has no quantization_config" if kind in ("codes", "eight") else "",
        f"scales are in the checkpoint and are not read: {scaled[0]}" if scaled else "",
    ]
    return Finding(
        code=f"dtype_{kind}",
        severity="warning" if unsure else "error",
        title=_TITLES[kind],
        detail=_DETAILS[kind],
        evidence_for=tuple(line for line in evidence if line),
        evidence_against=("the checkpoint has no scales, so they may never have been needed",)
        if unsure
        else (),
        confidence="possible" if unsure else "certain",
        changes_output=True,
        next_step="Export the weights as bfloat16 or float16"
        + (
            ", or write the quantization_config that they were made with."
            if kind in ("codes", "eight")
            else "."
        ),
        place="torch.Tensor.copy_",
    )


def _scales(s: Subject) -> list[str]:
    """Return names of scales of weights, from the loader's groups, never from every single name."""
    return [
        group.names[0]
        for group in s.outcome.keys
        if "scale" in group.tensors.template.rpartition(".")[2]
    ]
