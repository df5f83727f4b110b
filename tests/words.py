"""The word check: what a user reads is in plain words. CONTRIBUTING.md has the style page.

`python -m tests.words` reads the strings of workbench/ and benchmarks/ that are sentences, those of the
JavaScript, the Markdown files and the notebooks' Markdown cells. It prints file:line, the word and what to
write instead, and exits with 1 where a file breaks the rules. Files that are not clean yet are listed in
tests/words_pending.txt: a file that has become clean must leave the list (`--prune` does it), and none may
join it.

Exempt: code in backticks or blocks, text in double quotes (log lines, names, examples), docstrings
(but for the help texts of the command line), and regular expressions.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PENDING = Path(__file__).parent / "words_pending.txt"
PATTERNS = (
    "*.md",
    "docs/**/*.md",
    "data/**/*.md",
    "notebooks/*.ipynb",
    "workbench/**/*.py",
    "workbench/**/*.js",
    "benchmarks/**/*.py",
)
# What is blanked out, so that words are neither found in it nor joined across it.
_BLANK = "·"


@dataclass(frozen=True)
class Word:
    """A word to drop: its name on the style page, the pattern that finds it, what to write instead."""

    name: str
    pattern: str
    instead: str


_COUNTS = "a|an|one|two|three|the|this|each|every|first|second|last|next|another|more|only|both|all"
_VERB_AFTER = "like|at|for|up|into|as|trained|healthy|right"
_JOINS = "that|which|who|whose|it|and|or|but|they|there|this|as|if|where|when"

WORDS = (
    Word("mend", "mend(?:s|ed|ing)?", "repair"),
    Word("told", "told", "reported, known, says"),
    Word("said", "said", "reported, stated, says"),
    Word("stands", r"stands?(?!-)|standing|stood", "is, waits, represents"),
    Word(
        "look (noun)",
        rf"(?:{_COUNTS})\s+looks?(?!-)(?!\s+(?:{_VERB_AFTER})\b)",
        "snapshot, pass",
    ),
    Word("drawn", "drawn", "initialised, shown"),
    Word("beside", "besides?", "next to, with, also"),
    Word("without a word", r"without\s+a\s+word", "silently"),
    Word(
        "no X is",
        rf"no\s+(?!longer\b|more\b|less\b)[\w-]+(?:\s+(?!(?:{_JOINS})\b)[\w-]+)?\s+(?:is|are|was|were)",
        "X is not, there is no X",
    ),
    Word("nobody", "nobody", "uninitialised, is not known, nothing"),
)
_FIND = {word: re.compile(rf"\b(?:{word.pattern})\b", re.IGNORECASE) for word in WORDS}
_EXEMPT = re.compile(r"`[^`\n]*`|\"[^\"\n]*\"|“[^”]*”|https?://\S+|\]\([^)\s]*\)")
_BLOCKS = re.compile(r"^```.*?^```|<!--.*?-->|^(?: {4}|\t).*?$", re.MULTILINE | re.DOTALL)
_SCRIPT = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`", re.DOTALL
)
_HOLE = re.compile(r"\$\{[^{}]*\}")
_SENTENCE = re.compile(r"\w\W* \W*\w")


def blanked(pattern: re.Pattern[str], text: str) -> str:
    """Return the text with what the pattern finds blanked out; lines and columns stay."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", _BLANK, found[0]), text)


def words_in(text: str) -> Iterator[tuple[int, Word, str]]:
    """Yield the words to drop in one text: how many lines down, the rule, and what was found."""
    text = blanked(_EXEMPT, text)
    for word, pattern in _FIND.items():
        for found in pattern.finditer(text):
            yield text.count("\n", 0, found.start()), word, " ".join(found[0].split())


def _is_docstring(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)


def of_python(source: str, *, helps: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string, holes of f-strings blanked.

    With `helps` the docstrings of functions count: typer shows them as help texts.
    """
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        children = list(ast.iter_child_nodes(node))
        body = getattr(node, "body", None)
        function = isinstance(node, ast.FunctionDef)
        if isinstance(body, list) and _is_docstring(body) and not (helps and function):
            children.remove(body[0])
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else _BLANK for v in node.values)
            yield node.lineno, "".join(map(str, parts))
            children = [child for child in children if isinstance(child, ast.FormattedValue)]
        todo += children


def of_script(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string of a JavaScript file."""
    for found in _SCRIPT.finditer(source):
        if found[0][0] != "/":
            line = source.count("\n", 0, found.start()) + 1
            yield line, _HOLE.sub(_BLANK, found[0][1:-1])


def of_notebook(source: str) -> Iterator[tuple[int, str]]:
    """Yield the Markdown cells of a notebook; the line is the number of the cell."""
    for number, cell in enumerate(json.loads(source)["cells"], 1):
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            yield from ((number, line) for line in blanked(_BLOCKS, text).split("\n\n"))


def texts_of(path: Path) -> Iterable[tuple[int, str]]:
    """Return the texts of a file that a user reads, with their lines."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return [(1, blanked(_BLOCKS, source))]
    if path.suffix == ".ipynb":
        return of_notebook(source)
    helps = "cli" in path.parts
    texts = of_script(source) if path.suffix == ".js" else of_python(source, helps=helps)
    return [(line, text) for line, text in texts if _SENTENCE.search(text)]


def check(path: Path) -> list[str]:
    """Return a line for each word to drop in a file."""
    cell = "cell " if path.suffix == ".ipynb" else ""
    found = [
        (line if cell else line + down, word, text)
        for line, whole in texts_of(path)
        for down, word, text in words_in(whole)
    ]
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return [
        f"{name}:{cell}{line}: {text!r} ({word.name}): write {word.instead}"
        for line, word, text in sorted(found, key=lambda one: one[0])
    ]


def files() -> list[Path]:
    """Return the files that are checked."""
    found = {path for pattern in PATTERNS for path in ROOT.glob(pattern)}
    return sorted(found - {ROOT / name for name in DATA})


# Words of logs, not of the workbench: the allow-list of the redactor.
DATA = ("workbench/evidence/harmless.py",)


def pending() -> list[str]:
    """Return the files that need not be clean yet."""
    lines = PENDING.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def complaints(results: dict[str, list[str]], allowed: Iterable[str]) -> list[str]:
    """Return what is wrong: words in files that must be clean, and clean files on the list."""
    allowed = set(allowed)
    wrong = [line for name, lines in results.items() if name not in allowed for line in lines]
    wrong += [
        f"{name}: take it off {PENDING.name}: it is {'clean' if name in results else 'not there'}"
        for name in sorted(allowed)
        if not results.get(name)
    ]
    return wrong


def prune(results: dict[str, list[str]]) -> None:
    """Take the clean files, and those that are gone, off the list."""
    lines = PENDING.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = (line for line in lines if line.startswith("#") or results.get(line.strip()))
    PENDING.write_text("".join(kept), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Check the files named, listed or not; or without names all, by the list."""
    if arguments and arguments != ["--prune"]:
        wrong = [line for name in arguments for line in check(Path(name).resolve())]
    else:
        results = {path.relative_to(ROOT).as_posix(): check(path) for path in files()}
        if arguments:
            prune(results)
        wrong = complaints(results, pending())
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
