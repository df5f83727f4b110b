"""The form for a replay: drafting and verifying again, then changing one thing at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.panels.calls import Call
from workbench.panels.forms import (
    Field,
    FollowUp,
    Form,
    Option,
    Values,
    changed,
    given,
    required,
    text_of,
    whole,
)
from workbench.panels.keys import engines

if TYPE_CHECKING:
    from workbench.core.result import Result


def call(values: Values) -> Call:
    """Return the call of `replay`."""
    target = required(
        values, "target", "the target", "its checkpoint, or evidence with hidden states"
    )
    draft = required(values, "draft", "the draft", "a folder, a file, a Hub id or a URL")
    options: dict[str, Any] = {
        "prompts": text_of(values, "prompts"),
        "evidence": text_of(values, "evidence"),
        "engine": text_of(values, "engine"),
        "expected": _number_or_text(text_of(values, "expected")),
        "requests": whole(values, "requests", "Requests"),
        "draft_tokens": whole(values, "draft_tokens", "Draft tokens"),
        **dict(changed(FORM, values, "steps", "topk", "temperature", "new_tokens")),
    }
    left_out = unused(values)
    options = {name: value for name, value in options.items() if name not in left_out}
    return Call("replay", (target, draft), given(**options))


def _number_or_text(text: str) -> float | str:
    """Return a number where the text is one: an accept length; else it is a path."""
    try:
        return float(text)
    except ValueError:
        return text


def _has_models(result: Result) -> bool:
    from workbench.speculation.result import Replay

    return isinstance(result, Replay) and result.trial is not None


def changes_of(result: Result) -> Sequence[Option]:
    """Return the changes that can be tried on a replay, by what they are about."""
    from workbench.speculation.ablate.single_changes import changes
    from workbench.speculation.result import Replay

    if not isinstance(result, Replay) or result.trial is None:
        return ()
    return tuple(Option(one.words, one.name, one.fact) for one in changes(result.trial))


def _ablate(values: Values, before: Call, result: Result) -> Call:
    chosen = tuple(values.get("only") or ())
    everything = tuple(option.value for option in changes_of(result))
    if not chosen:
        raise WorkbenchError("nothing is selected", next_step="Select one or more, or all of them.")
    options: tuple[tuple[str, Any], ...] = ()
    if set(chosen) != set(everything):
        options = (("only", [name for name in everything if name in set(chosen)]),)
    if values.get("pairs") is False:
        options += (("pairs", False),)
    return Call("ablate", (), options, of=before)


def unused(values: Values) -> frozenset[str]:
    """Return the fields that evidence decides, and without it those of neither."""
    if text_of(values, "evidence"):
        return frozenset({"prompts", "steps", "topk", "draft_tokens", "temperature", "new_tokens"})
    return frozenset()


FORM = Form(
    name="replay",
    label="Replay",
    purpose="Drafts and verifies again, round by round: what is accepted, and why the rest is rejected. Then "
    "one thing is changed at a time.",
    fields=(
        Field("target", "Target", hint="its checkpoint, or a folder of evidence with hidden states"),
        Field("draft", "Draft", hint="the draft's checkpoint"),
        Field("evidence", "Evidence", hint="a recorded run, hidden states, metrics, or a log"),
        Field("prompts", "Or prompts", hint=".jsonl or .txt, answered by the target; not with evidence"),
        Field("engine", "Engine", "combo", hint="sglang==0.5.11, or trainer; empty: as the evidence ran",
              options=engines),
        Field("expected", "Expected", hint="accept length it should reach: a number, metrics, a healthy run"),
        Field("requests", "Requests", "short", hint="only the first so many; empty: all"),
        Field("steps", "Steps", "integer", 3, "with evidence, its launch decides", low=1, high=64),
        Field("topk", "Top k", "integer", 1, "width of the tree", low=1, high=64),
        Field("draft_tokens", "Draft tokens", "short", hint="nodes of the tree; empty: steps + 1"),
        Field("temperature", "Temperature", "number", 0.0, "of answers to prompts", low=0, high=10),
        Field("new_tokens", "New tokens", "integer", 64, "length of answers to prompts", low=1, high=4096),
    ),
    call=call,
    unused=unused,
    action=lambda values: "Replay",
    follow_up=FollowUp(
        action="Ablate selected",
        purpose="Each change is made alone on the same evidence. With all of them selected, a cause can be "
        "named; with some, only what each restores.",
        fields=(
            Field("only", "Changes", "checklist", ()),
            Field("pairs", "Pairs", "switch", True, "two changes together, where none alone is enough"),
        ),
        fits=_has_models,
        call=_ablate,
        options=changes_of,
    ),
)  # fmt: skip
