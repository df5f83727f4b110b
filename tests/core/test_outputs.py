"""Where files are written: ours are known by a mark, foreign ones stay, what is examined is safe."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.case_files import writing_case
from workbench.core.outputs import (
    Kind,
    Output,
    check_append,
    check_folder,
    kind_of,
    prepared,
    writing,
)
from workbench.errors import WorkbenchError
from workbench.evidence.launches import append, from_command
from workbench.export.index import write_index
from workbench.hang import speedscope
from workbench.hang.collect.pack_collector import pack
from workbench.keys.diff import diff_keys
from workbench.weights.scan import scan_weights

from .. import hang_samples
from ..conftest import ROOT
from ..display_samples import hostile, incident

# Where the packed collector of version 0.1 has its program.
FIRST_COLLECTOR = "workbench/hang/collector/__main__.py"
DRAFT = ROOT / "data" / "drafts" / "specforge"


def first_collector(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(FIRST_COLLECTOR, "")


def case(path: Path) -> None:
    with writing_case(path, "host-1") as writer:
        writer.add("logs/server.log", "x")


def generated(path: Path) -> None:
    path.write_text(
        '<!DOCTYPE html>\n<html><head><meta name="generator" content="workbench 9.9">'
        "</head><body></body></html>"
    )


OURS: dict[str, tuple[Kind, Callable[[Path], object]]] = {
    "a page": ("page", incident().to_html),
    "a page with hostile names": ("page", hostile().to_html),
    "a page that names its generator": ("page", generated),
    "an index": ("page", lambda path: write_index(path.parent).rename(path)),
    "a saved diff": ("result", lambda path: diff_keys(DRAFT, "sglang==0.5.14").save(path)),
    "a saved scan": ("result", lambda path: scan_weights(DRAFT, names=["fc.*"]).save(path)),
    "a saved diagnosis": ("result", lambda path: hang_samples.diverged().save(path)),
    "what --json printed": (
        "result",
        lambda path: path.write_text(hang_samples.diverged().to_json(indent=1)),
    ),
    "a case": ("case", case),
    "merged stacks": ("stacks", lambda path: speedscope.write(hang_samples.diverged(), path)),
    "a ledger": ("ledger", lambda path: append(path, from_command("sglang serve --tp 8"))),
    "the collector": ("collector", pack),
    "the collector of version 0.1": ("collector", first_collector),
}


@pytest.mark.parametrize("name", OURS)
def test_what_the_workbench_writes_is_known_as_its_own_and_written_again(
    name: str, tmp_path: Path
) -> None:
    kind, write = OURS[name]
    write(tmp_path / "file")
    assert kind_of(tmp_path / "file") == kind
    with writing(tmp_path / "file", kind) as out:
        out.write(b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def archive(path: Path, **members: str) -> None:
    with zipfile.ZipFile(path, "w") as out:
        for name, text in members.items():
            out.writestr(name.replace("_", "."), text)


def notebook(path: Path) -> None:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import workbench")])
    made.cells[0].outputs = [
        nbformat.v4.new_output("display_data", {"text/html": '<meta name="workbench-verdict">'})
    ]
    nbformat.write(made, path)


FOREIGN: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: path.write_bytes(b""),
    "a checkpoint": lambda path: save_file({"a": np.ones(4, np.float32)}, path),
    "a notebook": notebook,
    "a page of somebody else": lambda path: path.write_text("<!DOCTYPE html><html><body>x"),
    "a page that quotes one": lambda path: path.write_text(
        '<!DOCTYPE html><html><head></head><body><meta name="generator" content="workbench 1">'
    ),
    "a log": lambda path: path.write_text("[2026-11-29] schema workbench.hang/1\n" * 9),
    "other JSON": lambda path: path.write_text(json.dumps({"schema": "other/1", "a": []})),
    "JSON that holds a result": lambda path: path.write_text(
        json.dumps({"kept": [{"schema": "workbench.hang/1"}]})
    ),
    "speedscope's own": lambda path: path.write_text(json.dumps({"exporter": "speedscope 1.2"})),
    "a zip": lambda path: archive(path, manifest_json='{"format": "other/1"}'),
    "a zip of nonsense": lambda path: archive(path, manifest_json="[" * 100_000),
    "a torn zip": lambda path: path.write_bytes(b"PK\x03\x04" + bytes(100)),
    "bytes": lambda path: path.write_bytes(os.urandom(1000)),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("kind", ["page", "result", "case", "stacks"])
def test_a_foreign_file_is_replaced_only_when_the_user_says_so(
    name: str, kind: Kind, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    FOREIGN[name](path)
    before = path.read_bytes()
    assert kind_of(path) is None
    with pytest.raises(WorkbenchError, match="the workbench did not write it") as raised:
        prepared(path, kind)
    assert "--force" in raised.value.next_step
    with pytest.raises(WorkbenchError), writing(path, kind):
        pass
    # A flag that a library read as text is not a user's word.
    with pytest.raises(WorkbenchError):
        prepared(path, kind, force="False")  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["file"]
    with writing(path, kind, force=True) as out:
        out.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_page_does_not_replace_a_collected_case(tmp_path: Path) -> None:
    case(tmp_path / "case.zip")
    with pytest.raises(WorkbenchError, match="it is a collected case"):
        prepared(tmp_path / "case.zip", "page")


@pytest.fixture
def examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint in a folder, and several ways that lead to it."""
    folder = tmp_path / "CK"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (tmp_path / "blob").write_text("weights")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    (folder / "gone").symlink_to(tmp_path / "elsewhere.html")
    (folder / "root").symlink_to("/")
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "to-config").symlink_to(folder / "config.json")
    os.link(folder / "config.json", tmp_path / "hard")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


@pytest.mark.parametrize(
    "path",
    [
        "CK/model.safetensors", "CK/config.json", "CK/new.html", "CK/sub/new.html", "CK/gone",
        "link/new.html", "link/config.json", "to-config", "hard", "blob", "work/../CK/x.html",
    ],
)  # fmt: skip
def test_nothing_is_written_into_what_is_examined_whatever_the_user_says(
    path: str, examined: Path, tmp_path: Path
) -> None:
    def state() -> dict[str, bytes]:
        files = [p for p in tmp_path.rglob("*") if p.is_file() and "/root/" not in str(p)]
        return {str(p): p.read_bytes() for p in files}

    before = state()
    for given in (tmp_path / path, Path("..") / path):
        for named in (examined, "../CK", f"file://{examined}", tmp_path / "link"):
            with pytest.raises(WorkbenchError, match="which is examined"):
                prepared(given, "page", examined=(None, "sglang==0.5.11", named), force=True)
            with (
                pytest.raises(WorkbenchError, match="which is examined"),
                writing(given, "page", examined=[named], force=True),
            ):
                pass
    assert state() == before


def test_a_checked_path_keeps_what_it_was_checked_for(examined: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    output = prepared(tmp_path / "theirs", "page", examined=(examined,), force=True)
    assert os.fspath(output) == str(tmp_path / "theirs")
    with writing(output, "page") as out:
        out.write(b"ours")
    assert (tmp_path / "theirs").read_text() == "ours"
    inside = Output(examined / "x.html", "page", (str(examined),), True)
    with pytest.raises(WorkbenchError, match="which is examined"), writing(inside, "page"):
        pass


def test_next_to_what_is_examined_is_free(examined: Path, tmp_path: Path) -> None:
    assert prepared(tmp_path / "new.html", "page", examined=(examined,)).path.name == "new.html"
    single = prepared(examined / "new.html", "page", examined=(examined / "config.json",))
    assert single.path.name == "new.html"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("absent/x.html", "there is no folder"),
        (".", "it is a folder"),
        ("/dev/null", "a device or a pipe"),
        ("/proc/x.html", "No such file"),
        ("x" * 300, "File name too long"),
        ("file/x.html", "there is no folder"),
        ("loop", "a link to itself"),
        ("", "is not a path"),
        ("a\0b", "is not a path"),
        (None, "is not a path"),
        (3, "is not a path"),
        ("~nobody-of-that-name/x", "is not a path"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_the_work(
    path: object, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(WorkbenchError, match=why) as raised:
        prepared(path, "page")  # type: ignore[arg-type]
    assert raised.value.next_step
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


def test_a_foreign_file_that_appears_during_the_work_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.html"

    def work() -> None:
        with writing(path, "page") as out:
            out.write(b"ours")
            path.write_text("theirs")

    with pytest.raises(WorkbenchError, match="did not write it"):
        work()
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["x.html"]


def test_it_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.html"

    def broken() -> None:
        with writing(path, "page") as out:
            out.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert os.listdir(tmp_path) == []
    umask = os.umask(0o027)
    try:
        for mode, left in ((0o666, 0o640), (0o600, 0o600)):
            with writing(tmp_path / f"{mode}", "page", mode=mode):
                pass
            assert (tmp_path / f"{mode}").stat().st_mode & 0o777 == left
    finally:
        os.umask(umask)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    incident().to_html(tmp_path / "real.html")
    (tmp_path / "link.html").symlink_to("real.html")
    with writing(tmp_path / "link.html", "page") as out:
        out.write(b"new")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_bytes() == b"new"


def test_a_ledger_is_not_appended_to_another_file(tmp_path: Path) -> None:
    save_file({"a": np.ones(4, np.float32)}, tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(WorkbenchError, match="did not write it"):
        append(tmp_path / "model.safetensors", from_command("sglang serve"))
    assert (tmp_path / "model.safetensors").read_bytes() == before
    (tmp_path / "empty").touch()
    check_append(tmp_path / "empty", "ledger")
    check_append(tmp_path / "absent", "ledger")


def test_a_folder_to_write_is_new_or_empty_and_outside_what_is_examined(
    examined: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new"):
        assert check_folder(tmp_path / name, examined=(examined,)) == tmp_path / name
    for place, why in (
        ("CK", "examined"), ("CK/sub", "examined"), ("link/new", "examined"), ("blob", "examined"),
        ("absent/new", "there is no folder"), ("to-config", "examined"),
    ):  # fmt: skip
        with pytest.raises(WorkbenchError, match=why):
            check_folder(tmp_path / place, examined=(examined,))
    (tmp_path / "empty" / "x").touch()
    with pytest.raises(WorkbenchError, match="not empty"):
        check_folder(tmp_path / "empty")


@pytest.mark.parametrize(("before", "allowed", "after"), [
    (0o600, 0o666, 0o600), (0o640, 0o666, 0o640), (0o664, 0o666, 0o664), (0o664, 0o600, 0o600),
])  # fmt: skip
def test_a_file_that_is_replaced_keeps_who_may_read_it(
    tmp_path: Path, before: int, allowed: int, after: int
) -> None:
    place = tmp_path / "saved.json"
    place.write_text('{"schema": "workbench.keydiff/1"}')
    place.chmod(before)
    with writing(place, "result", mode=allowed) as out:
        out.write(b'{"schema": "workbench.keydiff/1", "new": 1}')
    assert place.stat().st_mode & 0o777 == after
    assert b"new" in place.read_bytes()
