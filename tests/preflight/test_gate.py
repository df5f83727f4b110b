"""`gate`: a draft in every release, its weights, its acceptance; what a CI and a reader get."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import workbench
from tests.forms import check_forms
from workbench.cli.program import app
from workbench.core.verdict import Item
from workbench.errors import WorkbenchError
from workbench.export.junit import junit
from workbench.export.schemas import FOLDER, SCHEMAS, schema_of
from workbench.facts import rows
from workbench.preflight import gating, matrix
from workbench.preflight.gate_records import Cell

TARGET = "data/incident/target"
GOOD, LOST = "data/incident/drafts/specforge", "data/incident/drafts/speculators"
PROMPTS = [[(7 * i + k) % 250 + 2 for i in range(8)] for k in range(2)]


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def of_kind(found: workbench.preflight.gate_records.Gate, kind: str) -> list[Item]:
    return [item for item in found.verdict.coverage.items if item.kind == kind]


def test_a_draft_that_loads_everywhere_passes_and_has_a_badge() -> None:
    found = workbench.gate(GOOD, target=TARGET, engines="sglang>=0.5.9,vllm>=0.26")
    assert found.ok is True
    assert found.badge == "loads in sglang 0.5.9–0.5.23, vllm 0.26.0–0.32.0"
    newer = [
        one for one in rows.releases("sglang") if one in {cell.version for cell in found.cells}
    ]
    assert len(of_kind(found, "release")) == len(newer) + 7
    assert of_kind(found, "replay")[0].essential is False  # no baseline was given


def test_a_draft_that_loses_its_layer_does_not_pass_and_has_none() -> None:
    found = workbench.gate(LOST, target=TARGET, engines="sglang==0.5.11")
    assert found.ok is False
    assert found.badge == ""
    assert "1 of 1 releases" in found.summary
    assert "workbench fix" in found.document().answer.next_step
    with pytest.raises(WorkbenchError, match="there is no badge"):
        list(gating.badges(found, "gate.html"))


def test_a_release_that_is_not_described_is_listed_and_left_out_of_the_badge() -> None:
    found = workbench.gate(GOOD, target=TARGET, engines="vllm<0.20")
    assert found.ok is True
    assert {cell.version for cell in found.cells if not cell.described} == {"0.11.0"}
    assert found.badge == "loads in vllm 0.11.2–0.19.0"
    alone = workbench.gate(GOOD, target=TARGET, engines="vllm==0.11.0")
    assert alone.ok is None
    assert alone.badge == ""


def test_ranges_have_no_gap() -> None:
    cells = [Cell("sglang", one, True, "") for one in ("0.5.11", "0.5.12", "0.5.14")]
    assert matrix.spans(cells) == "sglang 0.5.11–0.5.12 and 0.5.14"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "does not name releases"),
        ("sglang>=9", "no release of SGLang on file"),
        ("llama.cpp", "no releases of llama-cpp|no releases of llama.cpp"),
        ("sglang>=", "does not name releases"),
    ],
)
def test_what_names_no_releases_says_so(text: str, says: str) -> None:
    with pytest.raises(WorkbenchError, match=says):
        matrix.releases(text)


def test_a_bound_may_have_two_ends() -> None:
    found = matrix.releases("sglang>=0.5.11,<0.5.13,vllm==0.32.0")
    assert found == (
        ("sglang", "0.5.11"), ("sglang", "0.5.12"), ("sglang", "0.5.12.post1"), ("vllm", "0.32.0"),
    )  # fmt: skip


def test_acceptance_is_measured_by_the_stored_baseline(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    asked = {
        "target": TARGET,
        "engines": "sglang==0.5.11",
        "prompts": PROMPTS,
        "requests": 2,
        "new_tokens": 12,
    }
    first = workbench.gate(GOOD, save_baseline=file, **asked)  # type: ignore[arg-type]
    assert first.ok is True
    same = workbench.gate(GOOD, baseline=file, **asked)  # type: ignore[arg-type]
    assert same.ok is True
    assert same.accept_length == same.baseline == first.accept_length
    assert of_kind(same, "replay")[0].essential
    data = json.loads(file.read_text())
    file.write_text(json.dumps(data | {"accept_length": data["accept_length"] * 1.2}))
    lower = workbench.gate(GOOD, baseline=file, **asked)  # type: ignore[arg-type]
    assert lower.ok is False
    assert "Acceptance: acceptance length" in lower.summary
    file.write_text(json.dumps(data | {"prompts": "of another file"}))
    other = workbench.gate(GOOD, baseline=file, **asked)  # type: ignore[arg-type]
    assert other.ok is None
    assert other.badge == ""
    file.write_text("[]")
    with pytest.raises(WorkbenchError, match="is not a baseline"):
        workbench.gate(GOOD, baseline=file, **asked)  # type: ignore[arg-type]


def test_the_digest_is_that_of_the_files(tmp_path: Path) -> None:
    copy = tmp_path / "draft"
    shutil.copytree(GOOD, copy)
    assert gating.digest(copy) == gating.digest(Path(GOOD))
    config = copy / "config.json"
    config.write_text(config.read_text() + "\n")
    assert gating.digest(copy) != gating.digest(Path(GOOD))


def test_a_badge_has_its_basis_date_digest_and_page(tmp_path: Path) -> None:
    given = [
        "gate",
        GOOD,
        "--target",
        TARGET,
        "--engines",
        "sglang==0.5.23",
        "--badge",
        str(tmp_path),
    ]
    done = CliRunner().invoke(app, [*given, "--page", "https://example.org/gate.html?a=1&b"])
    assert done.exit_code == 0, done.output
    picture = ElementTree.fromstring((tmp_path / "badge.svg").read_text())
    space = "{http://www.w3.org/2000/svg}"
    about = picture.findtext(f"{space}desc") or ""
    assert picture.findtext(f"{space}title") == "loads in sglang 0.5.23"
    assert "checked against the real loaders" in about
    assert gating.digest(Path(GOOD))[:19] in about
    link = picture.find(f"{space}a")
    assert link is not None
    assert link.get("href") == "https://example.org/gate.html?a=1&b"
    line = (tmp_path / "badge.md").read_text()
    assert line.startswith("[![loads in sglang 0.5.23](badge.svg")
    assert "](https://example.org/gate.html?a=1&b)" in line
    assert CliRunner().invoke(app, given).exit_code == 0  # its own files may be replaced


def test_junit_of_a_gate_and_of_a_check(tmp_path: Path) -> None:
    file = tmp_path / "check.xml"
    line = f"sglang serve --model-path {TARGET} --tpp 2"
    given = ["check", line, "--engine", "sglang==0.5.14", "--junit", str(file)]
    assert CliRunner().invoke(app, given).exit_code == 1
    suite = ElementTree.fromstring(file.read_bytes())[0]
    failures = [
        case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None
    ]
    assert failures == ["--tpp", "the parser takes every argument"]
    assert int(suite.get("failures", "")) == 2
    found = workbench.gate(LOST, target=TARGET, engines="sglang==0.5.11")
    case = next(ElementTree.fromstring(junit(found)).iter("failure"))
    assert "refuses this config" in (case.get("message") or "")
    open_ = workbench.check(f"{line} \x01", engine="sglang==0.5.14")
    assert ElementTree.fromstring(junit(open_)) is not None  # a control character is no XML


def test_the_schemas_on_file_are_those_of_the_results(root: Path) -> None:
    for name in SCHEMAS:
        written = json.loads((root / FOLDER / f"{name}.json").read_text())
        assert written == schema_of(name), f"python -m workbench.export.schemas writes {name}"


def test_results_fit_the_schemas_on_file(root: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    line = f"sglang serve --model-path {TARGET} --tpp 2"
    results = [
        workbench.gate(LOST, target=TARGET, engines="sglang==0.5.11,vllm==0.11.0"),
        workbench.check(line, engine="sglang==0.5.14"),
        workbench.doctor("data/incident/runs/sglang-0.5.11/incident-eagle"),
    ]
    for found in results:
        name = found.schema.replace("/", "-")
        schema = json.loads((root / FOLDER / f"{name}.json").read_text())
        jsonschema.validate(json.loads(found.to_json()), schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(found.to_dict() | {"ok": "yes"}, schema)


def test_it_is_saved_and_shown_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = workbench.gate(LOST, target=TARGET, engines="sglang>=0.5.11,<0.5.13")
    assert workbench.load(found.save(tmp_path / "gate.json")) == found
    import dataclasses

    check_forms(dataclasses.replace(found, date="2026-11-30"), "gate-lost", monkeypatch)
    with pytest.raises(ValueError, match="a badge is given"):
        type(found).from_dict(found.to_dict() | {"badge": "loads"})


def test_a_finding_of_many_releases_is_told_once(root: Path) -> None:
    incident = root / "data" / "incident"
    found = workbench.gate(
        incident / "drafts" / "speculators", target=incident / "target", engines="sglang>=0.5.20"
    )
    titles = [one.title for one in found.findings]
    assert len(titles) == len({re.sub(r"\d+\.\d+\.\d+\S*", "", one) for one in titles})
    assert "the same in 3 other releases: sglang 0.5.21" in found.findings[0].evidence_for[-1]


def test_a_draft_is_no_target(root: Path) -> None:
    draft = root / "data" / "incident" / "drafts" / "specforge"
    with pytest.raises(WorkbenchError, match="is a draft, and was given as the target"):
        workbench.gate(draft, target=draft, engines="sglang>=0.5.23")
