"""What a number that was saved may be."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
Number = Annotated[float, Meta(gt=-1e15, lt=1e15)]
