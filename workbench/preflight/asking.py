"""Ask an engine's own parser and checks, in the engine's own Python: no GPU, offline, nobody's code."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from workbench.errors import EngineError
from workbench.facts.engines import spoken
from workbench.facts.gpus import Gpu
from workbench.launch import holes
from workbench.launch.records import Launch
from workbench.loaders.running import FOREIGN, died, run_script
from workbench.loaders.running import SCRIPT as TRACER

_HERE = Path(__file__).resolve().parent / "engine"
SCRIPTS = {"sglang": _HERE / "ask.py", "vllm": _HERE / "ask_vllm.py"}
TIMEOUT = 300.0
# The card that is pretended, and those that are tried when it is refused: what all refuse does not depend on
# the card.
FIRST_CARD = "H200"
# Which card is pretended, by the first number of its compute capability.
_BY_MAJOR = {8: "A100", 9: "H200", 10: "B200"}
CARDS = tuple(_BY_MAJOR.values())
# Options that run code, or fetch it: they are taken away, and what they would do is not asked.
_CODE = frozenset({
    "trust-remote-code", "custom-weight-loader", "forward-hooks", "custom-sigquit-handler",
    "worker-cls", "worker-extension-cls", "scheduler-cls", "middleware", "logits-processors",
    "tool-parser-plugin", "reasoning-parser-plugin", "io-processor-plugin", "kv-transfer-config",
    "ec-transfer-config", "additional-config", "model-class-overrides",
})  # fmt: skip
# Of the launch's variables only the engine's own count; those that name modules do not.
_VARIABLE = re.compile(r"(?:SGLANG|SGL|VLLM)_\w+")
# What keeps vLLM from plugins, the network and the user's folders.
_VLLM = {
    "VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CONFIGURE_LOGGING": "0",
}  # fmt: skip
_NAMES_CODE = re.compile(r"PLUGIN|EXTERNAL|MODULE|PACKAGE|HOOK|_PATH$|_DIR$")
_NEEDS_CODE = re.compile(r"(?i)trust_remote_code|custom code|execute the \w+ (?:file|code)")
# Words of a refusal that is about the card, the packages or the files of a machine.
_OF_HERE = re.compile(
    r"(?i)\bcuda\b|nvidia|\bgpus?\b|compute capability|\bsm_?\d\d|driver|hopper|blackwell|ampere"
    r"|\binstall|not available|not found|does not exist|no such file|cannot import|\bcpus?\b|\bplatform\b"
    r"|failed to be inspected"
)
# What is asked of kernels, where others stand in for them.
_KERNELS = re.compile(r"(?i)quantiz|marlin|kernel")
# What the engine raises where it refuses a value; any other class may come from this machine.
_REFUSES = frozenset({
    "ValueError", "AssertionError", "TypeError", "KeyError", "NotImplementedError", "AttributeError",
})  # fmt: skip
State = Literal["accepted", "parsed", "refused", "open"]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What an engine said of a launch.

    Attributes
    ----------
    version
        Of the engine that was asked.
    state
        ``accepted`` by the parser and the checks; ``parsed``: the parser takes it, and the checks were not
        asked or could not answer; ``refused``; ``open``: neither can be told.
    moment
        Of the refusal: ``parser`` or ``checks``.
    says
        The engine's words; of ``open`` and ``parsed`` why there is no more.
    place
        The function that raised.
    left_out
        Options and variables that the engine was not given, because they run code.
    """

    version: str
    state: State
    moment: Literal["parser", "checks", ""] = ""
    says: str = ""
    place: str = ""
    left_out: tuple[str, ...] = ()


def ask(
    python: str | os.PathLike[str],
    launch: Launch,
    models: Mapping[str, Path | None],
    *,
    card: str = FIRST_CARD,
    stand_in: bool = True,
    timeout: float = TIMEOUT,
) -> Asked:
    """Ask the engine's parser and checks about the words behind a server.

    Parameters
    ----------
    python
        The interpreter of an environment in which ``import sglang``, or ``import vllm``, works.
    models
        Where each model is that the launch names, None for one that is not here: then the checks, which
        read its config, are not asked.
    card
        The card that is pretended first.
    stand_in
        Stand in for packages that have no CPU build, where they are missing.

    Raises
    ------
    EngineError
        There is no such interpreter, or the engine cannot be imported in it.
    """
    if launch.engine not in SCRIPTS:
        raise EngineError(
            "only the parsers of SGLang and vLLM can be asked",
            why=f"this launches {spoken(launch.engine) or 'no engine that is known'}",
            next_step="Leave out --python.",
        )
    question = question_of("launch", launch, models)
    ((seen, found),) = ask_all(python, [question], card=card, stand_in=stand_in, timeout=timeout)
    # A build for CPUs knows no cards.
    if found.state == "refused" and found.moment == "checks" and seen.get("platform") != "cpu":
        others = (
            next(ask_all(python, [question], card=other, stand_in=stand_in, timeout=timeout))
            for other in CARDS
            if other != card
        )
        if any(other["moment"] != seen["moment"] for other, _ in others):
            says = f"it depends on the card: {found.says}"
            return dataclasses.replace(found, state="parsed", moment="", says=says)
    return found


def pretended(gpu: Gpu | None) -> str:
    """Return the card that is pretended for a GPU."""
    major = gpu.capability[0] if gpu is not None and gpu.capability is not None else 0
    return _BY_MAJOR.get(major, FIRST_CARD)


@dataclasses.dataclass(frozen=True)
class Question:
    """One launch as an engine is asked about it.

    Attributes
    ----------
    words
        The options, with the places of the models that are here, and nothing that runs code.
    unknown
        The variables that they depend on: then nothing is asked.
    left_out
        What is left out of them, because it runs code.
    no_checks
        Why the checks are not asked, "" where they are.
    """

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    folders: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    no_checks: str = ""
    engine: str = "sglang"
    program: str = ""


def question_of(name: str, launch: Launch, models: Mapping[str, Path | None]) -> Question:
    """Return what an engine is asked about a launch."""
    words, left_out = _words(launch, models)
    given, withheld = _variables(launch)
    left_out += withheld
    absent = next((one for one, place in models.items() if place is None), "")
    why = f"{absent} is not here" if absent else ""
    if left_out:
        why = f"asked without {', '.join(left_out)}, which runs code"
    return Question(
        name,
        tuple(words),
        given,
        tuple(str(place) for place in models.values() if place),
        tuple(dict.fromkeys(one for word in words for one in holes.names(word))),
        left_out,
        why,
        launch.engine,
        launch.program,
    )


def ask_all(
    python: str | os.PathLike[str],
    questions: Sequence[Question],
    *,
    card: str = FIRST_CARD,
    stand_in: bool = True,
    timeout: float = TIMEOUT,
) -> Iterator[tuple[dict[str, Any], Asked]]:
    """Ask about several launches in one process; yield what was answered, and what it means."""
    request = {
        "stubs": str(TRACER.parent),
        "stand_in": stand_in,
        "card": card,
        "folders": sorted({folder for one in questions for folder in one.folders}),
        "launches": [
            {
                "id": str(number),
                "options": [] if one.unknown else list(one.words),
                "environment": dict(one.environment),
                "checks": not one.no_checks,
                "program": one.program,
            }
            for number, one in enumerate(questions)
        ],
    }
    answers = _run(python, request, timeout, questions[0].engine)
    for number, one in enumerate(questions):
        seen = answers[str(number)]
        yield seen, dataclasses.replace(_judged(seen, one), left_out=one.left_out)


def _words(launch: Launch, models: Mapping[str, Path | None]) -> tuple[list[str], tuple[str, ...]]:
    """Return the words for the engine: models where they are, nothing that runs code."""
    made: list[str] = []
    left_out: list[str] = []
    skip = False
    for word in _without_config(launch):
        head, equals, value = word.partition("=")
        name = head.lstrip("-").replace("_", "-")
        if skip and not word.startswith("--"):
            continue
        skip = False
        if head.startswith("--") and name in _CODE:
            skip = name != "trust-remote-code" and not equals
            if name != "trust-remote-code":
                left_out.append(head)
            continue
        made.append(f"{head}={_placed(value, models)}" if equals else _placed(word, models))
    return made, tuple(left_out)


def _placed(word: str, models: Mapping[str, Path | None]) -> str:
    """Return a word, or where the model is that it names."""
    place = models.get(word)
    return word if place is None else os.path.abspath(place)


def _without_config(launch: Launch) -> Iterator[str]:
    """Yield the words without the configuration file, whose own words come first, and what `serve` takes."""
    taken = ("--config", *(("--model-type",) if launch.program == "sglang serve" else ()))
    skip = False
    for word in launch.options:
        if skip:
            skip = False
        elif word in taken:
            skip = True
        elif not word.startswith(tuple(f"{name}=" for name in taken)):
            yield word


def _variables(launch: Launch) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the engine's variables that the launch sets, and those of them that name code."""
    own = {name: value for name, value in launch.environment.items() if _VARIABLE.fullmatch(name)}
    withheld = tuple(name for name in own if _NAMES_CODE.search(name))
    return {name: value for name, value in own.items() if name not in withheld}, withheld


def _surroundings() -> dict[str, str]:
    """Return the variables of the engine's Python: no GPU, no hub, nothing that this shell sets for it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in FOREIGN and not _VARIABLE.fullmatch(name)
    }
    return kept | {
        "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def _run(
    python: str | os.PathLike[str], request: Mapping[str, Any], timeout: float, engine: str
) -> dict[str, dict[str, Any]]:
    """Return the answers by the names of the launches."""
    who = spoken(engine)
    with tempfile.TemporaryDirectory(prefix="workbench-asking-") as folder:
        around = _surroundings()
        if engine == "vllm":
            around |= _VLLM | {"VLLM_CACHE_ROOT": folder}
        ran = run_script(
            python, SCRIPTS[engine], request, engine=engine, timeout=timeout, environment=around
        )
    answers: dict[str, dict[str, Any]] = {}
    for line in ran.output.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            seen = json.loads(line)
            answers[str(seen["id"])] = seen
    if len(answers) == len(request["launches"]):
        return answers
    if ran.late:
        raise EngineError(
            f"{who}'s parser took longer than {timeout:g} s and was stopped.",
            next_step="Leave out --python: the options of the release are on file.",
        )
    raise died(f"{who}'s parser", engine, python, ran)


def _judged(seen: Mapping[str, Any], question: Question) -> Asked:
    """Return what an answer means; what this machine or the cage is to blame for is no refusal."""
    version, moment, says = str(seen["version"]), seen["moment"], str(seen["why"])
    place = str(seen["place"])
    if question.unknown:
        names = ", ".join(f"${name}" for name in question.unknown)
        return Asked(version, "open", says=f"the command depends on {names}")
    if moment == "parser":
        return Asked(version, "refused", "parser", says)
    if not moment and question.no_checks:
        return Asked(version, "parsed", says=f"its checks were not asked: {question.no_checks}")
    if not moment:
        return Asked(version, "accepted")
    if _NEEDS_CODE.search(says) or "code of a checkpoint" in seen["caged"]:
        return Asked(version, "parsed", says="the model brings code of its own, which is not run")
    if seen["caged"]:
        return Asked(version, "parsed", says=f"it asks for {seen['caged'][0]}: {says}", place=place)
    lacking = seen["lacking"] or (seen["missing"] and _KERNELS.search(says))
    if lacking or not _REFUSES.intersection(seen["sorts"]) or _OF_HERE.search(says):
        return Asked(
            version, "parsed", says=f"its checks cannot be asked here: {says}", place=place
        )
    return Asked(version, "refused", "checks", says, place)
