"""Command lines of vLLM and TensorRT-LLM: the model, its draft, and options as they are written.

No table of these engines' options is kept here, so an option counts as it is written: a misspelt one is not
noticed, and what is read says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.evidence.redact import LEFT_OUT, is_secret
from workbench.launch import holes
from workbench.launch.options import INCIDENTAL, Arguments, bounded
from workbench.launch.records import Argument, Place, Unread

# What the options of these engines are called here: as SGLang's newest release calls the same.
_KEYS = {
    "model": "model-path",
    "model-tag": "model-path",
    "tp": "tp-size",
    "tensor-parallel-size": "tp-size",
    "pp": "pp-size",
    "pipeline-parallel-size": "pp-size",
    "dp": "dp-size",
    "data-parallel-size": "dp-size",
    "ep-size": "ep-size",
    "q": "quantization",
    "speculative-model": "speculative-draft-model-path",
    "num-speculative-tokens": "speculative-num-draft-tokens",
}
_IN_CONFIG = {
    "method": "speculative-algorithm",
    "decoding_type": "speculative-algorithm",
    "model": "speculative-draft-model-path",
    "speculative_model": "speculative-draft-model-path",
    "speculative_model_dir": "speculative-draft-model-path",
    "num_speculative_tokens": "speculative-num-draft-tokens",
    "max_draft_len": "speculative-num-draft-tokens",
}
SPECULATIVE = (
    "speculative-algorithm",
    "speculative-draft-model-path",
    "speculative-num-draft-tokens",
)
_SWITCH = re.compile(
    r"(?:enable|disable|no|use|return|skip|trust|enforce|async|headless|show)\b.*|trust-remote-code"
)
_OPTION = re.compile(r"--?[A-Za-z]")


def read_arguments(words: Sequence[str], where: Place) -> Arguments:
    """Return the arguments of ``vllm serve`` or ``trtllm-serve``; the model may stand without an option."""
    words, too_many = bounded(words)
    arguments: list[Argument] = []
    not_read: list[Unread] = [*too_many]
    at = 0
    while at < len(words):
        head, equals, value = words[at].partition("=")
        at += 1
        if not _OPTION.match(head) or holes.has_hole(head):
            _loose(words[at - 1], where, arguments, not_read)
            continue
        name = head.lstrip("-").replace("_", "-")
        values = [value] if equals else []
        if not equals and not _SWITCH.fullmatch(name):
            while at < len(words) and not _OPTION.match(words[at]):
                if values and holes.may_be_many(words[at]):
                    break
                values.append(words[at])
                at += 1
        _one(name, head, values, where, arguments, not_read)
    return Arguments(tuple(arguments), tuple(not_read))


def _one(
    name: str,
    head: str,
    values: list[str],
    where: Place,
    arguments: list[Argument],
    not_read: list[Unread],
) -> None:
    """Add what one option says."""
    key = _KEYS.get(name, name)
    text = " ".join(values) if values else "true"
    unknown = holes.names(text)
    if unknown:
        depends = ", ".join(holes.shown(holes.hole(one)) for one in unknown)
        not_read.append(Unread(head, f"its value depends on {depends}", key not in INCIDENTAL))
        arguments.append(Argument(name, key, head, None, where, unknown))
        if name == "speculative-config":
            arguments += (Argument(one, one, head, None, where, unknown) for one in SPECULATIVE)
        return
    secret = is_secret(name.replace("-", "_"))
    arguments.append(Argument(name, key, head, LEFT_OUT if secret else text, where))
    first, dot, rest = name.partition(".")
    if first == "speculative-config":
        if dot:
            arguments += speculation({rest.replace("-", "_"): text}, head, where)
            return
        try:
            config = json.loads(text)
        except (ValueError, RecursionError):
            config = None
        if isinstance(config, dict):
            arguments += speculation(config, head, where)
        else:
            not_read.append(Unread(head, "its value is not JSON"))
            arguments += (Argument(one, one, head, None, where) for one in SPECULATIVE)


def speculation(config: Mapping[str, Any], raw: str, where: Place) -> Iterator[Argument]:
    """Yield what a speculative configuration names: the method, the draft, how many tokens."""
    for name, key in _IN_CONFIG.items():
        value = config.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            yield Argument(f"speculative-config.{name}", key, raw, str(value), where)


def _loose(word: str, where: Place, arguments: list[Argument], not_read: list[Unread]) -> None:
    """Take a word without an option as the model, where none is known; an unknown one may be options."""
    unknown = holes.names(word)
    whole = holes.may_be_many(word) and word.startswith("\ue001")
    model = next((one for one in arguments if one.key == "model-path"), None)
    if model is None and not arguments:
        if unknown:
            why = f"it depends on {', '.join(holes.shown(holes.hole(one)) for one in unknown)}"
            not_read.append(Unread("the model", why))
        arguments.append(
            Argument("model", "model-path", "", None if unknown else word, where, unknown)
        )
    elif unknown:
        why = "it is not known, and may hold further options"
        not_read.append(Unread(holes.shown(word), why, options=whole or bool(unknown)))
    elif model is None:
        arguments.append(Argument("model", "model-path", "", word, where))
    else:
        not_read.append(Unread(word, "it belongs to no option"))
