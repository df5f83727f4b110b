"""The result of `workbench.replay`: frozen, columnar inside, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_args

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.engines import metrics
from workbench.engines.registry import parse
from workbench.errors import WorkbenchError, shown
from workbench.speculation.expected import Counted, Expected
from workbench.speculation.kept import Kept, Rounds
from workbench.speculation.records import Round
from workbench.speculation.tally import MOST_DRAFTS, Logged, Tally

if TYPE_CHECKING:
    from workbench.speculation.trial import Trial

COURSE = 96  # pieces that the picture of a whole run is made of
_PLAIN = (
    "target", "draft", "evidence", "engine", "algorithm", "steps", "topk", "draft_tokens", "temperature",
    "ok", "summary", "total",
)  # fmt: skip


_MOST_NODES = 1 << 20  # of a tree; the widest and deepest that is run here has a quarter
_Kind = TypeVar("_Kind", Logged, Expected, "Agreement")
_FITS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: type(value) is int and 0 <= value < 1 << 53,
    "float": lambda value: type(value) in (int, float) and abs(value) < 1e15,  # and no NaN
    "Counted": lambda value: value in get_args(Counted),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Agreement:
    """How often a replay does what the engine did.

    Attributes
    ----------
    rounds
        Rounds compared.
    same_count, same_tokens
        Rounds that accept as many drafts; and that emit the very tokens.
    near_ties
        Of the others, how many the target decided by less than bfloat16 can tell.
    """

    rounds: int
    same_count: int
    same_tokens: int
    near_ties: int = 0

    @property
    def share(self) -> float | None:
        """Share of rounds that accept as many drafts as the engine did."""
        return self.same_count / self.rounds if self.rounds else None


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Replay(Result):
    """Rounds of drafting and verification, replayed, beside what a real engine did.

    Attributes
    ----------
    target, draft, evidence
        Where they come from; `evidence` is empty where there was none.
    engine, algorithm
        As which engine the draft was loaded and driven ("" is as its trainer means it), launched how.
    steps, topk, draft_tokens, temperature
        Of the tree and of the verification.
    ok
        True: acceptance is what it should be. False: it is not, and a cause is known. None: it cannot be
        told (nothing is known to compare with, or the cause is not).
    summary
        The verdict in one or two sentences.
    replayed, observed
        Rounds by accepted drafts: of the replay, and of the engine. None where there are none.
    logged
        What the server's log says.
    expected
        The acceptance that it should have; None where nobody knows.
    agreement
        How often the replay does what the engine did; None without rounds of an engine.
    fills
        Accept length for each content that memory nobody wrote may have had: ``zero``, ``random``, ``nan``.
    total
        Rounds in all; a loaded or exported result may keep fewer.
    course
        Mean accepted drafts over the run, in at most `COURSE` pieces: (replayed, observed or None).
    """

    schema: ClassVar[str] = "workbench.replay/1"

    target: str
    draft: str
    evidence: str
    engine: str
    algorithm: str
    steps: int
    topk: int
    draft_tokens: int
    ok: bool | None
    summary: str
    total: int
    temperature: float = 0.0
    replayed: Tally | None = None
    observed: Tally | None = None
    logged: Logged | None = None
    expected: Expected | None = None
    agreement: Agreement | None = None
    fills: dict[str, float] = dataclasses.field(default_factory=dict)
    course: tuple[tuple[float, float | None], ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    kept: Kept | None = None
    trial: Trial | None = None

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"replay: {self.draft}"

    @cached_property
    def rounds(self) -> Rounds:
        """All rounds, each a `Round` made when it is asked for."""
        return Rounds(self.kept)

    @property
    def accept_length(self) -> float | None:
        """Tokens a round, the target's own included: of the replay, else of the evidence."""
        if self.replayed is not None:
            return self.replayed.accept_length
        return self.observed_length

    @property
    def observed_length(self) -> float | None:
        """Tokens a round as the engine had them, by its rounds, else by its log."""
        if self.observed is not None:
            return self.observed.accept_length
        return self.logged.accept_length if self.logged else None

    @property
    def per_position(self) -> tuple[float, ...]:
        """Share of rounds in which at least k drafts were accepted, from k = 1 on."""
        seen = self.replayed or self.observed
        return seen.per_position(self.steps) if seen else ()

    def accept_rate(self, engine: str | None = None, *, observed: bool = False) -> metrics.Printed:
        """Return what a version of an engine would print for these rounds, and what that number means.

        Parameters
        ----------
        engine
            ``"sglang==0.5.9"``, ``"vllm"``; by default the one that was replayed.
        observed
            Of the engine's own rounds rather than of the replay's.

        Raises
        ------
        WorkbenchError
            No version is known, or there are no rounds.
        """
        named = engine or self.engine
        chosen = parse(named) if named else None
        if chosen is None or (chosen.name == "sglang" and not chosen.version):
            raise WorkbenchError(
                "which version's accept rate?",
                why="SGLang has printed the same rounds in four ways",
                next_step='Ask for accept_rate(engine="sglang==0.5.14").',
            )
        seen = self.observed if observed or self.replayed is None else self.replayed
        if seen is None:
            raise WorkbenchError(
                "there are no rounds to take a rate of",
                why="the evidence holds a log alone" if self.logged else "",
                next_step="Give evidence with the rounds, or a target to run.",
            )
        counts = metrics.Acceptance(seen.rounds, seen.accepted, self.steps, self.draft_tokens)
        return metrics.accept_rate(chosen.name, chosen.version or "", counts)

    def ablate(self, **options: Any) -> Any:
        """Change one thing at a time on the same evidence, and say what restores acceptance.

        Returns
        -------
        Ablations
            What each change restores, and the verdict.

        Raises
        ------
        WorkbenchError
            The result was loaded from a file, or holds no rounds: models and evidence are needed.
        """
        if self.trial is None:
            raise WorkbenchError(
                "this replay cannot be ablated",
                why="a saved result holds no models and no features, and counts alone have no rounds",
                next_step="Call workbench.replay(target, draft, …) again, and .ablate() on what it returns.",
            )
        from workbench.speculation.ablate import ablate

        return ablate(self.trial, **options)

    def show(self, row: int = 0, width: int | None = None) -> str:
        """Return one round as text: the text so far, the tree, the target's choices, why it stopped."""
        from workbench.speculation.player import round_text

        return round_text(self, row, width)

    def next_rejection(self, row: int = -1) -> int | None:
        """Return the next round after `row` that rejects a draft, None if there is none."""
        if self.kept is None:
            return None
        columns = self.kept.columns
        fell = columns.accepted < columns.depths.max(axis=1, initial=0)
        found = fell[row + 1 :].nonzero()[0]
        return int(found[0]) + row + 1 if len(found) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the replay as plain data, with its ``schema``; no weights, no logits, no trial."""
        data: dict[str, Any] = {"schema": self.schema}
        data |= {name: getattr(self, name) for name in _PLAIN}
        kept = self.kept.bounded() if self.kept else None
        return data | {
            "accept_length": self.accept_length,
            "per_position": list(self.per_position),
            "replayed": list(self.replayed.histogram) if self.replayed else None,
            "observed": list(self.observed.histogram) if self.observed else None,
            "logged": dataclasses.asdict(self.logged) if self.logged else None,
            "expected": _plain(self.expected),
            "agreement": dataclasses.asdict(self.agreement) if self.agreement else None,
            "fills": dict(self.fills),
            "course": [list(pair) for pair in self.course],
            "findings": [finding.to_dict() for finding in self.findings],
            "notes": list(self.notes),
            "kept": kept.to_dict() if kept else None,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the replay from `to_dict`."""
        types = {field.name: str(field.type) for field in dataclasses.fields(cls)}
        fields: dict[str, Any] = {name: _value(types[name], data[name]) for name in _PLAIN}
        if (
            max(fields["steps"], fields["topk"]) > MOST_DRAFTS
            or fields["draft_tokens"] > _MOST_NODES
        ):
            raise ValueError("no tree is as large")
        kept = data["kept"]
        return cls(
            **fields,
            replayed=Tally.from_list(data["replayed"]),
            observed=Tally.from_list(data["observed"]),
            logged=_record(Logged, data["logged"]),
            expected=_record(Expected, data["expected"]),
            agreement=_record(Agreement, data["agreement"]),
            fills={name: _value("float", v) for name, v in data["fills"].items() if v is not None},
            course=tuple(
                (_value("float", a), _value("float | None", b)) for a, b in data["course"][:COURSE]
            ),
            findings=tuple(map(Finding.from_dict, data["findings"])),
            notes=_value("tuple[str, ...]", data["notes"]),
            kept=Kept.from_dict(kept) if kept else None,
        )

    def to_text(self, width: int | None = None) -> str:
        """Return the replay as one screen of text."""
        from workbench.speculation.view import text

        return text(self, width)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a round."""
        for item in self.rounds:
            yield _row(item)

    def payload(self, limit: int | None = None) -> dict[str, Any]:
        """Return the data of the interactive view."""
        from workbench.speculation.view import payload

        return payload(self, limit)


def _plain(expected: Expected | None) -> dict[str, Any] | None:
    if expected is None:
        return None
    return dataclasses.asdict(expected) | {"per_position": list(expected.per_position)}


def _record(kind: type[_Kind], data: Any) -> _Kind | None:
    """Return a saved record, each of its fields of the type that it is declared with."""
    if data is None:
        return None
    return kind(**{f.name: _value(str(f.type), data[f.name]) for f in dataclasses.fields(kind)})


def _value(declared: str, value: Any) -> Any:
    """Return a saved value as a field of this type holds it; what is of another type is refused."""
    if value is None and declared.endswith("| None"):
        return None
    declared = declared.removesuffix(" | None")
    if declared.startswith("tuple["):
        if isinstance(value, list):
            return tuple(_value(declared[6:].partition(",")[0], item) for item in value)
    elif _FITS[declared](value):
        return value
    raise ValueError(f"{shown(value, 60)} is not of type {declared}")


def _row(item: Round) -> dict[str, Any]:
    best = item.nodes[0] if item.nodes else None
    return {
        "request": item.request,
        "round": item.index,
        "prefix": item.prefix,
        "accepted": len(item.accepted),
        "observed": None if item.observed is None else len(item.observed) - 1,
        "stop": item.stop,
        "bonus": item.bonus,
        "first_draft": best.token if best else None,
        "first_probability": best.probability if best else None,
        "first_rank": best.target_rank if best else None,
        "margin": item.margin,
    }
