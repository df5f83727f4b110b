"""Arguments of a launch that change what is accepted, apart from those that a replay is driven by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workbench.launch.records import Launch

_OFF = ("", "none", "null", "false", "auto")
# Argument -> the values, further to `_OFF`, with which it changes nothing.
_NEUTRAL: Mapping[str, tuple[str, ...]] = {
    "speculative-draft-window-size": (),
    "speculative-accept-threshold-single": ("1", "1.0"),
    "speculative-accept-threshold-acc": ("1", "1.0"),
    "speculative-use-rejection-sampling": (),
    "speculative-use-block-verification": (),
    "speculative-adaptive": (),
    "speculative-adaptive-config": (),
    "speculative-token-map": (),
    "speculative-draft-model-quantization": ("unquant",),
    "quantization": ("unquant",),
    "kv-cache-dtype": ("bf16", "bfloat16"),
    "page-size": ("1",),
    "load-format": ("safetensors", "pt", "npcache", "sharded_state", "layered", "fastsafetensors"),
    "speculative-draft-load-format": ("safetensors", "pt", "npcache", "sharded_state", "layered"),
    "json-model-override-args": ("{}",),
    "enable-multi-layer-eagle": (),
}
_VARIABLES = ("SGLANG_SIMULATE_ACC_LEN",)


def further_of(launch: Launch, steps: int, topk: int) -> Iterator[tuple[str, str]]:
    """Yield each argument that changes what is accepted, and its value, "?" where that is not known.

    Parameters
    ----------
    steps, topk
        Of the launch: a chain of so many steps has one draft token more.
    """
    for name, neutral in _NEUTRAL.items():
        found = launch.argument(name)
        if found is None:
            continue
        value = "?" if found.value is None else found.value
        if value.lower() not in (*_OFF, *neutral):
            yield name, value
    tokens = launch.value("speculative-num-draft-tokens")
    if topk == 1 and tokens is not None and tokens != str(steps + 1):
        yield "speculative-num-draft-tokens", tokens
    for name in _VARIABLES:
        value = launch.environment.get(name, "")
        if value not in ("", "0", "-1", "-1.0"):
            yield name, value
