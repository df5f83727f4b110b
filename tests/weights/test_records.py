"""What a scan concludes of its tensors: which decide, in which groups; and nothing is lost on the way."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

import workbench
from tests.weights_samples import Pair, draft, experts, hostile, layer, pair, target
from workbench.checkpoint.config import Config
from workbench.errors import WorkbenchError
from workbench.weights.columns import MOST_HISTOGRAMS, Tensors
from workbench.weights.results import WeightScan


def scan(*pairs: Pair, **more: object) -> WeightScan:
    return WeightScan.build("checkpoint", pairs, **more)  # type: ignore[arg-type]


def codes(result: WeightScan) -> list[str]:
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize("make", [draft, target, hostile], ids=lambda make: make.__name__)
def test_saved_and_loaded_it_is_the_same(make: object, tmp_path: Path) -> None:
    result = make()  # type: ignore[operator]
    again = workbench.load(result.save(tmp_path / "scan.json"))
    assert again == result
    assert again.to_text(80) == result.to_text(80)
    assert again.payload() == result.payload()
    assert hash(again) == hash(result)


def test_what_is_no_number_is_null_in_json_and_comes_back() -> None:
    empty = pair(
        "x.weight", (64, 64), mean=math.nan, std=math.nan, max=math.inf, ks=None, verdict="invalid"
    )
    result = scan(empty, pair("y.weight", (8, 8), ks=(1.0, 2.0, math.nan), row_dispersion=3.5))
    row = json.loads(result.to_json())["tensors"][0]
    assert row["mean"] is None
    assert row["max"] is None
    again = WeightScan.from_dict(json.loads(result.to_json()))
    assert again == result
    assert math.isnan(again.tensors[0].mean)
    assert again.tensors[0].ks is None
    assert again.tensors[1].row_dispersion == 3.5
    assert again != target()


def test_a_row_is_what_was_measured_and_judged() -> None:
    measure, judgement = pair("a.weight", (32, 64), "at_init", zeros=3, exact_in_fp16=0.25)
    [row] = scan((measure, judgement)).tensors
    for record in (measure, judgement):
        for field in dataclasses.fields(record):
            assert getattr(row, field.name) == getattr(record, field.name), field.name


def test_tensors_by_number_name_and_slice() -> None:
    tensors = draft().tensors
    assert tensors["fc.weight"] == tensors[1]
    assert tensors[-1].name == "t2d"
    assert [row.name for row in tensors[0:2]] == ["embed_tokens.weight", "fc.weight"]
    assert "fc.weight" in tensors
    assert "fc" not in tensors
    assert tensors.column("std")[0] == tensors[0].std
    assert tensors.column("shape")[1] == (1024, 3072)
    with pytest.raises(IndexError):
        tensors[99]
    with pytest.raises(
        WorkbenchError, match=r"no tensor 'layers\.0\.self_attn\.q\.weight'"
    ) as raised:
        tensors["layers.0.self_attn.q.weight"]
    assert "Did you mean" in raised.value.next_step


def test_a_table_for_pandas() -> None:
    table = draft().to_pandas()
    assert list(table.name)[:2] == ["embed_tokens.weight", "fc.weight"]
    assert {"std", "kurtosis", "verdict", "reason", "statistic_tracy_widom"} <= set(table.columns)
    assert (table.verdict == "at_init").sum() == 9


# What decides.


def test_one_layer_at_init_is_one_finding() -> None:
    result = target()
    assert result.ok is False
    assert not result
    assert codes(result) == ["weights.at_init", "weights.norms_at_one"]
    found = result.findings[0]
    assert found.title.startswith("model.layers.17.*: 7 of 7 matrices are indistinguishable")
    assert "161 tensors of the same kinds in 23 layers look trained" in found.evidence_for
    assert found.confidence == "likely"
    assert "would not be seen" in found.evidence_against[0]


def test_a_healthy_one_is_ok_and_says_what_it_did_not_judge() -> None:
    result = draft(bad=False)
    assert result.ok is True
    assert result.summary == "All 10 matrices look trained."
    assert codes(result) == ["weights.not_weights"]
    assert result.findings[0].evidence_for == ("d2t", "t2d")


def test_layers_of_one_kind_are_one_finding_and_other_kinds_are_not_accused() -> None:
    pairs = [
        pair(
            f"model.layers.{n}.{kind}.weight",
            (64, 64),
            "at_init" if kind == "o_proj" else "trained",
        )
        for n in range(6)
        for kind in ("q_proj", "o_proj")
    ]
    result = scan(*pairs)
    [found] = result.findings
    assert found.title.startswith(
        "model.layers.{0...5}.o_proj.weight (6 tensors) are indistinguishable"
    )


def test_single_experts_are_named_with_all_their_matrices() -> None:
    [found] = experts().findings
    stem = "language_model.model.layers"
    wanted = (f"{stem}.3.mlp.experts.17", f"{stem}.3.mlp.experts.40", f"{stem}.9.mlp.experts.5")
    assert found.evidence_for[0] == f"exactly {', '.join(wanted)}"
    assert found.title.startswith(
        "language_model.model.layers.{3, 9}.mlp.experts.{5, 17, 40}.*: 9 of 9 matrices"
    )


def test_where_all_is_at_init_it_says_all() -> None:
    result = scan(*layer("layers.0", bad=True))
    assert result.findings[0].title.startswith("All 7 matrices are indistinguishable")
    assert result.ok is False


@pytest.mark.parametrize(
    ("made", "ok", "code"),
    [
        (pair("fc.weight", (64, 64), "zeros"), False, "weights.constant"),
        (pair("fc.weight", (64, 64), verdict="invalid", nan=3), False, "weights.invalid"),
        (pair("norm.weight", (64,), verdict="invalid", inf=3), False, "weights.invalid"),
        (pair("fc.weight", (64, 64), verdict="invalid", family="memory"), False, "weights.memory"),
        (pair("fc.weight", (64, 64), verdict="undecided"), None, "weights.undecided"),
        (pair("fc.weight", (64, 64), verdict="undecided", seen=0), None, "weights.unread"),
        (pair("type_embed.weight", (2, 64), verdict="undecided"), True, "weights.too_small"),
        (pair("pooler.dense.weight", (64, 64), "at_init"), None, "weights.seldom_read"),
        (pair("embed_tokens.weight", (64, 64), verdict="invalid", nan=4096), None, "weights.filled_later"),
        (pair("embed_tokens.weight", (64, 64), verdict="invalid", nan=4), False, "weights.invalid"),
        (
            pair("model.embed_tokens.weight", (64, 64), verdict="invalid", nan=4096),
            False,
            "weights.invalid",
        ),
        (pair("a.norm.weight", (64,), "ones"), True, "weights.norms_at_one"),
        (pair("a.bias", (64,), verdict="at_init", family="zeros"), True, "weights.biases_at_zero"),
        (pair("a.bias", (64,), verdict="undecided"), True, ""),
        (pair("rotary_emb.inv_freq", (32, 32), "at_init"), True, "weights.not_weights"),
        (pair("d2t", (64, 64), dtype="I64", verdict="undecided"), True, "weights.not_weights"),
        (pair("q.weight", (64, 64), "at_init", dtype="I32", layout="gptq"), False, "weights.at_init"),
        (pair("q.packed", (64, 64), dtype="I32", verdict="undecided", seen=0), None, "weights.unread"),
    ],
    ids=str,
)  # fmt: skip
def test_one_odd_tensor_among_trained_ones(made: Pair, ok: bool | None, code: str) -> None:
    result = scan(made, pair("x.weight", (64, 64)), pair("y.weight", (64, 64)))
    assert result.ok is ok
    assert codes(result) == [code] * bool(code)


def test_nothing_to_judge_is_no_all_clear() -> None:
    for result in (scan(), scan(pair("a.bias", (64,)))):
        assert result.ok is None
        assert "Cannot tell" in result.summary
        assert result.to_text(80)
        assert result.payload()


def test_an_interrupted_scan_is_no_all_clear_but_keeps_what_it_found() -> None:
    assert scan(pair("x.weight", (64, 64)), interrupted=True).ok is None
    bad = scan(pair("x.weight", (64, 64), "at_init"), pair("y.weight", (9, 9)), interrupted=True)
    assert bad.ok is False
    assert "weights.interrupted" in codes(bad)


def test_what_a_file_may_leave_to_the_engine_is_broken_in_the_engine() -> None:
    made = pair("embed_tokens.weight", (64, 64), verdict="invalid", nan=4096)
    assert scan(made, pair("x.weight", (64, 64))).ok is None
    assert scan(made, pair("x.weight", (64, 64)), kind="server").ok is False


def test_a_server_is_told_other_next_steps() -> None:
    found = scan(pair("x.weight", (64, 64), "at_init"), kind="server").findings[0]
    assert "workbench diff" in found.next_step


def test_equal_bytes_are_named_and_tied_heads_are_no_copies() -> None:
    result = scan(
        pair("model.layers.0.fc.weight", (64, 64), digest="same"),
        pair("model.layers.1.fc.weight", (64, 64), digest="same"),
        pair("model.embed_tokens.weight", (64, 64), digest="tied"),
        pair("lm_head.weight", (64, 64), digest="tied"),
        pair("a.weight", (4, 4), digest="tiny"),
        pair("b.weight", (4, 4), digest="tiny"),
    )
    assert codes(result) == ["weights.copies", "weights.tied"]
    assert result.findings[0].evidence_for == ("model.layers.{0...1}.fc.weight",)
    assert result.ok is True


def test_the_config_may_be_given() -> None:
    assert scan(pair("x.weight", (64, 64)), config=Config()).ok is True


def test_of_40_000_tensors_the_odd_one_is_found() -> None:
    trained = pair("x", (2048, 7168))
    measure, judgement = dataclasses.replace(trained[0], quantiles=()), trained[1]

    def pairs() -> list[Pair]:
        found = [
            (
                dataclasses.replace(
                    measure, name=f"model.layers.{n}.mlp.experts.{e}.up_proj.weight", digest=""
                ),
                judgement,
            )
            for n in range(80)
            for e in range(500)
        ]
        name = "model.layers.61.mlp.experts.123.up_proj.weight"
        found[61 * 500 + 123] = pair(name, (2048, 7168), "at_init")
        return found

    result = WeightScan.build("big", pairs())
    assert result.ok is False
    assert result.findings[0].title.startswith("model.layers.61.mlp.experts.123.up_proj.weight is")
    assert len(result.to_text(80).splitlines()) < 60
    assert result.tensors[0].bins is not None
    assert result.tensors[MOST_HISTOGRAMS + 1].bins is None
    assert result.tensors["model.layers.61.mlp.experts.123.up_proj.weight"].bins is not None
    shown = result.payload(limit=60_000)
    assert shown["tensors"]["rows"] == 40_000
    assert 0 < len(shown["tensors"]["template"]) < 40_000
    assert shown["tensors"]["left_out"] == 40_000 - len(shown["tensors"]["template"])
    assert sum(shown["maps"][0]["count"]) == 40_000
    assert shown["tensors"]["state"][0] == shown["states"].index("at_init")


def test_columns_hold_what_rows_do() -> None:
    tensors = Tensors([pair("a", (2, 2), power=None), pair("b", (2, 2), power=0.5)])
    assert np.isnan(tensors.column("power")[0])
    assert tensors.column("power")[1] == 0.5
    assert tensors[0].power is None


def test_a_stack_of_few_experts_is_not_small() -> None:
    stack = pair("experts.gate_up_proj", (8, 256, 512), verdict="undecided")
    assert scan(stack, pair("x.weight", (64, 64))).ok is None
