"""What leaves a host, and what of raw evidence is shown: what the rules need, without secrets and names.

Logs, arguments and stacks are taken apart, and of each part only what a list allows is kept (`harmless`);
the rest is left out or becomes a token. So a secret of a shape that nobody knows does not travel either.
Names of hosts and people become pseudonyms that are stable within one case: the same host is the same word
in the log, in the manifest and in another host's log, if the cases share their salt. The salt is not written
down.

The standard library alone, in Python 3.9's syntax, so that the collector can carry this file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from workbench.evidence.harmless import PUBLISHERS, is_harmless
from workbench.evidence.private_numbers import is_private, is_setting
from workbench.evidence.prompts import without_prompts
from workbench.evidence.pseudonyms import DROPPED, TOKEN
from workbench.evidence.word_filter import HOMES, LONG, QUOTED, WordFilter
from workbench.secret_shapes import LEFT_OUT, is_secret, is_secret_flag, without_secrets

__all__ = [
    "LEFT_OUT",
    "Redactor",
    "fields",
    "is_secret",
    "known_secrets",
    "plain",
    "without_prompts",
    "without_secrets",
]

_PREFIXES = (
    "NCCL_", "TORCH_NCCL_", "TORCH_FR_", "FLASHINFER_", "SGLANG_", "SGL_", "GLOO_", "TRITON_", "PYTORCH_",
    "OMP_NUM_", "RCCL_", "HSA_", "HIP_VISIBLE", "ROCR_VISIBLE", "SLURM_PROCID", "SLURM_NODEID",
)  # fmt: skip
_NAMES = frozenset(
    """
TP_SOCKET_IFNAME CUDA_VISIBLE_DEVICES CUDA_MODULE_LOADING CUDA_LAUNCH_BLOCKING CUDA_DEVICE_ORDER
CUDA_DEVICE_MAX_CONNECTIONS DG_JIT_CACHE_DIR TORCH_EXTENSIONS_DIR TORCHINDUCTOR_CACHE_DIR MAX_JOBS
TORCH_CUDA_ARCH_LIST TORCH_SYMM_MEM_DISABLE_MULTICAST HF_HUB_OFFLINE NVIDIA_VISIBLE_DEVICES
CUDA_ENABLE_USER_TRIGGERED_COREDUMP RANK WORLD_SIZE LOCAL_RANK NODE_RANK
""".split()  # noqa: SIM905
)
# Flags whose value names a model: its last part is kept.
_MODELS = re.compile(
    r"(?:^|-)(?:model|tokenizer|draft-model|speculative-draft|lora)(?:-paths?|-name)?$|^model$"
)
_TEXTS = re.compile(r"template|prompt|system|message|served|description")

_STAMP = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?: [A-Z_]{2,8}\d{1,6}){0,6}\] ?"
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ZEROS = str.maketrans("123456789", "000000000")
_ADDRESSES = re.compile(r"\d\.\d{1,3}\.\d{1,3}\.\d|\d:\d+:\d+:")
_FRAME = re.compile(
    r'File "(?P<file>[^"\n]{0,2000})"(?P<line>, line (?:\d{1,9}|\?\?\?))'
    r"(?:(?P<in>,? in )(?P<function>\S.{0,300}?))?\s*$"
)
_FUNCTION = re.compile(r"[A-Za-z_<][\w.<>]{0,160}")
_NATIVE = re.compile(r"[\w<(~][\w:<>(),.*&~ \[\]@+$=|!^/-]{0,600}")
_ARGUMENTS = re.compile(r"\bserver_args=(?:\w{1,40}\(|\{)")
_MODEL = re.compile(r"(?!(?:\d{1,3}\.){3}\d)[A-Za-z0-9][\w.+-]{0,96}")
_TITLE = re.compile(
    r"(?:sglang|sgl_diffusion)::[A-Za-z_]{1,40}(?:_?[A-Z]+\d{1,6}|:\d{1,10}|_\d{1,6}){0,8}"
)
_WHOLE = re.compile(r"-?\d{1,19}")
# Of a command that a shell writes down, only a launch has numbers that anybody reads.
_LAUNCH = re.compile(
    r"(?<![\w.-])(?:[\w./-]{0,200}/)?(?:python[\d.]*t?|sglang|torchrun|vllm)(?=\s)"
    r"|(?<!\S)-m\s+(?:sglang|torch|vllm)\b|(?<![\w-])(?:NCCL|TORCH|CUDA|SGLANG|SGL|GLOO|OMP)_\w{1,60}="
)
_PYTHON = re.compile(r"(?:python[\d.]*t?|pypy[\d.]*)")
_THREAD_NAME = re.compile(r"[A-Z][A-Za-z]{2,30}-\d{1,6}(?:_\d{1,6})?(?: \([\w.<>]{1,80}\))?")


_THREAD = ("pid", "thread_id", "os_thread_id", "active", "owns_gil")
_FRAME_TEXTS = ("name", "filename", "module")
# Shorter secrets stand in other words by chance.
_SHORTEST = 6
_PASSWORD = re.compile(r"://[^/\s:@]{0,200}:([^/\s@]{4,200})@")
_SIGNED = re.compile(
    r"[?&](?:[\w-]*(?:sig|signature|token|key|secret)[\w-]*)=([^&#\s]{6,4000})", re.I
)
_SETTLED = ("None", "True", "False", "true", "false", "")


Frames = dict[tuple[Any, ...], dict[str, Any]]
"""Frames as they are kept, by name, file, module and line."""


class Redactor(WordFilter):
    """Takes secrets and names out of evidence; one per case."""

    # -- variables and arguments -------------------------------------------------------------------

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """Return those variables that a diagnosis needs, redacted."""
        kept = {}
        for name in sorted(variables):
            wanted = name in _NAMES or name.startswith(_PREFIXES)
            if wanted and re.fullmatch(r"\w{1,100}", name) and not is_secret(name):
                kept[name] = self._setting(name, variables[name])[:500]
        return kept

    def arguments(self, argv: list[str]) -> list[str]:
        """Return a command line: flags, and of their values numbers, engines' words and models' names."""
        kept: list[str] = []
        flag = ""
        for number, word in enumerate(_whole(argv[:400])):
            name, equals, value = word[:8000].partition("=")
            if re.fullmatch(r"--?[A-Za-z][\w.-]*", name) and not re.fullmatch(r"-\d.*", word):
                shown = name if _is_flag(name) else self.token("value", name)
                kept.append(shown + (f"={self.value(name, value)}" if equals else ""))
                flag = "" if equals else name
            elif flag:
                kept.append(self.value(flag, word))
                flag = "" if flag == "-m" else flag
            else:
                kept.append(self._word(word, number))
                flag = ""
        return kept

    def value(self, name: str, text: str) -> str:
        """Return a flag's or a field's value: as it is where it is a setting, else a token."""
        name = name.lstrip("-").replace("_", "-")
        if text in _SETTLED or text == LEFT_OUT or TOKEN.fullmatch(text):
            return text
        if is_secret_flag(name) or (len(name) == 1 and name not in "mcx"):
            return LEFT_OUT
        if name == "c":
            return self.line(text)
        if not is_harmless(name) or _TEXTS.search(name):
            return text if is_harmless(text) and _TEXTS.search(name) else self.token("value", text)
        if _MODELS.search(name) and not re.search(r"[{\[\s]", text):
            return self.model(text)
        return self._setting(name, text)

    def _setting(self, name: str, text: str) -> str:
        """Return a value of a name that is known; of a number also only where the name is one that counts."""
        if not is_setting(name, text) and re.fullmatch(r"[\d\s.,:/+-]+", text):
            return self.token("value", text)
        return self._plain_value(text)

    def model(self, text: str) -> str:
        """Return the path or name of a model: its last part, and of the rest whether it is the same."""
        text = self._without_known(without_secrets(text, LEFT_OUT))
        head, slash, last = text.rstrip("/").rpartition("/")
        last = re.split(r"[?#;]", last)[0]
        hub = re.search(r"models--([\w.-]{1,40}?--[\w.-]{1,96})(?=/|$)", text)
        if hub:
            last = f"models--{hub[1]}"
        elif not _MODEL.fullmatch(last) or LONG.fullmatch(last) or head.rpartition("/")[2] in HOMES:
            last = self.token("value", last) if last else ""
        if not slash:
            return last
        if head in PUBLISHERS or TOKEN.fullmatch(head) or head in (".", ".."):
            return f"{head}/{last}"
        return f"{self.token('dir', head)}/{last}"

    def _plain_value(self, text: str) -> str:
        """Return a value as it is where all of it is harmless, addresses as pseudonyms, else a token."""
        if text in _SETTLED or is_harmless(text) or _WHOLE.fullmatch(text):
            return self._without_known(text)
        if "," in text and not re.search(r"[\s'\"{}\[\]()]", text):
            return ",".join(map(self._plain_value, text.split(",")))
        safe = self._shown(text)
        shown = self._segment(safe, strict=True)
        if DROPPED not in shown:
            return shown
        return LEFT_OUT if LEFT_OUT in safe or DROPPED in safe else self.token("value", text)

    def _word(self, word: str, number: int) -> str:
        """Return a word that is no flag's value: a program, a module, a subcommand, or code."""
        if _TITLE.fullmatch(word.strip()):
            return word
        if re.search(r"\s", word):
            if is_private(word) and not _LAUNCH.search(word):
                word = self._without_numbers(word)
            if re.search(r"(?:^|\s)--?\w", word):
                return " ".join(self.arguments(word.split()))
            return self.line(word)
        base = word.rpartition("/")[2]
        if number == 0 and (_PYTHON.fullmatch(base) or is_harmless(base)):
            return base
        return self._segment(self._shown(word))

    # -- logs --------------------------------------------------------------------------------------

    def log(self, text: str) -> str:
        """Return a log: as many lines, each with what the rules read and no more."""
        self.learn_hosts((text,))
        return "\n".join(self.lines(text.split("\n")))

    def lines(self, lines: list[str]) -> Iterator[str]:
        """Yield the lines of a log, or of a dump in text, redacted."""
        stack = pem = False
        for line in lines:
            if "-----BEGIN" in line or pem:
                pem = "-----END" not in line and ("-----BEGIN" in line or len(line) < 200)
                yield DROPPED if "-----" not in line else self.line(line)
                continue
            shown = self._of_stack(line, stack)
            stack = shown is not None and (bool(line.strip()) or stack)
            yield self.line(line) if shown is None else shown

    def line(self, line: str) -> str:
        """Return one line of a log: its clock and rank, and of its words those that are harmless."""
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        # Most lines of a long log differ from others in their numbers alone.
        # (`translate` is twenty times as fast as a pattern.)
        shape = line.replace("127.0.0.1", "lo").translate(_ZEROS)
        shape = "" if _ADDRESSES.search(shape) else shape
        if shape and shape in self._shapes:
            return line
        shown = self._line(line)
        if shape and shown == line and len(self._shapes) < 1 << 16:
            self._shapes.add(shape)
        return shown

    def _line(self, line: str) -> str:
        found = _ARGUMENTS.search(line)
        if found:
            return self._server_arguments(line, found)
        frame = _FRAME.search(line)
        if frame and line[: frame.start()].strip() == "":
            function = frame["function"] or ""
            return f'{line[: frame.start()]}File "{self.path(frame["file"])}"{frame["line"]}' + (
                f"{frame['in']}{function if _FUNCTION.fullmatch(function) else DROPPED}"
                if frame["in"]
                else ""
            )
        if re.match(r"\+{1,6} |(?:PS4|\$|#) ?\+ ", line):
            mark, _, rest = line.partition(" ")
            return f"{mark} {self._traced(rest)}"
        line = self._shown(line)
        parts, at = [], 0
        for match in _STAMP.finditer(line):
            parts.append(self._segment(line[at : match.start()]))
            parts.append(match[0])
            at = match.end()
        return "".join(parts) + self._segment(line[at:])

    def _traced(self, text: str) -> str:
        """Return a command as a shell writes it before it runs it."""
        text = re.sub(r"""['"]""", "", self._shown(text))
        launch = _LAUNCH.search(text)
        at = launch.start() if launch else len(text)
        before = self._without_numbers(text[:at])
        return " ".join(self.arguments((before + text[at:]).split()))

    def _server_arguments(self, line: str, found: re.Match[str]) -> str:
        dictionary = line[found.end() - 1] == "{"
        sign = ": " if dictionary else "="
        kept = []
        for item in fields(line, found.end()):
            name, separator, value = item.partition(":" if dictionary else "=")
            bare, value = name.strip().strip("'\""), value.strip()
            if (
                separator
                and re.fullmatch(r"\w{1,80}", bare)
                and (is_harmless(bare) or is_secret(bare))
            ):
                kept.append(f"{name.strip()}{sign}{self.field(bare, value)}")
        end = "}" if dictionary else ")"
        before = self._line(line[: found.start()])
        return f"{before}{found[0]}{', '.join(kept)}{end}"

    def field(self, name: str, value: str) -> str:
        """Return a field of ServerArgs as Python writes it, redacted as the value of its flag."""
        inner = plain(value)
        if _WHOLE.fullmatch(value) and not is_setting(name, value):
            return repr(self.token("value", value))
        if inner is None:
            return (
                repr(LEFT_OUT)
                if is_secret(name) and value not in _SETTLED
                else self._structure(value)
            )
        shown = self.value(name, inner)
        return value if shown == inner else repr(shown)

    def _structure(self, value: str) -> str:
        """Return a number, a list, a dict or an object as Python writes it; texts in it as tokens."""

        def text(match: re.Match[str]) -> str:
            inner = match["one"] or match["two"]
            shown = self._plain_value(inner)
            return match[0] if shown == inner else repr(shown)

        if _WHOLE.fullmatch(value):  # of a name that is known
            return value
        value = self._shown(value)
        kept, at = [], 0
        for match in QUOTED.finditer(value):
            kept += [self._chunks(value[at : match.start()]), text(match)]
            at = match.end()
        return "".join(kept) + self._chunks(value[at:])

    # -- paths and stacks --------------------------------------------------------------------------

    def _of_stack(self, line: str, inside: bool) -> str | None:
        """Return a line of ``py-spy dump`` as text, or None for any other."""
        if not inside and line[:1] not in ("P", "T"):
            return None
        head = re.match(r"Process (\d{1,10}): ?(.*)$", line)
        if head:
            return f"Process {head[1]}: " + " ".join(self.arguments(head[2].split()))
        head = re.match(r"Python v(\S{1,40})(?: \((.*)\))?\s*$", line)
        if head and inside:
            return (
                f"Python v{head[1]} ({self._word(head[2] or '', 0)})"
                if is_harmless(head[1])
                else DROPPED
            )
        head = re.match(
            r'(Thread (?:\d{1,20}|0x[0-9a-fA-F]{1,16}) \((?:idle|active)(?:\+gil)?\))(?:: "(.*)")?\s*$',
            line,
        )
        if head:
            return head[1] + (f': "{self.thread(head[2])}"' if head[2] is not None else "")
        if not inside:
            return None
        if line.startswith(" " * 8):
            return " " * 8 + DROPPED
        at = line.rfind(" (")
        if at >= 5 and line.startswith("    ") and line.rstrip().endswith(")"):
            place = line.rstrip()[at + 2 : -1]
            file, colon, number = (
                place.rpartition(":") if re.search(r":\d{1,9}$", place) else (place, "", "")
            )
            return f"    {self.function(line[4:at])} ({self.path(file)}{colon}{number})"
        return line if not line.strip() else None

    def function(self, name: str) -> str:
        """Return a function's name, which is of a program; what cannot be one is left out."""
        if not name:
            return ""
        name = without_secrets(self._without_known(name), DROPPED)
        return (
            name
            if _NATIVE.fullmatch(name) and not re.fullmatch(r"[A-Za-z0-9+/=]{65,}", name)
            else DROPPED
        )

    def thread(self, name: str) -> str:
        """Return a thread's name, where it is one that programs give."""
        if _THREAD_NAME.fullmatch(name):
            return name
        return self._segment(self._shown(name))

    def dump(self, threads: Any) -> Any:
        """Return a py-spy dump's stacks, and nothing else of it: local variables may be prompts."""
        kept = []
        known: Frames = {}
        for thread in threads if isinstance(threads, list) else ():
            if isinstance(thread, dict):
                one = {key: _number(thread.get(key)) for key in _THREAD}
                name = _text(thread.get("thread_name"))
                one["thread_name"] = self.thread(name) if name else None
                one["frames"] = self.frames(thread.get("frames"), known)
                kept.append(one)
        return kept

    def frames(self, given: Any, known: Frames) -> list[dict[str, Any]]:
        """Return the frames of one stack; `known` keeps those of one dump."""
        frames = []
        for frame in given if isinstance(given, list) else ():
            if isinstance(frame, dict):
                # Ranks and threads stand in the same frames, and there are thousands.
                texts = (_text(frame.get(field)) for field in _FRAME_TEXTS)
                key = (*texts, _number(frame.get("line")))
                if key not in known:
                    known[key] = self._frame(*key)
                frames.append(known[key])
        return frames

    def _frame(self, name: str, file: str, module: str, line: Any) -> dict[str, Any]:
        return {
            "name": self.function(name),
            "filename": self.path(file) if file else None,
            "module": self.path(module) if module else None,
            "short_filename": None,
            "line": line or 0,
            "locals": None,
        }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def known_secrets(variables: dict[str, str], argv: list[str]) -> set[str]:
    """Return what of variables and arguments is secret by its name, long and strange enough to be found."""
    found = {value for name, value in variables.items() if is_secret(name)} | set(_of_flags(argv))
    for text in (*variables.values(), *argv):
        found |= {*_PASSWORD.findall(text), *_SIGNED.findall(text)}
    return {
        value
        for value in found
        if len(value) >= _SHORTEST
        and (not is_harmless(value) or (value.isdigit() and len(value) >= _SHORTEST + 2))
        and not TOKEN.match(value)
        and value != LEFT_OUT
    }


def _of_flags(argv: list[str]) -> Iterator[str]:
    for number, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if not name.startswith("--") or not is_secret_flag(name):
            continue
        if equals:
            yield value
        elif number + 1 < len(argv) and not argv[number + 1].startswith("--"):
            yield argv[number + 1]


def _whole(words: list[str]) -> list[str]:
    """Return words of which none is half of the mark of what was left out."""
    if "out>" not in words:
        return words
    whole: list[str] = []
    for word in words:
        if word == "out>" and whole and whole[-1].endswith("<left"):
            whole[-1] += " out>"
        else:
            whole.append(word)
    return whole


def _is_flag(name: str) -> bool:
    """Whether a word looks like a flag, and not like a secret that begins with a dash."""
    if name[1:2] != "-":
        return len(name) == 2 or is_harmless(name[1:])  # -pPASSWORD
    return (
        bool(re.fullmatch(r"--?[a-zA-Z][a-z]*(?:[-_.]?[a-z]+\d{0,3}|\d{1,3})*", name))
        and len(name) < 70
    )


def _number(value: Any) -> Any:
    return value if isinstance(value, (bool, int)) else None


def plain(text: str) -> str | None:
    """Return what is in Python's quotes, or None for anything but one text."""
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return None
    try:
        value = ast.literal_eval(text) if len(text) < 65536 else text[1:-1]
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text[1:-1]
    return value if isinstance(value, str) else text[1:-1]


def fields(text: str, start: int, *, unclosed: bool = False) -> Iterator[str]:
    """Split at the commas that are in no bracket and no quotes; in one pass, whatever the text is.

    What follows the last comma of a text without its closing bracket may be cut short: it is a field only
    with `unclosed`.
    """
    depth, quote, begin, at = 0, "", start, start
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}" or (char == "," and depth == 0):
            if char != "," and depth:
                depth -= 1
            else:
                yield text[begin:at]
                begin = at + 1
                if char != ",":
                    return
        at += 1
    if unclosed and begin < len(text):
        yield text[begin:]
