"""`check`: a launch before it is made."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from workbench.errors import EngineError, WorkbenchError, shown
from workbench.facts import engines, rows
from workbench.facts.gpus import Gpu, gpu_of
from workbench.launch.read import read_launch
from workbench.launch.records import Launch
from workbench.launch.rules.elsewhere import TENSORRT, VLLM
from workbench.launch.rules.records import Served
from workbench.launch.rules.served_elsewhere import TRTLLM, ServedElsewhere
from workbench.launch.rules.settings import UnknownValueError
from workbench.launch.rules.speculation import takes_own_draft
from workbench.loaders import registry
from workbench.preflight import answer, asking, question, reading
from workbench.preflight.reading import Opened
from workbench.preflight.records import LaunchCheck, Setting


def check(
    launch: Any,
    *,
    target: Any = None,
    draft: Any = None,
    engine: str = "",
    python: str | os.PathLike[str] | None = None,
    gpu: str = "",
) -> LaunchCheck:
    """Say what a launch will do, before anything is started.

    The command line is read as the parser of its release reads it; then the engine's own checks, and the
    models' configs and headers, are gone through. Nothing is started, nothing of a checkpoint is executed,
    and the network is not asked.

    Parameters
    ----------
    launch
        A command line, a script, a list of arguments, a log, a configuration file, a manifest (as text or
        as a path), or a PID.
    target, draft
        The models, where the launch does not name a place on this machine: a path, or a `Checkpoint`.
    engine
        ``"sglang==0.5.11"``, where the launch does not say which release it starts.
    python
        The interpreter of an environment with SGLang or vLLM: its own parser and checks are asked as well,
        without a GPU, offline, and without `--trust-remote-code`: no code of a checkpoint is run.
    gpu
        What it is to run on: ``"H200"``, or a compute capability, ``"9.0"``. Some attention backends
        depend on it.

    Returns
    -------
    LaunchCheck
        ``ok`` is True, False, or None where it cannot be told; `faults` has what fails, in order of time.

    Raises
    ------
    WorkbenchError
        There is no such file or process, or it holds no launch; the engine in `python` cannot be asked, or
        is another release than `engine`; no GPU of that name is known.
    """
    card = None if isinstance(gpu, str) and not gpu else gpu_of(gpu)
    if not isinstance(engine, str):
        raise WorkbenchError(
            f"engine={shown(engine)} is not the name of an engine",
            next_step='Write it as "sglang==0.5.11".',
        )
    wanted = registry.parse(engine) if engine else registry.Engine("")
    read = _read(launch, wanted)
    version, basis = _version(read, wanted)
    asked = None
    if python is not None:
        asked = _ask(python, read, target, draft, card)
        version, basis = _version_asked(asked.version, read, wanted, str(python))
    if version != read.version and not isinstance(launch, Launch):
        read = read_launch(launch, engine=wanted.name, version=version)
    folder = reading.folder_of(read)
    opened = _models(read, target, draft, folder)
    posed = dataclasses.replace(_question(read, version, opened, card), asked=asked)
    return _result(posed, read, version, basis, opened)


def _read(launch: Any, wanted: registry.Engine) -> Launch:
    if isinstance(launch, Launch):
        return launch
    return read_launch(launch, engine=wanted.name, version=wanted.version)


def _version(launch: Launch, wanted: registry.Engine) -> tuple[str, str]:
    """Return the release, and how it is known: given, proved by the launch, or installed here."""
    if wanted.version and wanted.name == launch.engine:
        if launch.version and launch.version != wanted.version:
            return (
                wanted.version,
                f"given; the launch itself is of {launch.version} ({launch.version_basis})",
            )
        return wanted.version, "given"
    if launch.version:
        return launch.version, launch.version_basis
    installed = registry.installed(launch.engine) if launch.engine in registry.ROOMS else ""
    return (installed, "installed next to the workbench") if installed else ("", "")


def _ask(
    python: str | os.PathLike[str], launch: Launch, target: Any, draft: Any, card: Gpu | None
) -> asking.Asked:
    """Ask the engine itself, with the models as far as they are here."""
    if not launch.options:
        raise EngineError(
            "there are no words that the engine's parser could be asked about",
            why=f"{launch.source or 'the text'} is a {launch.form}",
            next_step="Give the command line, or leave out --python.",
        )
    opened = _models(launch, target, draft, reading.folder_of(launch))
    names = (launch.target, launch.draft)
    places = {
        name: one.place if one is not None else None
        for name, one in zip(names, opened, strict=True)
        if name
    }
    return asking.ask(python, launch, places, card=asking.pretended(card))


def _version_asked(
    found: str, launch: Launch, wanted: registry.Engine, python: str
) -> tuple[str, str]:
    """Return the release of the engine that was asked; it must be the one that was named."""
    if wanted.version and wanted.version != found:
        raise EngineError(
            f"{python} has {engines.spoken(launch.engine, found)}, not {wanted.version}",
            why="the parser of another release would answer another question",
            next_step=f"Name {launch.engine}=={found}, or give the interpreter of {wanted.version}.",
        )
    if launch.version and launch.version != found:
        return found, f"of the engine that was asked; the launch itself is of {launch.version}"
    return found, "of the engine that was asked"


def _models(
    launch: Launch, target: Any, draft: Any, folder: Path | None
) -> tuple[Opened | None, Opened | None]:
    """Open target and draft, as far as they are here."""
    found: list[Opened | None] = []
    for given, named in ((target, launch.target), (draft, launch.draft)):
        if given is not None:
            found.append(reading.of_object(given, named or "", folder))
        elif named:
            found.append(reading.open_model(named, folder))
        else:
            found.append(None)
    if launch.image:  # paths are those of the container
        found = [
            one and Opened(dataclasses.replace(one.model, absent=False), one.checkpoint)
            for one in found
        ]
    return found[0], found[1]


def _question(
    launch: Launch,
    version: str,
    opened: tuple[Opened | None, Opened | None],
    card: Gpu | None = None,
) -> question.Question:
    target, draft = opened
    if launch.engine in _ELSEWHERE:
        elsewhere = ServedElsewhere(
            launch,
            version,
            target.model if target is not None else None,
            draft.model if draft is not None else None,
        )
        asked = question.Question(
            launch, elsewhere, _unsure(version, launch.engine), rules=_ELSEWHERE[launch.engine]
        )
        return dataclasses.replace(asked, loadings=tuple(_loadings_elsewhere(elsewhere, opened)))
    if launch.engine != "sglang":
        return question.Question(launch, None, _not_known(launch))
    # Without a release, what the newest refuses another may take: nothing is certain then.
    served = Served(
        launch,
        version,
        target.model if target is not None else None,
        draft.model if draft is not None else None,
        gpu=card,
    )
    unsure = _unsure(version)
    asked = question.Question(launch, served, unsure)
    return dataclasses.replace(asked, loadings=tuple(_loadings(served, opened)))


def _not_known(launch: Launch) -> str:
    if not launch.engine:
        return "; ".join(map(str, launch.not_read[:1])) or "no launch of a known server was found"
    return (
        f"this launches {engines.spoken(launch.engine)}, whose arguments are read and not checked"
    )


_ELSEWHERE = {"vllm": VLLM, TRTLLM: TENSORRT}


def _unsure(version: str, engine: str = "sglang") -> str:
    if not version:
        return f"the launch does not say which release it starts; give it with --engine {engine}==VERSION"
    who = engines.spoken(engine, version)
    if rows.known(engine, version) is None:
        if engine == TRTLLM:  # its releases on file are far apart
            return f"{who} was not read ({' and '.join(rows.releases(engine))} were)"
        return f"{who} was not read: the answer is that of {rows.nearest(engine, version)}"
    return ""


def _loadings(
    served: Served, opened: tuple[Opened | None, Opened | None]
) -> list[question.Loading]:
    """Ask what becomes of the keys of draft and target."""
    target, draft = opened
    found = []
    if not served.version:
        return []
    if _speculates(served):
        if draft is not None:
            found.append(_loading(question.DRAFT, served, draft, target))
        elif target is not None and takes_own_draft(served, target.model):
            found.append(_loading(question.DRAFT, served, target, None))
    if target is not None and target.model.readable:
        found.append(_loading(question.TARGET, served, target, None))
    return found


def _speculates(served: Served) -> bool:
    """Whether a draft drafts, and it is known which; where it is not, its rule says so."""
    try:
        served.settings.text("speculative-draft-model-path")
        return served.speculates
    except UnknownValueError:
        return False


def _loadings_elsewhere(
    served: ServedElsewhere, opened: tuple[Opened | None, Opened | None]
) -> list[question.Loading]:
    """Ask what becomes of the keys of draft and target in another engine."""
    target, draft = opened
    found = []
    if served.launch.engine == "vllm" and served.version:
        if draft is not None and served.speculates:
            found.append(_loading(question.DRAFT, served, draft, target))
        if target is not None and target.model.readable:
            found.append(_loading(question.TARGET, served, target, None))
    return found


def _loading(role: str, served: Served, opened: Opened, target: Opened | None) -> question.Loading:
    from workbench.keys.diff import diff_keys
    from workbench.loaders.sglang import class_for, draft_class_for

    if opened.checkpoint is None:
        return question.Loading(role, None, opened.model.problem or "its weights are not here")
    config = opened.model.config
    named = draft_class_for(config) if role == question.DRAFT else class_for(config)
    if served.launch.engine != "sglang":
        named = ""
    engine = f"{served.launch.engine}=={served.version}" + (f":{named}" if named else "")
    try:
        diff = diff_keys(
            opened.checkpoint,
            engine,
            launch=served.launch
            if role == question.DRAFT and served.launch.engine == "sglang"
            else None,
            target=target.checkpoint if target is not None else None,
        )
    except WorkbenchError as error:
        return question.Loading(
            role, None, f"{error.what} ({error.why})" if error.why else error.what
        )
    suspected = any(one.severity == "error" for one in diff.findings)
    # A quantisation that the config does not name is none of those that are served every day.
    plain = not config.quantization or config.quantization.get("quant_method") in ("fp8", "mxfp4")
    if role == question.TARGET and plain and diff.ok is None and not suspected:
        # As where its class is not described: a target that is served every day needs no map of ours.
        return question.Loading(role, None, diff.summary)
    return question.Loading(role, diff)


def _result(
    asked: question.Question,
    launch: Launch,
    version: str,
    basis: str,
    opened: tuple[Opened | None, Opened | None],
) -> LaunchCheck:
    covered = question.covered(asked)
    found = answer.faults(asked)
    line = answer.line(asked)
    who = engines.spoken(launch.engine, version) or "the engine"
    return LaunchCheck(
        verdict=answer.verdict(asked, covered, found, who),
        source=launch.source or "a command line",
        form=launch.form,
        engine=launch.engine,
        version=version,
        version_basis=basis,
        target=launch.target or (opened[0].model.name if opened[0] else ""),
        draft=launch.draft or (opened[1].model.name if opened[1] else ""),
        faults=found,
        arguments=tuple(
            Setting(one.name, "not known" if one.value is None else one.value, str(one.where))
            for one in launch.arguments
        ),
        corrected=line.text,
        left=line.left,
        not_read=tuple(map(str, launch.not_read)),
        findings=answer.findings(asked),
    )
