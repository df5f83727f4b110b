"""A release is one command and one file: wheels made here are read, written and asked again."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from workbench.errors import EngineError
from workbench.facts import read_wheel, rows, watched
from workbench.facts.harvest.flags import flags
from workbench.facts.harvest.wheel import Wheel

OLD = """
CHOICES = ["EAGLE"]
class ServerArgs:
    algorithm: str = None
    tp_size: int = 1
    hosts: list = field(default_factory=list)
    @staticmethod
    def add_cli_args(parser):
        more = ["EAGLE3"] + CHOICES
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=ServerArgs.tp_size)
        parser.add_argument("--algorithm", choices=more, default=ServerArgs.algorithm)
        parser.add_argument("--quiet", action="store_true")
        parser.add_argument("--hosts", nargs="*", default=ServerArgs.hosts)
        parser.add_argument("--level", type=int, default=pick_level())
        raise SystemExit("reading a wheel must not run it")
raise SystemExit("reading a wheel must not run it")
"""
NEW = """
from typing import Annotated as A, Literal, Optional
class ServerArgs:
    tp_size: A[int, Arg(help="x", cli_name="--tensor-parallel-size", aliases=["--tp-size"])] = 1
    algorithm: A[Optional[Literal["EAGLE", "EAGLE3", "NEW"]], "x"] = None
    hosts: A[Optional[list[str]], Arg(help="x", nargs="*")] = None
    silent: A[bool, "x"] = False
    hidden: A[int, Arg(no_cli=True)] = 3
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--quiet", action=DeprecatedStoreTrueAction, new_flag="--silent", dest="silent")
"""


def wheel(folder: Path, release: str, server_args: str, **files: str) -> Path:
    path = folder / f"sglang-{release}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr(
            f"sglang-{release}.dist-info/METADATA", f"Name: sglang\nVersion: {release}\n\n"
        )
        out.writestr("sglang/srt/server_args.py", server_args)
        for name, text in files.items():
            out.writestr(f"sglang/srt/{name.replace('__', '/')}.py", text)
    return path


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setattr(read_wheel, "DATA", folder)
    monkeypatch.setattr(rows, "_data", lambda: folder)
    rows.forget()
    yield folder
    monkeypatch.undo()
    rows.forget()


def test_flags_of_both_forms_of_registration(tmp_path: Path) -> None:
    old = {f.name: f.value for f in flags(Wheel(wheel(tmp_path, "0.1.0", OLD)))}
    new = {f.name: f.value for f in flags(Wheel(wheel(tmp_path, "0.2.0", NEW)))}
    names = ["tensor-parallel-size", "tp-size"]
    assert old["tensor-parallel-size"]["names"] == new["tensor-parallel-size"]["names"] == names
    assert new["tensor-parallel-size"] == {
        "names": names, "field": "tp-size", "sort": "value", "type": "int", "default": 1,
    }  # fmt: skip
    assert old["algorithm"]["choices"] == ["EAGLE3", "EAGLE"]
    assert new["algorithm"]["choices"] == ["EAGLE", "EAGLE3", "NEW"]
    assert (old["hosts"]["nargs"], old["hosts"]["default"]) == ("*", [])
    assert new["hosts"]["nargs"] == "*"
    assert old["level"]["unknown"] == ["default"]  # only a run could tell
    assert (new["quiet"]["old"], new["quiet"]["field"], new["silent"]["sort"]) == (
        True,
        "silent",
        "switch",
    )
    assert "hidden" not in new


def test_one_command_adds_a_release(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = wheel(tmp_path, "0.1.0", OLD), wheel(tmp_path, "0.2.0", NEW)
    assert read_wheel.main([str(first)]) == 0
    assert read_wheel.main([str(second)]) == 0
    assert sorted(file.name for file in (data / "sglang").iterdir()) == ["0.1.0.json", "0.2.0.json"]
    said = capsys.readouterr().out
    assert "gone: flag level" in said
    assert "flag silent: sglang/srt/server_args.py:7" in said
    (one,) = rows.rows("sglang", "flag", "silent")
    assert (one.last_without, one.first_with, one.line) == ("0.1.0", "0.2.0", 7)
    assert rows.has("sglang", "flag", "level", "0.1.0") is True
    assert rows.has("sglang", "flag", "level", "0.2.0") is False
    assert rows.has("sglang", "flag", "level", "0.3.0") is None


def test_a_release_in_between_moves_the_borders(tmp_path: Path, data: Path) -> None:
    read_wheel.main([str(wheel(tmp_path, "0.1.0", OLD))])
    read_wheel.main([str(wheel(tmp_path, "0.2.0", NEW))])
    read_wheel.main([str(wheel(tmp_path, "0.1.1", NEW))])
    (one,) = rows.rows("sglang", "flag", "silent")
    assert (one.last_without, one.first_with) == ("0.1.0", "0.1.1")
    assert rows.read_release("sglang", "0.2.0").rows == []


def test_what_is_no_wheel_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("a.whl", b"no zip"), ("b.whl", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(EngineError, match="is not the wheel of an engine"):
            Wheel(tmp_path / name)
        assert read_wheel.main([str(tmp_path / name)]) == 2
    with zipfile.ZipFile(tmp_path / "c.whl", "w") as out:
        out.writestr("sglang/__init__.py", "")
    with pytest.raises(EngineError, match="METADATA"):
        Wheel(tmp_path / "c.whl")
    assert "pip download" in capsys.readouterr().err


def test_a_file_that_is_no_python_is_passed_over(tmp_path: Path) -> None:
    path = wheel(tmp_path, "0.1.0", OLD, models__odd="EntryClass = [\n", environ="class Envs:\n  (")
    assert read_wheel.facts_of(Wheel(path))["flag", "quiet"].value["sort"] == "switch"


NAMED = "def init_all_cuda_graphs(self):\n    pass\n"
FUNCTION = ("function", "init_all_cuda_graphs@managers/scheduler.py")


def two_wheels(folder: Path) -> list[str]:
    return [
        str(wheel(folder, release, text, managers__scheduler=NAMED))
        for release, text in (("0.1.0", OLD), ("0.2.0", NEW))
    ]


def forget(data: Path, feature: tuple[str, str]) -> None:
    """Leave the files as they are if nobody had looked for a feature."""
    for file in data.rglob("*.json"):
        value = json.loads(file.read_text())
        if isinstance(value, list):
            value = [one for one in value if tuple(one) != feature]
        else:
            value["rows"] = [row for row in value["rows"] if tuple(row[:2]) != feature]
        file.write_text(json.dumps(value))
    rows.forget()


def test_what_is_looked_for_only_now_does_not_seem_to_come_with_the_next_release(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = two_wheels(tmp_path)
    assert read_wheel.main([first]) == 0
    forget(data, FUNCTION)
    assert read_wheel.main([second]) == 0
    assert (
        "left out: function init_all_cuda_graphs@managers/scheduler.py" in capsys.readouterr().out
    )
    assert rows.rows("sglang", *FUNCTION) == ()
    assert rows.may_have("sglang", *FUNCTION, "0.2.0")
    assert read_wheel.main([first, second]) == 0
    (one,) = rows.rows("sglang", *FUNCTION)
    assert (one.last_without, one.first_with, one.first_without) == ("", "0.1.0", "")
    assert FUNCTION in rows.looked_for("sglang")


def test_what_is_no_longer_looked_for_does_not_seem_to_be_gone(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_wheels(tmp_path)
    read_wheel.main([first])
    monkeypatch.setattr(watched, "_FUNCTIONS", ())
    read_wheel.main([second])
    assert FUNCTION not in rows.read_release("sglang", "0.2.0").gone
    assert rows.has("sglang", *FUNCTION, "0.2.0") is True


def test_kinds_that_are_not_read_again_stay_as_they_are(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = two_wheels(tmp_path)
    read_wheel.main([first, second])
    before = {file.name: file.read_text() for file in data.rglob("*.json")}
    forget(data, FUNCTION)
    assert read_wheel.main(["--kinds", "function", first, second]) == 0
    assert {file.name: file.read_text() for file in data.rglob("*.json")} == before
    third = str(wheel(tmp_path, "0.3.0", NEW))
    assert read_wheel.main(["--kinds", "function", third]) == 2
    assert "Read it whole first" in capsys.readouterr().err
    assert read_wheel.main(["--kinds", "functions", first]) == 2
    assert {file.name: file.read_text() for file in data.rglob("*.json")} == before


SERVE = """
import click
raise SystemExit("reading a wheel must not run it")
@click.command("serve")
@click.argument("model", type=str)
@click.option("--tp_size", "--tensor_parallel_size", type=int, default=1)
@click.option("--config", "--extra_llm_api_options", "options", type=str)
@click.option("--level", type=click.Choice(levels.keys()))
@click.option("--parser", type=click.Choice(Parsers.known.keys()))
@click.option("--backend", type=ChoiceWithAlias(["pytorch"], {"trt": "tensorrt"}))
@click.option("--elsewhere", type=click.Choice(imported.keys()))
@click.option("--quiet", is_flag=True)
def serve(model): ...
@click.command("disaggregated")
@click.option("--other")
def disaggregated(): ...
"""
TABLES = """
levels = {"info": 1, "debug": 2}
class Parsers:
    known: dict = {"qwen3": A, "r1": B}
class Other:
    known: dict = {"foreign": A}
"""


def test_the_options_of_tensorrt_llm_are_those_of_its_command(tmp_path: Path) -> None:
    (tmp_path / "tensorrt_llm-1.0.dist-info").mkdir()
    (tmp_path / "tensorrt_llm-1.0.dist-info/METADATA").write_text(
        "Name: tensorrt_llm\nVersion: 1.0\n"
    )
    (tmp_path / "tensorrt_llm/commands").mkdir(parents=True)
    (tmp_path / "tensorrt_llm/commands/serve.py").write_text(SERVE)
    (tmp_path / "tensorrt_llm/tables.py").write_text(TABLES)
    found = {one.name: one.value for one in watched.harvest(Wheel(tmp_path))}
    assert found == {
        "tp_size": {
            "names": ["--tp_size", "--tensor_parallel_size"],
            "sort": "value",
            "type": "int",
        },
        "config": {"names": ["--config", "--extra_llm_api_options"], "sort": "value"},
        "level": {"names": ["--level"], "sort": "value", "choices": ["info", "debug"]},
        "parser": {"names": ["--parser"], "sort": "value", "choices": ["qwen3", "r1"]},
        "backend": {"names": ["--backend"], "sort": "value", "choices": ["pytorch", "trt"]},
        "elsewhere": {"names": ["--elsewhere"], "sort": "value"},
        "quiet": {"names": ["--quiet"], "sort": "switch"},
    }
