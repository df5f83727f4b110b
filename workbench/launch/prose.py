"""A launch within a message: in backticks, behind a label, between sentences."""

from __future__ import annotations

import re

# What starts a server, however it is called.
_SERVER = re.compile(
    r"\bpython[\d.]*\s+(?:-[A-Za-z]\s+)?-m\s+(?:sglang|vllm|tensorrt_llm)[\w.]*"
    r"|\bpython[\d.]*\s+\S*launch_server\.py\b|\bsglang\s+serve\b|\bvllm\s+serve\b|\btrtllm-serve\b"
)
_FENCE = re.compile(r"```(?:[a-zA-Z]*[ \t]*\n)?(.*?)```", re.DOTALL)
# What may stand before it in a command.
_BEFORE = re.compile(r"(?:(?:[A-Za-z_]\w*=[^\s`]*|sudo|env|nohup|exec|time)\s+)*$")
# What may stand before a command in a sentence: nothing, a bullet, or a label.
_LABEL = re.compile(r"^\s*(?:[-*>$#]\s*|\d+[.)]\s*)?(?:[^`\n]{0,120}:\s*)?$")

# A sentence; a command begins with a small letter.
_SENTENCE = re.compile(r"(?m)^[ \t>*-]*[A-Z][a-z']*,?(?: [\w'\".,():-]+){3,}")


def has_sentence(text: str) -> bool:
    """Whether some of a text is written for people."""
    return _SENTENCE.search(text) is not None


def fenced(text: str) -> list[str]:
    """Return what is between fences of Markdown."""
    return [found[1] for found in _FENCE.finditer(text)]


def one_line(text: str) -> str:
    """Return options that stand one a line as one line; any other text as it is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines) if lines and all(line.startswith("-") for line in lines) else text


def commands(text: str) -> str:
    """Return the commands of a message that start a server, one a line, without the words around them.

    A command within a sentence counts only in backticks: where else it ends is not known.
    """
    found = []
    for match in _SERVER.finditer(text):
        line = text.rfind("\n", 0, match.start()) + 1
        tick = text.rfind("`", line, match.start())
        before = _BEFORE.search(text[max(line, tick + 1) : match.start()])
        start = match.start() - (len(before[0]) if before else 0)
        if tick >= 0 and not text[tick + 1 : start].strip():
            end = text.find("`", match.end())
            found.append(text[start : end if end >= 0 else len(text)])
        elif _LABEL.match(text[line:start]):
            found.append(text[start : _end(text, match.end())])
    return "\n".join(dict.fromkeys(one.strip() for one in found))


def _end(text: str, at: int) -> int:
    """Return where a command ends: with its line, or with the last that is continued."""
    while True:
        end = text.find("\n", at)
        if end < 0:
            return len(text)
        if not text[at:end].rstrip(" \t").endswith("\\"):
            return end
        at = end + 1
