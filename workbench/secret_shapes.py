"""Secrets by their shapes and by the names beside them: what is taken out of every text.

Of texts that the workbench itself writes (errors, a user's own words in a ledger) this is all that is taken
out. Of logs and arguments far more is, see `workbench.evidence.redact`. The standard library alone, in Python
3.9's syntax: the collector carries this file.
"""

from __future__ import annotations

import re
from functools import lru_cache

LEFT_OUT = "<left out>"
# Names of flags that hold a secret: argparse takes any beginning of one, too.
SECRET_FLAGS = (
    "api-key", "admin-api-key", "ssl-keyfile-password", "hf-token", "auth-token", "access-token", "password",
    "passphrase", "secret", "credentials", "aws-secret-access-key", "aws-session-token", "wandb-api-key",
    "authorization", "bearer-token", "private-key", "client-secret", "webhook-url",
)  # fmt: skip

_SECRET_NAME = re.compile(
    r"(?<![a-z])(?:api)?keys?(?![a-z])|(?:^|-)token$|secret|passw|passphrase|passcode|(?:^|-)pass$|(?<![a-z])pwd"
    r"|(?:^|-)(?:api|access|auth|hf|hub|bearer|refresh|id|session|user|service|bot)-tokens?(?:-|$)|credential"
    r"|(?:^|-)creds?(?:$|-)|auth(?:$|-)|authoriz|cookie|bearer|(?:^|-)jwt|webhook|signature|(?:^|-)sig$|(?:^|-)dsn$"
    r"|conn(?:ection)?-?str|(?:^|-)otp(?:$|-)|(?:^|-)pin$|netrc|database-url|session-?id"
)
# Names that hold such a word and are none: of tokenizers, of numbers of tokens, of tables.
_HARMLESS_NAME = re.compile(
    r"tokeniz|^(?:old)?pwd$|^(?:key|value)s?(?:-|$)|(?:^|-)(?:cache|routing|sort|dedup|hash|kv|q|qkv|map"
    r"|dict|state|weight|tensor|param|config|index|unexpected|missing|unused|expected|duplicate)-?keys?(?:-|$)"
    r"|(?:^|-)(?:eos|bos|pad|unk|cls|sep|mask|special|added|stop|think|image|audio|video|mm|text|next|hot"
    r"|multimodal|verified|accepted|per|prompt|completion|bonus|thinking|reasoning|new|cached|input|output"
    r"|full|swa|kv|draft)-token$"
)
_SHAPES = re.compile(
    r"""
    \b(?:hf_[A-Za-z0-9]{16,} | sk-[\w-]{16,} | gh[pousr]_\w{20,} | github_pat_\w{20,} | xox[abeprs]-[\w-]{10,}
       | (?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16} | AIza[\w-]{30,} | ya29\.[\w-]{20,}
       | glpat-[\w-]{16,} | nvapi-[\w-]{20,}
       | r8_\w{20,} | pypi-\w{20,} | npm_\w{20,} | SG\.[\w-]{16,}\.[\w-]{16,}
       | dckr_pat_[\w-]{16,} | lin_api_\w{16,}
       | eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?)
    | (?<=[Bb]earer[ :=])\s*[^\s'",;<]{3,}
    | (?<=[Bb]asic\ )[A-Za-z0-9+/=]{6,}
    | (?<=hooks\.slack\.com/services/)[\w/]{6,}
    | (?<=discord\.com/api/webhooks/)[\w/-]{6,}
    | \b(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\w+)\ [A-Za-z0-9+/=]{16,}
    """,
    re.VERBOSE,
)
# One of these is in every text that has such a shape, and to look for a word is fast.
_SHAPE_WORDS = (
    "hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox", "AKIA", "ASIA", "AROA",
    "AIDA", "AIza", "ya29", "glpat-", "nvapi-", "r8_", "pypi-", "npm_", "SG.", "dckr_pat_", "lin_api_", "eyJ",
    "earer", "asic ", "hooks.slack", "discord.com", "ssh-", "ecdsa-",
)  # fmt: skip
_HEADER_WORDS = ("authoriz", "cookie", "x-")
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,60}-----(?:(?!-----END).){0,20000}(?:-----END [A-Z0-9 ]{1,60}-----)?",
    re.S,
)
# `api_key='…'` in the line of the server's arguments, `"hf_token": "…"`, `HF_TOKEN=…`, `?token=…`.
_NAMED = re.compile(r"""(?<![\w.#-])(?P<name>[\w.-]{1,80})(?:\\?['"])?\s*(?:=>|[=:])\s*""")
_VALUE = re.compile(
    r"""\\?'(?:[^'\\]|\\.){1,2000}'|\\?"(?:[^"\\]|\\.){1,2000}"|(?!<left out>|…)[^\s,'")\]}&;]{1,4000}"""
)
_HEADER = re.compile(
    r"""(?P<name>\b(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,30}(?:key|token|auth|signature))
    (?P<mark>\\?['"]?\s*[:=]\s*\\?['"]?)(?!\s*\\?['"]?\s*(?:<left\ out>|…))[^'"\r\n]{1,4000}""",
    re.IGNORECASE | re.VERBOSE,
)
_FLAG = re.compile(
    r"(?P<flag>(?<![\w-])--?(?P<name>[A-Za-z][\w.-]{0,60}))(?P<mark>\s*=\s*|\s+)"
    r"""(?P<value>(?!<left out>|…|-)(?:'[^'\n]{0,2000}'|"[^"\n]{0,2000}"|[^\s'"]{1,2000}))"""
)
_NO_VALUES = ("None", "True", "False", "null", LEFT_OUT, "…", "")
_SHORT = frozenset(
    ("u", "p", "P", "H", "b", "user", "proxy-user", "header", "oauth2-bearer", "cookie")
)
_NETRC = re.compile(r"\b(?P<name>login|password|account)\s+(?P<value>(?!<left out>|…)\S{1,200})")
_MACHINE = re.compile(r"\bmachine\s+\S+\s+(?:login|password)\b|\blogin\s+\S+\s+password\b")

# Also with one slash, as paths write it; what stands behind a quote or a bracket is no part of it.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,30}:/{1,2}[^\s\"'<>)\]}]+")
# A user with a password, also one with an unquoted slash; but host:port/path@version is neither.
_USER = re.compile(r"(?<=:/)/?(?:[^\s/?#]*|[^\s@/:]*:(?!\d+(?:[/?#]|$))\S*)@")
_QUERY = re.compile(r"([?&;#])(?:([^=&;#]*)=)?([^&;#]*)")
# Names whose values say which file is meant; any other may be a key or a signature.
_PLAIN = frozenset(
    {"revision", "rev", "ref", "branch", "version", "versionid", "download", "path", "file"}
)


@lru_cache(maxsize=1 << 14)
def is_secret(name: str) -> bool:
    """Whether a variable, a field or a flag of this name may hold a key, a token or a password."""
    plain = (
        re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "-", name)
        .replace("_", "-")
        .replace(".", "-")
        .lower()
        .lstrip("-")
    )
    return bool(_SECRET_NAME.search(plain)) and not _HARMLESS_NAME.search(plain)


@lru_cache(maxsize=1 << 14)
def is_secret_flag(name: str) -> bool:
    """Whether a flag, in any spelling that argparse takes, may hold a secret: ``--api-k``, ``--api_key``."""
    plain = name.lstrip("-").replace("_", "-").lower()
    return is_secret(plain) or (
        len(plain) > 2 and any(flag.startswith(plain) for flag in SECRET_FLAGS)
    )


def without_secrets(text: str, mark: str = "…") -> str:
    """Return a text without what has the shape of a secret, or stands behind the name of one.

    Of addresses neither users and passwords nor the values of queries are left.
    """
    if "-----BEGIN" in text:
        text = _PEM.sub(mark, text)
    if ":/" in text:
        text = _ADDRESS.sub(_without, text)
    if any(word in text for word in _SHAPE_WORDS):
        text = _SHAPES.sub(mark, text)
    if ":" in text or "=" in text:
        low = text.lower()
        if any(word in low for word in _HEADER_WORDS):
            text = _HEADER.sub(lambda m: f"{m['name']}{m['mark']}{mark}", text)
        text = _without_values(text, mark)
    if " -" in text or text.startswith("-"):
        text = _FLAG.sub(lambda m: _without_flag(m, mark), text)
    if _MACHINE.search(text):
        text = _NETRC.sub(lambda m: f"{m['name']} {mark}", text)
    return text


def _without_values(text: str, mark: str) -> str:
    """Return a text without the values of names that are those of secrets."""
    kept, at = [], 0
    for match in _NAMED.finditer(text):
        if match.start() < at or not is_secret(match["name"]):
            continue
        value = _VALUE.match(text, match.end())
        if value is None or value[0].strip("\\'\"") in _NO_VALUES:
            continue
        edge = (re.match(r"\\?['\"]", value[0]) or [""])[0]
        kept.append(f"{text[at : match.end()]}{edge}{mark}{edge}")
        at = value.end()
    return "".join(kept) + text[at:]


def _without_flag(match: re.Match[str], mark: str) -> str:
    name = match["name"]
    if name in _SHORT or (match["flag"].startswith("--") and is_secret_flag(name)):
        return f"{match['flag']}{match['mark']}{mark}"
    return match[0]


def _hidden(part: re.Match[str]) -> str:
    mark, name, value = part.groups()
    if not value or (name is not None and name.lower() in _PLAIN):
        return part[0]
    # Behind # without a name stands which of several addresses it is.
    if name is None and mark == "#" and value.isdigit():
        return part[0]
    return f"{mark}{'' if name is None else name + '='}…"


def _without(address: re.Match[str]) -> str:
    text = _USER.sub(lambda found: "/…@" if found[0].startswith("/") else "…@", address[0], count=1)
    return _QUERY.sub(_hidden, text)
