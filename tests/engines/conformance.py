"""Profile against real loader: what both say of a checkpoint, as sets, and where they differ."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from workbench.checkpoint.open import open_checkpoint
from workbench.errors import EngineError
from workbench.loaders import registry
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.profile import NotCovered, Refused
from workbench.loaders.running import run_tracer
from workbench.loaders.simulate import RAISES, simulate

from . import environments
from .checkpoints import Case

# Checkpoints a process is given at once: a crash costs no more than these.
BATCH = 400
SHARES = 6  # decimals to which fractions are compared


@dataclasses.dataclass(frozen=True)
class Sets:
    """What a loader does with a checkpoint, in the words that profile and tracer have in common.

    Attributes
    ----------
    outcome
        ``loads``, ``raises``, ``refused``; ``unknown`` where it cannot be told (no profile, or not run).
    loaded, lost
        Keys that reach the model, and keys that reach nothing: watching cannot tell whether on purpose.
    mismatched
        Keys at which the loader raises.
    resized
        Keys of a wrong shape that are cut or filled up silently.
    missing, partial
        Parameters that nothing writes, and the share that is written of those that are not full; those that
        a resized key went to are left out.
    parameters
        All parameters with their shapes.
    unexplained
        The loader raised after it had taken all keys, and a profile may well blame some of those lost.
    """

    outcome: str
    loaded: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    mismatched: frozenset[str] = frozenset()
    resized: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    partial: frozenset[tuple[str, float]] = frozenset()
    parameters: frozenset[tuple[str, tuple[int, ...]]] = frozenset()
    unexplained: bool = False
    why: str = ""

    def differences(self, real: Sets) -> list[str]:
        """Say where this differs from what the real loader did; empty where it does not."""
        if self.outcome == "unknown" and real.outcome == "refused":
            return []  # a class that this version does not have, and no profile for it
        if self.outcome != real.outcome:
            said = f"outcome: profile {self.outcome} ({self.why}), real {real.outcome} ({real.why})"
            return [said]
        if self.outcome == "refused":
            return []
        if real.unexplained:
            return self._blameless().differences(real._blameless())
        found = []
        for field in dataclasses.fields(self):
            mine, other = getattr(self, field.name), getattr(real, field.name)
            if isinstance(mine, frozenset) and mine != other:
                only, lacking = sorted(mine - other)[:6], sorted(other - mine)[:6]
                found.append(f"{field.name}: only profile {only}, only real {lacking}")
        return found

    def _blameless(self) -> Sets:
        lost = self.lost | self.mismatched
        return dataclasses.replace(self, lost=lost, mismatched=frozenset(), unexplained=False)


def traced(
    version: str,
    cases: Sequence[Case],
    more: Callable[[Path], Sequence[dict[str, Any]]] = lambda _: (),
) -> dict[str, dict[str, Any]]:
    """Load the cases with the real SGLang of a version, in one process.

    `more` writes further checkpoints into a folder and returns their jobs: importing an engine takes longer
    than loading a hundred of them.
    """
    python = environments.ensure(f"sglang-{version}")
    answers: dict[str, dict[str, Any]] = {}
    for first in range(0, len(cases), BATCH):
        part = cases[first : first + BATCH]
        with tempfile.TemporaryDirectory() as folder:
            jobs = [job_of(case, Path(folder)) for case in part]
            jobs += [] if first else more(Path(folder))
            said = run_tracer(python, jobs, engine="sglang", stubs=True, timeout=60 + 3 * len(jobs))
        answers.update((answer["id"], answer) for answer in said)
    return answers


def job_of(case: Case, folder: Path, values: bool | None = None) -> dict[str, Any]:
    """Write a case, and return what the tracer is asked about it; `values` False: shapes alone."""
    return {
        "id": case.name if values is None else f"{case.name} without values",
        "checkpoint": str(case.write(folder)),
        "model_class": case.model_class,
        "values": values,
    }


def real_sets(answer: dict[str, Any]) -> Sets:
    """Return what the tracer saw."""
    if answer["unsupported"]:
        return Sets("unknown", why=answer["unsupported"])
    if answer["refused"]:
        return Sets("refused", why=answer["refused"])
    error = answer["error"]
    bent = {name for key in answer["resized"] for name in answer["writes"].get(key, ())}
    shares = {
        name: round(part, SHARES) for name, part in answer["written"].items() if name not in bent
    }
    return Sets(
        "raises" if error else "loads",
        loaded=frozenset(answer["writes"]) | frozenset(answer["attributes"]),
        lost=frozenset(answer["unreached_or_dropped"]),
        mismatched=frozenset(answer["mismatched"]),
        resized=frozenset(answer["resized"]),
        missing=frozenset(name for name, part in shares.items() if part == 0),
        partial=frozenset((name, part) for name, part in shares.items() if 0 < part < 1),
        parameters=frozenset((n, tuple(p["shape"])) for n, p in answer["parameters"].items()),
        unexplained=bool(answer["unexplained"]),
        why=f"{error['key']}: {error['message']} ({error['place']})" if error else "",
    )


def profile_outcome(version: str, case: Case, folder: Path) -> LoadOutcome | str:
    """Return what the version's profile says, or why it says nothing; ``refused: …`` where it refuses."""
    checkpoint = open_checkpoint(case.write(folder))
    try:
        engine = registry.parse(f"sglang=={version}:{case.model_class}")
        profile = registry.select(engine, checkpoint.config).profiles[0][1]
        model = profile.build(checkpoint.config)
    except Refused as error:
        return f"refused: {error.text}"
    except (NotCovered, EngineError) as error:
        return str(error).partition("\n")[0]
    return simulate(profile, model, checkpoint.table, version)


def profile_sets(version: str, case: Case) -> Sets:
    """Return what the version's profile says."""
    with tempfile.TemporaryDirectory() as folder:
        said = profile_outcome(version, case, Path(folder))
    if isinstance(said, str):
        return Sets("refused" if said.startswith("refused") else "unknown", why=said)
    return outcome_sets(said)


def outcome_sets(outcome: LoadOutcome) -> Sets:
    """Return an outcome's groups as sets of names."""
    bent: set[str] = set()
    keys: dict[str, set[str]] = {
        "loaded": set(),
        "lost": set(),
        "mismatched": set(),
        "resized": set(),
    }
    for group in outcome.keys:
        kind = "lost" if group.status in ("dropped", "ignored") else group.status
        if kind == "mismatched" and not group.reason.startswith(RAISES):
            keys["resized"].update(group.names)
            bent.update(group.parameters())
            kind = "loaded"
        if kind == "lost" and group.reason.startswith(RAISES):
            kind = "mismatched"
        keys[kind].update(group.names)
    missing, partial, parameters = set(), set(), set()
    for state in outcome.parameters:
        for name in state.names:
            share = round(state.fraction, SHARES)
            parameters.add((name, tuple(state.shape or ())))
            if name in bent:
                continue
            if share == 0:
                missing.add(name)
            elif share < 1:
                partial.add((name, share))
    return Sets(
        outcome.outcome,
        **{kind: frozenset(names) for kind, names in keys.items()},
        missing=frozenset(missing),
        partial=frozenset(partial),
        parameters=frozenset(parameters),
        why=outcome.error,
    )


def compare(
    version: str, cases: Iterable[Case], answers: dict[str, dict[str, Any]]
) -> dict[str, list[str]]:
    """Return the cases in which profile and real loader differ, with what differs."""
    found = {}
    for case in cases:
        differences = profile_sets(version, case).differences(real_sets(answers[case.name]))
        if differences:
            found[case.name] = differences
    return found
