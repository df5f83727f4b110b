"""Names of hosts and people as pseudonyms, and what is known to be secret.

The standard library alone, in Python 3.9's syntax: the collector carries this file.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable

from workbench.evidence.harmless import PRIVATE
from workbench.evidence.prompts import without_all_prompts
from workbench.secret_shapes import LEFT_OUT, without_secrets

DROPPED = "…"
TOKEN = re.compile(r"(?:host|user|addr|value|dir)-[0-9a-f]{6}(?![0-9a-f])")
MAIL = re.compile(
    r"(?<![\w.+-])(?P<user>[\w.+-]{1,64})@(?P<host>(?:[A-Za-z0-9-]{1,63}\.){0,6}[A-Za-z][\w-]{1,62})(?![\w=])"
)
_HOME = re.compile(
    r"(?P<head>/(?:home|Users|users|scratch|fsx|lustre|gpfs)/|/(?:data|mnt|nfs|shared)/(?:home|users?)/"
    r"|(?<![\w./])~)(?P<user>(?!<left)[\w.@-]{1,64})"
)
# NCCL begins its lines with the host's name: `node17:4711:4788 [3] NCCL INFO …`.
NCCL_HOST = re.compile(r"(?<![\w.-])(?P<host>[A-Za-z][\w.-]{1,80}):\d+:\d+ \[\d+\] NCCL")
_DOMAIN = re.compile(
    r"(?<![\w.-])(?:[A-Za-z0-9][\w-]{0,62}\.){1,6}(?:internal|local|lan|corp|intranet|cluster|hpc)(?![\w-])"
)
_ADDRESS = re.compile(r"(?<![\w.=+-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_IN_TEXT6 = re.compile(
    r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}(?![\w:])|(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){1,6}(?::[0-9a-fA-F]{1,4}){1,6}(?![\w:])"
)
PLAIN_ADDRESSES = ("127.", "0.0.0.0", "255.255.255.255")
_TOO_COMMON = frozenset(
    [
        "localhost",
        "host",
        "node",
        "server",
        "python",
        "sglang",
        "main",
        "root",
        "user",
        "ubuntu",
        "nobody",
        "admin",
        "worker",
        "head",
        "test",
        "dev",
    ]
)


class Names:
    """Pseudonyms that are stable within one case, and values that are left out wherever they stand.

    Parameters
    ----------
    salt
        What pseudonyms are made with; by default random. Cases of several hosts that are to be
        merged share one.
    hosts
        Names that are to be replaced wherever they stand, this host's first of all.
    values
        What the tokens of values are made with, where they are to be the same in later texts of another
        redactor; by default they are numbered, since a salt that hosts share may be a word that can be
        guessed, and a value may be short.
    numbered
        Whether pseudonyms are numbered, too: the same evidence always has the same ones.
    """

    def __init__(
        self,
        salt: str | bytes | None = None,
        hosts: tuple[str, ...] = (),
        values: bytes | None = None,
        *,
        numbered: bool = False,
    ) -> None:
        if salt is None:
            salt = secrets.token_bytes(16)
        if isinstance(salt, str):  # it may be a word: each guess at it is to cost something
            salt = hashlib.pbkdf2_hmac("sha256", salt.encode(), b"workbench", 20_000)
        self._salt = salt
        self._values = values
        self._numbered = numbered
        self._numbers: dict[tuple[str, str], int] = {}
        self._known: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._shapes: set[str] = set()
        self._kept = self._left = 0
        self._private = False  # whether the numbers of what is read now are somebody's
        for host in hosts:
            self._learn(host, "host")

    # -- what is known by name ---------------------------------------------------------------------

    def host(self, name: str) -> str:
        """Return a host's pseudonym; it is replaced in every later text."""
        self._learn(name, "host")
        return self._alias("host", name.split(".", maxsplit=1)[0])

    def user(self, name: str) -> str:
        """Return a person's pseudonym; it is replaced in every later text."""
        self._learn(name, "user")
        return self._alias("user", name)

    def secret(self, value: str) -> None:
        """Leave out a value that is known to be secret wherever it stands."""
        if len(value) >= 4 and value not in self._known and len(self._known) < 8192:
            self._known[value] = LEFT_OUT
            self._forget()

    def _learn(self, name: str, kind: str) -> None:
        short = name.split(".", maxsplit=1)[0] if kind == "host" else name
        if (
            len(short) < 3
            or short.lower() in _TOO_COMMON
            or short in self._known
            or len(self._known) > 4096
        ):
            return
        alias = self._alias(kind, short)
        self._known[short] = alias
        if name != short:
            self._known[name] = alias
        self._forget()

    def _forget(self) -> None:
        self._pattern = None
        self._shapes.clear()

    def _without_known(self, text: str) -> str:
        if not self._known:
            return text
        if self._pattern is None:
            hidden = [name for name, word in self._known.items() if word == LEFT_OUT]
            names = [name for name, word in self._known.items() if word != LEFT_OUT]
            parts = [_longest(hidden)] if hidden else []
            parts += [rf"(?<![\w.-])(?:{_longest(names)})(?![\w-])"] if names else []
            self._pattern = re.compile("|".join(parts))
        return self._pattern.sub(lambda m: self._known[m[0]], text)

    def learn_hosts(self, texts: Iterable[str]) -> None:
        """Learn the hosts whose NCCL writes these texts; they are replaced in every later text."""
        for text in texts:
            for match in NCCL_HOST.finditer(text) if "] NCCL" in text else ():
                self._learn(match["host"], "host")

    # -- texts that the workbench or its user wrote ------------------------------------------------

    def text(self, text: str) -> str:
        """Return a user's own text without secrets, prompts and names; its words stay."""
        text = self._shown(text)
        if "@" in text:
            text = MAIL.sub(self._mail, text)
        text = _HOME.sub(lambda m: m["head"] + self._alias("user", m["user"]), text)
        self.learn_hosts((text,))
        text = self._without_known(text)
        if any(ending in text for ending in PRIVATE):
            text = _DOMAIN.sub(lambda m: self._alias("host", m[0].split(".", 1)[0]), text)
        text = _IN_TEXT6.sub(lambda m: self._alias("addr", m[0]), text)
        return _ADDRESS.sub(self._address, text)

    def _shown(self, text: str) -> str:
        """Return a text without what is known or looks like a secret, and without requests."""
        text = self._without_known(text)
        text = without_all_prompts(text)
        return without_secrets(text, LEFT_OUT)

    # -- pseudonyms --------------------------------------------------------------------------------

    def _alias(self, kind: str, name: str) -> str:
        if TOKEN.fullmatch(name) or name in (LEFT_OUT, DROPPED):
            return name  # a pseudonym already
        if self._numbered:
            return self._next(kind, name)
        return f"{kind}-{_digest(self._salt, kind, name)}"

    def token(self, kind: str, text: str) -> str:
        """Return what stands for a text that is not shown: the same for the same."""
        if TOKEN.fullmatch(text) or text in ("", LEFT_OUT, DROPPED):
            return text
        if self._values is None:
            return self._next(kind, text)
        return f"{kind}-{_digest(self._values, kind, text)}"

    def _next(self, kind: str, text: str) -> str:
        """Return the pseudonym of the number that a text has among those that were seen."""
        return f"{kind}-{self._numbers.setdefault((kind, text), len(self._numbers) + 1):06x}"

    def _mail(self, match: re.Match[str]) -> str:
        return f"{self._alias('user', match['user'])}@{self._alias('host', match['host'].split('.', 1)[0])}"

    def _address(self, match: re.Match[str]) -> str:
        address = match[0]
        if address.startswith(PLAIN_ADDRESSES) or any(
            int(part) > 255 for part in address.split(".")
        ):
            return address
        return self._alias("addr", address)


def _longest(names: list[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


def _digest(key: bytes, kind: str, text: str) -> str:
    return hashlib.blake2b(
        f"{kind}\0{text}".encode("utf-8", "surrogatepass"), key=key[:64], digest_size=16
    ).hexdigest()[:6]
