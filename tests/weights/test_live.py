"""Weights read from a running server: a real SGLang, and servers that answer wrongly."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import workbench
from workbench.errors import WorkbenchError
from workbench.weights import live, server
from workbench.weights.results import WeightScan
from workbench.weights.scan import scan_weights

from .served_weights import Array, Engine, as_engine, notes, scan_of, serving, weights


def test_the_engine_holds_what_the_file_says(checkpoint: Path) -> None:
    with serving(Engine(as_engine(weights()), model_path=str(checkpoint))) as address:
        result = scan_of(checkpoint).compare(address)
    assert result.ok is True
    assert len(result.names("identical")) == len(weights())
    assert "never returns the draft's weights" in notes(result)


def test_a_parameter_that_was_never_loaded_stands_out(checkpoint: Path) -> None:
    held = as_engine(weights())
    held["model.layers.0.self_attn.qkv_proj.weight"][64:96] = 0  # k_proj
    held["model.layers.0.mlp.down_proj.weight"][5, 5] = np.nan
    with serving(Engine(held, model_path=str(checkpoint))) as address:
        result = scan_of(checkpoint).compare(address)
        other_way = WeightScan.build(address, [], kind="server").compare(checkpoint)
    assert result.names("changed") == ("model.layers.0.self_attn.k_proj.weight",)
    assert result.changes["model.layers.0.self_attn.k_proj.weight"].change == 1.0
    assert result.names("invalid") == ("model.layers.0.mlp.down_proj.weight",)
    assert result.ok is False
    assert other_way.names("invalid") == result.names("invalid")
    assert other_way.before == address


def test_other_values_in_the_engine_are_a_mistake_and_rounding_is_none(checkpoint: Path) -> None:
    held = as_engine(weights())
    held = {name: value * np.float32(1.002) for name, value in held.items()}
    with serving(Engine(held, model_path=str(checkpoint))) as address:
        rounded = scan_of(checkpoint).compare(address)
    held["model.layers.0.self_attn.qkv_proj.weight"][64:96] = 0  # k_proj was never loaded
    with serving(Engine(held, model_path=str(checkpoint))) as address:
        differs = scan_of(checkpoint).compare(address)
        copy = checkpoint.with_name("copy")
        shutil.copytree(checkpoint, copy)
        other = scan_of(copy).compare(address)
    assert rounded.ok is True
    assert {finding.code for finding in rounded.findings} == {"weights.engine_rounded"}
    assert differs.ok is False
    assert differs.findings[0].code == "weights.engine_differs"
    assert "k_proj" in differs.findings[0].detail
    # Of another checkpoint it is a fact, as between two files.
    assert other.ok is True


def test_one_rank_of_two_is_laid_beside_its_own_rows(checkpoint: Path) -> None:
    with serving(
        Engine(as_engine(weights(), ranks=2), model_path=str(checkpoint), tp_size=2)
    ) as address:
        result = scan_of(checkpoint).compare(address)
    assert result.ok is True
    row = result.changes["model.layers.0.self_attn.k_proj.weight"]
    assert row.state == "identical"
    assert row.compared == 16 * 64
    assert "only rank 0 of 2" in notes(result)
    assert "read in part" in notes(result)


def test_a_cut_that_is_not_understood_is_not_compared(checkpoint: Path) -> None:
    held = as_engine(weights())
    held["model.layers.0.mlp.gate_up_proj.weight"] = held["model.layers.0.mlp.gate_up_proj.weight"][
        :100
    ]
    with serving(Engine(held, model_path=str(checkpoint))) as address:
        result = scan_of(checkpoint).compare(address)
    assert result.ok is None
    row = result.changes["model.layers.0.mlp.gate_proj.weight"]
    assert row.state == "unread"
    assert "the shape of the answer" in row.reason
    assert "2 tensors not compared: the shape of the answer" in notes(result)


def test_the_draft_is_never_answered_with_the_target(checkpoint: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    save_file(weights(9), draft / "model.safetensors")  # named as the target's
    engine = Engine(
        as_engine(weights()), model_path=str(checkpoint), speculative_draft_model_path=str(draft)
    )
    with serving(engine) as address:
        with pytest.raises(WorkbenchError, match="is the server's draft"):
            scan_of(draft).compare(address)
        assert "the draft" in notes(scan_weights(address))
        copy = tmp_path / "copy"
        draft.rename(copy)
        result = scan_of(copy).compare(address)
    assert not [name for name, _ in engine.asked if "draft" in name]
    assert "is not the checkpoint that the server names" in notes(result)


def test_a_scan_takes_names_from_the_servers_own_checkpoint(checkpoint: Path) -> None:
    with serving(Engine(as_engine(weights()), model_path=str(checkpoint))) as address:
        result = scan_weights(address)
        some = scan_weights(address, names="*.down_proj.*")
    assert result.kind == "server"
    assert result.source == address
    assert set(result.tensors.names) == set(weights())
    row = result.tensors["model.layers.0.self_attn.k_proj.weight"]
    assert row.dtype == "BF16"  # its values are exact in it
    assert row.std == pytest.approx(weights()[row.name].std(), rel=1e-6)
    assert some.tensors.names == ("model.layers.0.mlp.down_proj.weight",)
    assert "server" in result.to_text(80)


def test_exact_names_need_no_checkpoint_and_what_has_none_is_told() -> None:
    engine = Engine(as_engine(weights()), model_path="/nowhere/at/all")
    with serving(engine) as address:
        result = scan_weights(address, names=["lm_head.weight", "midlayer.x.weight"])
        with pytest.raises(WorkbenchError, match="names of the server's parameters are not known"):
            scan_weights(address)
        with pytest.raises(WorkbenchError, match="returned no weights"):
            scan_weights(address, names=["nothing"])
    assert result.tensors.names == ("lm_head.weight",)
    assert "weights.not_seen" in {finding.code for finding in result.findings}
    assert result.tensors[0].shape == (128, 64)
    assert "1 tensor not answered" in notes(result)


def test_what_is_large_is_read_in_part_or_not_asked_for(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_VALUES", 64 * 10)
    monkeypatch.setattr(live, "MOST_ELEMENTS", 64 * 110)
    engine = Engine(as_engine(weights()), model_path=str(checkpoint))
    with serving(engine) as address:
        part = scan_weights(address, names=["lm_head.weight"])
        whole = scan_weights(address)
    assert part.tensors[0].shape == (10, 64)
    assert "read in part" in notes(part)
    assert "not requested" in notes(whole)
    assert ("model.layers.0.mlp.gate_up_proj.weight", 321) not in engine.asked
    assert max(rows for name, rows in engine.asked if name == "lm_head.weight") < 200


def test_nan_and_replicas() -> None:
    held = as_engine(weights())
    held["lm_head.weight"][3, 3] = np.inf
    with serving(Engine(held, dp_size=2)) as address:
        result = scan_weights(address, names=["lm_head.weight"])
    assert result.tensors[0].nan == 1
    assert result.ok is False
    assert "of the first of 2 replicas" in notes(result)


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.11", "0.5.14"])
def test_a_real_sglang(version: str, tmp_path: Path) -> None:
    from tests.engines.serve import serve

    with serve(version, tmp_path) as running:
        running.wait_ready()
        address = f"http://127.0.0.1:{running.port}"
        result = scan_weights(address)
        model = tmp_path / "model"
        assert result.kind == "server"
        assert len(result.tensors) == len(workbench.open_checkpoint(model).names)
        # Its weights were never trained, and it is not said that they were.
        assert result.ok is False
        assert result.findings[0].title.startswith("All 16 matrices are indistinguishable")
        assert f"answered by SGLang {version}" in notes(result)
        compared = scan_of(model).compare(address)
        assert len(compared.names("identical")) == len(result.tensors)
        fused = scan_weights(
            address, names=["model.layers.0.self_attn.qkv_proj.weight", "midlayer.x"]
        )
        assert fused.tensors[0].shape == (256, 128)
        assert "1 tensor not answered" in notes(fused)
        assert running.process.poll() is None


def test_names_past_the_limit_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_MOST_NAMES", 1)
    with serving(Engine(as_engine(weights()))) as address:
        result = scan_weights(address, names=["lm_head.weight", "model.norm.weight"])
    assert result.tensors.names == ("lm_head.weight",)
    assert "1 tensor not requested: interrupted, or too many at once (model.norm.weight)" in notes(
        result
    )


def test_interrupted_it_keeps_what_was_answered(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = server.Server.weight

    def weight(self: server.Server, name: str, rows: int) -> Array | None:
        if name == "model.norm.weight":
            raise KeyboardInterrupt
        return plain(self, name, rows)

    monkeypatch.setattr(server.Server, "weight", weight)
    with serving(Engine(as_engine(weights()), model_path=str(checkpoint))) as address:
        by_file = scan_weights(address)
        by_name = scan_weights(address, names=["lm_head.weight", "model.norm.weight", "x"])
    for result in (by_file, by_name):
        assert result.interrupted
        assert result.ok is not True
        assert "lm_head.weight" in result.tensors
        assert "model.norm.weight" not in result.tensors
        assert "interrupted" in notes(result)
