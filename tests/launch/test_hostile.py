"""Launches from somebody who means harm: nothing runs, nothing is blown up, and the reader ends."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from workbench.errors import WorkbenchError
from workbench.launch import holes
from workbench.launch.read import read_launch
from workbench.launch.records import Launch

SERVER = "python -m sglang.launch_server "
BOMB = "kind: Pod\na: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 8)}]\n" for n in range(12)
)
TEXTS = {
    "brackets": "(" * 20_000,
    "quotes": '"' * 20_000,
    "substitutions": "$(" * 20_000,
    "branches": "if a; then " * 1000 + "b" + "; fi" * 1000,
    "here-documents": "<<A " * 2000,
    "pipes": "a | " * 5000 + "b",
    "lists": "A=1 || A=2; " * 2000,
    "many words": SERVER + "a " * 20_000,
    "many options": SERVER + "--tp 1 " * 8000,
    "ambiguous options": SERVER + "--s 1 " * 3000,
    "doubled text": "A=xxxxxxxx\n" + "A=$A$A\n" * 60 + SERVER + "--model-path $A",
    "doubled array": 'A=(x)\n' + 'A=("${A[@]}" "${A[@]}")\n' * 60 + SERVER + '"${A[@]}"',
    "function of itself": "f() { f; f; f; f; }\nf",
    "eval in eval": "eval 'eval \"eval x\"'\n" * 100,
    "variables": "".join(f"if a; then V{n}=1; fi\n" for n in range(1000)),
    "alias bomb": BOMB,
    "deep YAML": "kind: x\na: " + "[" * 50_000,
    "closed deep YAML": "kind: x\na: " + "[" * 50_000 + "]" * 50_000,
    "dashes of YAML": "kind: x\na:\n " + "- " * 20_000 + "b",
    "deep JSON": '{"command":' + "[" * 20_000,
    "object of YAML": 'kind: !!python/object/apply:os.system ["true"]',
    "open log": "server_args=ServerArgs(" + "a=(," * 20_000,
    "many logs": "server_args=ServerArgs(a=1)\n" * 5000,
    "null bytes": "\0" * 20_000,
    "fences": "```" * 20_000,
    "unit": "[Service]\nExecStart=" + "$A " * 20_000,
    "too long": "x" * (300 << 10),
    "much too long": "x" * (2 << 20),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_ends(name: str) -> None:
    found: Launch | None = None
    with contextlib.suppress(WorkbenchError):
        found = read_launch(TEXTS[name])
    if found is not None:
        assert len(found.arguments) <= 4000
        assert found.not_read or found.engine


def test_nothing_that_is_read_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = (
        f"X=$(touch {mark}); eval 'touch {mark}'; touch {mark}; source {mark}\n"
        f"cat > {mark} <<EOF\nmodel-path: m\nEOF\n"
        f"{SERVER} --model-path `touch {mark}` --tp $(touch {mark}) --dtype <(touch {mark})\n"
    )
    found = read_launch(text)
    assert not mark.exists()
    assert found.engine == "sglang"
    assert found.target is None
    assert "touch" in str(found.not_read[0])


def test_a_text_cannot_make_a_hole() -> None:
    forged = holes.hole("TP")
    found = read_launch(SERVER + f"--model-path m{forged} --tp 8")
    assert found.target is not None
    assert not found.not_read
    assert not holes.has_hole(found.target)


def test_what_is_shown_is_printable() -> None:
    found = read_launch(SERVER + "--model-path m --\x1b[31mred x \x1b]0;title\x07")
    assert all(str(one).isprintable() for one in found.not_read)


def test_an_open_quote_is_said() -> None:
    found = read_launch(SERVER + "--model-path 'm --tp 8\n")
    assert "line 1" in " ".join(map(str, found.doubts))
