"""What users sent and got, wherever a line of a log holds it.

The standard library alone, in Python 3.9's syntax: the collector carries this file.
"""

from __future__ import annotations

import re

from workbench.secret_shapes import LEFT_OUT

# What --log-requests writes (as text or as JSON): whole requests and answers. And a request in an error.
_REQUEST_WORDS = ("ReqInput(", "Receive", "Finish", '"event"')
_PROMPT_WORDS = (
    "prompt",
    "content",
    "text",
    "messages",
    "query",
    "_ids",
    "completion",
    "document",
    "passage",
)
_REQUEST = re.compile(
    r"""(?P<head>\b(?:Receive|Finish)(?: request)?: |"event": ?"request\.\w+",? ?|\b\w*ReqInput\()"""
    r"""(?:obj=\w*ReqInput\()?(?:rid=(?P<rid>'?[\w-]{1,64}'?))?"""
)
# Prompts and answers wherever else a line holds them: `"content": "…"`, `text='…'`, `input_ids=[…]`.
_TEXT = r"""(?:'(?:[^'\\\n]|\\.){0,100000}(?:'|$)|"(?:[^"\\\n]|\\.){0,100000}(?:"|$))"""
_PROMPT = re.compile(
    r"""(?P<name>(?:\b|(?<=_))(?:prompts?|contents?|texts?|messages|(?:input|output|prompt|system)_(?:text|prompt)|query
    |reasoning_content|completions?|documents?|passages?)['"]?\s*[=:]\s*(?P<list>\[)?)"""
    rf"""(?(list)(?:{_TEXT}(?:,[ ]?(?=['"]))?)+|{_TEXT})"""
    r"""|(?P<ids>\b\w*(?:input|output|prompt|token)_ids['"]?\s*[=:]\s*)\[(?:[\d\s,]|\[[\d\s,]*\]){0,100000}\]?""",
    re.VERBOSE | re.MULTILINE,
)


def without_prompts(line: str) -> str:
    """Return a line of a log without what users sent and got: a prompt may say that a rank has died."""
    line = without_request(line)
    quoted = "'" in line or '"' in line
    if quoted and any(word in line for word in _PROMPT_WORDS):
        line = _PROMPT.sub(lambda m: f"{m['name'] or m['ids']}{LEFT_OUT}", line)
    return line


def may_hold_prompts(block: bytes) -> bool:
    """Whether a line of a block of a log may be another one without its prompts: a search of all at once."""
    return any(word.encode() in block for word in (*_REQUEST_WORDS, *_PROMPT_WORDS))


def without_all_prompts(text: str) -> str:
    """Return a text of one or of many lines without requests, prompts and their tokens."""
    # A search for one word is a hundred times faster than a pattern, and most texts have none.
    if any(word in text for word in _REQUEST_WORDS):
        text = "\n".join(without_request(line) for line in text.split("\n"))
    if any(word in text for word in _PROMPT_WORDS):
        text = _PROMPT.sub(lambda m: f"{m['name'] or m['ids']}{LEFT_OUT}", text)
    return text


def without_request(line: str) -> str:
    """Return a line up to the request in it."""
    if not any(word in line for word in _REQUEST_WORDS):
        return line
    match = _REQUEST.search(line)
    return line if match is None else line[: match.start()] + match["head"] + LEFT_OUT
