"""Which modules judge, which tests mirror them, and their words: the one place to keep up to date."""

from __future__ import annotations

import dataclasses
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

KEYS = ("keys/test_*.py", "drafts/test_*.py", "loaders/test_hf.py", "loaders/test_sglang.py",
        "loaders/test_vllm.py", "loaders/test_config_checks*.py")  # fmt: skip
# The ones that start servers or read /proc are left out, and the 2,360 tests of test_metamorphic: of a
# sample none of them noticed what these do not.
HANG = ("hang/judge/test_coverage.py", "hang/judge/test_halts.py",
        "hang/judge/test_gpu_load.py", "hang/judge/test_votes.py", "hang/judge/test_unread_gpus.py",
        "hang/judge/test_late_signs.py",
        "hang/judge/test_rules*.py", "hang/judge/test_cases.py", "hang/judge/test_waits.py",
        "hang/judge/test_phases.py", "hang/judge/test_borders*.py", "hang/judge/test_other_times.py",
        "hang/judge/test_tree.py", "hang/judge/test_other_engines.py", "hang/judge/test_hurts.py",
        "hang/judge/test_physics.py")  # fmt: skip
LEDGER = ("hang/ledger/test_verdict.py", "hang/ledger/test_launches*.py")
WEIGHTS = ("weights/test_coverage.py", "weights/test_verdict*.py", "weights/test_borders*.py",
           "weights/test_spectrum.py", "weights/test_compare.py", "weights/test_scan.py",
           "weights/test_fused.py", "weights/test_brief_training.py",
           "weights/test_hostile.py", "weights/test_records.py")  # fmt: skip
REPLAY = ("speculation/ablate/test_causes.py", "speculation/test_result.py", "speculation/test_borders*.py",
          "speculation/ablate/test_ablate.py", "speculation/evidence/test_evidence.py",
          "speculation/model/test_shapes.py",
          "speculation/test_odd_pairs.py", "speculation/rounds/test_stale.py",
          "speculation/test_arguments.py", "speculation/judge/test_coverage.py",
          "speculation/judge/test_comparable.py",
          "speculation/test_saved.py")  # fmt: skip
LAUNCH = ("launch/rules/test_*.py", "preflight/test_*.py", "drafts/test_launch*.py")
DOCTOR = ("triage/test_*.py",)

# Judging modules, below workbench/, and the tests that mirror them, below tests/.
MODULES: dict[str, tuple[str, ...]] = {
    "core/verdict.py": ("core/test_verdict.py",),
    "keys/verdict.py": KEYS,
    "keys/coverage.py": KEYS,
    "keys/diff.py": KEYS,
    "drafts/*.py": KEYS,
    "loaders/config_checks.py": KEYS,
    "loaders/registry.py": KEYS,
    "hang/judge/rules.py": HANG,
    "hang/judge/conditions.py": HANG,
    "hang/judge/apart.py": HANG,
    "hang/judge/old_codes.py": ("hang/judge/test_old_codes.py",),
    "hang/judge/diagnose.py": HANG,
    "hang/judge/waits.py": HANG,
    "hang/judge/coverage.py": HANG,
    "hang/judge/rank_group.py": HANG,
    "hang/judge/evidence.py": HANG,
    "hang/judge/gpu_load.py": HANG,
    "hang/judge/halts.py": HANG,
    "hang/judge/votes.py": HANG,
    "hang/judge/phases.py": HANG,
    "hang/ledger/rules.py": LEDGER,
    "hang/ledger/verdict.py": LEDGER,
    "hang/ledger/differences.py": LEDGER,
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
    "speculation/judge/judging.py": REPLAY,
    "speculation/judge/counts.py": REPLAY,
    "speculation/judge/coverage.py": REPLAY,
    "speculation/ablate/causes_coverage.py": REPLAY,
    "speculation/judge/replay_findings.py": REPLAY,
    "speculation/ablate/causes.py": REPLAY,
    "speculation/judge/comparable.py": REPLAY,
    "speculation/judge/expected.py": REPLAY,
    "speculation/ablate/lifts.py": REPLAY,
    "speculation/ablate/static_checks.py": REPLAY,
    "launch/rules/*.py": LAUNCH,
    "preflight/answer.py": LAUNCH,
    "preflight/check.py": LAUNCH,
    "triage/answer.py": DOCTOR,
    "triage/jobs.py": DOCTOR,
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
    "drafts/launch.py": ("_eagle3_keys", "_lost"),
    "drafts/subject.py": ("who", "place"),
    "hang/judge/diagnose.py": ("_permuted", "_words", "_times", "_silent"),
    "hang/judge/evidence.py": (
        "_standing",
        "_devices",
        "_log",
        "_further",
        "notes",
        "speaking_for",
    ),
    "hang/judge/phases.py": ("_spans", "_closed"),
    "keys/verdict.py": ("_first", "_warned"),
    "speculation/judge/counts.py": ("between",),
    "weights/findings.py": ("_siblings",),
    "weights/seen.py": ("lines", "names_of", "corroboration", "power_of"),
    "weights/verdict_compare.py": ("_lines",),
}
# Functions that return a text on which a verdict rests: "" for none, or a kind.
DECIDING_TEXTS: dict[str, tuple[str, ...]] = {
    "drafts/dtypes.py": ("_kind",),
    "drafts/launch.py": ("architecture", "config_form"),
    "drafts/layers.py": ("_target_kind",),
    "loaders/registry.py": ("_class_of",),
    "hang/ledger/differences.py": ("_no_effect",),
    "hang/judge/conditions.py": ("injected",),
    "hang/judge/waits.py": ("_folded", "folded", "plain_name"),
    "speculation/ablate/static_checks.py": ("_fact_of", "_fact_of_key"),
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
