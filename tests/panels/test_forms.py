"""The forms without widgets: what is filled in, the call it stands for, and what is missing."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

import workbench
from workbench.errors import WorkbenchError
from workbench.panels import hang, keys, replay, weights
from workbench.panels.calls import GIVEN, Call
from workbench.panels.forms import Form
from workbench.panels.session import FORMS


def code(form: Form, **values: Any) -> str:
    return form.call(form.defaults() | values).code()


@pytest.mark.parametrize(
    ("form", "values", "expected"),
    [
        (hang.FORM, {"server": 4711}, "workbench.attach(4711)"),
        (
            hang.FORM,
            {"server": 4711, "snapshots": 3, "native": True, "log": "s.log"},
            "workbench.attach(4711, snapshots=3, native=True, log='s.log')",
        ),
        (hang.FORM, {"server": 4711, "interval": 5.0}, "workbench.attach(4711, interval=5.0)"),
        (hang.FORM, {"path": "case.zip"}, "workbench.open_evidence('case.zip')"),
        # A case wins over the server that happens to be first in the list, and its options mean nothing.
        (
            hang.FORM,
            {"path": " 'case.zip' ", "server": 4711, "snapshots": 9, "log": "x"},
            "workbench.open_evidence('case.zip')",
        ),
        (
            keys.FORM,
            {"ckpt": "draft", "model": "sglang==0.5.11"},
            "workbench.diff_keys('draft', 'sglang==0.5.11')",
        ),
        (
            keys.FORM,
            {"ckpt": "d", "model": "vllm", "target": "t", "launch": "python -m x", "python": "/p"},
            "workbench.diff_keys('d', 'vllm', target='t', python='/p', launch='python -m x')",
        ),
        (weights.FORM, {"ckpt": "c"}, "workbench.scan_weights('c')"),
        (
            weights.FORM,
            {"ckpt": "c", "names": "*.mlp.*, norm", "sample": "0.05", "device": "cuda"},
            "workbench.scan_weights('c', names=['*.mlp.*', 'norm'], sample=0.05, device='cuda')",
        ),
        (weights.FORM, {"ckpt": "c", "sample": "128"}, "workbench.scan_weights('c', sample=128)"),
        (
            replay.FORM,
            {"target": "t", "draft": "d", "prompts": "p.jsonl", "steps": 4, "draft_tokens": "8"},
            "workbench.replay('t', 'd', prompts='p.jsonl', draft_tokens=8, steps=4)",
        ),
        # The launch of the evidence decides, so the form's own numbers are not passed.
        (
            replay.FORM,
            {"target": "t", "draft": "d", "evidence": "run", "steps": 4, "prompts": "p",
             "expected": "2.5", "requests": "24", "draft_tokens": "8"},
            "workbench.replay('t', 'd', evidence='run', expected=2.5, requests=24)",
        ),
        (
            replay.FORM,
            {"target": "t", "draft": "d", "evidence": "run", "expected": "report.json"},
            "workbench.replay('t', 'd', evidence='run', expected='report.json')",
        ),
    ],
)  # fmt: skip
def test_the_call_holds_what_was_chosen_and_no_defaults(
    form: Form, values: dict[str, Any], expected: str
) -> None:
    assert code(form, **values) == expected


@pytest.mark.parametrize("name", FORMS)
def test_every_argument_of_a_call_is_one_of_the_function(name: str) -> None:
    filled = {
        "hang": {"server": 1, "snapshots": 3, "interval": 1.0, "native": True, "log": "l"},
        "keys": {"ckpt": "c", "model": "m", "target": "t", "launch": "l", "python": "p"},
        "weights": {"ckpt": "c", "names": "n", "sample": "1", "device": "cuda", "target": "t"},
        "replay": {
            "target": "t", "draft": "d", "prompts": "p", "engine": "vllm", "expected": "1", "requests": "1",
            "steps": 1, "topk": 2, "draft_tokens": "3", "temperature": 1.0, "new_tokens": 1,
        },
    }[name]  # fmt: skip
    form = FORMS[name]
    assert set(filled) | {"path", "evidence"} >= {field.name for field in form.fields}
    call = form.call(form.defaults() | filled)
    signature = inspect.signature(getattr(workbench, call.function))
    bound = signature.bind(*call.args, **dict(call.options))
    # Nothing that was filled in is lost on the way.
    assert len(bound.arguments) == len(filled)


@pytest.mark.parametrize(
    ("form", "values", "says"),
    [
        (hang.FORM, {}, "neither a server nor a case"),
        (keys.FORM, {"model": "sglang"}, "the checkpoint is missing"),
        (keys.FORM, {"ckpt": "c", "model": "  "}, "the engine is missing"),
        (weights.FORM, {}, "the checkpoint is missing"),
        (weights.FORM, {"ckpt": "c", "sample": "many"}, "'many' is not a number"),
        (weights.FORM, {"ckpt": "c", "names": "'open"}, "cannot be read as a list"),
        (replay.FORM, {"draft": "d"}, "the target is missing"),
        (replay.FORM, {"target": "t"}, "the draft is missing"),
        (replay.FORM, {"target": "t", "draft": "d", "requests": "2.5"}, "'2.5' is not a number"),
    ],
)
def test_what_is_missing_or_wrong_is_named_with_the_next_step(
    form: Form, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(WorkbenchError) as caught:
        form.call(form.defaults() | values)
    assert says in str(caught.value)
    assert caught.value.next_step


def test_a_long_call_is_one_argument_a_line_and_still_python() -> None:
    call = Call("diff_keys", ("a" * 60, "sglang==0.5.11"), (("target", "b" * 40),))
    text = call.code()
    assert text.count("\n") == 4
    assert ast.parse(text)


def test_a_method_is_called_on_the_result_of_its_call() -> None:
    first = Call("replay", ("t", "d"))
    assert (
        Call("ablate", (), (("only", ["x"]),), of=first).code()
        == "result = workbench.replay('t', 'd')\nresult.ablate(only=['x'])"
    )
    # Of a result that the reader already had, only the method is known.
    assert Call("ablate", of=GIVEN).code() == "result.ablate()"


def test_the_engines_offered_are_those_that_diff_keys_knows() -> None:
    from workbench.loaders import registry

    offered = [option.value for option in keys.engines()]
    assert offered[0] == "sglang"
    assert "sglang==0.5.11" in offered
    assert len(offered) == len(set(offered))
    for text in offered:
        assert registry.parse(text).name in registry.ROOMS


def test_fields_that_mean_nothing_are_named() -> None:
    assert hang.FORM.unused({"path": "case.zip"}) >= {"server", "snapshots", "interval"}
    assert not hang.FORM.unused({"path": " "})
    assert "steps" in replay.FORM.unused({"evidence": "run"})
    assert not replay.FORM.unused({})
