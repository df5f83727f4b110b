"""The result of `diff_keys`: its partition, its forms, and its text word for word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import workbench
from benchmarks.kimi_like import SMALL, write
from tests.forms import check_forms
from workbench.keys.records import KeyDiff

DRAFTS = ("speculators", "specforge")
ENGINES = (
    "sglang==0.5.8", "sglang==0.5.11", "sglang==0.5.14", "sglang==0.5.23", "sglang",
    "vllm==0.32.0", "tensorrt-llm:LlamaForCausalLMEagle3",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def diff(draft: str, engine: str, **options: Any) -> KeyDiff:
    return workbench.diff_keys(f"data/drafts/{draft}", engine, **options)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_key_and_every_parameter_is_in_exactly_one_set(draft: str, engine: str) -> None:
    found = diff(draft, engine)
    keys = [*found.loaded, *found.dropped, *found.ignored, *found.mismatched]
    assert sorted(keys) == sorted(workbench.open_checkpoint(f"data/drafts/{draft}").names)
    parameters = [
        *found.written, *found.partial, *found.missing, *found.shared, *found.mismatched_parameters,
    ]  # fmt: skip
    assert len(parameters) == len(set(parameters))
    assert parameters
    assert sum(found.counts().values()) == len(keys) + len(parameters)
    if found.ok:
        assert found.dropped + found.missing + found.partial + found.mismatched == ()


@pytest.mark.parametrize("draft", DRAFTS)
def test_forms_agree(draft: str, tmp_path: Path) -> None:
    found = diff(draft, "sglang==0.5.11")
    data = json.loads(found.to_json())
    assert data["schema"] == "workbench.keydiff/1"
    assert data["dropped"] == list(found.dropped)
    again = workbench.load(found.save(tmp_path / "diff.json"))
    assert isinstance(again, KeyDiff)
    assert again.to_dict() == found.to_dict()
    assert again.to_text(80) == found.to_text(80)
    assert again.payload() == found.payload()
    frame = found.to_pandas()
    assert set(frame["status"]) >= {"loaded", "ignored"}
    assert len(frame) >= len(found.loaded) + len(found.dropped) + len(found.ignored)
    assert list(tmp_path.iterdir()) == [tmp_path / "diff.json"]


def test_result_is_immutable() -> None:
    with pytest.raises(AttributeError):
        diff("specforge", "sglang==0.5.14").ok = False  # type: ignore[misc]


def test_equality_truth_and_hash() -> None:
    one, other = diff("specforge", "sglang==0.5.14"), diff("specforge", "sglang==0.5.14")
    assert one == other
    assert hash(one) == hash(other)
    assert one != diff("specforge", "sglang==0.5.11")
    assert bool(one) is True
    assert bool(diff("speculators", "sglang==0.5.11")) is False
    assert bool(diff("specforge", "sglang==99")) is False


@pytest.mark.parametrize(
    ("version", "basis", "ok"),
    [
        ("0.5.11", "profile_verified", True),
        ("00.5.11", "profile_verified", True),
        ("0.5.11+cu128", "profile_verified", True),
        ("0.5.10", "profile_source_read", True),
        ("0.5.9.post77", "profile_source_read", None),
        ("0.5.3.99", "profile_source_read", None),
        ("0.5.9rc1", "profile_source_read", None),
        ("0.6.0", "profile_source_read", None),
    ],
)
def test_only_a_release_that_exists_is_answered_for_sure(
    version: str, basis: str, ok: bool | None
) -> None:
    found = diff("specforge", f"sglang=={version}")
    assert (found.basis, found.ok) == (basis, ok)


@pytest.mark.parametrize("text", ["sglang==", "sglang>=0.5", "sglang 0.5.9", "vllm="])
def test_half_an_engine_is_told_how_to_write_it(text: str) -> None:
    with pytest.raises(workbench.WorkbenchError, match="does not name a version") as caught:
        diff("specforge", text)
    assert "==" in caught.value.next_step


def test_a_folder_called_like_an_engine_does_not_stand_in_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    (tmp_path / "sglang").mkdir()
    monkeypatch.chdir(tmp_path)
    found = workbench.diff_keys(root / "data/drafts/specforge", "sglang")
    assert found.engine == "sglang"
    with pytest.raises(workbench.WorkbenchError, match="sglang"):
        workbench.diff_keys(root / "data/drafts/specforge", "./sglang")


def test_a_sweep_is_no_surer_than_its_weakest_version() -> None:
    found = diff("specforge", "sglang")
    # The basis is that of the release that is shown, which was run; the verdict is on all of them.
    assert (found.version, found.basis) == ("0.5.23", "profile_verified")
    found = diff("speculators", "sglang")
    assert (found.ok, found.basis, found.verdict.confidence) == (
        False,
        "profile_verified",
        "likely",
    )


def test_places_are_those_of_the_release_that_was_asked_for() -> None:
    """A release cites its own lines, and only its own."""
    for version in ("0.5.7", "0.5.11", "0.5.13", "0.5.22"):
        found = diff("speculators", f"sglang=={version}")
        said = json.dumps(found.to_dict())
        assert set(re.findall(r"\.py:\d+[^\"]{0,12}\((0\.[\d.post]+)\)", said)) == {version}


def test_models_in_memory_do_not_claim_a_loader() -> None:
    found = workbench.diff_keys("data/drafts/specforge", "data/drafts/specforge")
    assert "real loader" not in found.to_text(80)


@pytest.mark.parametrize("options", [{"python": 5}, {"launch": 5}, {"launch": [1]}, {"target": 5}])
def test_wrong_arguments_are_told(options: dict[str, Any]) -> None:
    with pytest.raises(workbench.WorkbenchError):
        diff("specforge", "sglang==0.5.14", **options)


def test_paths_that_are_none(tmp_path: Path) -> None:
    found = diff("specforge", "sglang==0.5.14")
    calls: list[Any] = [
        lambda: found.save(None),  # type: ignore[arg-type]
        lambda: found.to_html(tmp_path),
        lambda: workbench.load(5),  # type: ignore[arg-type]
        lambda: workbench.fix_checkpoint("data/drafts/speculators", "sglang==0.5.11", ""),
        lambda: workbench.fix_checkpoint("data/drafts/speculators", "sglang==0.5.11", None),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(workbench.WorkbenchError):
            call()


def test_a_result_that_was_tampered_with_is_told_when_loaded(tmp_path: Path) -> None:
    data = diff("speculators", "sglang==0.5.11").to_dict()
    data["findings"][0]["title"] = 5
    (tmp_path / "x.json").write_text(json.dumps(data))
    with pytest.raises(
        workbench.WorkbenchError, match=r"Expected `str`, got `int`.*findings\[0\].title"
    ):
        workbench.load(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "schema"),
        ('{"schema": "workbench.keydiff/9"}', "workbench.keydiff/9"),
        ('{"schema": "workbench.keydiff/1"}', "missing required field"),
        ('{"schema": ["x"]}', "schema"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_damaged_results_are_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(workbench.WorkbenchError, match=said):
        workbench.load(tmp_path / "x.json")


CASES = {
    "speculators-sglang-0.5.11": ("speculators", "sglang==0.5.11", {}),
    "specforge-sglang-0.5.14": ("specforge", "sglang==0.5.14", {}),
    "specforge-launched-as-eagle": (
        "specforge",
        "sglang==0.5.11",
        {"launch": "--speculative-algorithm EAGLE"},
    ),
    "speculators-vllm-0.32.0": ("speculators", "vllm==0.32.0", {}),
    "specforge-any-sglang": ("specforge", "sglang", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_form_is_as_it_was_read_and_approved(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, engine, options = CASES[case]
    check_forms(diff(draft, engine, **options), f"keys-{case}", monkeypatch)


def test_kimi_diffs_clean_and_names_the_one_shard_that_is_missing(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    write(whole, SMALL)
    assert workbench.diff_keys(whole, "sglang==0.5.14").ok is True
    checkpoint = workbench.open_checkpoint(whole)
    gone = next(n for n in checkpoint.names if ".experts.2.down_proj.weight_packed" in n)
    short = {n: tuple(checkpoint[n].shape) for n in checkpoint.names if n != gone}
    from workbench.loaders import registry
    from workbench.loaders.simulate import simulate

    ((version, profile),) = registry.select(
        registry.parse("sglang==0.5.14"), checkpoint.config
    ).profiles
    keep = [i for i, n in enumerate(checkpoint.names) if n in short]
    outcome = simulate(
        profile, profile.build(checkpoint.config), checkpoint.table.select(keep), version
    )
    (group,) = [g for g in outcome.parameters if g.status == "partial"]
    assert group.wanted == (gone,)
    assert group.fraction == pytest.approx(1 - 1 / SMALL.experts)


def altered(tmp_path: Path, change: Any) -> Path:
    """The SpecForge draft with its tensors changed."""
    out = tmp_path / "altered"
    out.mkdir()
    for file in Path("data/drafts/specforge").iterdir():
        if file.suffix == ".json":
            (out / file.name).write_bytes(file.read_bytes())
    import torch
    from safetensors.torch import load_file as load
    from safetensors.torch import save_file as save

    tensors = load("data/drafts/specforge/model.safetensors")
    change(tensors, torch)
    save(tensors, out / "model.safetensors")
    return out


def test_absolute_d2t_breaks_the_verdict_though_all_keys_load(tmp_path: Path) -> None:
    def absolute(tensors: Any, torch: Any) -> None:
        tensors["d2t"] += torch.arange(len(tensors["d2t"]))

    found = workbench.diff_keys(altered(tmp_path, absolute), "sglang==0.5.14")
    assert found.ok is False
    assert not found.dropped
    assert "d2t_absolute" in {finding.code for finding in found.findings}


def test_missing_head_is_a_random_head(tmp_path: Path) -> None:
    found = workbench.diff_keys(
        altered(tmp_path, lambda tensors, torch: tensors.pop("lm_head.weight")), "sglang==0.5.14"
    )
    assert found.ok is False
    assert found.missing == ("lm_head.weight",)


def test_one_shard_of_qkv(tmp_path: Path) -> None:
    found = workbench.diff_keys(
        altered(tmp_path, lambda t, torch: t.pop("midlayer.self_attn.k_proj.weight")),
        "sglang==0.5.14",
    )
    (part,) = [g for g in found.parameters if g.status == "partial"]
    assert part.fraction == pytest.approx(0.75)
    assert found.partial == ("model.layers.0.self_attn.qkv_proj.weight",)


def test_repaired_copy_keeps_every_byte(tmp_path: Path) -> None:
    out = tmp_path / "fixed"
    fixed = workbench.fix_checkpoint("data/drafts/speculators", "sglang==0.5.11", out)
    assert fixed.ok is True
    before = load_file("data/drafts/speculators/model.safetensors")
    after = load_file(out / "model.safetensors")
    renamed = {name.replace("layers.0.", "midlayer."): t for name, t in before.items()}
    assert renamed.keys() == after.keys()
    assert all(np.array_equal(t, after[name]) for name, t in renamed.items())
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["hidden_size"] == 128


def test_several_renames_are_not_chosen_for_you(tmp_path: Path) -> None:
    one = tmp_path / "one"
    two = tmp_path / "two"
    for folder, names in ((one, "ab"), (two, "cd")):
        folder.mkdir()
        save_file(
            {f"{n}.weight": np.zeros(4, np.float32) for n in names}, folder / "model.safetensors"
        )
    with pytest.raises(workbench.WorkbenchError, match="not repaired") as caught:
        workbench.fix_checkpoint(one, two, tmp_path / "out")
    assert "several" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_what_no_flat_config_can_say_is_no_all_clear_after_the_repair(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for file in Path("data/drafts/speculators").iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"norm_before_residual": True}))
    fixed = workbench.fix_checkpoint(source, "sglang==0.5.14", tmp_path / "fixed")
    assert fixed.dropped == fixed.missing == ()
    assert fixed.ok is False
    assert any("norm_before_residual" in finding.title for finding in fixed.findings)
    assert any("norm_before_residual" in note for note in fixed.notes)
