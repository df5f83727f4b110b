"""Which modules judge, which tests mirror them, and their words: the one place to keep up to date."""

from __future__ import annotations

import dataclasses
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

KEYS = ("keys/test_*.py", "test_key*.py", "test_contracts*.py", "test_engines_*.py", "test_config_checks*.py",
        "test_registry*.py", "test_rename.py")  # fmt: skip
# The ones that start servers or read /proc are left out, and the 2,360 tests of test_hang_metamorphic: of a
# sample none of them noticed what these do not.
HANG = ("hang/test_coverage.py", "hang/test_rule_rows.py",
        "test_hang_rules*.py", "test_hang_cases.py", "test_hang_waits.py", "test_hang_phases.py",
        "test_hang_borders*.py", "test_hang_other_times.py", "test_hang_tree.py")  # fmt: skip
LEDGER = ("hang/test_ledger_verdict.py", "test_launches*.py")
WEIGHTS = ("weights/test_*.py",
           "test_weights_verdict.py", "test_weights_borders*.py", "test_weights_spectrum.py",
           "test_weights_compare.py", "test_weights_scan.py", "test_weights_fused.py",
           "test_weights_hostile.py")  # fmt: skip
REPLAY = ("test_speculation_causes.py", "test_speculation_result.py", "test_speculation_borders*.py",
          "test_speculation_ablate.py", "test_speculation_evidence.py", "test_speculation_shapes.py",
          "test_speculation_odd_pairs.py", "test_speculation_stale.py",
          "test_speculation_arguments.py", "test_speculation_coverage.py",
          "test_speculation_saved.py")  # fmt: skip

# Judging modules, below workbench/, and the tests that mirror them, below tests/.
MODULES: dict[str, tuple[str, ...]] = {
    "core/verdict.py": ("core/test_verdict.py",),
    "keys/verdict.py": KEYS,
    "keys/coverage.py": KEYS,
    "keys/diff.py": KEYS,
    "engines/contracts*.py": KEYS,
    "engines/config_checks.py": KEYS,
    "engines/registry.py": KEYS,
    "hang/rules.py": HANG,
    "hang/diagnose.py": HANG,
    "hang/waits.py": HANG,
    "hang/coverage.py": HANG,
    "hang/rank_group.py": HANG,
    "hang/evidence.py": HANG,
    "hang/phases.py": HANG,
    "hang/ledger_rules.py": LEDGER,
    "hang/ledger_verdict.py": LEDGER,
    "hang/launch_differences.py": LEDGER,
    "weights/verdict.py": WEIGHTS,
    "weights/coverage.py": WEIGHTS,
    "weights/spectrum.py": WEIGHTS,
    "weights/structure.py": WEIGHTS,
    "weights/vectors.py": WEIGHTS,
    "weights/faults.py": WEIGHTS,
    "weights/findings.py": WEIGHTS,
    "weights/seen.py": WEIGHTS,
    "weights/families.py": WEIGHTS,
    "weights/verdict_compare.py": WEIGHTS,
    "speculation/judging.py": REPLAY,
    "speculation/counts.py": REPLAY,
    "speculation/coverage.py": REPLAY,
    "speculation/causes_coverage.py": REPLAY,
    "speculation/replay_findings.py": REPLAY,
    "speculation/causes.py": REPLAY,
    "speculation/comparable.py": REPLAY,
    "speculation/expected.py": REPLAY,
    "speculation/lifts.py": REPLAY,
    "speculation/static_checks.py": REPLAY,
}

# Words of one scale, in order: each is changed for its neighbour.
SCALES = (
    ("certain", "likely", "possible", "unknown"),
    ("error", "warning", "note"),
)
# What becomes of a sentence decides nothing: conditions in these arguments, or in what is assigned to these
# names, are listed as "words".
ARGUMENTS = frozenset(
    {"title", "detail", "next_step", "summary", "sentence", "text", "reason", "why", "said", "place",
     "evidence", "cause", "unknown", "evidence_for", "evidence_against", "missing", "power_text"}
)  # fmt: skip
NAMES = frozenset(
    {"title", "detail", "text", "said", "evidence", "how", "what", "who", "verb", "undone", "vain", "some",
     "theirs"}
)  # fmt: skip
# Functions that choose words, lines or their order, though they return more than a text.
NO_JUDGES: dict[str, tuple[str, ...]] = {
    "engines/contracts_launch.py": ("_eagle3_keys", "_lost"),
    "engines/contracts_subject.py": ("who", "place"),
    "hang/diagnose.py": ("_permuted", "_words", "_times", "_silent"),
    "hang/evidence.py": ("_standing", "_devices", "_log", "_further", "notes", "speaking_for"),
    "hang/phases.py": ("_spans", "_closed"),
    "keys/verdict.py": ("_first", "_warned"),
    "speculation/counts.py": ("between",),
    "weights/findings.py": ("_siblings",),
    "weights/seen.py": ("lines", "names_of", "corroboration", "power_of"),
    "weights/verdict_compare.py": ("_lines",),
}
# Functions that return a text on which a verdict rests: "" for none, or a kind.
DECIDING_TEXTS: dict[str, tuple[str, ...]] = {
    "engines/contracts_dtypes.py": ("_kind",),
    "engines/contracts_launch.py": ("architecture", "config_form"),
    "engines/contracts_layers.py": ("_target_kind",),
    "engines/registry.py": ("_class_of",),
    "hang/launch_differences.py": ("_no_effect",),
    "hang/rules.py": ("_injected",),
    "hang/waits.py": ("_folded", "folded", "plain_name"),
    "speculation/static_checks.py": ("_fact_of", "_fact_of_key"),
    "weights/families.py": ("known_scale",),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """A judging module and its mirrored tests, relative to the repository."""

    path: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """The module as the table calls it: weights/verdict.py."""
        return self.path.removeprefix("workbench/")


def modules() -> list[Module]:
    """Return the judging modules that there are; a row of the table that names none is an error."""
    found = []
    for pattern, tests in MODULES.items():
        paths = sorted((ROOT / "workbench").glob(pattern))
        if not paths:
            raise FileNotFoundError(f"tests/mutants/table.py: no workbench/{pattern}")
        files = {p for test in tests for p in (ROOT / "tests").glob(test)}
        mirrored = tuple(sorted(p.relative_to(ROOT).as_posix() for p in files))
        found += [Module(p.relative_to(ROOT).as_posix(), mirrored) for p in paths]
    return found
