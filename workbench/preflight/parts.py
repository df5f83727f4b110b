"""Parts of a target that text does not need: a checkpoint without any of their weights still serves text."""

from __future__ import annotations

import dataclasses
import re

from workbench.core.finding import Finding
from workbench.keys.records import KeyDiff
from workbench.loaders.registered import EAGLE_KIND, kind_of

_PART = re.compile(
    r"(?:^|\.)(?:vision_tower|vision_model|visual|vision_encoder|vit|mm_projector|multi_modal_projector"
    r"|audio_tower|audio_model|projector)\."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Without:
    """The part that a checkpoint holds nothing of.

    Attributes
    ----------
    names
        The parameters that are not filled, as the coverage lists them.
    note
        What follows from it.
    """

    names: frozenset[str] = frozenset()
    note: Finding | None = None


def _without_bias(name: str, model_class: str) -> Without:
    """Return the bias of fc, which some classes build by default, and many writers do not save."""
    step = "Serve with SGLang 0.4.9 or later, whose fc has no bias."
    if kind_of(model_class) == EAGLE_KIND:  # no release builds its fc without one
        step = "Add fc.bias, all zeros, to the draft, if acceptance is lower than in training."
    note = Finding(
        code="bias_of_fc",
        severity="note",
        title="this release gives fc a bias, which the draft does not have",
        detail="It keeps torch's small random values. Acceptance may be a little lower.",
        evidence_for=(f"{name} is not written",),
        next_step=step,
    )
    return Without(frozenset({name}), note)


def without(diff: KeyDiff, role: str) -> Without:
    """Return the part that is missing whole: every unfilled parameter is of it, and no key is."""
    bad = [g for g in diff.parameters if g.status in ("missing", "partial", "mismatched")]
    named = [g for g in bad if _PART.search(f"{g.text}.")]
    keys = any(_PART.search(f"{g.text}.") for g in diff.keys)
    if bad and role == "draft" and all(g.text.endswith("fc.bias") for g in bad):
        return _without_bias(bad[0].text, diff.model_class)
    if (
        not bad
        or role != "target"
        or len(named) < len(bad)
        or keys
        or any(g.status != "missing" for g in bad)
    ):
        return Without()
    count = sum(len(g.index) for g in bad)
    note = Finding(
        code="part_absent",
        severity="note",
        title="the target has no weights for images or sound",
        detail=f"{count} parameters of these parts stay uninitialised. Text is served; a request "
        "with an image gets a wrong answer.",
        evidence_for=tuple(g.text for g in bad[:3]),
        next_step="Give a checkpoint with these weights, if images are to be served.",
    )
    return Without(frozenset(g.text for g in bad), note)
