"""config.json in the forms that checkpoints have: plain, speculators' nested one, multimodal, none."""

from __future__ import annotations

import codecs
import dataclasses
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from workbench.errors import CheckpointError

Layout = Literal["huggingface", "speculators", "multimodal", "none"]

# Where multimodal configs keep the language model: transformers, InternVL, DeepSeek-VL.
_TEXT_KEYS = ("text_config", "llm_config", "language_config")
# What engines read beside the language model's own fields, at the top of a multimodal config.
_SHARED_KEYS = (
    "quantization_config",
    "compression_config",
    "torch_dtype",
    "dtype",
    "architectures",
)
# A config is a few kilobytes; some list a whole quantisation scheme.
MAX_CONFIG = 64 << 20


class Flattened(dict[str, Any]):
    """A flat config.json, with what it cannot say in `lost`."""

    def __init__(self, config: Mapping[str, Any], lost: tuple[str, ...] = ()) -> None:
        super().__init__(config)
        self.lost = lost


@dataclasses.dataclass(frozen=True)
class Config:
    """A model's config.json. Remote code that it names (``auto_map``) is never run.

    Attributes
    ----------
    raw
        The file as it was read; empty where there is none.
    source
        Where it was read from, for messages.
    quirks
        What the file has that this reader forgives and others do not: ``bom``, a UTF-8 byte order mark.
    """

    raw: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    source: str = ""
    quirks: tuple[str, ...] = ()

    @cached_property
    def layout(self) -> Layout:
        """The form: ``huggingface``, ``speculators``, ``multimodal``, or ``none`` for no config."""
        if not self.raw:
            return "none"
        if isinstance(self.raw.get("transformer_layer_config"), dict):
            return "speculators"
        return "multimodal" if self._text_key else "huggingface"

    @cached_property
    def _text_key(self) -> str:
        found = (key for key in _TEXT_KEYS if isinstance(self.raw.get(key), dict))
        return next(found, "")

    @cached_property
    def text(self) -> dict[str, Any]:
        """The flat language-model config that an engine would use."""
        if self.layout == "speculators":
            outer = {k: v for k, v in self.raw.items() if not isinstance(v, dict) and v is not None}
            return dict(self.raw["transformer_layer_config"]) | outer
        if self.layout == "multimodal":
            shared = {key: self.raw[key] for key in _SHARED_KEYS if key in self.raw}
            return shared | dict(self.raw[self._text_key])
        return dict(self.raw)

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        """Model classes that the config names; an engine takes the first one it knows."""
        named = self.raw.get("architectures") or self.text.get("architectures") or ()
        if isinstance(named, str):
            named = (named,)
        if not isinstance(named, list | tuple):
            return ()
        return tuple(name for name in named if isinstance(name, str))

    @cached_property
    def model_type(self) -> str:
        """The config's ``model_type``; empty where it has none, as speculators' configs."""
        value = self.raw.get("model_type")
        return value if isinstance(value, str) else ""

    @cached_property
    def quantization(self) -> dict[str, Any]:
        """The ``quantization_config``, wherever the config has it; empty where the model is not quantised."""
        for holder in (self.raw, self.text):
            for key in ("quantization_config", "compression_config"):
                if isinstance(holder.get(key), dict):
                    return dict(holder[key])
        return {}

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field of `text`, or `default` where it is absent."""
        return self.text.get(name, default)

    def __bool__(self) -> bool:
        return bool(self.raw)


def parse_config(data: bytes, source: str) -> Config:
    """Return the config in a file's bytes.

    Raises
    ------
    CheckpointError
        It is not JSON, or not an object.
    """
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_constant)
    except UnicodeDecodeError as error:
        raise _broken(source, f"it is not UTF-8 text (byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        from workbench.checkpoint.sources import looks_like, not_json

        found = None if data[:1] in (b"{", b"[") else looks_like(data[:512])
        raise _broken(source, found[0] if found else not_json(error)) from None
    if not isinstance(value, dict):
        raise _broken(source, f"it holds a JSON {_kind(value)}, not an object")
    return Config(value, source, ("bom",) if data.startswith(codecs.BOM_UTF8) else ())


def _constant(text: str) -> float:
    # transformers writes NaN and Infinity into configs (rope, init ranges), so they are read here too.
    return float(text.replace("Infinity", "inf"))


def _kind(value: Any) -> str:
    return {list: "list", str: "text", bool: "boolean", type(None): "null"}.get(
        type(value), "number"
    )


def _broken(source: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"cannot read the config {source}",
        why=why,
        next_step="Copy config.json again from where the model came from, or remove it to go without.",
    )
