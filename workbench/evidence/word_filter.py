"""The words of a line or a path: kept where they are harmless, and left out or made pseudonyms elsewhere.

The standard library alone, in Python 3.9's syntax: the collector carries this file.
"""

from __future__ import annotations

import re

from workbench.evidence.harmless import MACHINE, PACKAGES, PRIVATE, PUBLIC_HOSTS, is_harmless
from workbench.evidence.private_numbers import is_private, without_runs
from workbench.evidence.pseudonyms import DROPPED, MAIL, PLAIN_ADDRESSES, TOKEN, Names

_HOST_NAME = re.compile(r"(?:[A-Za-z0-9][\w-]{0,62}\.){1,6}[A-Za-z][A-Za-z-]{1,30}")
_IPV4 = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}(?=$|[:/])")
_IPV6 = re.compile(
    r"(?=[^:]*:[^:]*:)(?:[0-9a-fA-F]{0,4}:){2,7}(?:[0-9a-fA-F]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?:%\w+)?"
)
_MAC = re.compile(r"(?:[0-9a-fA-F]{2}[:-]){5,19}[0-9a-fA-F]{2}")
_CHUNK = re.compile(r"[^\s,;()\[\]{}<>|'\"=`…]+")
_CARD = re.compile(r"(?<![\w.])\d{4}(?: \d{4}){2,}(?![\w.])")
# Long lists of numbers may be a prompt's tokens; those of batch sizes and ranks are not.
_NUMBERS = re.compile(
    r"(?<!bs=)(?<!bs: )(?<!ranks=)(?<!ranks: )\[(?:\s*-?\d{1,9}\s*,){8,}\s*(?:-?\d{1,9}\s*)?\]?"
)
QUOTED = re.compile(r"""(?<![\w'"])(?:'(?P<one>[^'\n]{1,4000})'|"(?P<two>[^"\n]{1,4000})")(?!\w)""")
_RAISED = re.compile(
    r"^(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Warning)\b"
)
_BARS = re.compile(r"[▏▎▍▌▋▊▉█#\s]+")
_SOURCE = re.compile(
    r"[A-Za-z_][\w.+-]{0,80}\.(?:py|pyx|pyi|c|cc|cpp|cu|cuh|h|hpp|rs|go)(?::\d{1,7})?:?"
)
_LIBRARY = re.compile(
    r"(?:lib[\w+.-]{1,80}\.so(?:\.\d+)*|[\w.-]{1,80}\.(?:cpython|abi3)[\w-]{0,40}\.so|ld-linux[\w.-]{0,30})"
)
LONG = re.compile(r"[0-9a-fA-F-]{24,}|[A-Za-z0-9+/_-]{40,}")
_ACCOUNT = re.compile(r"\d{6,}(?:\.\w{1,10})?(?::\d{1,7})?")  # a folder of a person's number
_OF_ACCOUNT = re.compile(r"[A-Za-z][\w.-]*/\d{6,}(?=[/.:]|$)")
_LONGEST_PATH = 4096
_DOMAINS = re.compile(
    r"com|net|org|io|ai|dev|cloud|edu|gov|mil|co|biz|info|app|tech|de|eu|uk|fr|it|es|nl|ch|at|se|pl|cn|jp|kr|in"
    r"|us|ru|ca|au|br",
    re.IGNORECASE,
)
# In a user's own words: what is somebody's after its name, and a host after the word for one.
_SAID = re.compile(
    r"(?P<head>(?<![A-Za-z])(?:passwords?|passwd|passphrase|passcode|pwd|pin|otp|secret|credentials?"
    r"|api[-_ ]?key)(?:\s+(?:is|was)\s+|\s*[:=]\s*)[\"']?)(?!<left out>|…)[^\s,;\"']+",
    re.IGNORECASE,
)
_TOKEN_IS = re.compile(
    r"(?P<head>(?<![A-Za-z])(?:token|key)\s+(?:is|was)\s+)(?=[A-Za-z_-]*\d)[^\s,;]{6,}",
    re.IGNORECASE,
)
_HOST_IS = re.compile(
    r"(?P<head>(?<![\w-])(?:host|hostname|node|machine|server|box|instance|pod|on|from|to|at|by)\s+)"
    r"(?P<host>[a-z][a-z-]{2,40}\d[\w-]{0,40})(?![\w./-])"
)
HOMES = frozenset(
    "home Users users user scratch fsx lustre gpfs netscratch homes u".split()  # noqa: SIM905
)


class WordFilter(Names):
    """Takes a text apart into words and keeps those that `harmless` lists."""

    def prose(self, text: str) -> str:
        """Return a user's own words without secrets, people's numbers and names of hosts; the others stay."""
        text = self.text(text)
        private = is_private(text)
        text = _TOKEN_IS.sub(rf"\g<head>{DROPPED}", _SAID.sub(rf"\g<head>{DROPPED}", text))

        def host(match: re.Match[str]) -> str:
            name = match["host"]
            known = is_harmless(name) or TOKEN.fullmatch(name)
            return match[0] if known else match["head"] + self._alias("host", name)

        def word(match: re.Match[str]) -> str:
            bare = match[0].rstrip(".,:;!?")
            name, tail = re.sub(r":\d{1,7}$", "", bare), match[0][len(bare) :]
            if TOKEN.match(bare) or "/" in bare or "@" in bare:
                return match[0]
            if MACHINE.fullmatch(name.partition(".")[0]) or self._is_host(name) or _is_domain(name):
                return self._alias("host", name.split(".", 1)[0]) + bare[len(name) :] + tail
            number = re.search(r"\d", bare)
            if private and number and (not is_harmless(bare) or re.search(r"\d{4,}", bare)):
                return DROPPED + tail
            return match[0]

        return _CHUNK.sub(word, _HOST_IS.sub(host, text))

    def _segment(self, text: str, *, strict: bool = False) -> str:
        """Return a message with its harmless words; nothing of one that has more others than those."""
        if not text.strip() or _BARS.fullmatch(text):
            return text
        raised = _RAISED.match(text)
        head = raised[0] if raised and len(raised[0]) < 160 else ""
        self._kept = self._left = 0
        shown = _NUMBERS.sub(f"[{DROPPED}]", text[len(head) :])
        shown = without_runs(_CARD.sub(DROPPED, shown), DROPPED)
        if self._private or is_private(text):
            shown = self._without_numbers(shown)
        if "'" in shown or '"' in shown:
            shown = QUOTED.sub(self._quoted, shown)
        shown = self._chunks(shown)
        if self._left > self._kept + (1 if strict else 0) and self._left > 1:
            blank = text[: len(text) - len(text.lstrip())]
            tail = "\r" if text.endswith("\r") else ""
            return f"{head}{': ' if head else blank}{DROPPED}{tail}"
        shown = re.sub(rf"{DROPPED}\s?=\s?[^\s,;<>(){{}}\[\]'\"…]+", DROPPED, shown)
        return head + re.sub(rf"{DROPPED}(?:[ ,;]*{DROPPED})+", DROPPED, shown)

    def _without_numbers(self, text: str) -> str:
        """Return a text whose words say that its numbers are somebody's: without any."""

        def word(match: re.Match[str]) -> str:
            bare = match[0].lstrip("@*:#!?")
            place = (
                "/" in bare and re.search(r"[A-Za-z]{2}", bare) and not re.search(r"\d{4}", bare)
            )
            if place or TOKEN.match(bare) or not re.search(r"\d", bare):
                return match[0]
            return DROPPED

        return _CHUNK.sub(word, text)

    def _quoted(self, match: re.Match[str]) -> str:
        inner = match["one"] or match["two"]
        kept, left = self._kept, self._left
        shown = self._chunks(inner)
        if DROPPED in shown and re.search(r"\s", inner.strip()):
            self._kept, self._left = kept, left + 1
            shown = DROPPED
        return f"{match[0][0]}{shown}{match[0][0]}"

    def _chunks(self, text: str) -> str:
        return _CHUNK.sub(self._chunk, text)

    def _chunk(self, match: re.Match[str]) -> str:
        word = match[0]
        if is_harmless(word) and not ("/" in word and _OF_ACCOUNT.search(word)):
            self._kept += word[0].isalpha()
            return word
        shown = self._unknown(word)
        if DROPPED in shown:
            self._left += 1
        return shown

    def _unknown(self, word: str) -> str:
        """Return what stands for a word that is not on the list: a pseudonym, part of a path, or nothing."""
        bare = word.rstrip(".,:;!?")
        tail = word[len(bare) :]
        lead = bare[: len(bare) - len(bare.lstrip("@*:#!?"))]
        bare = bare[len(lead) :]
        if _BARS.fullmatch(word):
            return word
        if TOKEN.match(bare):
            rest = bare[bare.index("-") + 7 :]
            return (
                word
                if not rest
                or is_harmless(rest)
                or re.fullmatch(r"(?::\d{1,7}|@host-\w{6}|/|\.)+", rest)
                else DROPPED
            )
        if _MAC.fullmatch(bare):
            return DROPPED + tail
        address = _IPV4.match(bare)
        if address:
            rest = bare[address.end() :]
            port = rest if re.fullmatch(r"(?::\d{1,7}){1,2}|/\d{1,2}|", rest) else ""
            return lead + self._address(address) + port + tail
        if ":" in bare and _IPV6.fullmatch(bare):
            return lead + (bare if bare in ("::1", "::") else self._alias("addr", bare)) + tail
        if "@" in bare:
            mail = MAIL.fullmatch(bare)
            return self._mail(mail) + tail if mail else DROPPED + tail
        if "://" in bare:
            return self._url(bare) + tail
        if (
            "/" in bare
            or bare.startswith("~")
            or _SOURCE.fullmatch(bare)
            or _LIBRARY.fullmatch(bare)
        ):
            return lead + self.path(bare) + tail
        name, _, port = bare.partition(":")
        if (not port or re.fullmatch(r"\d{1,7}(?::\d{1,7})?", port)) and (
            MACHINE.fullmatch(name.partition(".")[0]) or self._is_host(name)
        ):
            return lead + self._alias("host", name.split(".", 1)[0]) + bare[len(name) :] + tail
        return DROPPED + tail

    @staticmethod
    def _is_host(name: str) -> bool:
        return name.endswith(PRIVATE) and bool(_HOST_NAME.fullmatch(name))

    def _url(self, word: str) -> str:
        scheme, _, rest = word.partition("://")
        place = re.split(
            r"[/?#]", rest.rpartition("@")[2] if "@" in rest.partition("/")[0] else rest, maxsplit=1
        )[0]
        host, colon, port = place.partition(":")
        if host and not (
            host in PUBLIC_HOSTS or host.startswith(PLAIN_ADDRESSES) or TOKEN.fullmatch(host)
        ):
            host = self._alias(
                "addr" if _IPV4.match(host) else "host",
                host.split(".", 1)[0] if not _IPV4.match(host) else host,
            )
        scheme = scheme if is_harmless(scheme) else DROPPED
        more = (
            rest[len(place) :] if rest.startswith(place) else rest[rest.find(place) + len(place) :]
        )
        path = re.split(r"[?#;]", more, maxsplit=1)[0]
        shown = self._parts(path) if path.strip("/") else path
        return f"{scheme}://{host}{colon + port if port.isdigit() else ''}{shown}"

    def path(self, text: str) -> str:
        """Return a path: of a program's file what is inside of its package, else its harmless parts."""
        if text.startswith("<") and re.fullmatch(r"<[\w ./-]{1,80}>", text):
            return text
        if len(text) > _LONGEST_PATH:
            return DROPPED
        for folder in ("site-packages/", "dist-packages/"):
            if folder in text:
                return self._inside(text.rpartition(folder)[2])
        standard = re.search(r"(?:^|/)(python3\.\d{1,2}t?/.*\.(?:pyc?|so))(?=$|:)", text)
        if standard:
            return self._inside(standard[1])
        parts = text.split("/")
        for at, part in enumerate(parts[:-1]):
            if (
                part in PACKAGES
                and (at == 0 or part not in parts[at + 1 :])
                and _is_program(parts[-1])
            ):
                return self._inside("/".join(parts[at:]))
        if _LIBRARY.fullmatch(parts[-1]):
            return parts[-1]
        return self._parts(text)

    def _inside(self, text: str) -> str:
        """Return a path below a package, which names no person; a part of a strange shape is left out."""
        return "/".join(
            part
            if re.fullmatch(r"[A-Za-z_.][\w.+-]{0,80}(?::\d{1,7})?", part)
            and not LONG.fullmatch(part)
            else DROPPED
            for part in self._without_known(text).split("/")
        )

    def _parts(self, text: str) -> str:
        parts = self._without_known(text).split("/")
        kept: list[str] = []
        for at, part in enumerate(parts):
            before = parts[at - 1] if at else ""
            if not part or part in (".", "..", "~") or TOKEN.fullmatch(part):
                kept.append(part)
            elif at == 0 and part.startswith("~"):
                kept.append("~" + self._alias("user", part[1:]))
            elif _ACCOUNT.fullmatch(part) and before not in ("proc", "task"):
                kept.append(DROPPED)
            elif before in HOMES:
                kept.append(self._alias("user", part))
            elif part in HOMES or _is_part(part, last=at == len(parts) - 1):
                kept.append(part)
            else:
                kept.append(DROPPED)
        return re.sub(rf"{DROPPED}(?:/{DROPPED})+", DROPPED, "/".join(kept))


def _is_domain(name: str) -> bool:
    """Whether a name is one of the internet's, and names no place that everybody knows."""
    return (
        bool(_HOST_NAME.fullmatch(name))
        and _DOMAINS.fullmatch(name.rpartition(".")[2]) is not None
        and name not in PUBLIC_HOSTS
    )


def _is_program(name: str) -> bool:
    return bool(_SOURCE.fullmatch(name) or _LIBRARY.fullmatch(name) or name.endswith(".so"))


def _is_part(part: str, *, last: bool) -> bool:
    return is_harmless(part) or bool(_LIBRARY.fullmatch(part) or (last and _SOURCE.fullmatch(part)))
