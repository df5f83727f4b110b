"""Run by SGLang's Python: which layers its own functions leave unquantised.

Reads ``[[method, entries, packed, kind, name], ...]`` as JSON; prints one answer for each: whether it is left
out, or the error.
"""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import Any


def answer(
    method: str, entries: list[str], packed: dict[str, list[str]], kind: str, name: str
) -> Any:
    from sglang.srt.layers.quantization import utils
    from sglang.srt.layers.quantization.awq.awq import is_layer_skipped_awq
    from sglang.srt.layers.quantization.compressed_tensors.utils import should_ignore_layer
    from sglang.srt.layers.quantization.fp8 import Fp8Config
    from sglang.srt.layers.quantization.modelopt_quant import ModelOptFp8Config

    experts = kind == "FusedMoE"
    if method == "compressed":
        if not experts:
            return bool(should_ignore_layer(name, entries, packed))
        parts = [f"{name}.0.{part}" for part in ("gate_proj", "up_proj", "down_proj")]
        every = {bool(should_ignore_layer(part, entries, packed)) for part in parts}
        return every.pop() if len(every) == 1 else "ValueError"
    if method == "fp8":
        given = {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": entries}
        config = Fp8Config.from_config(given | {"packed_modules_mapping": packed})
        return bool(
            utils.is_layer_skipped(name, config.ignored_layers or [], config.packed_modules_mapping)
        )
    if method == "awq":
        return is_layer_skipped_awq(name, entries)
    if method == "gptq":
        dynamic = types.SimpleNamespace(dynamic={f"-:{entry}": {} for entry in entries})
        return not experts and utils.get_dynamic_override(dynamic, layer_name=name) is False
    made = ModelOptFp8Config(True, None, entries, packed)
    plain = not experts and utils.is_layer_skipped(name, made.exclude_modules, packed)
    return bool(plain or made.is_layer_excluded(name))


def main() -> None:
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    sys.path.insert(
        0, str(Path(__file__).resolve().parents[2] / "workbench" / "loaders" / "tracer")
    )
    import stubs

    sys.path.pop(0)
    stubs.install()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    said = []
    for asked in json.load(sys.stdin):
        try:
            said.append(answer(*asked))
        except ValueError:
            said.append("ValueError")
    json.dump(said, out)
    out.close()
    os._exit(0)


if __name__ == "__main__":
    main()
