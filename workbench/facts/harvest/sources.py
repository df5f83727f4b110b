"""Functions, texts and lines that the workbench knows by name: where a release has them."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator

from workbench.facts.harvest.found import Found
from workbench.facts.harvest.wheel import Wheel


def functions(wheel: Wheel, wanted: Iterable[tuple[str, str]]) -> Iterator[Found]:
    """Yield the wanted functions that a release defines.

    Parameters
    ----------
    wanted
        Name of the function, and the end of its file's path, or a folder of it (with a slash); "" for any.
    """
    for function, end in sorted(set(wanted)):
        word = re.compile(rf"^[ \t]*(?:async )?def {re.escape(function)}\(", re.MULTILINE)
        for name in wheel.under(end) if end else wheel.modules:
            match = word.search(wheel.text(name))
            if match:
                yield Found(
                    "function",
                    f"{function}@{end}",
                    True,
                    name,
                    line_at(wheel.text(name), match.start()),
                )
                break


def line_at(text: str, offset: int) -> int:
    """Return the number of the line in which an offset is."""
    return text.count("\n", 0, offset) + 1


@dataclasses.dataclass(frozen=True)
class Text:
    """A text that a release may write.

    Attributes
    ----------
    name
        What it is kept under.
    needle
        Words of it as the source has them.
    also
        Another word of the source, where the needle's own are everywhere.
    recognise
        Whether a line made of the source's text, with its values filled in, is what is meant.
    """

    name: str
    needle: str
    recognise: Callable[[str], bool]
    also: str = ""


def texts(wheel: Wheel, wanted: Iterable[Text]) -> Iterator[Found]:
    """Yield the wanted texts that a release's sources write."""
    for text in wanted:
        words = [*re.findall(r"[\w'=.-]{3,}", text.needle.partition("{")[0]), text.also]
        for name in wheel.holding(*words):
            line = "/srt/" in name and _line_of(wheel, name, text)
            if line:
                yield Found("text", text.name, True, name, line)
                break


def _line_of(wheel: Wheel, name: str, text: Text) -> int:
    for written, filled, line in literals(wheel, name):
        if text.needle not in written and text.needle not in filled:
            continue
        # The runner of the target's decoding calls its graphs "verify" where there is a draft.
        for one in (filled, filled.replace("target prefill", "target verify")):
            if text.recognise(one):
                return line
    return 0


def literals(wheel: Wheel, name: str) -> list[tuple[str, str, int]]:
    """Return the texts of a module: as they are written, with their values filled in, and where."""
    cache: dict[str, list[tuple[str, str, int]]] = wheel.__dict__.setdefault("_literals", {})
    if name not in cache:
        tree = wheel.tree(name)
        cache[name] = [one for node in (ast.walk(tree) if tree else ()) for one in _literal(node)]
    return cache[name]


def _literal(node: ast.AST) -> Iterator[tuple[str, str, int]]:
    if isinstance(node, ast.JoinedStr):
        written = "".join(
            str(part.value)
            if isinstance(part, ast.Constant)
            else "{" + ast.unparse(part.value) + "}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
        yield written, "".join(map(_filled, node.values)), node.lineno
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        filled = node.value.replace("%.2f", "1.5").replace("%s", "7").replace("%d", "7")
        yield node.value, filled, node.lineno


def _filled(part: ast.expr) -> str:
    """Return one part of a text as a run might write it."""
    if not isinstance(part, ast.FormattedValue):
        return str(part.value) if isinstance(part, ast.Constant) else ""
    name = ast.unparse(part.value)
    if "capture_name" in name:
        return "target prefill"
    if "graph_backend" in name or "'cuda graph'" in name:
        return "CUDA graph"
    if "VA upper" in name:
        return "is allocated"
    if name == "cache_name":
        return "KV Cache"
    if name == "cls_name":  # the class that says why custom all-reduce is off
        return "CustomAllreduce"
    if part.format_spec is not None:
        return "1.50"
    return "torch.x" if "dtype" in name else "7"


@dataclasses.dataclass(frozen=True)
class Anchor:
    """A line that the workbench cites.

    Attributes
    ----------
    name
        What is claimed of it: ``d2t``.
    file
        The end of the module's path.
    pattern
        The line, as a regular expression; the first one counts.
    after
        A line that must come before it, so that the right one of several is taken: ``def load_weights``.
    """

    name: str
    file: str
    pattern: str
    after: str = ""


def anchors(wheel: Wheel, wanted: Iterable[Anchor]) -> Iterator[Found]:
    """Yield the cited lines of a release; the line is the value, so that every move is kept."""
    for anchor in wanted:
        for name in wheel.under(anchor.file):
            text = wheel.text(name)
            start = 0
            if anchor.after:
                first = re.search(anchor.after, text, re.MULTILINE)
                if first is None:
                    continue
                start = first.start()
            match = re.compile(anchor.pattern, re.MULTILINE).search(text, start)
            if match:
                line = line_at(text, match.start())
                yield Found("line", f"{anchor.file}:{anchor.name}", line, name, line)
                break
