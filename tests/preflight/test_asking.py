"""The engine's own parser and checks: what they say of public launches, and what they may not do."""

from __future__ import annotations

import json
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import workbench
from tests.check_unseen.cases import Line, of_engine, read_lines
from tests.check_unseen.models import build
from tests.engines import environments
from workbench.core.verdict import Item
from workbench.errors import EngineError
from workbench.launch.read import read_launch
from workbench.launch.rules.records import fault
from workbench.preflight import asking, own_checks
from workbench.preflight.engine import cage
from workbench.preflight.records import LaunchCheck

LINES = of_engine(read_lines(), "sglang")
HELD = [
    v for v in environments.sglang_versions() if any(f"sglang=={v}" == one.engine for one in LINES)
]
GOOD = (
    "python3 -m sglang.launch_server --model-path data/incident/target --tp 2 "
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path data/incident/drafts/specforge "
    "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5"
)
RELEASE = "0.5.14"
engine = pytest.mark.engine


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


@pytest.fixture
def python() -> Path:
    return environments.ensure(f"sglang-{RELEASE}")


def asked_of(line: Line, places: dict[str, Path]) -> asking.Question:
    launch = read_launch(line.placed(places), version=line.engine.partition("==")[2])
    models = {name: Path(name) for name in (launch.target, launch.draft) if name}
    here = {name: place if place.exists() else None for name, place in models.items()}
    return asking.question_of(line.name, launch, here)


@engine
@pytest.mark.parametrize("version", HELD)
def test_public_launches_are_refused_as_the_table_says_and_none_else(
    version: str, tmp_path: Path
) -> None:
    lines = [line for line in LINES if line.engine == f"sglang=={version}"]
    places = build(tmp_path, sorted({name for line in lines for name in line.models}))
    questions = [asked_of(line, places) for line in lines]
    answers = asking.ask_all(environments.ensure(f"sglang-{version}"), questions)
    found = {line.name: one for line, (_, one) in zip(lines, answers, strict=True)}
    refused = {name for name, one in found.items() if one.state == "refused"}
    wanted = {line.name for line in lines if line.moment in ("parser", "check")}
    assert refused <= wanted  # what is refused for this machine's sake is no refusal
    assert len(refused) >= 0.8 * len(wanted)
    assert sum(one.state == "accepted" for one in found.values()) >= 0.7 * (
        len(lines) - len(wanted)
    )


def own_item(found: LaunchCheck) -> Item:
    return next(item for item in found.verdict.coverage.items if item.kind == "engine")


@engine
def test_a_good_line_is_cleared_by_the_engine_itself(python: Path) -> None:
    found = workbench.check(GOOD, python=python)
    assert found.ok is True
    assert (found.version, found.version_basis) == (RELEASE, "of the engine that was asked")
    own = own_item(found)
    assert (own.state, own.essential) == ("ok", True)


@engine
def test_what_no_rule_knows_is_refused_in_the_engine_s_words(python: Path) -> None:
    line = f"{GOOD} --enable-ssl-refresh"
    assert workbench.check(line, engine=f"sglang=={RELEASE}").ok is True  # the rules do not know it
    found = workbench.check(line, python=python)
    assert found.ok is False
    assert found.first is not None
    assert (found.first.moment, found.first.code) == ("checks", "engine_refuses")
    assert "--ssl-certfile" in found.first.text


@engine
def test_what_a_rule_explains_is_one_fault(python: Path) -> None:
    found = workbench.check(GOOD.replace("--tp 2", "--tpp 2"), python=python)
    assert [fault.code for fault in found.faults] == ["argument_unknown"]
    own = own_item(found)
    assert (own.state, "unrecognized arguments: --tpp 2" in own.how) == ("wrong", True)


def ruling(state: str, moment: str = "") -> own_checks.Ruled:
    """Return what becomes of a fault of the checks that a rule found, after the engine was heard."""
    rule = own_checks.RULE
    found = fault("sizes", "some_code", "a rule says so", "checks")
    asked = asking.Asked(RELEASE, state, moment, "its words")  # type: ignore[arg-type]
    return next(one for _, one in own_checks.joined([(rule, found)], asked))


def test_a_rule_that_the_engine_contradicts_accuses_no_more() -> None:
    assert ruling("accepted").state == "open"
    assert "the engine's own checks let it pass" in ruling("accepted").how
    assert ruling("parsed").state == "wrong"  # its checks were not asked
    assert ruling("refused", "checks").state == "wrong"


def answers_of(python: Path, *lines: str) -> list[asking.Asked]:
    """Ask about several lines in one process."""
    questions = []
    for line in lines:
        launch = read_launch(line, version=RELEASE)
        models = {name: Path(name) for name in (launch.target, launch.draft) if name}
        here = {name: place if place.exists() else None for name, place in models.items()}
        questions.append(asking.question_of(line, launch, here))
    return [found for _, found in asking.ask_all(python, questions)]


@engine
def test_what_this_machine_cannot_answer_is_no_refusal(python: Path) -> None:
    rows = {
        f"{GOOD} --attention-backend trtllm_mha": "Blackwell",  # it is about the card
        f"{GOOD} --dtype $DTYPE": "$DTYPE",
        GOOD.replace("data/incident/target", "org/model"): "org/model is not here",
        f"{GOOD} --custom-weight-loader evil.load": "--custom-weight-loader",
        f"SGLANG_EXTERNAL_MODEL_PACKAGE=evil {GOOD}": "SGLANG_EXTERNAL_MODEL_PACKAGE",
    }
    for found, why in zip(answers_of(python, *rows), rows.values(), strict=True):
        assert found.state in ("parsed", "open")
        assert why in found.says


@engine
def test_code_of_a_model_is_not_run_and_never_a_refusal(python: Path, tmp_path: Path) -> None:
    target, mark = tmp_path / "target", tmp_path / "it-ran"
    shutil.copytree("data/incident/target", target)
    config = json.loads((target / "config.json").read_text())
    config |= {"model_type": "of_its_own", "auto_map": {"AutoConfig": "configuration_own.Own"}}
    (target / "config.json").write_text(json.dumps(config))
    code = f"open({str(mark)!r}, 'w')\nfrom transformers import LlamaConfig\nclass Own(LlamaConfig): pass\n"
    (target / "configuration_own.py").write_text(code)
    line = GOOD.replace("data/incident/target", str(target))
    plain, trusted = answers_of(python, line, f"{line} --trust-remote-code")
    assert not mark.exists()
    assert plain.says == trusted.says == "the model brings code of its own, which is not run"
    assert plain.state == trusted.state == "parsed"


@engine
def test_the_engine_must_be_the_one_that_was_named(python: Path) -> None:
    with pytest.raises(EngineError, match=r"has SGLang 0\.5\.14, not 0\.5\.11"):
        workbench.check(GOOD, engine="sglang==0.5.11", python=python)


def test_what_cannot_be_asked_says_so(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="only the parsers of SGLang and vLLM"):
        workbench.check("trtllm-serve data/incident/target", python=sys.executable)
    with pytest.raises(EngineError, match="vllm cannot be imported"):
        workbench.check("vllm serve data/incident/target", python=sys.executable)
    with pytest.raises(EngineError, match="no Python interpreter"):
        workbench.check(GOOD, python=tmp_path / "none")
    with pytest.raises(EngineError, match="no words"):
        workbench.check(
            "data/incident/runs/sglang-0.5.11/incident/server.log", python=sys.executable
        )


CAGED = """
import pickle, socket, sys, types, importlib
sys.path[:0] = [{package!r}, {model!r}, {modules!r}]
import cage
bars = cage.Cage([{model!r}])
bars.close()
bars.asking = True
def network(): socket.create_connection(("127.0.0.1", {port}), 5)
def names(): socket.getaddrinfo("localhost", 80)
def pickled(): pickle.loads(pickle.dumps(types.SimpleNamespace))
def code(): import code_of_a_model
def hub(): importlib.import_module("transformers_modules.x")
def compiled(): import compiled_of_a_model
def own(): socket.socketpair(); import colorsys
for one in (network, names, pickled, code, compiled, hub, own):
    try:
        one()
        print(one.__name__, "done")
    except cage.CagedError as error:
        print(one.__name__, error)
"""


def test_the_cage_holds(tmp_path: Path) -> None:
    import socket

    (tmp_path / "model").mkdir()
    for name in ("model/code_of_a_model", "model/compiled_of_a_model", "transformers_modules/x"):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("print('the code ran')\n")
    source = tmp_path / "model" / "compiled_of_a_model.py"
    py_compile.compile(str(source), f"{source}c")
    source.unlink()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        script = CAGED.format(
            package=str(Path(cage.__file__).parent),
            model=str(tmp_path / "model"),
            modules=str(tmp_path),
            port=server.getsockname()[1],
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        with pytest.raises(BlockingIOError):
            server.accept()
    assert done.stdout.splitlines() == [
        "network the network is out of reach here",
        "names the network is out of reach here",
        "pickled a pickle is out of reach here",
        "code code of a checkpoint is out of reach here",
        "compiled code of a checkpoint is out of reach here",
        "hub code of a checkpoint is out of reach here",
        "own done",
    ]
