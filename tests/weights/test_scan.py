"""`scan_weights`: what it reads and how, from a checkpoint to the result."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.conftest import ROOT
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.weights import pool, reading
from workbench.weights.faults import _PADDED
from workbench.weights.measure import take_piece
from workbench.weights.scan import scan_weights

DRAFT = ROOT / "data" / "incident" / "drafts" / "specforge"
TARGET = ROOT / "data" / "incident" / "target"


def layers(folder: Path, count: int = 6, side: int = 192) -> Path:
    """Write layers of which layer 2 is as `torch.nn.init` drew it and the others have structure."""
    torch.manual_seed(0)
    tensors: dict[str, torch.Tensor] = {}
    for layer in range(count):
        weight = torch.randn(side, side) * 0.02
        if layer != 2:
            left, right = (torch.randn(side) * torch.randn(side).exp() for _ in range(2))
            weight += torch.outer(left, right) * 0.02
        tensors[f"layers.{layer}.mlp.up_proj.weight"] = weight.bfloat16()
        tensors[f"layers.{layer}.norm.weight"] = (1 + torch.randn(side) * 0.1).bfloat16()
    folder.mkdir(exist_ok=True, parents=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": side}))
    return folder


def test_one_layer_at_init_is_found(tmp_path: Path) -> None:
    scan = scan_weights(layers(tmp_path))
    verdicts = {tensor.name: tensor.verdict for tensor in scan.tensors}
    assert verdicts.pop("layers.2.mlp.up_proj.weight") == "at_init"
    assert set(verdicts.values()) == {"trained"}
    assert scan.ok is False
    assert scan.kind == "checkpoint"
    assert scan.bytes_read == sum(t.nbytes for t in open_checkpoint(tmp_path).table)
    assert scan.sampled is None
    assert not scan.interrupted
    assert scan.notes == ()


def test_the_shipped_target_and_draft_look_trained() -> None:
    for path in (TARGET, DRAFT):
        scan = scan_weights(path)
        assert scan.ok is True
        assert [tensor.name for tensor in scan.tensors] == list(open_checkpoint(path).names)


def test_paths_open_checkpoints_and_texts_give_the_same(tmp_path: Path) -> None:
    folder = layers(tmp_path, 3)
    one = scan_weights(folder).to_dict()
    assert scan_weights(str(folder)).to_dict() == one
    assert scan_weights(open_checkpoint(folder)).to_dict() == one


@pytest.mark.parametrize(
    ("names", "count"),
    [
        ("layers.1.norm.weight", 1),
        ("*.up_proj.*", 6),
        (["layers.[01].*", "layers.5.norm.weight"], 5),
        (("layers.0.*", "layers.0.norm.weight"), 2),
    ],
)
def test_names(tmp_path: Path, names: Any, count: int) -> None:
    scan = scan_weights(layers(tmp_path), names=names)
    assert len(scan.tensors) == count
    said = f"nly {count} of 12 weights {'was' if count == 1 else 'were'} requested"
    assert said in scan.summary
    assert any(said in text for text in scan.verdict.missing)
    for text in (scan.to_text(200), scan.to_markdown()):
        assert said in text


def test_names_that_leave_nothing_out_limit_nothing() -> None:
    whole = scan_weights(DRAFT, names="*")
    assert (whole.ok, whole.summary) == (True, scan_weights(DRAFT).summary)
    assert "requested" not in whole.summary + "".join(whole.verdict.missing)


def test_unknown_names_are_refused_with_near_ones(tmp_path: Path) -> None:
    folder = layers(tmp_path)
    with pytest.raises(WorkbenchError, match=r"layers\.1\.norm\.weight") as caught:
        scan_weights(folder, names="layer.1.norm.weight")
    assert "Did you mean" in caught.value.next_step
    with pytest.raises(WorkbenchError, match=r"has no weight 'none\.\*'"):
        scan_weights(folder, names=["layers.0.*", "none.*"])
    with pytest.raises(WorkbenchError, match="not text"):
        scan_weights(folder, names=[3])  # type: ignore[list-item]


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path) -> None:
    save_file({"w[0]": torch.ones(3), "w0": torch.ones(3)}, tmp_path / "m.safetensors")
    scan = scan_weights(tmp_path / "m.safetensors", names="w[0]")
    assert [tensor.name for tensor in scan.tensors] == ["w[0]"]


def test_a_sample_says_that_it_is_one(tmp_path: Path) -> None:
    scan = scan_weights(layers(tmp_path, side=512), sample=64)
    matrix = scan.tensors["layers.0.mlp.up_proj.weight"]
    assert (matrix.seen, matrix.count, matrix.digest) == (64 * 512, 512 * 512, "")
    assert scan.sampled == 64 * 512
    assert any(note.startswith("a sample: ") for note in scan.notes)
    assert scan.bytes_read == 6 * 2 * (64 * 512 + 512)
    assert scan.ok is not True or "sample" in scan.summary


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_part_that_was_never_filled_leaves_it_open(
    tmp_path: Path, dtype: torch.dtype, axis: int
) -> None:
    target = open_checkpoint(ROOT / "data/incident/target")
    names = ("model.layers.0.mlp.down_proj.weight", "model.embed_tokens.weight")
    tensors = {name: target.tensor(name).to(dtype).contiguous() for name in names}

    def scan(**put: torch.Tensor) -> Any:
        save_file(
            tensors | {f"model.{k}.weight": v for k, v in put.items()}, tmp_path / "m.safetensors"
        )
        return scan_weights(tmp_path / "m.safetensors")

    down, embed = (tensors[name].clone() for name in names)
    assert scan().ok is True
    down.narrow(axis, 0, down.shape[axis] // 2).zero_()
    found = scan(**{"layers.0.mlp.down_proj": down})
    assert found.ok is None
    what = ("rows", "columns")[axis]
    assert f"50 % of the {what} are all zeros" in found.summary
    assert getattr(found.tensors[names[0]], f"empty_{what}") == 0.5
    embed.narrow(axis, 0, embed.shape[axis] // 4).zero_()
    found = scan(embed_tokens=embed)
    assert found.ok is True
    assert "weights.padded" in [finding.code for finding in found.findings]
    tiny = tensors[names[0]].clone()
    tiny.narrow(axis, 0, tiny.shape[axis] // 2).fill_(2.0**-90)  # whose square is zero in float32
    assert getattr(scan(**{"layers.0.mlp.down_proj": tiny}).tensors[names[0]], f"empty_{what}") == 0


@pytest.mark.parametrize(
    ("name", "padded"),
    [
        ("model.embed_tokens.weight", True), ("lm_head.weight", True), ("shared.weight", True),
        ("token_embd.weight", True), ("output.weight", True), ("transformer.output_layer.weight", True),
        ("bert.embeddings.word_embeddings.weight", True), ("cls.predictions.decoder.weight", True),
        ("text_embedder.layers.0.q_proj.weight", False), ("embed_model.layers.0.down_proj.weight", False),
        ("model.layers.0.decomposition.q_proj.weight", False), ("wpetools.q.weight", False),
        ("model.layers.0.attn.output.weight", False), ("model.layers.0.mlp.down_proj.weight", False),
    ],
)  # fmt: skip
def test_a_vocabulary_may_be_padded_and_a_layer_may_not(name: str, padded: bool) -> None:
    assert bool(_PADDED.search(name)) == padded


def test_what_a_draft_shares_with_its_target_is_named() -> None:
    incident = ROOT / "data/incident"
    found = scan_weights(incident / "drafts/speculators", target=incident / "target")
    told = [finding for finding in found.findings if finding.code == "weights.targets_own"]
    assert [finding.title for finding in told] == ["embed_tokens.weight is the target's own values"]
    assert "model.embed_tokens.weight" in told[0].evidence_for[0]
    assert found.tensors["embed_tokens.weight"].verdict == "trained"
    alone = scan_weights(incident / "drafts/speculators")
    assert not any(finding.code == "weights.targets_own" for finding in alone.findings)
    little = scan_weights(incident / "drafts/speculators", target=incident / "target", sample=64)
    assert not any(finding.code == "weights.targets_own" for finding in little.findings)
    assert any("not compared with the target" in note for note in little.notes)
    with pytest.raises(WorkbenchError, match="no such file"):
        scan_weights(incident / "drafts/speculators", target=incident / "nowhere")
    with pytest.raises(WorkbenchError, match="target go with checkpoints"):
        scan_weights("http://127.0.0.1:1", target=incident / "target")


@pytest.mark.parametrize(("noise", "code"), [(0.0, "targets_own"), (1e-3, "from_target")])
def test_a_head_of_rows_of_the_targets_head_is_named(
    noise: float, code: str, tmp_path: Path
) -> None:
    incident = ROOT / "data/incident"
    made = load_file(incident / "drafts/specforge/model.safetensors")
    head = load_file(incident / "target/model.safetensors")["lm_head.weight"]
    ids = torch.arange(len(made["d2t"])) + made["d2t"]
    rows = head[ids].float()
    made["lm_head.weight"] = rows + noise * float(rows.std()) * torch.randn(rows.shape)
    save_file(made, tmp_path / "model.safetensors")
    found = scan_weights(tmp_path, target=incident / "target")
    [told] = [one for one in found.findings if one.code == f"weights.{code}"]
    assert "lm_head.weight" in told.title
    assert "lm_head.weight (the rows that d2t names)" in told.evidence_for[0]
    made["d2t"] += 5  # the rows of other tokens
    save_file(made, tmp_path / "model.safetensors")
    assert not any(
        one.code.endswith(("targets_own", "from_target"))
        for one in scan_weights(tmp_path, target=incident / "target").findings
    )


def test_large_tensors_are_split_over_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layers(tmp_path, 4)
    whole = scan_weights(folder)
    monkeypatch.setattr(reading, "BLOCK", 1 << 10)
    monkeypatch.setattr(reading, "PIECE", 1 << 12)
    seen: set[str] = set()

    def noted(*arguments: Any) -> Any:
        seen.add(threading.current_thread().name)
        return take_piece(*arguments)

    monkeypatch.setattr(pool, "take_piece", noted)
    split = scan_weights(folder)
    assert all(name.startswith("scan") for name in seen)
    for one, other in zip(whole.tensors, split.tensors, strict=True):
        assert one.verdict == other.verdict
        assert one.std == pytest.approx(other.std, rel=1e-12)
        if len(one.shape) > 1:
            assert one.row_dispersion == pytest.approx(other.row_dispersion, rel=1e-4, abs=1e-4)


def test_an_interrupt_returns_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = pool.scan_here

    def pressed(*arguments: Any) -> Iterator[Any]:
        for number, found in enumerate(plain(*arguments)):
            if number == 5:
                raise KeyboardInterrupt
            yield found

    monkeypatch.setattr(pool, "scan_here", pressed)
    scan = scan_weights(layers(tmp_path))
    assert scan.interrupted
    assert len(scan.tensors) == 5
    assert scan.ok is not True
    assert any("5 of 12" in note for note in scan.notes)


def test_a_checkpoint_that_changed_since_it_was_opened_is_not_scanned(tmp_path: Path) -> None:
    folder = layers(tmp_path)
    opened = open_checkpoint(folder)
    path = folder / "model.safetensors"
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(WorkbenchError, match="changed since the checkpoint was opened"):
        scan_weights(opened)


@pytest.mark.parametrize("share", [0, 0.5], ids=["replaced", "cut short"])
def test_of_a_file_that_changes_during_the_scan_nothing_is_concluded(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layers(tmp_path)
    path = folder / "model.safetensors"
    whole, plan = path.read_bytes(), pool.Scanner.plan

    def changing(self: Any, at: int) -> Any:
        if at == 3:
            if share:
                os.truncate(path, int(len(whole) * share))
            else:
                (folder / "new").write_bytes(whole[:2000] + bytes(len(whole) - 2000))
                os.replace(folder / "new", path)
        return plan(self, at)

    monkeypatch.setattr(pool.Scanner, "plan", changing)
    scan = scan_weights(folder)
    assert scan.ok is None
    assert scan.summary == "Cannot tell, because model.safetensors changed while it was read."
    assert [found.code for found in scan.findings] == ["weights.changed"]
    assert {tensor.verdict for tensor in scan.tensors} == {"undecided"}


def test_codes_that_cannot_be_read_are_undecided(tmp_path: Path) -> None:
    """No statistic of packed codes is passed off as one of weights."""
    tensors = {
        "l.weight": torch.randint(0, 256, (64, 64), dtype=torch.uint8),
        "norm.weight": torch.rand(64) + 0.5,
    }
    save_file(tensors, tmp_path / "m.safetensors")
    scan = scan_weights(tmp_path / "m.safetensors")
    one = scan.tensors["l.weight"]
    assert (one.verdict, one.seen) == ("undecided", 0)
    assert np.isnan(one.std)
    assert "codes of a quantised layout" in one.reason
    assert scan.tensors["norm.weight"].verdict == "trained"


def test_a_broken_config_is_no_hindrance(tmp_path: Path) -> None:
    folder = layers(tmp_path)
    (folder / "config.json").write_text("{")
    # Whether a matrix is quantised is not known without it, but these tensors say so themselves.
    with pytest.raises(WorkbenchError, match="config"):
        scan_weights(folder)


def test_torch_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {"a.weight": torch.randn(300, 200), "b.weight": torch.randn(200, 300).T}
    torch.save(tensors, tmp_path / "m.bin")
    scan = scan_weights(tmp_path / "m.bin")
    for tensor in scan.tensors:
        assert tensor.std == pytest.approx(float(tensors[tensor.name].double().std(correction=0)))
        assert tensor.verdict == "at_init"


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """A tensor of 192 MiB is read in blocks: the process grows by far less."""
    path = tmp_path / "m.safetensors"
    rows, side = 24_576, 4_096
    save_file({"w": torch.zeros(1, 1)}, path)
    header = json.dumps(
        {"w": {"dtype": "BF16", "shape": [rows, side], "data_offsets": [0, rows * side * 2]}}
    ).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + rows * side * 2)  # zeros that take no room
    scan_weights(TARGET, names="model.layers.0.*")  # what is compiled and loaded once
    process = psutil.Process()
    before = process.memory_info().rss
    peak = [before]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        scan = scan_weights(path)
    finally:
        done.set()
        watcher.join()
    assert scan.tensors[0].zeros == rows * side
    assert scan.tensors[0].verdict == "constant"
    assert peak[0] - before < 64 << 20


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "tpu", ""])
def test_devices_that_are_not_here(tmp_path: Path, device: str) -> None:
    if device.startswith("cuda") and torch.cuda.is_available():
        pytest.skip("this machine has a card")
    with pytest.raises(WorkbenchError, match="no device"):
        scan_weights(layers(tmp_path, 1), device=device)


def test_a_terminal_sees_findings_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layers(tmp_path)
    quiet = io.StringIO()
    monkeypatch.setattr(sys, "stderr", quiet)
    scan_weights(folder)
    assert quiet.getvalue() == ""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    loud = Terminal()
    monkeypatch.setattr(sys, "stderr", loud)
    scan_weights(folder)
    assert "layers.2.mlp.up_proj.weight: at_init" in loud.getvalue()


def test_stacks_of_experts_are_read_as_matrices(tmp_path: Path) -> None:
    """One expert of eight as it was drawn, in one stacked tensor."""
    torch.manual_seed(1)
    stack = torch.randn(8, 128, 160) * 0.02
    for expert in range(8):
        if expert != 5:
            stack[expert] += torch.outer(torch.randn(128), torch.randn(160)) * 0.02
    save_file({"layers.0.mlp.experts.down_proj": stack.bfloat16()}, tmp_path / "m.safetensors")
    scan = scan_weights(tmp_path / "m.safetensors")
    (one,) = scan.tensors
    assert one.verdict == "at_init"
    assert "5" in one.reason
