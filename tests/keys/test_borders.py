"""Both sides of each border of the verdict on keys and of the choice of a version: real small checkpoints."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.keys.test_keydiff import altered
from workbench.checkpoint.config import Config
from workbench.checkpoint.records import TensorTable
from workbench.core.finding import Finding
from workbench.errors import EngineError
from workbench.keys.coverage import Question, covered
from workbench.keys.records import KeyDiff
from workbench.loaders import registry
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.profile import NotCovered

CONFIG = Config({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"})


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def changed(folder: Path, change: Any = None, **config: Any) -> Path:
    """Return a copy of the SpecForge draft with tensors and fields of the config changed."""
    made = altered(folder, change or (lambda tensors, torch: None))
    file = made / "config.json"
    fields = json.loads(file.read_text()) | config
    file.write_text(json.dumps({k: v for k, v in fields.items() if v is not ...}))
    return made


def diff(checkpoint: Path, engine: str = "sglang==0.5.14", **more: Any) -> KeyDiff:
    found = workbench.diff_keys(checkpoint, engine, **more)
    assert found.ok is not True or not (found.dropped or found.missing or found.partial)
    return found


def target(folder: Path, **config: Any) -> Path:
    """Return a copy of the target of the drafts with fields of its config changed."""
    made = folder / "target"
    made.mkdir()
    for file in Path("data/drafts/target").iterdir():
        shutil.copy(file, made)
    fields = json.loads((made / "config.json").read_text()) | config
    (made / "config.json").write_text(json.dumps(fields))
    return made


# -- what a broken contract does to the verdict -------------------------------------------------


def test_a_draft_without_a_fault_is_right(tmp_path: Path) -> None:
    found = diff(changed(tmp_path), target=target(tmp_path))
    assert (found.ok, found.findings) == (True, ())


def test_a_contract_that_is_possibly_broken_leaves_it_open(tmp_path: Path) -> None:
    found = diff(changed(tmp_path), target=target(tmp_path, vocab_size=320))
    (finding,) = found.findings
    assert (finding.severity, finding.confidence) == ("warning", "possible")
    assert finding.changes_output
    assert found.ok is None


def test_a_contract_that_is_likely_broken_leaves_it_open(tmp_path: Path) -> None:
    def other(tensors: Any, torch: Any) -> None:
        kept = tensors["t2d"].nonzero().flatten()
        free = (~tensors["t2d"]).nonzero().flatten()
        tensors["t2d"][kept[9]] = False
        tensors["t2d"][free[free > kept[9]][0]] = True

    found = diff(changed(tmp_path, other))
    assert {(f.code, f.severity, f.confidence) for f in found.findings} == {
        ("d2t_against_t2d", "error", "likely")
    }
    assert found.ok is None


def test_a_contract_that_is_broken_for_sure_is_wrong(tmp_path: Path) -> None:
    found = diff(changed(tmp_path), launch="--speculative-algorithm EAGLE")
    assert [(f.severity, f.confidence) for f in found.findings] == [("error", "certain")]
    assert found.ok is False
    assert diff(tmp_path / "altered", launch="--speculative-algorithm EAGLE3").ok is True


def test_what_changes_nothing_leaves_it_right(tmp_path: Path) -> None:
    def inverted(tensors: Any, torch: Any) -> None:
        tensors["t2d"] = ~tensors["t2d"]

    found = diff(changed(tmp_path, inverted))
    assert [f.code for f in found.findings] == ["t2d_inverted"]
    assert found.ok is True


def test_a_certain_warning_that_changes_nothing_leaves_it_right(tmp_path: Path) -> None:
    def fewer(tensors: Any, torch: Any) -> None:
        tensors["t2d"] = tensors["t2d"][:-1]

    found = diff(changed(tmp_path, fewer))
    assert {(f.code, f.severity, f.confidence) for f in found.findings} == {
        ("t2d_size", "warning", "certain")
    }
    assert found.ok is True


FINDINGS: list[tuple[str, str, bool, bool | None]] = [
    ("error", "certain", True, False),
    ("error", "likely", True, None),
    ("error", "possible", True, None),
    ("error", "unknown", True, None),
    ("error", "certain", False, True),
    ("warning", "certain", True, None),
    ("warning", "possible", True, None),
    ("warning", "certain", False, True),
    ("note", "certain", True, True),
    ("note", "certain", False, True),
]


@pytest.mark.parametrize(("severity", "confidence", "changes", "ok"), FINDINGS)
def test_what_a_finding_does_to_the_verdict(
    severity: Any, confidence: Any, changes: bool, ok: bool | None
) -> None:
    outcome = LoadOutcome("sglang", "0.5.14", "X", "profile_verified", "loads", (), ())
    one = Finding("x", severity, "x", confidence=confidence, changes_output=changes)
    harmless = Finding("y", "note", "y")

    def judge(outcome: LoadOutcome, findings: tuple[Finding, ...], **unknown: str) -> bool | None:
        contracts = {"vocabulary": findings}
        return covered(Question(TensorTable.from_rows([]), outcome, contracts, **unknown)).ok

    assert judge(outcome, (one, harmless)) is ok
    assert judge(outcome, (harmless, one)) is ok
    assert judge(outcome, (one,), unsure="a development build") is None
    assert judge(outcome, (one,), uncovered="an activation that is not known") is None
    raises = dataclasses.replace(outcome, outcome="raises")
    assert judge(raises, (one,)) is False
    assert judge(raises, (one,), unsure="a development build") is None


def test_contracts_of_engines_are_none_of_a_state_dict(tmp_path: Path) -> None:
    def absolute(tensors: Any, torch: Any) -> None:
        tensors["d2t"] += torch.arange(len(tensors["d2t"]))

    made = changed(tmp_path, absolute)
    checkpoint = workbench.open_checkpoint(made)
    alike = diff(made, {name: checkpoint.tensor(name) for name in checkpoint.names})  # type: ignore[arg-type]
    assert (alike.ok, alike.findings) == (True, ())
    assert diff(made).ok is False


# -- keys and parameters ----------------------------------------------------------------------


def pop(name: str) -> Any:
    return lambda tensors, torch: tensors.pop(name)


def renamed_and_lost(tensors: Any, torch: Any) -> None:
    """Lose a key everywhere, and the layer in the releases that do not know this name of it."""
    del tensors["norm.weight"]
    for name in [n for n in tensors if n.startswith("midlayer.")]:
        tensors[name.replace("midlayer.", "layers.0.")] = tensors.pop(name)


def extra(name: str) -> Any:
    def add(tensors: Any, torch: Any) -> None:
        tensors[name] = torch.zeros(4)

    return add


def cut(name: str) -> Any:
    def narrower(tensors: Any, torch: Any) -> None:
        tensors[name] = tensors[name][:-1].contiguous()

    return narrower


@pytest.mark.parametrize(
    ("change", "ok", "sets"),
    [
        (None, True, ()),
        (extra("nobody.knows.weight"), False, ("dropped",)),
        (pop("norm.weight"), False, ("missing",)),
        (pop("midlayer.self_attn.k_proj.weight"), False, ("partial",)),
        (cut("midlayer.mlp.down_proj.weight"), False, ("mismatched",)),
        (pop("t2d"), None, ()),
    ],
)
def test_one_tensor_changes_the_verdict(
    tmp_path: Path, change: Any, ok: bool | None, sets: tuple[str, ...]
) -> None:
    found = diff(changed(tmp_path, change))
    filled = tuple(n for n in ("dropped", "missing", "partial", "mismatched") if getattr(found, n))
    # A shape that does not fit raises in this loader, and leaves its parameter unfilled.
    assert set(sets) <= set(filled)
    assert bool(filled) == bool(sets)
    assert found.ok is ok
    assert bool(found) is (ok is True)


def test_what_the_profile_does_not_cover_is_open_and_what_is_refused_is_wrong(
    tmp_path: Path,
) -> None:
    odd = diff(changed(tmp_path, rms_norm_eps="x"))
    assert (odd.ok, odd.outcome) == (False, "refused")
    open_ = diff(tmp_path / "altered", "sglang==0.5.8")
    assert (open_.ok, open_.outcome) == (None, "loads")
    assert open_.findings == ()


# -- which version answers ----------------------------------------------------------------------


def chosen(text: str) -> tuple[str, bool]:
    """Return the first release of the range that answers, and whether its answer is certain."""
    choice = registry.select(registry.parse(text), CONFIG)
    ((_, profile),) = choice.profiles
    assert choice.certain is not bool(choice.why)
    return profile.first, choice.certain


@pytest.mark.parametrize(
    ("text", "first", "certain"),
    [
        ("sglang==0.5.10.post1", "0.5.4.post2", True),
        ("sglang==0.5.11", "0.5.11", True),
        ("sglang==0.5.12", "0.5.12", True),
        ("sglang==0.5.16", "0.5.12", True),
        ("sglang==0.5.17", "0.5.17", True),
        ("sglang==0.5.23", "0.5.17", True),
        ("sglang==0.5.24", "0.5.17", False),
        ("sglang==0.5.23.post1", "0.5.17", False),
        ("sglang==0.5.23rc1", "0.5.17", False),
        ("sglang==0.5.11rc1", "0.5.4.post2", False),
        ("sglang==0.5.11.post9", "0.5.11", False),
        ("sglang==0.4.4.post2", "0.4.4.post2", True),
        # vLLM's releases are not all known: what lies in a range and is a release is answered for.
        ("vllm==0.11.1", "0.11.1", True),
        ("vllm==0.11.3", "0.11.1", False),
        ("vllm==0.12.0rc1", "0.11.1", False),
        ("vllm==0.12.0", "0.12.0", True),
        ("vllm==0.13.0", "0.12.0", True),
        ("vllm==0.13.0rc1", "0.12.0", False),
        ("vllm==0.13.0.dev7", "0.12.0", False),
        ("vllm==0.13.0a1", "0.12.0", False),
        ("vllm==0.15.1", "0.12.0", True),
        ("vllm==0.15.2", "0.12.0", False),
        ("vllm==0.17.2", "0.16.0", False),
        ("vllm==0.18.0", "0.18.0", True),
        ("vllm==0.32.0", "0.30.0", True),
        ("vllm==0.32.1", "0.30.0", False),
        ("vllm==0.33.0rc1", "0.30.0", False),
        # The same release in another spelling, and another build of it.
        ("sglang==00.5.11", "0.5.11", True),
        ("sglang==0.5.11+cu128", "0.5.11", True),
        ("sglang==0.5.11+cpu", "0.5.11", True),
        ("vllm==0.13.0+rocm641", "0.12.0", True),
        # A build of some commit or of a fork is no release.
        ("sglang==0.5.11+g3f2a91c", "0.5.11", False),
        ("sglang==0.5.11+cu128.g3f2a91c", "0.5.11", False),
        ("vllm==0.13.0+mycompany.2", "0.12.0", False),
    ],
)
def test_who_answers_for_a_version(text: str, first: str, certain: bool) -> None:
    assert chosen(text) == (first, certain)


@pytest.mark.parametrize("text", ["sglang==0.4.3", "vllm==0.11.0"])
def test_an_older_version_is_not_answered(text: str) -> None:
    with pytest.raises(EngineError, match="older than any version"):
        registry.select(registry.parse(text), CONFIG)


@pytest.mark.parametrize("text", ["sglang==0.4.4.post1", "sglang==0.4.4"])
def test_a_release_before_the_class_is_answered_with_the_first_that_has_it(text: str) -> None:
    choice = registry.select(registry.parse(text), CONFIG)
    [(_, profile)] = choice.profiles
    with pytest.raises(NotCovered, match=r"no such class in sglang .* the first release with it"):
        profile.build(CONFIG)


def test_what_is_said_of_a_version_that_is_none() -> None:
    def why(text: str) -> str:
        return registry.select(registry.parse(text), CONFIG).why

    assert "not a release" in why("sglang==0.5.11.post9")
    assert "development build" in why("vllm==0.13.0rc1")
    assert "between two known ranges" in why("vllm==0.17.2")
    assert "newer than any" in why("vllm==0.33.0")
    assert why("vllm==0.13.0") == ""


def test_a_development_build_is_no_all_clear(tmp_path: Path) -> None:
    made = changed(tmp_path)
    assert diff(made, "vllm==0.32.0").ok is True
    assert diff(made, "vllm==0.32.0rc2").ok is None
    assert diff(made, "sglang==0.5.14").ok is True
    assert diff(made, "sglang==0.5.14rc1").ok is None


def test_without_a_version_all_ranges_have_to_agree(tmp_path: Path) -> None:
    whole = diff(changed(tmp_path, norm_output=False), "sglang:LlamaForCausalLMEagle3")
    ranges = [p for p in registry.profiles("sglang") if p.model_class == "LlamaForCausalLMEagle3"]
    assert len(whole.versions) == len(ranges)
    assert whole.ok in (True, None)
    assert (whole.ok is True) == all(one.ok is True for one in whole.versions)
    lost = tmp_path / "lost"
    lost.mkdir()
    broken = diff(changed(lost, pop("norm.weight")), "sglang:LlamaForCausalLMEagle3")
    assert [one.ok for one in broken.versions] == [False] * len(ranges)
    assert broken.ok is False
    assert "The same is true in all" in broken.summary
    ways = tmp_path / "ways"
    ways.mkdir()
    each = diff(changed(ways, renamed_and_lost), "sglang:LlamaForCausalLMEagle3")
    assert [one.ok for one in each.versions] == [False] * len(ranges)
    assert each.ok is False
    assert each.summary.startswith(f"It is wrong in all {len(ranges)} known ranges")
    read = tmp_path / "read"
    read.mkdir()
    some = diff(changed(read, norm_output=True), "sglang:LlamaForCausalLMEagle3")
    assert {one.ok for one in some.versions} == {True, False}
    assert some.ok is None
    assert some.summary.startswith("Cannot tell")


@pytest.mark.parametrize("text", ["engine==1.0", "pytorch==2.6", "sglangx==0.5.11", "", "==0.5.11"])
def test_what_is_no_engine(text: str) -> None:
    with pytest.raises(EngineError, match="is not known"):
        registry.parse(text)


@pytest.mark.parametrize(
    ("text", "name", "version", "model_class"),
    [
        ("sglang", "sglang", "", ""),
        ("SGLang==0.5.11", "sglang", "0.5.11", ""),
        ("tensorrt_llm", "tensorrt-llm", "", ""),
        ("vllm==0.32.0:Eagle3LlamaForCausalLM", "vllm", "0.32.0", "Eagle3LlamaForCausalLM"),
    ],
)
def test_what_is_an_engine(text: str, name: str, version: str, model_class: str) -> None:
    assert registry.parse(text) == registry.Engine(name, version, model_class)
