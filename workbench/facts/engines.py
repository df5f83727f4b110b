"""Which engine evidence is of: its name, its processes' titles, its launches, its frames and its lines.

Titles, prefixes and frames of vLLM were read in the wheels of 0.8.5.post1, 0.11.0 and 0.20.0; SGLang's are in
`startup`. Nothing here guesses: what no row fits is of no known engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from workbench.facts import startup
from workbench.facts.startup import Title

NAMES = {
    "sglang": "SGLang",
    "vllm": "vLLM",
    "tensorrt_llm": "TensorRT-LLM",
    "tensorrt-llm": "TensorRT-LLM",  # as launches and profiles write it
    "torch": "torchrun",
}
"""How each engine is called in a sentence, by the name that records use."""

# VLLM_PROCESS_NAME_PREFIX may replace `VLLM`; a process of one rank has no parts.
_VLLM_WORKER = re.compile(
    r"VLLM::Worker(?:_DP(?P<dp>\d{1,6}))?(?:_PP(?P<pp>\d{1,6}))?(?:_PCP(?P<cp>\d{1,6}))?"
    r"(?:_TP(?P<tp>\d{1,6}))?(?:_DCP\d{1,6})?(?:_EP(?P<ep>\d{1,6}))?"
)
_VLLM_CORE = re.compile(r"VLLM::EngineCore(?:_DP(?P<dp>\d{1,6}))?")
_VLLM_OTHER = re.compile(r"VLLM::(?:APIServer(?:_\d{1,6})?|DPCoordinator)")
_RAY_WORKER = re.compile(r"ray::(?:RayWorkerWrapper|RayWorkerProc)\b")
# The names that vLLM's processes write before their lines, each with its pid.
VLLM_PREFIX = (
    r"\((?:Worker|EngineCore|APIServer|ApiServer|VllmWorker|DPCoordinator)[\w=]{0,60}"
    r"(?: rank=\d{1,6})? pid=\d{1,10}\)"
)
_LAUNCHES = (
    ("sglang", re.compile(
        r"(?:^|[/\s])sglang\s+serve\b|\bsglang\.launch_server\b|sglang/launch_server\.py|\bsglang\.srt\.")),
    ("vllm", re.compile(
        r"(?:^|[/\s])vllm\s+serve\b|\bvllm\.entrypoints\.(?:openai\.api_server|cli\.main|api_server)\b")),
    ("tensorrt_llm", re.compile(
        r"(?:^|[/\s])trtllm-(?:serve|llmapi-launch|bench)\b|\btensorrt_llm\.commands\.serve\b")),
    ("torch", re.compile(r"(?:^|[/\s])torchrun\b|\btorch\.distributed\.(?:run|launch)\b")),
)  # fmt: skip
# mpirun and SLURM start TensorRT-LLM's other ranks as servers of mpi4py's pool.
_MPI_WORKER = re.compile(r"\bmpi4py(?:\.futures)?(?:\.server)?\b")
_FILES = (
    ("sglang", re.compile(r"(?:^|/)sglang/|(?:^|/)srt/(?:managers|model_executor|distributed)/")),
    ("vllm", re.compile(r"(?:^|/)vllm/")),
    ("tensorrt_llm", re.compile(r"(?:^|/)tensorrt_llm/")),
)
# TensorRT-LLM's loggers: of Python with its clock, the rank where there are several, and the level; of C++.
_TRTLLM_LINE = re.compile(
    r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[TRT-LLM\] (?:\[RANK \d{1,6}\] )?\[[A-Z]\] "
    r"|\[TensorRT-LLM\]\[[A-Z]{4,8}\] "
)
# A variable with which a launcher numbers its processes, and the one that says how many there are.
RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def spoken(engine: str, version: str = "") -> str:
    """Return an engine's name as a sentence has it, with its version: ``vLLM 0.11.0``; "" for none."""
    name = NAMES.get(engine, engine)
    return f"{name} {version}" if name and version else name


def read_title(title: str) -> Title:
    """Say who a process is, from its title or command line, of whichever engine.

    A core of vLLM's is a ``controller``: it waits for its workers. Where it has none, it is the rank itself,
    which only the list of all processes shows.
    """
    own = startup.read_title(title)
    if own.role != "other":
        return own
    first = title.strip().split(None, 1)[:1]
    word = first[0] if first else ""
    if worker := _VLLM_WORKER.fullmatch(word):
        return Title("scheduler", _parts(worker))
    if core := _VLLM_CORE.fullmatch(word):
        return Title("controller", _parts(core))
    if _VLLM_OTHER.fullmatch(word):
        return Title("tokenizer")
    if _RAY_WORKER.match(word):
        return Title("scheduler_unnamed")
    return Title("parent") if engine_of_command(title) else own


def _parts(match: re.Match[str]) -> dict[str, int]:
    return {name: int(value) for name, value in match.groupdict().items() if value}


def engine_of_title(title: str) -> str:
    """Return the engine whose title or launch a process shows, "" for none."""
    title = title.strip()
    if title.startswith("sglang::"):
        return "sglang"
    if title.startswith("VLLM::"):
        return "vllm"
    return engine_of_command(title)


def engine_of_command(command: str) -> str:
    """Return the engine that a command line starts, "" for none; a shell that names one is none."""
    program = command.split(None, 1)[:1]
    if program and program[0].rpartition("/")[2] in _SHELLS:
        return ""
    return next((name for name, pattern in _LAUNCHES if pattern.search(command)), "")


_SHELLS = frozenset(
    {"sh", "bash", "dash", "zsh", "ssh", "grep", "vim", "vi", "nano", "less", "tail", "sudo"}
)


def engine_of_files(files: Iterable[str]) -> str:
    """Return the engine whose files the frames of a stack name, "" for none; SGLang's outrank the others.

    (Older releases of SGLang call into vLLM.)
    """
    found = {name for file in files for name, pattern in _FILES if pattern.search(file)}
    return next((name for name, _ in _FILES if name in found), "")


def engine_of_line(lines: Iterable[str]) -> str:
    """Return the engine whose logger names itself in one of the lines, "" for none."""
    return "tensorrt_llm" if any(map(_TRTLLM_LINE.match, lines)) else ""


def is_mpi_worker(command: str) -> bool:
    """Whether a command line is that of a server of mpi4py's pool."""
    return bool(_MPI_WORKER.search(command))


def chosen(votes: Sequence[str]) -> str:
    """Return the engine that evidence names, strongest witnesses first; "" where none does."""
    return next((vote for vote in votes if vote), "")
