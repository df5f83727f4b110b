"""What leaves a host: variables by allow-list, no secrets, no prompts, no names of hosts or people.

The standard library alone, in Python 3.9's syntax, so that the collector can carry this file.

Names become pseudonyms that are stable within one case: the same host is the same word in the log, in
the manifest and in another host's log, if the cases share their salt. The salt is not written down.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

LEFT_OUT = "<left out>"
_PREFIXES = (
    "NCCL_", "TORCH_NCCL_", "TORCH_FR_", "FLASHINFER_", "SGLANG_", "SGL_", "GLOO_", "TRITON_", "PYTORCH_",
    "OMP_NUM_", "RCCL_", "HSA_", "HIP_VISIBLE", "ROCR_VISIBLE", "SLURM_PROCID", "SLURM_NODEID",
)  # fmt: skip
_NAMES = frozenset(
    [
        "TP_SOCKET_IFNAME",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_MODULE_LOADING",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_DEVICE_ORDER",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "DG_JIT_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "MAX_JOBS",
        "TORCH_CUDA_ARCH_LIST",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST",
        "HF_HUB_OFFLINE",
        "NVIDIA_VISIBLE_DEVICES",
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "NODE_RANK",
    ]
)
_SECRET_NAME = re.compile(
    r"(?<![a-z])(?:api_?)?keys?(?![a-z])|(?:^|[_-])tokens?$|secret|passw|credential|auth(?:$|[_-])|cookie",
    re.IGNORECASE,
)
# Names that hold such a word and are none: flags of tokenizers and of numbers of tokens.
_HARMLESS = re.compile(
    r"tokeniz|num.tokens|max.*tokens|tokens.per|token.budget|draft.tokens|eos|bos", re.I
)
_SECRET_FLAG = re.compile(
    r"^--(?:[\w-]*(?:api-key|password|secret|credential|auth-token|hf-token|-token))$"
)

_SECRETS = re.compile(
    r"""
    \b(?:hf_[A-Za-z0-9]{16,} | sk-[\w-]{16,} | gh[pousr]_\w{20,} | github_pat_\w{20,} | xox[abprs]-[\w-]{10,}
       | AKIA[0-9A-Z]{16} | ASIA[0-9A-Z]{16} | AIza[\w-]{30,} | glpat-[\w-]{16,} | nvapi-[\w-]{20,}
       | eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{6,})
    | (?<=[Bb]earer\ )[\w.~+/=-]{8,}
    | (?<=[Bb]asic\ )[A-Za-z0-9+/=]{16,}
    | (?<=://)[^/\s:@'"]{1,200}:[^/\s@'"]{1,200}(?=@)
    """,
    re.VERBOSE,
)
# `api_key='…'` in the line of the server's arguments, `"hf_token": "…"`, `HF_TOKEN=…`, `?token=…`.
_ASSIGNED = re.compile(
    r"""(?P<name>\b[\w-]*(?:api[_-]?key|_key|access[_-]key|token|secret|password|passwd|credentials?)\b['"]?\s*[=:]\s*)"""
    r"""(?P<value>'(?:[^'\\]|\\.){1,2000}'|"(?:[^"\\]|\\.){1,2000}"|[^\s,'")\]}&]{6,2000})""",
    re.IGNORECASE,
)
# What --log-requests writes (as text or as JSON): whole requests and answers. And a request in an error.
_REQUEST_WORDS = ("ReqInput(", "Receive", "Finish", '"event"')
_REQUEST = re.compile(
    r"""(?P<head>\b(?:Receive|Finish)(?: request)?: |"event": ?"request\.\w+",? ?|\b\w*ReqInput\()"""
    r"""(?:obj=\w*ReqInput\()?(?:rid=(?P<rid>'?[\w-]{1,64}'?))?"""
)
# Prompts and answers wherever else a line holds them: `"content": "…"`, `text='…'`, `input_ids=[…]`.
_TEXT = r"""(?:'(?:[^'\\\n]|\\.){0,100000}(?:'|$)|"(?:[^"\\\n]|\\.){0,100000}(?:"|$))"""
_PROMPT = re.compile(
    r"""(?P<name>\b(?:prompts?|contents?|texts?|messages|(?:input|output|prompt|system)_(?:text|prompt)|query
    |reasoning_content|completions?|documents?|passages?)['"]?\s*[=:]\s*(?P<list>\[)?)"""
    rf"""(?(list)(?:{_TEXT}(?:,[ ]?(?=['"]))?)+|{_TEXT})"""
    r"""|(?P<ids>\b\w*(?:input|output|prompt|token)_ids['"]?\s*[=:]\s*)\[(?:[\d\s,]|\[[\d\s,]*\]){0,100000}\]?""",
    re.VERBOSE | re.MULTILINE,
)
_MAIL = re.compile(
    r"(?<![\w.+-])(?P<user>[\w.+-]{1,64})@(?P<host>(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,12})\b"
)
_HOME = re.compile(r"(?P<head>/(?:home|Users)/|/data/home/|/mnt/home/)(?P<user>[\w.@-]{1,64})")
# NCCL begins its lines with the host's name: `node17:4711:4788 [3] NCCL INFO …`.
_NCCL_HOST = re.compile(r"(?<![\w.-])(?P<host>[A-Za-z][\w.-]{1,80}):\d+:\d+ \[\d+\] NCCL")
_ENDINGS = (".internal", ".local", ".lan", ".corp", ".intranet", ".cluster", ".hpc")
_DOMAIN = re.compile(
    r"(?<![\w.-])(?:[A-Za-z0-9][\w-]{0,62}\.){1,6}(?:internal|local|lan|corp|intranet|cluster|hpc)(?![\w-])"
)
_ADDRESS = re.compile(r"(?<![\w.=+-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_PLAIN_ADDRESSES = ("127.", "0.0.0.0", "255.255.255.255")
_TOO_COMMON = frozenset(
    {"localhost", "host", "node", "server", "python", "sglang", "main", "root", "user"}
)


class Redactor:
    """Takes secrets and names out of texts; one per case.

    Parameters
    ----------
    salt
        What pseudonyms are made with; by default random. Cases of several hosts that are to be
        merged share one.
    hosts
        Names that are to be replaced wherever they stand, this host's first of all.
    """

    def __init__(self, salt: str | bytes | None = None, hosts: tuple[str, ...] = ()) -> None:
        if salt is None:
            salt = secrets.token_bytes(16)
        self._salt = salt.encode() if isinstance(salt, str) else salt
        self._hosts: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        for host in hosts:
            self._learn(host)

    def host(self, name: str) -> str:
        """Return a host's pseudonym; it is replaced in every later text."""
        self._learn(name)
        return self._alias("host", name.split(".", maxsplit=1)[0])

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """Return those variables that a diagnosis needs, redacted."""
        kept = {}
        for name in sorted(variables):
            wanted = name in _NAMES or name.startswith(_PREFIXES)
            if wanted and not is_secret(name):
                kept[name] = self.text(variables[name])[:500]
        return kept

    def arguments(self, argv: list[str]) -> list[str]:
        """Return a command line without the values of keys and tokens."""
        kept: list[str] = []
        hide = False
        for word in argv[:400]:
            flag, equals, _ = word.partition("=")
            secret = bool(_SECRET_FLAG.match(flag)) and not _HARMLESS.search(flag)
            if hide and not word.startswith("--"):
                kept.append(LEFT_OUT)
            elif secret and equals:
                kept.append(f"{flag}={LEFT_OUT}")
            else:
                kept.append(self.text(word)[:2000])
            hide = secret and not equals
        return kept

    def text(self, text: str) -> str:
        """Return a text, of one or of many lines, without secrets, prompts and names."""
        # A search for one word is a hundred times faster than a pattern, and most texts have none.
        if any(word in text for word in _REQUEST_WORDS):
            text = "\n".join(_without_request(line) for line in text.split("\n"))
        text = _PROMPT.sub(lambda m: f"{m['name'] or m['ids']}{LEFT_OUT}", text)
        text = _SECRETS.sub(LEFT_OUT, text)
        if "@" in text:
            text = _MAIL.sub(self._mail, text)
        text = _ASSIGNED.sub(_without_value, text)
        text = _HOME.sub(lambda m: m["head"] + self._alias("user", m["user"]), text)
        for match in _NCCL_HOST.finditer(text) if "] NCCL" in text else ():
            self._learn(match["host"])
        if self._hosts:
            if self._pattern is None:
                names = sorted(self._hosts, key=len, reverse=True)
                words = "|".join(re.escape(name) for name in names)
                self._pattern = re.compile(rf"(?<![\w.-])(?:{words})(?![\w-])")
            text = self._pattern.sub(lambda m: self._hosts[m[0]], text)
        if any(ending in text for ending in _ENDINGS):
            text = _DOMAIN.sub(lambda m: self._alias("host", m[0].split(".", 1)[0]), text)
        return _ADDRESS.sub(self._address, text)

    def dump(self, threads: Any) -> Any:
        """Return a py-spy dump without the values of local variables, which may be prompts."""
        if not isinstance(threads, list):
            return threads
        for thread in threads:
            frames = thread.get("frames") if isinstance(thread, dict) else None
            for frame in frames if isinstance(frames, list) else ():
                if isinstance(frame, dict):
                    if frame.get("locals"):
                        frame["locals"] = None
                    for field in ("filename", "short_filename"):
                        if isinstance(frame.get(field), str):
                            frame[field] = self.text(frame[field])
        return threads

    def _learn(self, name: str) -> None:
        short = name.split(".", maxsplit=1)[0]
        if (
            len(short) < 3
            or short.lower() in _TOO_COMMON
            or short in self._hosts
            or len(self._hosts) > 4096
        ):
            return
        alias = self._alias("host", short)
        self._hosts[short] = alias
        if name != short:
            self._hosts[name] = alias
        self._pattern = None

    def _alias(self, kind: str, name: str) -> str:
        if name.startswith(f"{kind}-") and re.fullmatch(r"[0-9a-f]{6}", name[len(kind) + 1 :]):
            return name  # a pseudonym already
        digest = hashlib.blake2b(
            f"{kind}\0{name}".encode(), key=self._salt[:64], digest_size=16
        ).hexdigest()
        return f"{kind}-{digest[:6]}"

    def _mail(self, match: re.Match[str]) -> str:
        return f"{self._alias('user', match['user'])}@{self._alias('host', match['host'])}"

    def _address(self, match: re.Match[str]) -> str:
        address = match[0]
        if address.startswith(_PLAIN_ADDRESSES) or any(
            int(part) > 255 for part in address.split(".")
        ):
            return address
        return self._alias("addr", address)


def is_secret(name: str) -> bool:
    """Whether a variable of this name may hold a key or a token."""
    return bool(_SECRET_NAME.search(name.replace("_", "-"))) and not _HARMLESS.search(name)


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    if value in ("None", "True", "False") or _HARMLESS.search(match["name"]) or value == LEFT_OUT:
        return match[0]
    if re.fullmatch(r"['\"]?[\d.]*['\"]?", value):  # a count of tokens, or nothing
        return match[0]
    quote = value[0] if value[0] in "'\"" else ""
    return f"{match['name']}{quote}{LEFT_OUT}{quote}"


def without_prompts(line: str) -> str:
    """Return a line of a log without what users sent and got: a prompt may say that a rank has died."""
    if any(word in line for word in _REQUEST_WORDS):
        line = _without_request(line)
    quoted = "'" in line or '"' in line
    if quoted and any(word in line for word in ("prompt", "content", "text", "messages", "query")):
        line = _PROMPT.sub(lambda m: f"{m['name'] or m['ids']}{LEFT_OUT}", line)
    return line


def _without_request(line: str) -> str:
    match = _REQUEST.search(line)
    if match is None:
        return line
    rid = f"rid={match['rid']} " if match["rid"] else ""
    return line[: match.start()] + match["head"] + rid + LEFT_OUT
