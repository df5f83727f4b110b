"""One thing to change or to look at, and those of other engines than SGLang."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One thing to change, or to look at.

    Attributes
    ----------
    spellings
        A flag as releases spell it, the newest first; `flags.spelling` picks.
    variable
        An environment variable, ``NAME=value``.
    without
        A flag to leave out: only where the launch has it.
    act
        Something to do that changes no launch.
    sets
        The canonical flag and the value that show that the launch has it already; ``*``: any value.
    where
        Only where the frame of a living rank has one of these words in its function or file.
    proved
        Whether such a frame shows that the launch has the flag to leave out.
    engine
        The engine that it is for, "" for any. A flag without an engine is SGLang's.
    """

    right: str
    wrong: str
    spellings: tuple[str, ...] = ()
    variable: str = ""
    without: str = ""
    act: str = ""
    sets: tuple[str, str] = ("", "")
    cost: str = "one start of the server"
    where: tuple[str, ...] = ()
    proved: bool = False
    engine: str = ""

    def fits(self, engine: str) -> bool:
        """Whether it may be proposed for an engine."""
        own = self.engine or ("sglang" if self.spellings or self.without else "")
        return own in ("", engine)


_LONG = "One pass proves nothing where the hang comes and goes: flip back, and count at least ten passes."


def _vllm(**fields: object) -> Step:
    return Step(engine="vllm", **fields)  # type: ignore[arg-type]


# By the names of SGLang's steps, so that a rule's ladder means the same for both. vLLM has no watchdog of its
# own that dumps stacks.
VLLM: Mapping[str, Step] = {
    "decode_graphs_off": _vllm(
        spellings=("--enforce-eager",),
        sets=("enforce-eager", "true"),
        right="the server starts: CUDA graphs or torch.compile are involved, which this flag switches off "
        "together. " + _LONG,
        wrong="it hangs at the same operation: neither graphs nor compilation are the cause",
        cost="one start; decoding is slower while it is on",
    ),
    "custom_all_reduce_off": _vllm(
        spellings=("--disable-custom-all-reduce",),
        sets=("disable-custom-all-reduce", "true"),
        right="the server goes on: the custom all-reduce (its graph buffers, or P2P) is involved. " + _LONG,
        wrong="it hangs in the same place: look at NCCL itself, or at one rank's own work",
        cost="one start; all-reduce of small batches is slower",
    ),
    "no_speculation": _vllm(
        without="--speculative-config",
        sets=("speculative-config", "*"),
        right="the server starts without the draft: its graphs, or its model, are involved",
        wrong="the target alone hangs in its capture: look there",
        cost="one start; no speculation while it is off",
    ),
    "half_the_ranks": _vllm(
        spellings=("--tensor-parallel-size {half}",),
        right="it starts with fewer ranks: one GPU, one link or the number of ranks is involved",
        wrong="it hangs with fewer ranks as well: the cause is not a single GPU of the other half",
        cost="one start; the model has to fit on half the GPUs",
    ),
    "soft_watchdog": _vllm(
        variable="VLLM_LOGGING_LEVEL=DEBUG",
        right="the last line of each worker names the step at which it waits",
        wrong="all workers end with the same line: take two snapshots with stacks",
    ),
    "ask_health": _vllm(
        act="send one request with a time limit: curl -m 20 http://HOST:PORT/v1/completions with a prompt of "
        "one word and max_tokens 1",
        right="it answers: the server is healthy; the fault is in the client, the address or a proxy",
        wrong="it does not answer: take snapshots while the request is pending",
        cost="one token",
    ),
}  # fmt: skip
OTHERS: Mapping[str, Mapping[str, Step]] = {"vllm": VLLM}
"""The steps of engines that have some of their own, by engine and by name."""
