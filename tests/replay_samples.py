"""Replays made by hand: a chain, a tree, counts alone, and one whose names are hostile."""

from __future__ import annotations

import dataclasses

import numpy as np

from workbench.core.finding import Finding
from workbench.core.verdict import Coverage, Item, Verdict
from workbench.speculation.evidence.tally import Logged, Tally
from workbench.speculation.judge.expected import Expected
from workbench.speculation.result import Agreement, Replay
from workbench.speculation.rounds.beside import Beside
from workbench.speculation.rounds.replayed import Replayed
from workbench.speculation.rounds.round_columns import Asked, RoundColumns

WORDS = {n: f" word{n}" for n in range(40)} | {3: "\n", 4: "\t", 5: "", 6: "ünï"}
EVIL = '<img src=x onerror="document.title=1">\x1b[31m\u202e'


def answer(ok: bool | None, sentence: str) -> Verdict:
    """A verdict of one item that says so, and one that is open and decides nothing."""
    state = {True: "ok", False: "wrong", None: "open"}[ok]
    asked = Item(
        "acceptance", "acceptance compared with the expected acceptance", state, "2.33 of 2.60"
    )
    field = Item("config field", "sliding_window of config.json", how="not read", essential=False)
    return Verdict("cannot_tell", sentence, "unknown", Coverage((asked, field)), ("another run",))


def columns(
    tokens: list[list[int]],
    parents: list[list[int]],
    taken: list[list[int]],
    wanted: list[list[int]],
) -> Replayed:
    """Rounds of one request after another with these trees; what the text says is what the target says."""
    rounds, nodes = len(tokens), len(tokens[0])
    up = np.array(parents)
    depths = np.ones((rounds, nodes), dtype=int)
    for node in range(nodes):
        above = up[:, node]
        depths[:, node] = np.where(above < 0, 1, depths[np.arange(rounds), above.clip(0)] + 1)
    took = np.array(taken, dtype=bool)
    accepted = took.sum(1)
    text = np.array(wanted)
    rng = np.random.default_rng(3)
    return Replayed(
        request=np.arange(rounds) // 3,
        index=np.arange(rounds) % 3,
        prefix=6 + 3 * (np.arange(rounds) % 3),
        tokens=np.array(tokens),
        parents=up,
        depths=depths,
        probabilities=np.round(rng.uniform(0.05, 0.9, (rounds, nodes)), 3),
        taken=took,
        ranks=np.where(took, 1, 3),
        accepted=accepted,
        bonus=text[np.arange(rounds), accepted],
        wanted=text,
        choices=text.copy(),
        margins=np.full(text.shape, 1.5),
        observed=accepted + 1,
        left=np.full(rounds, 9),
        first=np.array(tokens)[:, :1].repeat(5, axis=1),
        first_probabilities=np.full((rounds, 5), 0.2),
        own=np.array(tokens)[..., None].repeat(5, axis=2) + np.arange(5),
        own_probabilities=np.full((rounds, len(tokens[0]), 5), 0.1),
    )


def kept_of(replayed: Replayed, words: dict[int, str]) -> RoundColumns:
    rounds, nodes = replayed.tokens.shape
    choices = np.full((rounds, nodes + 1, 5), -1)
    shares = np.full((rounds, nodes + 1, 5), np.nan)
    choices[:, :, 0], shares[:, :, 0] = 7, 0.5
    choices[:, 0, 0] = replayed.wanted[:, 0]
    choices[:, :, 1], shares[:, :, 1] = 9, 0.25
    asked = int(replayed.request.max()) + 1
    requests = tuple(Asked(f"r{n}", tuple(range(10, 28)), 5) for n in range(asked))
    kept = RoundColumns(replayed, choices, shares, requests)
    used = kept.used()
    return dataclasses.replace(kept, words={t: w for t, w in words.items() if t in used})


def chain(words: dict[int, str] | None = None, rounds: int = 6, **changes: object) -> Replay:
    """A chain of three drafts: none, one, all accepted, and again."""
    took = [[0, 0, 0], [1, 0, 0], [1, 1, 1]]
    wanted = [[20, 21, 22, 23], [11, 21, 22, 23], [11, 12, 13, 23]]
    replayed = columns(
        [[11, 12, 13]] * rounds,
        [[-1, 0, 1]] * rounds,
        [took[n % 3] for n in range(rounds)],
        [wanted[n % 3] for n in range(rounds)],
    )
    return replay_of(replayed, WORDS if words is None else words, **changes)


def beside(**changes: object) -> Replay:
    """The chain, with what a changed draft would have said in its rounds: none, one, all accepted."""
    made = chain(**changes)  # type: ignore[arg-type]
    assert made.kept is not None
    found = Beside(
        "reload decoder layer", "the decoder layer as the file holds it",
        np.array([[20, 16, 17], [11, 21, 22], [18, 12, 13]] * 2), np.full((6, 3), 0.5),
        np.array([1, 3, 0] * 2),
    )  # fmt: skip
    kept = dataclasses.replace(made.kept, beside=found)
    return dataclasses.replace(made, kept=dataclasses.replace(kept, words=dict(WORDS)))


def tree(**changes: object) -> Replay:
    """A tree of width two: its second branch is accepted two deep, then nothing."""
    nodes = [[11, 12, 13, 14, 15]] * 6
    parents = [[-1, -1, 0, 1, 3]] * 6
    took = [[0, 1, 0, 1, 0], [0, 0, 0, 0, 0]] * 3
    wanted = [[12, 14, 20, 21], [20, 21, 22, 23]] * 3
    made = replay_of(columns(nodes, parents, took, wanted), WORDS, topk=2, draft_tokens=6)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def replay_of(replayed: Replayed, words: dict[int, str], **changes: object) -> Replay:
    own = Tally.of(replayed.accepted.tolist())
    made = Replay(
        target="models/target",
        draft="models/draft",
        evidence="runs/broken",
        engine="sglang==0.5.11",
        algorithm="EAGLE3",
        steps=3,
        topk=1,
        draft_tokens=4,
        verdict=answer(None, "sglang 0.5.11 accepts 1.33 draft tokens a round. Cannot tell more."),
        total=len(replayed),
        replayed=own,
        observed=own,
        logged=Logged(12, 2.3, 0.44, 1.0, 4.0),
        expected=Expected(2.6, (0.7, 0.5, 0.4), "the trainer's metrics"),
        agreement=Agreement(len(replayed), len(replayed), len(replayed)),
        course=tuple((float(n), float(n)) for n in replayed.accepted[:96]),
        findings=(
            Finding(
                "key_dropped", "error", "ten keys are dropped", "as it is", changes_output=True
            ),
        ),
        notes=("loaded and driven as the evidence was launched",),
        kept=kept_of(replayed, words),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def counted() -> Replay:
    """Counts alone: nothing to step through."""
    return Replay(
        target="models/target",
        draft="models/draft",
        evidence="server.log",
        engine="sglang==0.5.10",
        algorithm="EAGLE3",
        steps=4,
        topk=1,
        draft_tokens=5,
        verdict=answer(None, "The engine accepts no draft token (acceptance length 1.00)."),
        total=0,
        logged=Logged(30, 1.0, 0.2, 1.0, 1.0),
    )


def hostile() -> Replay:
    """Everything that came from a file tries to get out of its place."""
    words = dict.fromkeys(range(40), EVIL)
    made = chain(
        words, draft=EVIL, target=EVIL, evidence=EVIL, verdict=answer(None, EVIL), notes=(EVIL,)
    )
    assert made.kept is not None
    asked = tuple(dataclasses.replace(r, name=EVIL) for r in made.kept.requests)
    return dataclasses.replace(made, kept=dataclasses.replace(made.kept, requests=asked))
