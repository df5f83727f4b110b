"""A launch of vLLM or TensorRT-LLM in front of its release."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

from workbench.facts import rows
from workbench.facts.engines import spoken
from workbench.launch.rules import click_options
from workbench.launch.rules.other_options import Read, read, speculative
from workbench.launch.rules.records import Served

TRTLLM = click_options.ENGINE
NGRAM = ("ngram", "[ngram]", "ngram_gpu")
LOOKUP = (*NGRAM, "suffix")
"""Methods that draft without a model."""


@dataclasses.dataclass(frozen=True)
class ServedElsewhere(Served):
    """A launch of vLLM or TensorRT-LLM in front of its release."""

    @cached_property
    def release(self) -> str:
        """The release of which the facts are."""
        engine = self.launch.engine
        return rows.known(engine, self.version) or rows.nearest(engine, self.version)

    @property
    def certain(self) -> bool:
        """Whether what follows from `release` counts; the rules of TensorRT-LLM see to it themselves."""
        return self.launch.engine == TRTLLM or self.read_in is not None

    @cached_property
    def read_in(self) -> str | None:
        """The release as it is on file; None for one that was not read."""
        return rows.known(self.launch.engine, self.version)

    @property
    def who(self) -> str:
        """The engine with its version, for a sentence."""
        return spoken(self.launch.engine, self.version)

    @cached_property
    def read(self) -> Read:
        """The words as the release's parser reads them."""
        return read(self.launch.options, self.release)

    def refuses(self, name: str) -> bool:
        """Whether the release has a refusal."""
        return rows.row_in("vllm", "refusal", name, self.release) is not None

    def place(self, name: str) -> str:
        """Where the release has it."""
        row = rows.row_in("vllm", "refusal", name, self.release)
        return row.place if row is not None else ""

    def number(self, key: str, default: int | None = None) -> int | None:
        """Return a whole number of the launch, by the name that launches are compared by."""
        value = self.launch.value(key)
        try:
            return default if value is None else int(value)
        except ValueError:
            return None

    @cached_property
    def speculation(self) -> dict[str, Any] | None:
        """The speculative configuration: {} without one, None where it is not known."""
        return speculative(self.read)

    @cached_property
    def method(self) -> str:
        """The method of the speculative configuration, as it is given."""
        return str((self.speculation or {}).get("method") or "")

    @property
    def speculates(self) -> bool:
        """Whether a draft model drafts."""
        return bool(self.speculation) and self.method not in LOOKUP
