"""Folders and zips of evidence: written whole, read without trust, redacted on the way out."""

from __future__ import annotations

import json
import os
import stat
import string
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.case_files import writing_case
from workbench.errors import WorkbenchError
from workbench.evidence import casefile, folder
from workbench.evidence.casefile import CaseWriter, read_ends
from workbench.evidence.folder import (
    changed_members,
    open_folder,
    open_inner,
    read_manifest,
)
from workbench.evidence.redact import LEFT_OUT, Redactor, is_secret

ROOT = Path(__file__).resolve().parents[2]
LOG = ROOT / "data" / "incident" / "hang" / "capture-hang" / "server.log"


def write(path: Path, **fields: object) -> Path:
    with writing_case(path, "host-5f2c91", created=12.5, **fields) as case:
        case.add_snapshot(1, 1795977069.3, [{"pid": 7}])
        case.add_log("server.log", str(LOG), (7, 8))
    return path


def test_a_case_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = write(
        tmp_path / "case.zip", version="0.5.14", port_open=False, utc_offset=3600.0, node_rank=1
    )
    with open_folder(path) as case:
        manifest = read_manifest(case)
        assert manifest is not None
        assert (manifest.host, manifest.version, manifest.port_open) == (
            "host-5f2c91",
            "0.5.14",
            False,
        )
        assert (manifest.created, manifest.utc_offset, manifest.node_rank) == (12.5, 3600.0, 1)
        assert manifest.logs == {"logs/server.log": (7, 8)}
        assert list(case.sizes) == ["logs/server.log", "manifest.json", "snapshot-1/processes.json"]
        assert case.read("logs/server.log") == LOG.read_bytes()
        assert changed_members(case, manifest) == []
    # The same files, unpacked.
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "unpacked")
    with open_folder(tmp_path / "unpacked") as case:
        assert read_manifest(case) == manifest
        (tmp_path / "unpacked" / "logs" / "server.log").write_text("other")
        (tmp_path / "unpacked" / "snapshot-1" / "processes.json").unlink()
        assert changed_members(case, manifest) == ["snapshot-1/processes.json", "logs/server.log"]


def test_a_case_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write(tmp_path / "case.zip")
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), writing_case(path, "h") as case:
        case.add("x", str(1 / 0))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["case.zip"]
    with writing_case(tmp_path / "two.zip", "h") as case:
        case.add("x", "y")
        with pytest.raises(ValueError, match="in the case already"):
            case.add("x", "z")


def test_of_a_long_log_both_ends_are_kept(tmp_path: Path) -> None:
    lines = [f"line {n} {'x' * 40}\n" for n in range(1000)]
    path = tmp_path / "long.log"
    path.write_text("".join(lines))
    raw, total, cut = read_ends(str(path), head=2000, tail=3000)
    assert total == path.stat().st_size
    kept = raw.decode().splitlines(keepends=True)
    mark = next(line for line in kept if line.startswith("[workbench:"))
    kept.remove(mark)
    assert cut == total - sum(map(len, kept)) > 0
    assert str(cut) in mark
    assert set(kept) <= set(lines)  # whole lines
    assert (kept[0], kept[-1]) == (lines[0], lines[-1])
    assert read_ends(str(path))[0] == path.read_bytes()


# -- zips that are traps ---------------------------------------------------------------------------


def zip_with(path: Path, name: str, data: bytes = b"x", **changes: object) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)
        info.compress_type = zipfile.ZIP_DEFLATED
        for field, value in changes.items():
            setattr(info, field, value)
        archive.writestr(info, data)
    return path


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up", "a/../../up", "..\\up", "C:evil", "a\x1b[31mb", "a\nb"]
)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WorkbenchError, match="was not opened") as caught:
        open_folder(zip_with(tmp_path / "case.zip", name))
    assert "\x1b" not in str(caught.value)


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    path = zip_with(
        tmp_path / "c.zip", "log", b"/etc/passwd", external_attr=(stat.S_IFLNK | 0o777) << 16
    )
    with pytest.raises(WorkbenchError, match="link"):
        open_folder(path)


def test_a_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "RATIO_FROM", 16 << 20)
    path = zip_with(tmp_path / "bomb.zip", "server.log", b"\0" * (17 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(WorkbenchError, match="times its size"):
        open_folder(path)


def test_too_much_together_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MOST_BYTES", 1000)
    with pytest.raises(WorkbenchError, match="unpacked"):
        open_folder(zip_with(tmp_path / "c.zip", "a", b"x" * 1001))
    monkeypatch.setattr(folder, "MOST_MEMBERS", 1)
    for path in (write(tmp_path / "many.zip"), tmp_path):
        with pytest.raises(WorkbenchError, match="holds more than 1 files"):
            open_folder(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("manifest.json", "{}")
        archive.writestr("manifest.json", "[]")
    with pytest.raises(WorkbenchError, match="twice"):
        open_folder(tmp_path / "c.zip")


def test_encrypted_and_damaged_zips(tmp_path: Path) -> None:
    path = zip_with(tmp_path / "c.zip", "a", b"x" * 100)
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\x01\x02")
    raw[entry + 8] |= 1  # the flag of an encrypted member
    path.write_bytes(raw)
    with pytest.raises(WorkbenchError, match="encrypted"):
        open_folder(path)
    whole = write(tmp_path / "case.zip").read_bytes()
    (tmp_path / "bad.zip").write_bytes(whole.replace(whole[60:70], b"0123456789", 1))
    with (
        open_folder(tmp_path / "bad.zip") as case,
        pytest.raises(WorkbenchError, match="cannot read"),
    ):
        case.read("snapshot-1/processes.json")


def test_a_declared_size_that_lies_gives_no_more_than_it_says(tmp_path: Path) -> None:
    path = zip_with(tmp_path / "c.zip", "a", b"x" * 5000)
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\x01\x02")
    raw[entry + 24 : entry + 28] = (10).to_bytes(4, "little")
    path.write_bytes(raw)
    with open_folder(path) as case:
        assert len(case.head("a", 100_000)) <= 10


def test_a_zip_whose_list_is_damaged_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = zip_with(tmp_path / "c.zip", "a", b"x" * 50)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02")] = 0
    path.write_bytes(raw)
    with pytest.raises(WorkbenchError, match="not a readable zip"):
        open_folder(path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_zip_with_changed_bytes_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = write(tmp_path_factory.mktemp("case") / "case.zip")
    raw = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=6)):
        raw[at] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        with open_folder(path) as case:
            read_manifest(case)
            for name in case.sizes:
                case.read(name)
    except WorkbenchError:
        pass


# -- folders ---------------------------------------------------------------------------------------


def test_links_out_of_a_folder_and_devices_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    case = tmp_path / "case"
    case.mkdir()
    (case / "real.log").write_text("x")
    (case / "inside.log").symlink_to(case / "real.log")
    (case / "outside.log").symlink_to(tmp_path / "secret")
    (case / "gone.log").symlink_to(case / "nowhere")
    os.mkfifo(case / "pipe")
    (case / ".hidden").mkdir()
    (case / ".hidden" / "x.log").write_text("x")
    with open_folder(case) as found:
        assert list(found.sizes) == ["inside.log", "real.log"]
        assert any(
            "outside.log is a link that points outside the folder" in note for note in found.notes
        )


def test_one_file_and_nothing(tmp_path: Path) -> None:
    with open_folder(LOG) as found:
        assert list(found.sizes) == ["server.log"]
        assert found.read("server.log") == LOG.read_bytes()
    for wrong in (tmp_path / "missing", "\0", tmp_path / ("a" * 300)):
        with pytest.raises(WorkbenchError):
            open_folder(wrong)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WorkbenchError, match="neither"):
        open_folder(tmp_path / "pipe")


def test_a_zip_in_a_folder_is_opened_by_name(tmp_path: Path) -> None:
    write(tmp_path / "a.zip")
    with open_folder(tmp_path) as outer, open_inner(outer, "a.zip") as inner:
        assert read_manifest(inner) is not None


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": 1}', '{"format": "other/1"}', "[" * 100_000, "\xff"]
)
def test_somebody_elses_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, errors="surrogateescape", encoding="latin-1")
    with open_folder(tmp_path) as case:
        try:
            assert read_manifest(case) is None
        except WorkbenchError as error:
            assert "manifest" in str(error)  # noqa: PT017


def test_a_newer_format_is_refused_and_damaged_fields_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "workbench.case/2"}))
    with open_folder(tmp_path) as case, pytest.raises(WorkbenchError, match="Update the workbench"):
        read_manifest(case)
    names = ("host", "created", "version", "port_open", "logs", "members", "notes")
    wrong = {name: [{}] for name in names}
    (tmp_path / "manifest.json").write_text(
        json.dumps({"format": casefile.FORMAT, **wrong, "node_rank": True})
    )
    with open_folder(tmp_path) as case:
        manifest = read_manifest(case)
    assert manifest == folder.Manifest("")


# -- redaction -------------------------------------------------------------------------------------

SECRETS = {
    "hf": "hf_" + "Ab3" * 8,
    "openai": "sk-" + "x9" * 12,
    "github": "ghp_" + "Z1" * 12,
    "aws": "AKIA" + "Q7" * 8,
    "bearer": "Zm9vYmFyYmF6cXV4",
    "password": "hunter2hunter2",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=list(SECRETS))
@pytest.mark.parametrize(
    "place",
    [
        "[2026-11-29 18:30:27] server_args=ServerArgs(model_path='m', api_key='{}', tp_size=2)",
        "server_args={{'model_path': 'm', 'admin_api_key': '{}', 'tp_size': 2}}",
        'headers: {{"Authorization": "Bearer {}"}}',
        "GET /x?token={}&y=1",
        "HF_TOKEN={}",
        "tcp://user:{}@host:1",
        "password: {}",
        "curl -H 'x-api-key: {}' http://x/v1",
    ],
)
def test_no_secret_leaves_in_a_line(secret: str, place: str) -> None:
    redacted = Redactor("salt").text(place.format(secret))
    assert secret not in redacted
    assert LEFT_OUT in redacted or "…@" in redacted
    assert secret not in Redactor("salt").log(place.format(secret))


def test_requests_and_local_variables_do_not_leave() -> None:
    redactor = Redactor("salt")
    prompt = "tell me about my illness"
    for line in (
        f"[2026-11-29 18:30:27] Receive: obj=GenerateReqInput(rid='ab12', text='{prompt}', sampling=1)",
        f"[2026-11-29 18:30:27] Finish: obj=GenerateReqInput(rid='ab12'), out={{'text': '{prompt}'}}",
        f'{{"timestamp": "x", "event": "request.received", "rid": "1", "obj": {{"text": "{prompt}"}}}}',
        f"TypeError: TokenizedGenerateReqInput(rid='x', input_text='{prompt}')",
        f'{{"model": "m", "prompt": "{prompt}", "n": 1}}',
        f'{{"prompt": ["hello", "{prompt}"], "n": 1}}',
        f"bad request: messages=[{{'role': 'user', 'content': 'it\\'s {prompt}', 'x': 1}}]",
        f"text='{prompt} and the line ends here",
    ):
        both = redactor.text(f"{line}\nnext line")
        assert prompt not in both
        assert both.endswith("\nnext line")
    frame = {"name": "f", "filename": "/home/alice/x.py", "locals": [{"name": "p", "repr": prompt}]}
    dumped = json.dumps(redactor.dump([{"frames": [frame]}]))
    assert prompt not in dumped
    assert "alice" not in dumped


def test_what_stands_beside_a_prompt_stays() -> None:
    line = "input_ids=[1, [22, 3]], n=1, prompt='x', context_length=8, texts=['a', \"b\"], chat_template=None"
    left = (
        f"input_ids={LEFT_OUT}, n=1, prompt={LEFT_OUT}, context_length=8, texts=[{LEFT_OUT}], "
        "chat_template=None"
    )
    assert Redactor("salt").text(line) == left


def test_an_address_of_mail_becomes_a_pseudonym() -> None:
    text = Redactor("salt").text("by alice.smith@mail.example.com, sglang@0.5.14")
    assert "alice" not in text
    assert "mail.example" not in text
    assert text.endswith("sglang@0.5.14")


def test_names_become_pseudonyms_that_stay_the_same() -> None:
    redactor = Redactor("salt", hosts=("gpu-node17.corp.example",))
    alias = redactor.host("gpu-node17")
    text = redactor.text(
        "gpu-node17 gpu-node17.corp.example gpu-node170 /home/alice/a 10.1.2.3:5 127.0.0.1 db.prod.internal"
    )
    words = text.split(" ")
    assert words[:2] == [alias, alias]
    assert words[2] == "gpu-node170"  # another name that begins alike
    assert "alice" not in text
    assert "10.1.2.3" not in text
    assert "127.0.0.1" in text
    assert "prod" not in text
    assert redactor.text(text) == text  # once more changes nothing
    assert Redactor("salt").host("gpu-node17") == alias
    assert Redactor("other").host("gpu-node17") != alias
    assert Redactor().host("gpu-node17") != Redactor().host("gpu-node17")
    # NCCL names the other hosts itself.
    learnt = redactor.text("node42:4711:4788 [3] NCCL INFO x\nconnect to node42 failed")
    assert "node42" not in learnt


def test_environment_by_allow_list_and_arguments() -> None:
    redactor = Redactor("salt")
    kept = redactor.environment(
        {
            "NCCL_DEBUG": "INFO",
            "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "1",
            "CUDA_VISIBLE_DEVICES": "0",
            "SGLANG_API_KEY": "k",
            "NCCL_AUTH_TOKEN": "t",
            "AWS_SECRET_ACCESS_KEY": "s",
            "PATH": "/",
            "SGLANG_NOTE": SECRETS["hf"],
        }
    )
    assert kept == {
        "NCCL_DEBUG": "INFO",
        "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "SGLANG_NOTE": LEFT_OUT,
    }
    words = "--tp 2 --api-key k1 --tokenizer-path t --admin-api-key=k2 --max-total-tokens 9 --hf-token k3"
    shown = " ".join(redactor.arguments(words.split()))
    assert not {"k1", "k2", "k3"} & set(shown.replace("=", " ").split())
    assert "--tokenizer-path t" in shown
    assert "--max-total-tokens 9" in shown


def test_what_a_diagnosis_needs_stays() -> None:
    """Of a real log nothing is lost but what names a person or a host."""
    text = LOG.read_text()
    redacted = Redactor("salt").text(text)
    changed = [
        (one, two)
        for one, two in zip(text.splitlines(), redacted.splitlines(), strict=True)
        if one != two
    ]
    assert changed == []
    assert not is_secret("max-total-tokens")
    assert not is_secret("tokenizer-path")
    assert is_secret("api_key")
    assert is_secret("HF_TOKEN")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=string.printable, max_size=400))
def test_any_text_is_redacted_and_a_second_time_is_the_same(text: str) -> None:
    redactor = Redactor("salt")
    once = redactor.text(text)
    assert once.count("\n") == text.count("\n")
    assert redactor.text(once) == once


def test_long_lines_cost_no_more_than_their_length() -> None:
    redactor = Redactor("salt")
    for unit in ("a.", "token=", "'", "1.", "/home/", "key='", "\\", "x" * 9 + " "):
        redactor.text(unit * 40_000)


def test_writer_into_an_open_file(tmp_path: Path) -> None:
    with (tmp_path / "c.zip").open("w+b") as out:
        case = CaseWriter(out, "h")
        case.add_log("a.log", str(LOG), redact=lambda text: text.replace("TP1", "XXX"))
        case.close()
    with open_folder(tmp_path / "c.zip") as found:
        assert b"TP1" not in found.read("logs/a.log")
