"""What a ledger holds of secrets, and who may read it."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests import planted
from tests.hang.ledger.test_launches import SERVE
from workbench.evidence import launches as store
from workbench.evidence.launches import Launch
from workbench.hang.ledger.ledger import Ledger


def test_nothing_planted_is_in_a_ledger_and_in_no_form_of_its_story(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "launches.jsonl")
    line = " ".join(f"{name}={shlex.quote(value)}" for name, value in planted.VARIABLES.items())
    line += " sglang serve --tp 8 " + " ".join(map(shlex.quote, planted.ARGUMENTS))
    book.record(
        f"{line} > /home/jdoe/a.log", outcome="hung", name="first", version="0.5.14",
        hypothesis="is envkey_5f1c the cause? mail alice.smith@mail.example.com, see https://h/x?sig=pAzX9qWErTy",
        resolved={"api_key": "'argkey_1a'", "tp_size": "8", "chat_template": "'argval_8h'"},
    )  # fmt: skip
    book.record("sglang serve --tp 8 --api-key argkey_1a --disable-cuda-graph", outcome="served")
    story = book.story()
    page = Path(story.to_html(tmp_path / "page.html")).read_bytes()
    for shown in (book.path.read_text(), str(story), story.to_text(200), story.to_json(), page):
        assert planted.found_in(shown) == []
    assert "is <left out> the cause?" in story.launches[0].hypothesis
    assert story.launches[0].resolved["tp_size"] == "8"


@pytest.mark.parametrize("field", ["name", "hypothesis", "against", "note"])
@pytest.mark.parametrize(
    ("text", "secret", "kept"),
    [
        ("the password is sesame, TP 8", "sesame", "TP 8"),
        ("with password hunter2abc it hangs", "hunter2abc", "it hangs"),
        ("pwd 48151623 for the vault", "48151623", "for the vault"),
        ("login with Tr0ub4dor", "Tr0ub4dor", "login with"),
        ("the token is abcd1234, again", "abcd1234", "again"),
        ("hf_abcdefghijklmnopqrst was used", "hf_abcdefghijklmnopqrst", "was used"),
        ("it hangs on gpu-node-17 only", "gpu-node-17", "it hangs on"),
        ("host trainbox9 is slow", "trainbox9", "is slow"),
        ("asked node17.acme.com:30000 first", "acme", ":30000 first"),
        ("vault.acmecorp.com is down", "acmecorp", "is down"),
        ("rank 3 is on 10.11.12.13", "10.11.12.13", "rank 3 is on"),
        ("connects to 2001:db8:85a3::8a2e:370:7334", "8a2e", "connects to"),
        ("ask alice.smith@mail.example.com", "alice", "ask"),
    ],
)
def test_what_people_write_into_a_ledger_holds_no_secret_and_no_host(
    field: str, text: str, secret: str, kept: str, tmp_path: Path
) -> None:
    book = Ledger(tmp_path / "launches.jsonl")
    book.record(SERVE, outcome="hung", **{field: text})  # type: ignore[arg-type]
    written = book.path.read_text()
    assert secret not in written
    assert kept in getattr(book.launches[0], field)


def test_other_words_of_people_stay_and_a_name_is_found_again(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "launches.jsonl")
    words = (
        "NCCL 2.27.5 hangs in graph capture with --tp 8 on H100, gpu3, at rank 17: model.layers.0 of "
        "torch.distributed.barrier, max_total_num_tokens=1234567, scheduler.py:1203, huggingface.co"
    )
    book.record(SERVE, name="on gpu-node-17", outcome="hung", note=words)
    book.record(SERVE, outcome="served", against="on gpu-node-17")
    first, second = book.launches
    assert first.note == words
    assert second.against == first.name


def test_a_ledger_is_its_owners_alone(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "launches.jsonl")
    book.record(SERVE, outcome="hung")
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600


def test_the_salt_is_random_and_the_owners_alone(tmp_path: Path) -> None:
    words = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        book = Ledger(tmp_path / folder / "launches.jsonl")
        one = book.record("sglang serve --dist-init-addr node7.cluster:501 --unheard of")
        again = book.record("sglang serve --dist-init-addr node7.cluster:501 --unheard of")
        assert one.command == again.command
        words += one.command
        salt = book.path.with_name("launches.jsonl.salt")
        assert stat.S_IMODE(salt.stat().st_mode) == 0o600
        assert len(bytes.fromhex(salt.read_text())) >= 16
        assert salt.read_text() not in book.path.read_text()
    assert words[3] != words[8]
    assert words[5] != words[10]


def test_older_lines_are_redacted_where_they_are_read_and_compare_with_newer_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / "launches.jsonl"
    command = ["sglang", "serve", "--tp", "8", "--api-k", "argkey_2b", "--unheard-of", "argval_8h"]
    old = Launch("old", tuple(command), {"SGLANG_NOTE": "envnote_6d"}, "hung").to_dict()
    path.write_text(json.dumps({"format": store.FORMAT} | old) + "\n")
    book = Ledger(path)
    assert planted.found_in(book.story().to_json()) == []
    book.record(command, environment={"SGLANG_NOTE": "envnote_6d"}, outcome="served")
    step = book.story().steps[1]
    assert step is not None
    assert step.changed == ()


def test_a_full_disk_loses_no_line_and_is_told(tmp_path: Path) -> None:
    # A limit on the size of files cuts a write short as a full disk does.
    code = """
import resource, signal, sys
import workbench
from workbench.hang.ledger.ledger import Ledger
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
ledger, written, refused = Ledger(sys.argv[1]), [], 0
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, hard))
for number in range(40):
    try:
        ledger.record(f"sglang serve --tp 8 > a{number}.log", name=f"n{number}")
        written.append(f"n{number}")
    except workbench.WorkbenchError:
        refused += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
ledger.record("sglang serve --tp 2", name="after")
assert [one.name for one in ledger.launches] == [*written, "after"], (written, ledger.launches)
assert written and refused, (written, refused)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "launches.jsonl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
