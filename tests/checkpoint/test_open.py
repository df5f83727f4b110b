"""`open_checkpoint` on every kind of place, whole and broken."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from packaging.version import Version
from safetensors.torch import load_file, save_file

from workbench.checkpoint.open import Checkpoint, open_checkpoint
from workbench.errors import CheckpointError
from workbench.facts.flat_config import flattened

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4}


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "embed.weight": torch.randn(6, 4, generator=generator),
        "layers.0.w": torch.randn(4, 4, generator=generator).bfloat16(),
        "layers.1.w": torch.randn(4, 4, generator=generator).half(),
        "d2t": torch.arange(6),
        "mask": torch.tensor([True, False, True]),
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 3),
    }


def write_single(folder: Path, name: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights(), folder / name, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def write_sharded(folder: Path, index: bool = True, ending: str = ".safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = weights()
    names = list(tensors)
    weight_map = {}
    for part, held in enumerate((names[:3], names[3:]), start=1):
        file = f"model-{part:05d}-of-00002{ending}"
        chosen = {name: tensors[name] for name in held}
        if ending == ".safetensors":
            save_file(chosen, folder / file, metadata={"format": "pt"})
        else:
            torch.save(chosen, folder / file)
        weight_map |= dict.fromkeys(held, file)
    if index:
        base = "model.safetensors" if ending == ".safetensors" else "pytorch_model.bin"
        text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}, indent=2)
        (folder / f"{base}.index.json").write_text(text)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def edit_index(folder: Path, change: Callable[[dict[str, str]], None]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index, indent=2))


def assert_whole(checkpoint: Checkpoint) -> None:
    expected = weights()
    assert set(checkpoint.names) == set(expected) == set(checkpoint)
    assert len(checkpoint) == len(expected)
    for name, tensor in expected.items():
        assert name in checkpoint
        assert checkpoint[name].shape == tuple(tensor.shape)
        read = checkpoint.tensor(name)
        assert read.dtype == tensor.dtype
        assert torch.equal(read, tensor)
    assert torch.equal(
        checkpoint.tensor("embed.weight", slice(1, 3)), expected["embed.weight"][1:3]
    )
    index = (slice(4, None), [0, 2])
    assert torch.equal(checkpoint.tensor("embed.weight", index), expected["embed.weight"][index])
    assert checkpoint.tensor("embed.weight", (5, 3)).item() == expected["embed.weight"][5, 3].item()
    assert checkpoint.numpy("d2t").tolist() == list(range(6))


def failure(place: object) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(place)  # type: ignore[arg-type]
    assert caught.value.what
    return caught.value


# --- places ----------------------------------------------------------------------------------------


def test_folder_file_and_index(tmp_path: Path) -> None:
    single = write_single(tmp_path / "single")
    sharded = write_sharded(tmp_path / "sharded")
    loose = write_sharded(tmp_path / "loose", index=False)
    for place in (
        single,
        str(single) + "/",
        single / "model.safetensors",
        f"file://{single}",
        sharded,
        sharded / "model.safetensors.index.json",
        loose,
    ):
        checkpoint = open_checkpoint(place)
        assert_whole(checkpoint)
        assert checkpoint.warnings == ()
        assert checkpoint.config.architectures == ("LlamaForCausalLM",)
        assert checkpoint.metadata == {"format": "pt"}
    assert [Path(file).name for file in open_checkpoint(sharded).files] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]


def test_as_safetensors_loads_it(tmp_path: Path) -> None:
    file = write_single(tmp_path) / "model.safetensors"
    checkpoint = open_checkpoint(file)
    for name, tensor in load_file(file).items():
        assert torch.equal(checkpoint.tensor(name), tensor)


def test_link_to_a_file_given_by_hand(tmp_path: Path) -> None:
    write_single(tmp_path / "real")
    link = tmp_path / "link.safetensors"
    link.symlink_to(tmp_path / "real" / "model.safetensors")
    assert_whole(open_checkpoint(link))
    folder = tmp_path / "folder"
    folder.symlink_to(tmp_path / "real")
    assert_whole(open_checkpoint(folder))


def test_text(tmp_path: Path) -> None:
    text = repr(open_checkpoint(write_sharded(tmp_path)))
    assert "7 tensors" in text
    assert "2 safetensors files" in text
    assert "LlamaForCausalLM" in text
    bare = tmp_path / "bare"
    bare.mkdir()
    save_file(weights(), bare / "model.safetensors")
    assert "no config.json" in repr(open_checkpoint(bare))
    (bare / "config.json").write_text("[1]")
    assert "JSON list" in repr(open_checkpoint(bare))


def test_unknown_tensor_names_the_nearest(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_single(tmp_path))
    with pytest.raises(CheckpointError, match=r"layers\.0\.w"):
        checkpoint.tensor("layer.0.w")
    with pytest.raises(CheckpointError, match="stored shape"):
        checkpoint.tensor("embed.weight", 99)
    with pytest.raises(CheckpointError, match="BF16"):
        checkpoint.numpy("layers.0.w")


def test_context_manager_and_collector(tmp_path: Path) -> None:
    with open_checkpoint(write_single(tmp_path)) as checkpoint:
        assert_whole(checkpoint)
    assert gc.isenabled()


def test_engines_preferences(tmp_path: Path) -> None:
    """safetensors before .bin; consolidated files and trainer states are left alone."""
    folder = write_single(tmp_path)
    torch.save({"other": torch.ones(1)}, folder / "pytorch_model.bin")
    torch.save({}, folder / "training_args.bin")
    save_file({"vendor": torch.ones(1)}, folder / "consolidated.safetensors")
    checkpoint = open_checkpoint(folder)
    assert_whole(checkpoint)
    assert any("pytorch_model.bin" in text for text in checkpoint.warnings)
    only = tmp_path / "only"
    only.mkdir()
    save_file({"vendor": torch.ones(1)}, only / "consolidated.safetensors")
    assert open_checkpoint(only).names == ["vendor"]


def test_the_shipped_drafts(root: Path) -> None:
    """Real files of real writers."""
    speculators = open_checkpoint(root / "data" / "drafts" / "speculators")
    assert len(speculators) == 16
    assert speculators.config.layout == "speculators"
    flat = flattened(speculators.config)
    assert flat["architectures"] == ["LlamaForCausalLMEagle3"]
    assert flat["hidden_size"] == speculators["norm.weight"].shape[0]
    specforge = open_checkpoint(root / "data" / "drafts" / "specforge")
    assert len(specforge) == 15
    assert specforge.config.layout == "huggingface"
    assert not specforge.quantization
    for checkpoint in (speculators, specforge):
        (file,) = checkpoint.files
        for name, tensor in load_file(file).items():
            assert torch.equal(checkpoint.tensor(name), tensor)


def test_import_without_torch() -> None:
    code = "import workbench.checkpoint.open, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- every dtype -----------------------------------------------------------------------------------


@pytest.mark.skipif(
    Version(safetensors.__version__) < Version("0.8"), reason="this safetensors cannot write them"
)
def test_narrow_floats(tmp_path: Path) -> None:
    tensors = {
        "e4m3": torch.tensor([1.0, -2.5, 448.0]).to(torch.float8_e4m3fn),
        "e5m2": torch.tensor([1.0, -2.5, 57344.0]).to(torch.float8_e5m2),
        "e8m0": torch.tensor([1, 127, 254], dtype=torch.uint8).view(torch.float8_e8m0fnu),
        "u16": torch.tensor([1, 65535], dtype=torch.uint16),
        "c64": torch.tensor([1 + 2j], dtype=torch.complex64),
    }
    save_file(tensors, tmp_path / "m.safetensors")
    checkpoint = open_checkpoint(tmp_path / "m.safetensors")
    for name, tensor in tensors.items():
        read = checkpoint.tensor(name)
        assert read.dtype == tensor.dtype
        assert torch.equal(read.view(torch.uint8), tensor.view(torch.uint8))


def test_packed_floats_come_as_bytes(tmp_path: Path) -> None:
    header = {
        "four": {"dtype": "F4", "shape": [2, 4], "data_offsets": [0, 4]},
        "six": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [4, 7]},
        "odd": {"dtype": "F4", "shape": [2, 3], "data_offsets": [7, 10]},
    }
    text = json.dumps(header).encode()
    data = bytes(range(10))
    (tmp_path / "m.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    checkpoint = open_checkpoint(tmp_path / "m.safetensors")
    assert checkpoint["four"].shape == (2, 4)
    assert checkpoint.tensor("four").tolist() == [[0, 1], [2, 3]]
    assert checkpoint.tensor("four", 1).tolist() == [2, 3]
    assert checkpoint.tensor("six").tolist() == [4, 5, 6]
    assert checkpoint.tensor("odd").tolist() == [7, 8, 9]
    assert checkpoint.tensor("odd").dtype == torch.uint8


# --- Hub ids and the cache -------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hugging Face cache with org/name: two revisions, snapshots of links into blobs."""
    root = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(root))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    repo = root / "models--org--name"
    for commit, write in (("a" * 40, write_sharded), ("b" * 40, write_single)):
        real = write(tmp_path / commit)
        snapshot = repo / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (repo / "blobs").mkdir(exist_ok=True)
        for file in real.iterdir():
            blob = repo / "blobs" / f"{commit[:3]}{file.name.replace('.', '')}"
            file.rename(blob)
            (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    (repo / "refs" / "pr").mkdir(parents=True)
    (repo / "refs" / "main").write_text("a" * 40)
    (repo / "refs" / "pr" / "1").write_text("b" * 40)
    return root


def test_cache(cache: Path) -> None:
    repo = cache / "models--org--name"
    for place in ("org/name", "org/name@main", repo, repo / "snapshots" / ("a" * 40)):
        checkpoint = open_checkpoint(place)
        assert_whole(checkpoint)
        assert len(checkpoint.files) == 2
        assert checkpoint.config.model_type == "llama"
    for revision in ("b" * 40, "b" * 8, "pr/1"):
        assert len(open_checkpoint(f"org/name@{revision}").files) == 1


def test_not_in_the_cache(cache: Path) -> None:
    for place in ("org/other", "org/name@v2"):
        error = failure(place)
        assert "HF_HUB_OFFLINE" in error.why
        assert "not in the local cache" in error.what
    for place in ("org/name@../../x", "org", "a/b/c", "../x/y", "/org/name"):
        assert "no such file" in failure(place).why


def test_incomplete_snapshot(cache: Path) -> None:
    snapshot = cache / "models--org--name" / "snapshots" / ("b" * 40)
    (snapshot / "model.safetensors").unlink()
    assert "found no checkpoint" in failure("org/name@" + "b" * 40).what


def test_cache_link_into_another_model(cache: Path, tmp_path: Path) -> None:
    snapshot = cache / "models--org--name" / "snapshots" / ("b" * 40)
    other = cache / "models--org--other" / "blobs"
    other.mkdir(parents=True)
    save_file(weights(), other / "x")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(other / "x")
    assert "leads out" in failure(snapshot).what


def test_only_the_config_is_cached(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights' headers then come from the Hub; a filesystem in memory stands for it here."""
    import fsspec

    from workbench.checkpoint import hub

    (cache / "models--org--name" / "snapshots" / ("b" * 40) / "model.safetensors").unlink()
    memory = fsspec.filesystem("memory")
    for file in write_sharded(tmp_path / "remote").iterdir():
        memory.pipe(f"/hub/org/name/{file.name}", file.read_bytes())
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(hub, "filesystem", lambda model: (memory, f"/hub/{model.repo}"))
    for place in (f"org/name@{'b' * 40}", "org/name@v3"):
        checkpoint = open_checkpoint(place)
        assert_whole(checkpoint)
        assert checkpoint.files[0].startswith("hf://")
        assert checkpoint.source == place


# --- what a caller may give, and messages about hostile names ----------------------------------------


@pytest.mark.parametrize("given", [None, 5, 1.5, [], ["a"], {}, object()])
def test_what_is_no_path(given: Any) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(given)
    assert type(given).__name__ in caught.value.why or given is None
    assert "Hub id" in caught.value.next_step
    assert ".safetensors" in caught.value.next_step
    with pytest.raises(CheckpointError, match="path of the checkpoint is empty"):
        open_checkpoint(" ")


def test_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x").mkdir()
    write_single(tmp_path / "x")
    for place in ("~/x", "~/x/model.safetensors", Path("~/x")):
        assert_whole(open_checkpoint(place))
    assert str(tmp_path / "y") in failure("~/y").what
    assert "~nobody-has-this-name/x" in failure("~nobody-has-this-name/x").what


def test_one_file_or_folder_in_the_message(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "sub").mkdir()
    why = failure(tmp_path).why
    assert "one file, config.json" in why
    assert "the folder sub" in why
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "sub2").mkdir()
    assert "2 files, none of them weights, and the folders sub, sub2" in failure(tmp_path).why


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to("model.safetensors")
    (tmp_path / "loop").symlink_to("loop")
    for place in (folder, tmp_path / "loop"):
        error = failure(place)
        assert "link" in error.why
        assert error.next_step.startswith("Put the file itself")


def test_thousands_of_absent_shards(tmp_path: Path) -> None:
    weight_map = {f"k{n}": f"s{n}.safetensors" for n in range(20_000)}
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": weight_map}))
    start = time.perf_counter()
    error = failure(tmp_path)
    assert time.perf_counter() - start < 3
    assert "20,000 files that are not there" in error.what
    assert "19,997 more" in error.what
    assert "20,000 of 20,000 tensors" in error.why
    path.write_text(json.dumps({"weight_map": {"k": "a" * 5000 + ".safetensors"}}))
    assert len(str(failure(tmp_path))) < 1000


def test_the_config_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    write_single(tmp_path)
    name = "\x1b[31mX\n" + "y" * 100_000
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name] * 1000}))
    text = repr(open_checkpoint(tmp_path))
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text) < 1500
    (tmp_path / "config.json").write_text('{"a":' * 100_000)
    assert "nested thousands of levels deep" in repr(open_checkpoint(tmp_path))
    (tmp_path / "config.json").write_text('{"a": ' + "9" * 10_000 + "}")
    assert "thousands of digits" in repr(open_checkpoint(tmp_path))
