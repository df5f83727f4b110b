"""The cases are whole, and the runner counts what it should."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from . import material
from .__main__ import listed, summary, table
from .case import UnseenCase, case
from .judge import Judged, outcome_of, read_cases

CASES = read_cases()


def made(**more: object) -> UnseenCase:
    fields = {"healthy": False, "ok": (False,), "kind": "k", "why": "w", "url": "https://x"} | more
    return UnseenCase("one", lambda _: None, **fields)  # type: ignore[arg-type]


def test_half_are_healthy_and_each_has_its_source() -> None:
    assert len(CASES) >= 90
    assert sum(one.healthy for one in CASES) * 2 >= len(CASES)
    assert {one.call for one in CASES} == {"scan", "compare", "target"}
    for one in CASES:
        assert one.url.startswith("https://")
        assert one.why
        assert one.healthy or False in one.ok
        assert not one.healthy or True in one.ok
        assert one.healthy or one.names


def test_two_cases_of_one_name_are_refused() -> None:
    add = case("k", "w", "https://x", healthy=True, ok=(True,))

    def control(_: Path) -> None:
        raise AssertionError

    with pytest.raises(ValueError, match="two cases are called control"):
        add(control)


def test_outcomes() -> None:
    assert outcome_of(made(names=("up_proj",)), False, "UP_PROJ is wrong", []) == ("right", "")
    assert outcome_of(made(names=("up_proj",)), False, "something", [])[0] == "unnamed"
    assert outcome_of(made(), None, "", [])[0] == "abstained"
    assert outcome_of(made(), True, "", [])[0] == "false all-clear"
    assert outcome_of(made(may="up"), False, "", ["up"])[0] == "right"
    assert outcome_of(made(may="up"), False, "", ["up", "down"]) == (
        "wrong accusation",
        "calls down",
    )
    assert outcome_of(made(never=("nobody",)), False, "Nobody", [])[0] == "wrong accusation"
    healthy = made(healthy=True, ok=(True, None))
    assert [outcome_of(healthy, ok, "", [])[0] for ok in (True, None, False)] == [
        "right",
        "right",
        "wrong accusation",
    ]


def test_what_came_out_is_counted() -> None:
    judged = [
        Judged(made(changed="why"), "right", "False", "a"),
        Judged(made(healthy=True, ok=(True,)), "abstained", "None", "b"),
    ]
    assert "| all | 2 | 1 | 1 | 0 | 0 | 0 | 0 | 0 |" in table(judged)
    assert "changed after the run: why" in listed(judged)
    assert summary(judged).startswith("1 of 2 right, 1 abstained, 0 unnamed, 0 wrong accusations")


def test_a_rotation_leaves_the_function_as_it_was() -> None:
    before, after = material.llama(), material.rotated(material.llama())
    place = "model.layers.0."
    scale = before[place + "input_layernorm.weight"].float()
    head = before["model.embed_tokens.weight"][:8].float()
    turned = after["model.embed_tokens.weight"][:8].float()
    for part in ("q_proj", "v_proj"):
        name = f"{place}self_attn.{part}.weight"
        expected = head * scale @ before[name].float().T
        assert torch.allclose(
            turned @ after[name].float().T, expected, atol=0.05 * float(expected.abs().max())
        )


def test_an_adapter_is_trained() -> None:
    first, second = material.adapter("self_attn.q_proj", 0)
    wanted = material.linear("self_attn.q_proj", 1) - material.linear("self_attn.q_proj", 0)
    data = material.inputs()[:512]
    left = (data @ (wanted - 2 * second @ first).T).pow(2).mean() / (data @ wanted.T).pow(2).mean()
    assert float(left) < 0.9
