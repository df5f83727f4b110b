"""The form for keys: what an engine does with a checkpoint's keys, and a repaired copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from workbench.panels.calls import Call
from workbench.panels.forms import Field, FollowUp, Form, Option, Values, given, required, text_of

if TYPE_CHECKING:
    from workbench.core.result import Result


def engines() -> Sequence[Option]:
    """Return the engines and releases that profiles are kept for, the newest first."""
    return tuple(Option(text, text) for text in _engines())


def _engines() -> Iterator[str]:
    from packaging.version import Version

    from workbench.loaders import registry

    for engine, rooms in registry.ROOMS.items():
        yield engine
        known = set(getattr(import_module(rooms[0]), "RELEASES", ()))
        for profile in registry.profiles(engine):
            known.update((profile.first, profile.last, *profile.verified))
        for version in sorted(known, key=Version, reverse=True):
            yield f"{engine}=={version}"


def call(values: Values) -> Call:
    """Return the call of `diff_keys`."""
    ckpt = required(values, "ckpt", "the checkpoint", "a folder, a file, a Hub id or a URL")
    model = required(values, "model", "the engine", "sglang==0.5.11, or another checkpoint")
    options = given(**{name: text_of(values, name) for name in ("target", "python", "launch")})
    return Call("diff_keys", (ckpt, model), options)


def _repairable(result: Result) -> bool:
    from workbench.keys.records import KeyDiff
    from workbench.loaders import registry

    if not isinstance(result, KeyDiff) or not registry.is_engine(result.model):
        return False
    return any(rename.proved for rename in result.renames) or result.outcome == "refused"


def _repair(values: Values, before: Call, result: Result) -> Call:
    from workbench.keys.records import KeyDiff

    assert isinstance(result, KeyDiff)
    out = required(values, "out", "the folder of the copy", "a folder that does not exist yet")
    if before.is_given:
        return Call("fix_checkpoint", (result.checkpoint, result.model, out))
    target = dict(before.options).get("target")
    return Call("fix_checkpoint", (*before.args, out), given(target=target))


FORM = Form(
    name="keys",
    label="Keys",
    purpose="Which keys the engine loads, which it drops, and which rename repairs that. Only headers are "
    "read.",
    fields=(
        Field("ckpt", "Checkpoint", hint="folder, file, Hub id or URL"),
        Field("model", "Engine", "combo", hint="sglang==0.5.11, or another checkpoint", options=engines),
        Field("target", "Target", hint="of a draft: its shapes and vocabulary are checked against it"),
        Field("launch", "Launch line", hint="python -m sglang.launch_server --model-path …"),
        Field("python", "Engine's Python", hint="/path/to/venv/bin/python: its real loader runs there"),
    ),
    call=call,
    action=lambda values: "Compare keys",
    follow_up=FollowUp(
        action="Write repaired copy",
        purpose="A copy whose keys and config this engine loads. The bytes of the tensors stay as they are.",
        fields=(Field("out", "Folder", hint="a folder that does not exist yet"),),
        fits=_repairable,
        call=_repair,
    ),
)  # fmt: skip
