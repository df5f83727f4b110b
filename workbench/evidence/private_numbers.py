"""Numbers that are somebody's: codes, telephone numbers, dates of birth, a prompt's tokens.

A number alone tells nobody what it is: the words around it do. Lengths decide here, never digits, so that two
lines that differ in their digits alone are treated alike.

The standard library alone, in Python 3.9's syntax: the collector carries this file.
"""

from __future__ import annotations

import re

_START, _END = r"(?<![A-Za-z])", r"(?![A-Za-z])"
# Whoever writes one of these means a secret or a person; no line that the rules read holds one.
_WORDS = re.compile(
    rf"""
    passwor[dt]|passwd|passphrase|passcode|credential|secret|api[-_ ]?key|auth[-_ ]?key|bearer|cookie
    | {_START}(?:pwd|pw|pin|otp|totp|ssn|iban|cvv|cvc|dob|born|birth\w*|tel|phone\w*|telephone|mobile|fax
       |mfa|2fa|licen[cs]e\w*|passport|patient\w*|invoice|salary|social[ ]security|(?:credit|debit)[ ]card
       |paid[ ]with|sudo|vault|login|logon|log[ ]in|signin|sign[ ]in|echo|printf|sshpass|htpasswd
       |account[ ](?:number|no|id)
       |(?:verification|security|access|recovery|auth\w*|confirmation|one[-_ ]time|sms|activation|backup
         |reset|door|unlock|invit\w+|customer|login|entry|secret)[ _-]code
       |(?:access|private|secret|signing|encryption|ssh|service|serial|product|license)[-_ ](?:key|number)
       |(?:access|auth\w*|api|hf|hub|login|refresh|session|bot|my|the)[-_ ]token[ ]?(?:is|was|:|=|\d)
      )(?![A-Za-z-])
    """,
    re.IGNORECASE | re.VERBOSE,
)
# `pin_memory`, `echo=False`: of engines.
_NONE = re.compile(r"pin[-_]memory|echo ?= ?(?:True|False)|--pin-mem\w*", re.IGNORECASE)
_OWNER = re.compile(
    r"(?P<who>(?<![A-Za-z])(?:user|customer|member|employee|tenant|order|ticket|account|zip|card|code|call|number"
    r"|pass|key)"
    r"(?:[ _-]?(?:id|no|nr|number))?\s?(?:is|was|[:=#])?\s?)(?P<number>(?:\+|\#)?\d{4,20})(?![\w.])",
    re.IGNORECASE,
)
_CODES = re.compile(
    r"(?:exit|error|status|return|response|http|signal|mask|port|line|step|sequence|batch|max|min|device|forward)"
    r"[ _-]?$",
    re.IGNORECASE,
)
_DATE = re.compile(r"(?<![\w.])\d{1,2}\.\d{1,2}\.\d{4}(?![\w.])")
_APART = r"""['"]?(?:[ \t]*[,;|][ \t]*|[ \t]+)['"]?"""
_RUN = re.compile(
    rf"(?<![\w.:/%+-])-?\d{{1,20}}(?:{_APART}-?\d{{1,20}}){{2,}}(?:{_APART}?(?=…|\.\.\.))?(?![.:/%-]?\w)"
)
# One token or two are a prompt's, too, where the words say so.
_TOKENS = re.compile(
    r"(?P<who>(?<![A-Za-z#-])(?:tokens?|token[ _]ids?|ids?|output|input|prompt|completion|generated|answer)"
    rf"\s?[:=]?\s?[\[(]?\s?)\d{{1,20}}(?:{_APART}\d{{1,20}})+(?![.:/%-]?\w)",
    re.IGNORECASE,
)
# Of these the numbers are sizes and places: ranks, GPUs, shapes, the channels of NCCL.
_PLACES = re.compile(
    r"(?:(?<![A-Za-z])(?:bs|batch(?:es)?|sizes?|ranks?|shapes?|dims?|devices?|gpus?|nodes?|layers?|experts?|heads?"
    r"|strides?|capabilit(?:y|ies)|versions?|cpus?|cores?|affinity|groups?|histogram|buckets?|lens?|steps?|workers?|tp|pp|dp|ep)"
    r"|channel \d{1,3}/\d{1,3})[^A-Za-z0-9]{0,6}$",
    re.IGNORECASE,
)
# A long number stays in a line only next to one of these: a process, a size, a time, a count.
_LONG = re.compile(r"(?<![\w.:/%+-])\d{6,20}(?![.:/%-]?\w)")
_COUNTED = frozenset(
    """
pid pids ppid tid tids process thread seed port token tokens time timeout ms us ns sec secs seconds
milliseconds microseconds nanoseconds size sizes buffsize chunksize len length byte bytes nbytes kb
mb gb tb kib mib gib tib budget interval num max min mem memory step steps limit threshold chunk
buffer count counts capacity context page pages batch requests queue cache pool hash seq seqnum
sequence numel numelin numelout opcount param params parameters element elements entry entries item
items block blocks slot slots total sum elapsed took comm offset file files line lines row rows
column columns shape dim vocab depth nnz iteration iterations epoch sample samples allocated
allocate reserved free used avail available ulimit nofile fd fds xid
""".split()  # noqa: SIM905
)
_ALONE = re.compile(r"[^A-Za-z]*?\d{4,}[^A-Za-z]*")
# A long number of a flag or a variable is a setting where the name says that it counts something.
_COUNTS = re.compile(
    r"seed|port|token|time|size|len|byte|budget|interval|num|max|min|mem|step|limit|thresh|chunk|buf|sec|ms$|count"
    r"|period|cache|pool|capacity|context|page|batch|req|queue|depth|window|device|rank|rate|ratio|freq|conn|block",
    re.IGNORECASE,
)
_PRIVATE_NAME = re.compile(
    r"(?:^|[-_])(?:code|pin|ssn|phone|tel|mobile|fax|licen[cs]e|serial|account|card|iban|dob|born|birth\w*|patient"
    r"|customer|passport|pwd|passcode|otp|cvv)(?:$|[-_])",
    re.IGNORECASE,
)


def is_private(text: str) -> bool:
    """Whether the words of a text say that its numbers are a secret's or a person's."""
    found = _WORDS.search(text)
    return bool(found) and bool(_WORDS.search(_NONE.sub("", text)))


def without_runs(text: str, mark: str) -> str:
    """Return a text without lists of whole numbers (tokens), dates of birth and people's numbers."""

    def run(match: re.Match[str]) -> str:
        before = text[max(match.start() - 40, 0) : match.start()]
        return match[0] if _PLACES.search(before) else mark

    def owner(match: re.Match[str]) -> str:
        before = match.string[max(match.start() - 12, 0) : match.start()]
        return match[0] if _CODES.search(before) else match["who"] + mark

    def long(match: re.Match[str]) -> str:
        before = match.string[max(match.start() - 60, 0) : match.start()]
        after = match.string[match.end() : match.end() + 30]
        around = re.findall(r"[A-Za-z]+", before.lower().replace("_", " "))[-3:]
        around += re.findall(r"[A-Za-z]+", after.lower())[:1]
        return match[0] if _COUNTED.intersection(around) else mark

    if _ALONE.fullmatch(text):
        return re.sub(r"\d[\d.,:/-]*", mark, text)
    text = _RUN.sub(run, text)
    text = _TOKENS.sub(lambda match: match["who"] + mark, text)
    return _LONG.sub(long, _OWNER.sub(owner, _DATE.sub(mark, text)))


def is_setting(name: str, value: str) -> bool:
    """Whether a number is the value of a setting, by the name of its flag or variable."""
    if not any(char.isdigit() for char in value):
        return True
    if _PRIVATE_NAME.search(name):
        return False
    return not re.search(r"\d{6,}", value) or bool(_COUNTS.search(name))
