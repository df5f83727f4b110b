"""What engines do since when, asked by name: ``since("sglang", "norm_output", "0.5.14")``.

SGLang's come from its releases (`rows`). vLLM's were read in some of its releases only: between the last one
without and the first one with it nobody looked, and nothing is known there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from workbench.facts import rows

EAGLE3 = "llama_eagle3.py"


@dataclasses.dataclass(frozen=True, slots=True)
class Is:
    """A feature of SGLang: a fact that is there, or one that has a value.

    Attributes
    ----------
    kind, name
        As in `rows`.
    value
        None: its presence counts.
    """

    kind: str
    name: str
    value: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """A feature that was read by hand: the last release without it, the first one with it ("" for none).

    The file and the line show it in the first release with it; the line is 0 where nobody looked again.
    """

    last_without: str
    first_with: str
    file: str
    line: int


def _reads(field: str, file: str = EAGLE3) -> Is:
    return Is("reads", f"{file}:{field}")


SGLANG: Mapping[str, Is] = {
    "eagle_config": Is("word", "eagle_aux_hidden_state_layer_ids"),
    "lm_head from target": Is("line", "models/llama_eagle3.py:borrows_head"),
    "num_aux": _reads("config.num_aux_hidden_states"),
    "fc_norm": _reads("config.fc_norm"),
    "norm_output": _reads("config.norm_output"),
    "norm_before_fc": _reads("config.norm_before_fc"),
    "norm_before_residual": Is("word", "norm_before_residual"),
    "top-level aux ids": _reads("config.eagle_aux_hidden_state_layer_ids"),
    "use_aux_hidden_state": _reads("eagle_config.use_aux_hidden_state", "model_runner.py"),
    "use_aux_hidden_state, in a file of its own": _reads(
        "eagle_config.use_aux_hidden_state", "spec_aux_hidden_state.py"
    ),
    "speculators": Is("word", "transformer_layer_config"),
    "draft positions after the step": Is("positions", "eagle_worker_v2.py", "after"),
    "overlapped worker by default": Is("environment", "SGLANG_ENABLE_SPEC_V2", "True"),
    "overlapped worker alone": Is(
        "function", "_update_draft_extend_buffers@layers/attention/triton_backend.py"
    ),
    "both models before the pools": Is("function", "init_all_cuda_graphs@managers/scheduler.py"),
    "pads short projections": Is("function", "pad_or_narrow_weight@srt/"),
    "kimi_k2": Is("model type", "kimi_k2"),
}
_VLLM_LLAMA = "vllm/model_executor/models/llama_eagle3.py"
_VLLM_ALGOS = "vllm/transformers_utils/configs/speculators/algos.py"
_VLLM_RUNNER = "vllm/v1/worker/gpu_model_runner.py"
# `python -m tests.facts.vllm_check` looks each up in the two releases at its border.
VLLM: Mapping[str, Read] = {
    "norm_before_residual": Read("0.10.0", "0.10.1", _VLLM_LLAMA, 54),
    "speculators": Read("0.10.0", "0.10.1", _VLLM_ALGOS, 17),
    "eagle_config": Read("0.21.0", "0.22.0", _VLLM_RUNNER, 5253),
    "top-level aux ids": Read("0.10.2", "0.11.1", _VLLM_RUNNER, 3410),
    "norm_before_fc": Read("0.17.1", "0.18.0", _VLLM_LLAMA, 153),
    "num_aux": Read("0.21.0", "0.22.0", _VLLM_LLAMA, 180),
    "fc_norm": Read("0.21.0", "0.22.0", _VLLM_LLAMA, 200),
    "norm_output": Read("0.21.0", "0.22.0", _VLLM_LLAMA, 221),
    "speculators norm_before_fc": Read("0.18.1", "0.19.0", _VLLM_ALGOS, 38),
    "speculators fc_norm": Read("0.24.0", "0.25.0", _VLLM_ALGOS, 39),
    "speculators norm_output": Read("0.24.0", "0.25.0", _VLLM_ALGOS, 40),
    "d2t refused at full vocabulary": Read("0.29.0", "0.30.0", _VLLM_LLAMA, 345),
}
_NEWEST_READ = {"vllm": "0.32.0"}


def newest(engine: str) -> str:
    """Return the newest release of an engine that was read, "" for an engine that was not."""
    return rows.releases(engine)[-1] if rows.releases(engine) else _NEWEST_READ.get(engine, "")


def since(engine: str, feature: str, version: str) -> bool | None:
    """Tell whether a version of an engine does something; None where nobody looked.

    Parameters
    ----------
    engine, version
        ``"sglang"``, ``"0.5.14"``. A release newer than any known, a git build and a fork give None.
    feature
        One of `SGLANG` or `VLLM`.
    """
    if engine == "sglang" and feature in SGLANG:
        one = SGLANG[feature]
        return rows.has(engine, one.kind, one.name, version, one.value)
    if engine == "vllm" and feature in VLLM:
        return _between(VLLM[feature], version, _NEWEST_READ[engine])
    return None


def _between(read: Read, version: str, newest_read: str) -> bool | None:
    try:
        given = Version(version)
    except InvalidVersion:
        return None
    if given.is_prerelease or given > Version(newest_read) or not rows.is_build(given):
        return None
    release = Version(given.public)
    if read.first_with and release >= Version(read.first_with):
        return True
    return False if release <= Version(read.last_without) else None


def border(engine: str, feature: str) -> tuple[str, str]:
    """Return the last release without a feature and the first with it; "" where there is none.

    Of a feature that came, went and came again, its last coming counts.
    """
    if engine == "vllm" and feature in VLLM:
        return VLLM[feature].last_without, VLLM[feature].first_with
    if engine == "sglang" and feature in SGLANG:
        one = SGLANG[feature]
        found = [
            row for row in rows.rows(engine, one.kind, one.name) if one.value in (None, row.value)
        ]
        # Rows that only have another value (a line that moved) are one presence.
        start = next(
            (
                row
                for at, row in reversed(list(enumerate(found)))
                if at == 0 or found[at - 1].first_without != row.first_with
            ),
            None,
        )
        if start is not None:
            return start.last_without, start.first_with
        return newest(engine), ""
    return "", ""
