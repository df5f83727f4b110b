"""`make mutants SAMPLE=200 SEED=7`: flip conditions that judge, and print those that no test notices."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from . import conditions, forks
from .conditions import Mutant
from .reach import Reach, repeated, uses_of_names
from .table import ROOT, Module, modules
from .tracing import Chosen, Tracer

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
DECIDING = ("verdict", "confidence", "release")


def main() -> int:
    """List, sample, flip, test, report; 1 where a condition that decides something survives."""
    # Ended by a signal it ends its forks too: they would run on, each with a core.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = _arguments()
    begun = time.monotonic()
    all_modules = [m for m in modules() if given.only in m.name]
    everything = [m for module in all_modules for m in _listed(module)]
    equivalent = _equivalent(everything)
    open_ = [m for m in everything if m.key not in equivalent]
    sample = _sample(open_, given.sample, given.seed)
    print(
        f"{len(everything):,} conditions of {len(all_modules)} modules, {len(everything) - len(open_)} "
        f"listed as equivalent; a sample of {len(sample)} with SEED={given.seed}."
    )
    sys.stdout.flush()
    if given.list:
        for m in sample:
            print(_line(m))
        return 0
    forks.warm()
    with tempfile.TemporaryDirectory(prefix="workbench-mutants-") as place:
        copies = [forks.copy_of(ROOT, Path(place) / f"copy{i}") for i in range(given.jobs)]
        needed = [m for m in all_modules if any(s.module == m.name for s in sample)]
        reach = _traced(needed, copies)
        survivors = _flipped(sample, needed, reach, copies, verbose=given.verbose)
    return _report(sample, survivors, time.monotonic() - begun)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=200, help="how many conditions; 0 for all")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--only", default="", help="part of a module's name: weights/, hang/judge/rules.py"
    )
    parser.add_argument("--list", action="store_true", help="print the sample and end")
    parser.add_argument(
        "--verbose", action="store_true", help="print the killed ones too, and by what"
    )
    return parser.parse_args()


def _listed(module: Module) -> list[Mutant]:
    return conditions.listed(module.name, (ROOT / module.path).read_text())


def _sample(mutants: Sequence[Mutant], most: int, seed: int) -> list[Mutant]:
    if not most or most >= len(mutants):
        return list(mutants)

    # By what each is, not by its place in the list: a new condition elsewhere changes few of the others. By
    # its file without the folder: a module that moves keeps its sample.
    def draw(mutant: Mutant) -> bytes:
        _, *condition = mutant.key
        what = (seed, Path(mutant.module).name, *condition, mutant.change)
        return hashlib.sha256(repr(what).encode()).digest()

    chosen = set(sorted(range(len(mutants)), key=lambda i: draw(mutants[i]))[:most])
    return [m for i, m in enumerate(mutants) if i in chosen]


def _equivalent(mutants: Iterable[Mutant]) -> set[tuple[str, str, str, str]]:
    """Return the keys of those that change nothing; one that is there no more is an error."""
    listed = tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    keys = {(e["module"], e["function"], e["before"], e["after"]) for e in listed}
    return keys & {m.key for m in mutants}


def _traced(needed: Sequence[Module], copies: Sequence[Path]) -> Reach:
    """Run each mirrored test file once, traced; what was traced of the same sources before is kept."""
    begun = time.monotonic()
    files = sorted({test for module in needed for test in module.tests})
    judging = frozenset(m.path for m in modules())
    kept = {file: _kept(file) for file in files}
    todo = [file for file, path in kept.items() if not path.exists()]
    jobs = [
        forks.Job(file, partial(_trace, file=file, judging=judging), 900.0)
        for file in sorted(todo, key=lambda file: -(ROOT / file).stat().st_size)
    ]
    for done in forks.run_all(jobs, copies):
        if done.result is None:
            raise SystemExit(f"{done.label} cannot be traced:\n{done.output}")
        kept[done.label].parent.mkdir(parents=True, exist_ok=True)
        kept[done.label].write_bytes(pickle.dumps(done.result))
    if todo:
        print(f"{len(todo)} test files traced in {time.monotonic() - begun:.0f} s.", flush=True)
    lines: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for path in kept.values():
        reached, took = pickle.loads(path.read_bytes())
        lines |= reached
        seconds |= took
    return Reach(lines, seconds, uses_of_names(ROOT, modules()), repeated(ROOT, files))


def _kept(file: str) -> Path:
    """Return where the trace of a test file is kept: by all sources that it may run."""
    digest = hashlib.sha256(sys.version.encode())
    sources = list((ROOT / "workbench").rglob("*.py"))
    sources += [p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_")]
    for path in [*sorted(p for p in sources if p.parent != Path(__file__).parent), ROOT / file]:
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    digest.update((Path(__file__).parent / "tracing.py").read_bytes())
    return ROOT / "build" / "mutants" / f"{Path(file).stem}-{digest.hexdigest()[:16]}.pickle"


def _trace(copy: Path, file: str, judging: frozenset[str]) -> Any:
    tracer = Tracer(copy, judging)
    tracer.start()
    code = _pytest(["--maxfail=1000", file], [tracer])
    sys.settrace(None)
    if code not in (0, 1, 5):
        raise RuntimeError(f"pytest ended with {code}")
    fit = [test for test in tracer.reached if test not in tracer.unfit]
    return {t: dict(tracer.reached[t]) for t in fit}, {t: tracer.seconds[t] for t in fit}


def _pytest(arguments: list[str], plugins: list[object]) -> int:
    import pytest

    options = ["-q", "-x", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-o", "addopts="]
    options += ["-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin"]
    return int(pytest.main([*options, *arguments], plugins=plugins))


def _flipped(
    sample: Sequence[Mutant],
    needed: Sequence[Module],
    reach: Reach,
    copies: Sequence[Path],
    *,
    verbose: bool,
) -> list[Mutant]:
    """Put each mutant into a copy and run its tests; return those that no test noticed."""
    by_name = {module.name: module for module in needed}
    jobs, survivors = [], []
    for mutant in sample:
        module = by_name[mutant.module]
        tests = reach.tests(mutant, module)
        if not tests:
            survivors.append(mutant)
            print(f"survives, as no mirrored test runs it: {_line(mutant)}", flush=True)
            continue
        source = (ROOT / module.path).read_text()
        jobs.append(
            forks.Job(
                mutant,
                partial(_tested, tests=tests),
                seconds=60 + 6 * reach.cost(tests),
                prepare=partial(_write, path=module.path, text=conditions.mutated(source, mutant)),
                restore=partial(_restore, path=module.path),
            )
        )
    for done in forks.run_all(jobs, copies):
        code, killer = done.result or (-1, "it hangs" if done.timed_out else "it dies")
        if code == 0:
            survivors.append(done.label)
            print(f"survives: {_line(done.label)}", flush=True)
        elif code == 5:
            raise SystemExit(f"No test was run for {_line(done.label)}\n{done.output}")
        elif verbose or code == -1:  # no test failed: that is shown, whoever asks
            print(f"killed in {done.seconds:.1f} s by {killer}: {_line(done.label)}", flush=True)
    return survivors


def _tested(copy: Path, tests: list[str]) -> tuple[int, str]:
    # File by file: the first mostly knows, and the others need not be collected.
    for file, group in groupby(tests, key=lambda test: test.split("::")[0]):
        chosen = Chosen(frozenset(group))
        code = _pytest([file], [chosen])
        if code:
            return code, chosen.killer
    return 0, ""


def _write(copy: Path, path: str, text: str) -> None:
    place = copy / path
    place.write_text(text)
    _not_compiled(place)


def _restore(copy: Path, path: str) -> None:
    shutil.copy2(ROOT / path, copy / path)
    _not_compiled(copy / path)


def _not_compiled(place: Path) -> None:
    """Remove a compiled file: it goes by seconds and size, and two mutants may be alike in both."""
    Path(importlib.util.cache_from_source(str(place))).unlink(missing_ok=True)


def _line(mutant: Mutant) -> str:
    where = f"workbench/{mutant.module}:{mutant.line}"
    return f"[{mutant.decides}] {where} {mutant.function or '(top)'}\n    {mutant.before}\n  → {mutant.after}"


def _report(sample: Sequence[Mutant], survivors: Sequence[Mutant], seconds: float) -> int:
    count = Counter(m.decides for m in sample)
    alive = Counter(m.decides for m in survivors)
    print()
    for kind in (*DECIDING, "words"):
        print(
            f"{kind:>10}: {count[kind] - alive[kind]} of {count[kind]} killed, {alive[kind]} survive"
        )
    print(
        f"{len(sample) - len(survivors)} of {len(sample)} killed, {len(survivors)} survive, "
        f"in {seconds:.0f} s ({os.times().children_user + os.times().children_system:.0f} s of CPU)."
    )
    return int(any(m.decides in DECIDING for m in survivors))


if __name__ == "__main__":
    sys.exit(main())
