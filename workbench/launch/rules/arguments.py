"""What the parser refuses, as rulings: each with the line that it would take."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.errors import shorten
from workbench.facts import flags
from workbench.launch.rules.parser import (
    PROGRAMS,
    Refusal,
    in_words,
    meant,
    other_releases,
    refusals,
)
from workbench.launch.rules.records import Edit, Ruled, Served, fault, fine, not_typed, unclear

NAME = "the parser takes every argument"
_PLACE = "sglang/srt/server_args.py"
# What took the place of an option, in the releases that have it: the first that the release takes.
_INSTEAD = {
    "cuda-graph-backend-decode": ("--disable-cuda-graph",),
    "cuda-graph-backend-prefill": ("--disable-piecewise-cuda-graph",),
    "disable-cuda-graph": ("--cuda-graph-backend-decode=disabled",),
    "enable-piecewise-cuda-graph": ("--cuda-graph-backend-prefill=tc_piecewise",),
    "disable-piecewise-cuda-graph": ("--cuda-graph-backend-prefill=disabled",),
    "enable-ep-moe": ("--ep-size=N",),
    "enable-deepep-moe": ("--moe-a2a-backend=deepep",),
    "enable-flashinfer-mla": ("--attention-backend=flashinfer",),
    "enable-flashmla": ("--attention-backend=flashmla",),
    "enable-flashinfer-cutlass-moe": ("--moe-runner-backend=flashinfer_cutlass",),
    "enable-flashinfer-trtllm-moe": ("--moe-runner-backend=flashinfer_trtllm",),
    "enable-triton-kernel-moe": ("--moe-runner-backend=triton_kernel",),
}
# Options of other servers, and SGLang's for the same.
_FOREIGN = {
    "max-model-len": "context-length",
    "max-seq-len": "context-length",
    "gpu-memory-utilization": "mem-fraction-static",
    "max-num-seqs": "max-running-requests",
    "max-num-batched-tokens": "chunked-prefill-size",
    "enforce-eager": "disable-cuda-graph",
    "tensor-parallelism": "tp-size",
    "num-gpus": "tp-size",
    "tool-parser": "tool-call-parser",
    "enable-auto-tool-choice": "tool-call-parser",
    "speculative-model": "speculative-draft-model-path",
    "num-speculative-tokens": "speculative-num-draft-tokens",
    "kv-cache-type": "kv-cache-dtype",
}


def parser(s: Served) -> Iterator[Ruled]:
    """Rule what the parser of the release refuses in the words behind the server."""
    if s.started:
        yield fine(NAME, "the server printed its arguments: its parser has taken them")
        return
    yield from not_typed(NAME, s.launch)
    if s.launch.program not in PROGRAMS and not s.launch.program.startswith("sglang_router"):
        yield unclear(NAME, f"{s.launch.program} has options of its own, which are not known")
        return
    found = refusals(s.launch.options, s.release, s.launch.program)
    routed = s.launch.program.startswith("sglang_router")
    for one in found:
        if one.sort == "required" and s.fragment:
            yield unclear(NAME, "the text is arguments alone, and names no model")
        elif routed and one.sort == "unknown":
            yield unclear(NAME, f"{one.option} may be an option of the router")
        else:
            yield _refused(s, one)
    if not found:
        yield fine(NAME, "checked against the options of the release")


def _refused(s: Served, one: Refusal) -> Ruled:
    title, detail, step, edits = _SORTS[one.sort](s, one)
    return fault(
        NAME,
        f"argument_{one.sort}",
        title,
        "parser",
        detail=detail,
        next_step=step,
        edits=edits,
        evidence=(f"{s.who} says: {shorten(one.says)}",),
        place=f"{_PLACE} ({s.release})",
    )


_Said = tuple[str, str, str, tuple[Edit, ...]]


def _unknown(s: Served, one: Refusal) -> _Said:
    title = f"{s.who} has no option {one.option}"
    near = meant(one.option, s.release)
    name = one.option.lstrip("-").replace("_", "-")
    foreign = _FOREIGN.get(name, "")
    if not one.option.startswith("--"):
        known = flags.flags_of(s.release).get(name)
        near = f"--{name}" if known is not None else ""
        detail = "SGLang's options begin with two dashes." if near else ""
    elif not near:
        near = next((one for one in _INSTEAD.get(name, ()) if flags.takes(one, s.release)), "")
        first, last = other_releases(one.option)
        detail = _elsewhere(s, first, last)
        newer = flags.canonical(name)
        if flags.takes(newer, s.release):
            near = f"--{newer}"
    else:
        detail = "It looks misspelt."
    if not near and foreign:
        near, detail = (
            f"--{foreign}",
            f"That is an option of another server; here it is --{foreign}.",
        )
        return title, detail, f"Use {near}, whose values may mean something else.", ()
    if not near or near.endswith("=N"):
        step = f"Use {near}." if near else f"Remove {one.option}, or use a release that has it."
        return title, detail, step, (Edit(one.option),) if not near else ()
    head, _, value = near.partition("=")
    step = f"Write {near.replace('=', ' ')} instead of {one.option}."
    if name.startswith("cuda-graph-backend"):
        return title, detail, step, ()  # its value decides whether a switch says the same
    return title, detail, step, (Edit(one.option, value or None, rename=head),)


def _elsewhere(s: Served, first: str, last: str) -> str:
    if not first:
        return "No release from 0.4.4 on has it."
    span = first if first == last else f"{first} to {last}"
    return f"SGLang {span} have it." if first != last else f"SGLang {span} has it."


def _ambiguous(s: Served, one: Refusal) -> _Said:
    names = [flag for flag in flags.flags_of(s.release) if flag.startswith(one.option.lstrip("-"))]
    title = f"{one.option} may be {len(names)} options of {s.who}"
    detail = f"It is the beginning of {in_words(('--' + name for name in sorted(names)), 5)}."
    likely = {
        "--speculative-draft": "speculative-draft-model-path",
        "--speculative-algo": "speculative-algorithm",
        "--speculative-num": "",
    }.get(one.option, "")
    if likely in names:
        edit = Edit(one.option, rename=f"--{likely}")
        return title, detail, f"Write --{likely} in full.", (edit,)
    return title, detail, "Write the option in full.", ()


def _value(s: Served, one: Refusal) -> _Said:
    title = f"{one.option} does not take {one.value or 'an empty value'}"
    if not one.choices:
        named = {"int": "a whole number", "float": "a number", "json.loads": "JSON"}
        sort = next(
            (text for k, text in named.items() if f" {k} value" in one.says), "another form"
        )
        if "retired" in one.says:
            return (
                f"{one.option} was retired: it stops the launch",
                "",
                "Remove it.",
                (Edit(one.option),),
            )
        return title, f"It takes {sort}.", f"Give {one.option} {sort}.", ()
    lowered = one.value.lower().replace("-", "_")
    alike = [c for c in one.choices if c.lower().replace("-", "_") == lowered] or _near(one)
    detail = f"{s.who} takes {in_words(one.choices, 12)}."
    if len(alike) == 1:
        return title, detail, f"Write {one.option} {alike[0]}.", (Edit(one.option, alike[0]),)
    return title, detail, f"Give {one.option} one of these.", ()


def _near(one: Refusal) -> list[str]:
    import difflib

    return difflib.get_close_matches(one.value, one.choices, 1, 0.75)


def _missing(s: Served, one: Refusal) -> _Said:
    return f"{one.option} has no value", "", f"Give {one.option} a value, or remove it.", ()


def _switch(s: Served, one: Refusal) -> _Said:
    title = f"{one.option} is a switch and takes no value"
    off = one.value.lower() in ("false", "0", "no", "off")
    step = f"Remove {one.option}." if off else f"Write {one.option} without a value."
    return title, "", step, (Edit(one.option) if off else Edit(one.option, rename=one.option),)


def _stray(s: Served, one: Refusal) -> _Said:
    title = f"{shorten(one.value, 60)} belongs to no option"
    return (
        title,
        "",
        "Remove it, or put the option that it belongs to before it.",
        (Edit(one.value),),
    )


def _required(s: Served, one: Refusal) -> _Said:
    return "the launch names no model", "", "Add --model-path with the target.", ()


_SORTS = {
    "unknown": _unknown,
    "ambiguous": _ambiguous,
    "value": _value,
    "missing": _missing,
    "switch": _switch,
    "stray": _stray,
    "required": _required,
}
