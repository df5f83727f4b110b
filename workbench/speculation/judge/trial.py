"""One pair, one piece of evidence: all that a replay needs, and all that an ablation may change."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from workbench.errors import WorkbenchError, shown
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.evidence.observed import DraftLaunch, Run, read_run, read_tensors
from workbench.speculation.judge.expected import Expected
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import Target, TargetTrace, Tokens
from workbench.speculation.model.layers import Numerics
from workbench.speculation.rounds.replayed import Replayed
from workbench.speculation.rounds.run import replay_rounds, run_freely
from workbench.speculation.rounds.setup import as_launched, numerics_of

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.checkpoint.checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """A draft in front of a target, over texts whose target pass is done.

    Attributes
    ----------
    target
        The model, None where only its recorded features are known.
    trace
        Its one pass over the texts, all layers kept: every ablation shares it.
    checkpoint
        The draft's file.
    launch, draft, driving
        How it was served, and what that means: the draft in memory and how it is driven.
    starts, emitted
        Where a recorded engine's rounds began, and what each emitted; None: the rounds are the replay's own.
    memory
        Tensors captured in the running engine.
    expected
        The acceptance that it should have; None where nobody knows.
    others
        Other targets by name: the one it was trained with, an unquantised one.
    """

    target: Target | None
    trace: TargetTrace
    checkpoint: Checkpoint
    launch: DraftLaunch
    draft: Draft
    driving: Driving
    starts: Sequence[Sequence[int]] | None = None
    emitted: Sequence[Sequence[int]] | None = None
    memory: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    expected: Expected | None = None
    others: Mapping[str, Target] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of_run(
        cls,
        run: Run | str | os.PathLike[str],
        target: Any,
        draft: Any,
        *,
        requests: int | None = None,
        memory: Mapping[str, Tensor] | None = None,
        expected: Expected | None = None,
        others: Mapping[str, Target] | None = None,
        device: str = "cpu",
    ) -> Self:
        """Replay a recorded run.

        Parameters
        ----------
        run
            The folder of a recorded run, or what `read_run` made of it.
        target, draft
            Paths, checkpoints, or a loaded `Target`.
        requests
            Only the first so many.
        memory
            Tensors captured in the running engine, where the run's own folder has none.
        """
        run = run if isinstance(run, Run) else read_run(run)
        run = run if requests is None else run.some(requests)
        target = target_of(target, numerics_of(run.launch), device)
        if memory is None:
            memory = read_tensors(run.source, "memory") if os.path.isdir(run.source) else {}
        checkpoint = checkpoint_of(draft)
        loaded, driving = as_launched(run.launch, checkpoint, target, memory=memory, device=device)
        trace = target.trace(run.texts, run.prompts, keep=None, starts=run.starts)
        return cls(
            target, trace, checkpoint, run.launch, loaded, driving, run.starts, run.emitted,
            dict(memory), expected, dict(others or {}), run.notes,
        )  # fmt: skip

    @classmethod
    def of_prompts(
        cls,
        target: Any,
        draft: Any,
        prompts: Sequence[Tokens],
        *,
        launch: DraftLaunch | None = None,
        new_tokens: int = 64,
        memory: Mapping[str, Tensor] | None = None,
        expected: Expected | None = None,
        others: Mapping[str, Target] | None = None,
        device: str = "cpu",
    ) -> Self:
        """Answer prompts greedily with the target, and draft along.

        Parameters
        ----------
        prompts
            Token ids.
        launch
            How the draft is served: engine, algorithm, tree; ``engine=""`` is as the trainer means it.
        """
        launch = launch or DraftLaunch("")
        target = target_of(target, numerics_of(launch), device)
        checkpoint = checkpoint_of(draft)
        loaded, driving = as_launched(launch, checkpoint, target, memory=memory, device=device)
        if new_tokens < 2:
            raise WorkbenchError(
                "an answer of one token has no rounds",
                why="the first token comes from the prompt alone",
                next_step="Ask for two tokens or more.",
            )
        answers = target.greedy(prompts, new_tokens)
        texts = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
        trace = target.trace(texts, [len(prompt) for prompt in prompts], keep=None)
        return cls(
            target, trace, checkpoint, launch, loaded, driving, None, None,
            dict(memory or {}), expected, dict(others or {}),
        )  # fmt: skip

    @cached_property
    def replayed(self) -> Replayed:
        """The rounds as served: the recorded ones, or those of a free run over the texts."""
        if self.starts is None:
            return run_freely(self.draft, self.driving, self.trace, tops=True)
        return replay_rounds(
            self.draft, self.driving, self.trace, self.starts, self.emitted, tops=True
        )

    @property
    def observed(self) -> float | None:
        """The accept length of the recorded rounds, None without any."""
        counts = [n for request in self.emitted or () for n in request]
        return sum(counts) / len(counts) if counts else None

    def replaced(self, **changes: Any) -> Trial:
        """Return the same with other fields."""
        return dataclasses.replace(self, **changes)

    def some(self, rows: Sequence[int]) -> Trial:
        """Return the trial of some requests alone."""
        return self.replaced(
            trace=self.trace.select(rows),
            starts=None if self.starts is None else [self.starts[row] for row in rows],
            emitted=None if self.emitted is None else [self.emitted[row] for row in rows],
        )


def checkpoint_of(draft: Any) -> Checkpoint:
    """Return an open checkpoint for a path or for one that is open."""
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.open import open_checkpoint

    return draft if isinstance(draft, Checkpoint) else open_checkpoint(draft)


def target_of(target: Any, numerics: Numerics, device: str = "cpu") -> Target:
    """Return a target that runs, for a path, a checkpoint, a model of transformers, or itself.

    Raises
    ------
    WorkbenchError
        It is a checkpoint of a kind that is not run here.
    """
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.open import open_checkpoint
    from workbench.speculation.model.huggingface import HuggingFaceTarget
    from workbench.speculation.model.target import LlamaTarget

    if hasattr(target, "trace") and hasattr(target, "branches"):
        ready: Target = target
        return ready
    if hasattr(target, "get_input_embeddings"):
        return HuggingFaceTarget(target, numerics)
    if isinstance(target, str | os.PathLike):
        target = open_checkpoint(target)
    if isinstance(target, Checkpoint):
        return LlamaTarget.read(target, numerics, device)
    raise WorkbenchError(
        f"{shown(target)} is not a target",
        why="it must be a path, a checkpoint or a model of transformers",
        next_step="Give the folder of the target's checkpoint.",
    )
