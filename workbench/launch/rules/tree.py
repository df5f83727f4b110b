"""Rules of steps, topk and draft tokens: given together, and enough candidates for the tree."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.launch.rules.records import Edit, Ruled, Served, fault, fine, note, unclear

SHAPE = "steps, topk and draft tokens"
_STEPS, _TOPK = "speculative-num-steps", "speculative-eagle-topk"
_TOKENS = "speculative-num-draft-tokens"
_ARGS = "sglang/srt/server_args.py"


def shape(s: Served) -> Iterator[Ruled]:
    """Rule the number of steps, topk and draft tokens: given together, and enough candidates for the tree."""
    if not s.eagle:
        yield fine(SHAPE, "there is no tree")
        return
    if s.settings.on("speculative-adaptive"):
        yield unclear(SHAPE, "--speculative-adaptive changes them while the server runs")
        return
    steps, topk, tokens = (s.settings.number(key) for key in (_STEPS, _TOPK, _TOKENS))
    if steps is None:
        yield from _no_steps(s, topk, tokens)
    elif topk is None:
        yield from _no_topk(s, steps, tokens)
    elif min(steps, topk) < 1 or (tokens is not None and tokens < 1):
        yield _not_positive(s, steps, topk, tokens)
    elif topk == 1:
        yield from _chain(s, steps, tokens)
    elif tokens is None:
        yield fault(
            SHAPE,
            "no_draft_tokens",
            f"topk {topk} without --{_TOKENS}",
            "load",
            detail="The size of the tree has no default once steps and topk are given.",
            next_step=f"Add --{_TOKENS} {min(_most(steps, topk), 2 * topk + steps)}.",
            edits=(Edit(f"--{_TOKENS}", str(min(_most(steps, topk), 2 * topk + steps))),),
        )
    else:
        yield from _tree(s, steps, topk, tokens)


def _no_steps(s: Served, topk: int | None, tokens: int | None) -> Iterator[Ruled]:
    if topk is None and tokens is None:
        yield fine(SHAPE, "the release chooses all three")
        return
    given = ", ".join(
        f"--{key} {value}" for key, value in ((_TOPK, topk), (_TOKENS, tokens)) if value is not None
    )
    steps = tokens - 1 if topk in (None, 1) and tokens is not None and tokens > 1 else 3
    edits = [Edit(f"--{_STEPS}", str(steps))]
    edits += [] if topk is not None else [Edit(f"--{_TOPK}", "1")]
    edits += (
        []
        if tokens is not None
        else [Edit(f"--{_TOKENS}", str(steps + 1 if topk in (None, 1) else 2 * topk + steps))]
    )
    yield fault(
        SHAPE,
        "no_steps",
        f"{given} without --{_STEPS}",
        "checks",
        detail="All three are given, or none: the check of the arguments is an assertion.",
        next_step=f"Add --{_STEPS}, or remove the others.",
        edits=tuple(edits),
        place=f"{_ARGS} ({s.release})",
    )


def _no_topk(s: Served, steps: int, tokens: int | None) -> Iterator[Ruled]:
    sure = s.within("0.5.2")
    add = [Edit(f"--{_TOPK}", "1")]
    add += [Edit(f"--{_TOKENS}", str(steps + 1))] if tokens is None else []
    yield fault(
        SHAPE,
        "no_topk",
        f"--{_STEPS} {steps} without --{_TOPK}",
        "checks",
        detail="It has no default once the steps are given: SGLang compares None with 1 and stops "
        "with a TypeError."
        if sure
        else "It has no default once the steps are given.",
        next_step=f"Add --{_TOPK} 1 and --{_TOKENS} {steps + 1}.",
        edits=tuple(add),
        state="wrong" if sure else "open",
        place=f"{_ARGS} ({s.release})",
    )


def _not_positive(s: Served, steps: int, topk: int, tokens: int | None) -> Ruled:
    if steps == 0 and topk == 1:
        return unclear(SHAPE, "0 steps: what this release does with them is not known")
    return fault(
        SHAPE,
        "not_positive",
        "steps, topk and draft tokens must be at least 1",
        "load",
        evidence=(f"steps {steps}, topk {topk}, draft tokens {tokens}",),
        next_step=f"Give --{_STEPS} 3, --{_TOPK} 1, --{_TOKENS} 4.",
        edits=(Edit(f"--{_STEPS}", "3"), Edit(f"--{_TOPK}", "1"), Edit(f"--{_TOKENS}", "4")),
    )


def _chain(s: Served, steps: int, tokens: int | None) -> Iterator[Ruled]:
    if tokens is None or tokens == steps + 1:
        yield fine(SHAPE, f"{steps} steps, topk 1, {steps + 1} draft tokens")
    elif s.within("0.4.5.post3"):
        yield note(
            SHAPE,
            "tokens_adjusted",
            f"--{_TOKENS} {tokens} becomes {steps + 1}",
            detail="With topk 1 a round has one token for each step, and the one before: SGLang warns, "
            "and takes that number.",
            next_step=f"Write --{_TOKENS} {steps + 1}, or {tokens - 1} steps.",
        )
    else:
        yield unclear(SHAPE, f"{s.who} may not adjust {tokens} draft tokens to {steps} steps")


def _most(steps: int, topk: int) -> int:
    """Return the most draft tokens that a tree has: the root, topk candidates, then topk² a step."""
    return 1 + topk + (steps - 1) * topk * topk


def _tree(s: Served, steps: int, topk: int, tokens: int) -> Iterator[Ruled]:
    most = _most(steps, topk)
    if tokens > most:
        yield fault(
            SHAPE,
            "tree_too_small",
            f"a tree of {steps} steps and topk {topk} has {most} tokens, not {tokens}",
            "first request",
            detail="SGLang takes the best of the candidates, and there are too few: `selected index k out of "
            "range`, while the graph of the draft is captured or at the first request.",
            evidence=(f"1 + {topk} + {steps - 1} x {topk} x {topk} = {most}",),
            next_step=f"Write --{_TOKENS} {most} or less, or raise --{_STEPS} or --{_TOPK}.",
            edits=(Edit(f"--{_TOKENS}", str(most)),),
            place=f"sglang/srt/speculative ({s.release})",
        )
    elif tokens <= steps:
        yield note(
            SHAPE,
            "steps_unused",
            f"{tokens} draft tokens cannot reach the depth of {steps} steps",
            detail="The last steps are computed and thrown away.",
            next_step=f"Write --{_TOKENS} {steps + 1} or more, or fewer steps.",
        )
    else:
        yield fine(SHAPE, f"{tokens} of {most} possible draft tokens")
