"""See which classes take which quantised weights.

``python -m workbench.loaders.quantising PYTHON RELEASE [CLASS ...]``; PYTHON is that of an environment with
SGLang, its transformers and a CPU torch. For each class with a complete map and each scheme of `SCHEMES`,
the class is built as a server builds it, on a GPU that is only claimed, and its real loader gets tensors
of the shapes that the map and the scheme say, without values. What it does otherwise is noted; such a class
and scheme are "cannot tell". It also gets tensors that only layers of other schemes have, to see whether it
passes over them.

What was seen is written beside the maps at the end, and kept for classes that are not named.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import math
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from workbench.checkpoint.config import Config
from workbench.checkpoint.templates import fill
from workbench.loaders.harvest.list_configs import __file__ as list_configs
from workbench.loaders.maps import profiles, quantised, records
from workbench.loaders.maps.layouts import ENDINGS, Scheme
from workbench.loaders.maps.names import template_of
from workbench.loaders.maps.quantised import PASSES, REFUSES, Layers, Quantised
from workbench.loaders.profile import NotCovered, Refused
from workbench.loaders.running import run_tracer

Json = dict[str, Any]
CAPABILITIES = ("9.0", "10.0")
# Tensors that layers of other schemes have, for quantised layers and for plain ones.
FOREIGN_TO_CODED = ("weight", "qweight", "input_scale")
FOREIGN_TO_PLAIN = ("weight_packed", "weight_scale", "scales")
SIZES = (
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "vocab_size",
)
HEADS = {
    "head_dim": 128, "q_lora_rank": 512, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}  # fmt: skip
_DTYPES = {"F8_E4M3": 1, "U8": 1, "I8": 1, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "I64": 8}


def _compressed(form: str, weights: Json, inputs: Json | None, ignored: list[str]) -> Json:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group},
        "ignore": ignored, "quantization_status": "compressed",
    }  # fmt: skip


_FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
_TOKEN = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
_FP4 = {
    "num_bits": 4,
    "type": "float",
    "strategy": "tensor_group",
    "group_size": 16,
    "symmetric": True,
}


def settings(scheme: Scheme, ignored: list[str]) -> Json:
    """Return a ``quantization_config`` of a scheme, with layers left out by the names that they ask under."""
    family, detail = scheme.family, scheme.detail
    if family == "fp8":
        strategy, activations = detail
        weights = _FP8 | {"strategy": strategy}
        weights |= {"block_structure": [128, 128]} if strategy == "block" else {}
        inputs: Json = _FP8 | {"strategy": "tensor"} if activations == "static" else _TOKEN
        if strategy == "block":
            inputs = _FP8 | {"strategy": "group", "group_size": 128, "dynamic": True}
        return _compressed("float-quantized", weights, inputs, ignored)
    if family == "int8":
        weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
        return _compressed("int-quantized", weights, _TOKEN | {"type": "int"}, ignored)
    if family == "pack":
        bits, group, symmetric = detail
        weights = {"num_bits": bits, "type": "int", "symmetric": symmetric}
        weights |= {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
        return _compressed("pack-quantized", weights, None, ignored)
    if family == "nvfp4":
        inputs4 = _FP4 | {"dynamic": "local"} if detail[0] else None
        return _compressed("nvfp4-pack-quantized", _FP4, inputs4, ignored)
    if family == "awq":
        more = {"modules_to_not_convert": ignored} if ignored else {}
        return {"quant_method": "awq", "bits": 4, "group_size": detail[0], "zero_point": True,
                "version": "gemm"} | more  # fmt: skip
    if family == "gptq":
        bits, group, ordered = detail
        dynamic: Json = (
            {"dynamic": {f"-:{re.escape(name)}$": {} for name in ignored}} if ignored else {}
        )
        return {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True,
                "desc_act": ordered, "lm_head": False, "checkpoint_format": "gptq"} | dynamic  # fmt: skip
    if family in ("block", "autofp8"):
        scale: Json = {"weight_block_size": [128, 128]}
        scale = {"activation_scheme": detail[0]} if detail else scale
        fp8: Json = {"quant_method": "fp8", "activation_scheme": "dynamic"}
        return fp8 | {"ignored_layers": ignored} | scale
    algorithm = "NVFP4" if family.endswith("nvfp4") else "FP8"
    weights = _FP4 if algorithm == "NVFP4" else _FP8
    only = {"targets": ["Linear"], "weights": weights, "input_activations": weights}
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ignored,
            "config_groups": {"group_0": only}}  # fmt: skip


SCHEMES = (
    Scheme("fp8", ("channel", "dynamic")), Scheme("fp8", ("tensor", "dynamic")),
    Scheme("fp8", ("tensor", "static")), Scheme("fp8", ("block", "dynamic")), Scheme("int8"),
    Scheme("pack", (4, 128, True)), Scheme("pack", (4, 32, True)), Scheme("pack", (8, 0, True)),
    Scheme("pack", (4, 128, False)),
    Scheme("awq", (128,)), Scheme("awq", (64,)), Scheme("gptq", (4, 128, False)),
    Scheme("gptq", (4, 128, True)), Scheme("gptq", (4, 32, False)), Scheme("gptq", (8, 128, False)),
    Scheme("block"), Scheme("autofp8", ("static",)), Scheme("autofp8", ("dynamic",)),
    Scheme("modelopt-fp8"), Scheme("modelopt-nvfp4"), Scheme("nvfp4", (True,)), Scheme("nvfp4", (False,)),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Trial:
    """One checkpoint that the loader is to be given.

    Attributes
    ----------
    keys
        Key -> shape, dtype.
    lands
        Key -> parameter, for those of the map; the others are foreign.
    coded
        The quantised ones among the modules of foreign keys.
    """

    config: Json
    keys: Mapping[str, tuple[tuple[int, ...], str]]
    lands: Mapping[str, str]
    coded: frozenset[str] = frozenset()


# -- what is given to the loader -------------------------------------------------------------------


def configs(python: str, names: Sequence[str]) -> dict[str, Json]:
    """Return a config.json for each class that a server's reading of it can build."""
    done = subprocess.run(
        [python, list_configs, *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


def grown(raw: Json) -> Json:
    """Return a config with other sizes: odd multiples of 128, and heads as large models have them."""
    out = dict(raw)
    heads, hidden = raw.get("num_attention_heads"), raw.get("hidden_size")
    if (
        "head_dim" not in raw
        and isinstance(heads, int)
        and isinstance(hidden, int)
        and hidden // heads % 64
    ):
        out["head_dim"] = HEADS["head_dim"]
    for name, value in raw.items():
        if isinstance(value, dict) and "config" in name:
            out[name] = grown(value)
        elif name in HEADS and isinstance(value, int):
            out[name] = HEADS[name]
        elif name in SIZES and isinstance(value, int) and value > 0:
            out[name] = 128 * (value // 128 + 1 + value // 128 % 2)
    return out


def trial(release: str, name: str, raw: Json, layers: Layers, scheme: Scheme) -> Trial:
    """Return what the map says that a class wants under a scheme."""
    config = grown(raw) | {"architectures": [name], "dtype": "bfloat16"}
    config["quantization_config"] = settings(scheme, [])
    mapped = profiles.Mapped("sglang", release, name)
    plain = mapped.plain(Config({n: v for n, v in config.items() if n != "quantization_config"}))
    made = quantised.of_layers(layers, config["quantization_config"], check=False)
    slots = [s for s in quantised.slots(plain.slots, made) if not s.alternative]
    keys: dict[str, tuple[tuple[int, ...], str]] = {}
    lands: dict[str, str] = {}
    shares: dict[str, float] = {}
    for slot in slots:
        shape = slot.shape if slot.shape is not None else (() if slot.single else (1,))
        dtype = (
            sorted(slot.dtypes, key=lambda d: (d != "BF16", d == "I64", d))[0]
            if slot.dtypes
            else "BF16"
        )
        for key, to in zip(
            fill(slot.template, slot.index), fill(slot.parameter, slot.index), strict=True
        ):
            keys[key], lands[key] = (shape, dtype), to
            shares[to] = shares.get(to, 0.0) + slot.fraction
    if short := next((to for to, share in shares.items() if share < 1 - 1e-6), None):
        raise NotCovered(f"the shares of {short} do not add up")
    return Trial(config, keys, lands)


def strange(release: str, name: str, raw: Json, layers: Layers) -> Trial:
    """Return foreign tensors: those of other schemes' layers, for quantised layers and for plain ones."""
    scheme = Scheme("pack", (4, 128, True))
    config = raw | {"architectures": [name], "dtype": "bfloat16"}
    mapped = profiles.Mapped("sglang", release, name)
    plain = mapped.plain(Config(config))
    behind = [told.replace("{0}", "1") for _, told in layers.asks.values() if "{0}" in told]
    ignored = [*behind, *(rf"re:{re.escape(name)}\." for name in behind)]  # the latter for experts
    config = config | {"quantization_config": settings(scheme, ignored)}
    made = quantised.of_layers(layers, config["quantization_config"], check=False)
    keys: dict[str, tuple[tuple[int, ...], str]] = {}
    coded = []
    for slot in plain.slots:
        module = slot.parameter.rpartition(".")[0]
        if (
            module not in made.layers.asks
            or slot.alternative
            or not slot.template.endswith(".weight")
        ):
            continue
        for rows, found in quantised.by_scheme(slot, module, made):
            base = fill(slot.template, slot.index[rows][:1])[0].removesuffix("weight")
            for ending in FOREIGN_TO_CODED if found else FOREIGN_TO_PLAIN:
                keys[base + ending] = ((128, 128), "F32" if "scale" in ending else "I32")
                coded += [base + ending] if found else []
    return Trial(config, keys, {}, frozenset(coded))


def write(folder: Path, made: Trial) -> None:
    """Write a checkpoint's config.json, and its tensors as a file with nothing but a header."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(made.config))
    header, at = {}, 0
    for key, (shape, dtype) in made.keys.items():
        size = _DTYPES[dtype] * math.prod(shape)
        header[key] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + at)


# -- what came of it -------------------------------------------------------------------------------


def layers_of(answer: Json) -> Layers:
    """Return which layers of a class ask, by template; `NotCovered` where that is not regular."""
    asks: dict[str, tuple[str, str]] = {}
    for module, (kind, name, _) in answer["layers"].items():
        numbers = re.findall(r"(?<![\w])\d+(?![\w])", module)
        spelled = _numbered(module)
        told = name
        for at, number in enumerate(numbers):
            told = re.sub(rf"(?<![\w]){number}(?![\w])", f"{{{at}}}", told, count=1)
        if asks.setdefault(spelled, (kind, told)) != (kind, told):
            raise NotCovered(f"{spelled} asks under several names: {told}")
    spellings = answer["spellings"]
    return Layers(asks, spellings["packed"], spellings["mapper"])


def _numbered(module: str) -> str:
    count = iter(range(9))
    return re.sub(r"(?<![\w])\d+(?![\w])", lambda _: f"{{{next(count)}}}", module)


def judged(made: Trial, answer: Json) -> str:
    """Return what the loader did otherwise than predicted, "" for nothing."""
    if answer["unsupported"]:
        return f"could not be tried here: {answer['unsupported'][:120]}"
    if answer["refused"]:
        refused = str(answer["refused"])
        return (REFUSES if "NotImplementedError" in refused else "does not build: ") + refused[:200]
    lost = [key for key in made.lands if not answer["writes"].get(key)]
    kind = {key.rpartition(".")[2] for key in lost}
    if len(kind) == 1 and not answer["mismatched"]:
        (ending,) = kind
        if len(lost) == sum(key.endswith(f".{ending}") for key in made.lands):
            return PASSES + ending
    for key, parameter in made.lands.items():
        if key in answer["mismatched"]:
            return f"stops at {key}: {answer['mismatched'][key][:120]}"
        if key in answer["resized"] and made.keys[key][0] != ():  # one number may stand for several
            return f"takes another number of values from {key} than it has"
        if answer["writes"].get(key) != [parameter]:
            return f"{key} goes to {answer['writes'].get(key)}"
    short = [
        n
        for n, share in answer["written"].items()
        if share < 1 and _ending(n) in (*ENDINGS, "bias")
    ]
    if short:
        return f"does not fill {short[0]}"
    return _uneven(made, answer)


def _uneven(made: Trial, answer: Json) -> str:
    """Return a parameter that has more, or fewer, values than its single numbers are said to fill."""
    layout: dict[str, int] = {}
    for key, parameter in made.lands.items():
        if made.keys[key][0] == ():
            layout[parameter] = layout.get(parameter, 0) + 1
    for parameter, count in layout.items():
        if parameter not in answer["parameters"]:
            return f"{parameter} is gone once everything is loaded"
        size = math.prod(answer["parameters"][parameter]["shape"])
        once = parameter.endswith("w13_input_scale") and size in (count, count // 2)
        if size != count and not once:
            return f"{parameter} has {size} values for {count} tensors"
    return ""


def _ending(parameter: str) -> str:
    return re.sub(r"^w(13|2)_", "", parameter.rpartition(".")[2])


def reactions(made: Trial, answer: Json) -> dict[str, dict[str, str]]:
    """Return what became of foreign tensors, by the state of their layer and its template."""
    found: dict[str, dict[str, str]] = {"plain": {}, "coded": {}}
    lost = set(answer["unreached_or_dropped"])
    for key in made.keys:
        said = "dropped" if key in lost else "raises" if key in answer["mismatched"] else ""
        if (
            said == "raises"
            and "Error: " in answer["mismatched"][key]
            and "size" in answer["mismatched"][key]
        ):
            said = ""  # a parameter of that name was found
        state = found["coded" if key in made.coded else "plain"]
        text = f"{template_of(key).rpartition('.')[0]}.weight"
        state[text] = said if state.get(text, said) == said else ""
    return found


# -- all of it -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Harvest:
    """Some classes of one release."""

    python: str
    release: str
    raws: Mapping[str, Json]

    def run(self, trials: Sequence[Trial], capability: str) -> Iterator[Json]:
        """Load some checkpoints, all in one process: it takes longer to start than to load many."""
        with tempfile.TemporaryDirectory() as work:
            jobs = []
            for number, made in enumerate(trials):
                folder = Path(work, str(number))
                write(folder, made)
                jobs.append({"id": str(number), "checkpoint": str(folder), "target": None,
                             "model_class": None, "values": False, "layers": True})  # fmt: skip
            yield from run_tracer(
                self.python, jobs, engine="sglang", stubs=True, claim=capability, timeout=7200
            )

    def layers(self) -> dict[str, Layers]:
        """Return which layers of each class ask, and under which names."""
        asked = []
        for name, raw in self.raws.items():
            config = raw | {"architectures": [name], "dtype": "bfloat16"}
            config["quantization_config"] = settings(Scheme("autofp8", ("dynamic",)), [])
            asked.append(Trial(config, {"x": ((1,), "F32")}, {}))
        found: dict[str, Layers] = {}
        for name, answer in zip(self.raws, self.run(asked, CAPABILITIES[0]), strict=True):
            why = answer["unsupported"] or answer["refused"]
            try:
                if why:
                    raise NotCovered(str(why)[:200])
                found[name] = layers_of(answer)
            except NotCovered as error:
                print(f"{name}: {error.text}", file=sys.stderr, flush=True)
        return found

    def all(self) -> dict[str, Layers]:
        """Return all that was seen of each class."""
        found = self.layers()
        trials: list[tuple[str, Scheme | None, Trial]] = []
        holds: dict[str, dict[str, dict[str, str]]] = {name: {} for name in found}
        for name, layers in found.items():
            for scheme in SCHEMES:
                try:
                    made = trial(self.release, name, self.raws[name], layers, scheme)
                    trials.append((name, scheme, made))
                except (NotCovered, Refused) as error:
                    holds[name][str(scheme)] = dict.fromkeys(CAPABILITIES, error.text[:200])
            try:
                trials.append((name, None, strange(self.release, name, self.raws[name], layers)))
            except (NotCovered, Refused):
                continue
        foreign: dict[str, list[dict[str, dict[str, str]]]] = {name: [] for name in found}
        for capability in CAPABILITIES:
            answers = self.run([made for _, _, made in trials], capability)
            for (name, kind, made), answer in zip(trials, answers, strict=True):
                if kind is not None:
                    held = holds[name].setdefault(str(kind), {})
                    held[capability] = judged(made, answer)
                elif not (answer["unsupported"] or answer["refused"]):
                    foreign[name].append(reactions(made, answer))
        return {
            name: msgspec.structs.replace(layers, holds=holds[name], foreign=_agreed(foreign[name]))
            for name, layers in found.items()
        }


def _agreed(seen: Sequence[Mapping[str, Mapping[str, str]]]) -> dict[str, Any]:
    """Return the reactions by state of a layer: the most frequent, and by template the others."""
    found: dict[str, Any] = {}
    for state in ("plain", "coded"):
        every = [one[state] for one in seen]
        if len(every) < len(CAPABILITIES) or not every[0]:
            continue
        told = {
            t: said if all(one.get(t) == said for one in every) else ""
            for t, said in every[0].items()
        }
        usual = max(sorted(set(told.values())), key=list(told.values()).count)
        found[state] = [usual, {t: said for t, said in told.items() if said != usual}]
    return found


def classes(release: str, names: Sequence[str]) -> list[str]:
    """Return the classes that have a complete map, and no draft's."""
    found = records.maps_of("sglang", release).classes
    return [n for n, one in found.items() if one.complete and (not names or n in names)]


def save(release: str, found: Mapping[str, Layers]) -> Path:
    """Write what was seen beside the maps; classes that were not tried again keep theirs."""
    old = quantised.quantised_of("sglang", release)
    every = dict(old.classes if old is not None else {}) | dict(found)
    data = Quantised("sglang", release, list(CAPABILITIES), dict(sorted(every.items())))
    file: Path = records._data() / quantised.file_name("sglang", release)
    file.write_bytes(lzma.compress(msgspec.json.encode(data), preset=9 | lzma.PRESET_EXTREME))
    quantised.quantised_of.cache_clear()
    return file


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the classes named, or all with a complete map; write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="the engine's Python")
    parser.add_argument("release", help="the release that it has, as its maps are called")
    parser.add_argument("classes", nargs="*", help="classes to try; all by default")
    options = parser.parse_args(arguments)
    names = classes(options.release, options.classes)
    found = Harvest(options.python, options.release, configs(options.python, names)).all()
    for name, layers in found.items():
        good = [scheme for scheme, held in layers.holds.items() if not any(held.values())]
        print(f"{name}: {len(good)} of {len(SCHEMES)} schemes", file=sys.stderr)
    file = save(options.release, found)
    print(f"{file}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
