"""Rules of speculative decoding: the algorithm, and the draft that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workbench.launch.rules.parser import algorithms
from workbench.launch.rules.records import (
    DRAFTING,
    Edit,
    Model,
    Moment,
    Ruled,
    Served,
    fault,
    fine,
    note,
    unclear,
)

ALGORITHM = "algorithm and draft"
_PATH = "speculative-draft-model-path"
_ARGS = "sglang/srt/server_args.py"

# The classes whose own files hold the draft (a NextN layer), and the first release that takes it from there.
# Read in the list of server_args.py (arg_groups/speculative_hook.py) of every release from 0.4.6.post2 on.
OWN_DRAFT = {
    "DeepseekV3ForCausalLM": "0.4.6.post2",
    "Glm4MoeForCausalLM": "0.4.9.post5",
    "DeepseekV32ForCausalLM": "0.5.3",
    "BailingMoeForCausalLM": "0.5.3",
    "BailingMoeV2ForCausalLM": "0.5.3",
    "MistralLarge3ForCausalLM": "0.5.6.post1",
    "PixtralForConditionalGeneration": "0.5.6.post1",
    "Glm4MoeLiteForCausalLM": "0.5.8",
    "GlmMoeDsaForCausalLM": "0.5.9",
    "BailingMoeV2_5ForCausalLM": "0.5.9",
    "HYV3ForCausalLM": "0.5.11",
    "DeepseekV4ForCausalLM": "0.5.12",
    "HYV4ForCausalLM": "0.5.20",
    "Qwen4ExpForConditionalGeneration": "0.5.20",
}


def takes_own_draft(s: Served, target: Model) -> bool:
    """Whether the release takes the target itself as the draft where none is named."""
    first = OWN_DRAFT.get(target.model_class)
    return first is not None and s.within(first)


def algorithm(s: Served) -> Iterator[Ruled]:
    """Rule whether a draft has an algorithm, and an algorithm the draft that it needs."""
    path = s.settings.text(_PATH)
    name = s.algorithm
    if not name:
        yield from _without(s, path)
        return
    known = [one.upper() for one in algorithms(s.release)]
    if name not in known:
        # The parser of older releases has refused it already; in newer ones a plugin may bring it.
        yield unclear(ALGORITHM, f"the algorithm {name} is not known in {s.who}")
    elif name not in DRAFTING and name != "NGRAM":
        yield unclear(ALGORITHM, f"which draft {name} needs is not known")
    elif name not in DRAFTING:
        if path is not None:
            yield note(
                ALGORITHM, "draft_unused", f"{name} uses no draft model: the draft is not read"
            )
        else:
            yield fine(ALGORITHM, f"{name} needs no draft model")
    elif path is not None:
        yield from _with_draft(s, path)
    else:
        yield from _no_draft(s, name)


def _without(s: Served, path: str | None) -> Iterator[Ruled]:
    if path is None:
        yield fine(ALGORITHM, "no speculative decoding, and no draft")
        return
    raw = s.settings.raw(_PATH)
    yield fault(
        ALGORITHM,
        "draft_without_algorithm",
        "a draft is named, and no algorithm: the draft is not used",
        "serving",
        detail="Without --speculative-algorithm the server starts without the draft, and reports nothing.",
        evidence=(f"{raw} {path}",),
        next_step="Add --speculative-algorithm, EAGLE3 for an EAGLE-3 draft.",
        edits=(Edit("--speculative-algorithm", _fitting(s)),) if _fitting(s) else (),
    )


def _fitting(s: Served) -> str:
    """Return the algorithm that the draft's config asks for, "" where it cannot be known."""
    named = s.draft.model_class.lower() if s.draft is not None else ""
    if "eagle3" in named:
        return "EAGLE3"
    return "EAGLE" if named.endswith(("eagle", "nextn")) else ""


def _with_draft(s: Served, path: str) -> Iterator[Ruled]:
    draft, target = s.draft, s.target
    if (
        draft is not None
        and target is not None
        and draft.name == target.name
        and target.readable
        and not takes_own_draft(s, target)
    ):
        nextn = target.number("num_nextn_predict_layers", "mtp_num_hidden_layers")
        if s.algorithm != "STANDALONE" and not nextn and "eagle" not in target.model_class.lower():
            yield fault(
                ALGORITHM,
                "target_as_draft",
                "the target is named as its own draft",
                "load",
                detail=f"{target.model_class} has no layer that drafts.",
                evidence=(f"{s.settings.raw(_PATH)} {path}",),
                next_step="Name the draft's checkpoint.",
            )
            return
    if s.algorithm == "STANDALONE" and target is not None and draft is not None:
        own, other = draft.number("vocab_size"), target.number("vocab_size")
        if own is not None and other is not None and own != other:
            yield fault(
                ALGORITHM,
                "standalone_vocabulary",
                f"the draft has {own} ids and the target {other}: their tokens do not mean the same",
                "serving",
                evidence=(f"vocab_size {own} and {other}", "--speculative-algorithm STANDALONE"),
                next_step="Use a draft of the target's own tokenizer.",
            )
            return
    named = re.search(r"(?i)eagle[-_]?3", path)
    if s.algorithm == "EAGLE" and named and (draft is None or not draft.readable):
        yield fault(
            ALGORITHM,
            "launched_as_eagle",
            "a draft that is called EAGLE-3 is launched with --speculative-algorithm EAGLE",
            "serving",
            detail="Its config is not here, so this is by its name. Under EAGLE an EAGLE-3 draft is served, "
            "nothing is reported, and the acceptance length stays near 1.",
            evidence=(f"{s.settings.raw(_PATH)} {path}", "--speculative-algorithm EAGLE"),
            next_step="Launch with --speculative-algorithm EAGLE3, everything else unchanged.",
            state="open",
            confidence="likely",
        )
        return
    yield fine(ALGORITHM, f"{s.algorithm} with a draft")


def _no_draft(s: Served, name: str) -> Iterator[Ruled]:
    target = s.target
    if target is None or not target.readable:
        yield unclear(
            ALGORITHM,
            "a draft is not named, and the target cannot be read: it may hold the draft itself",
        )
        return
    if s.fragment:
        yield unclear(ALGORITHM, "the text is arguments alone, and names no draft")
        return
    step = f"Add --{_PATH} with the draft's checkpoint."
    if name in ("EAGLE", "NEXTN", "EAGLE3") and takes_own_draft(s, target):
        layers = target.number("num_nextn_predict_layers")
        if name != "EAGLE3" and layers != 0:
            yield fine(ALGORITHM, "a draft is not named: the target's own NextN layer drafts")
            return
        why = "a NextN layer is no EAGLE-3 draft" if layers else "it has no NextN layer"
        title = f"a draft is not named, so {name} takes the target as its own draft, and {why}"
        yield fault(
            ALGORITHM,
            "no_draft",
            title,
            "load",
            next_step=step,
            evidence=(f"--speculative-algorithm {name}", f"num_nextn_predict_layers {layers}"),
        )
        return
    moment: Moment = "checks" if name in ("DFLASH", "DSPARK") else "load"
    yield fault(
        ALGORITHM,
        "no_draft",
        f"--speculative-algorithm {name} without a draft",
        moment,
        detail="The parser takes the line. The server loads the target again as the draft, and stops."
        if moment == "load"
        else "",
        evidence=(
            f"--speculative-algorithm {name}, and no --{_PATH}",
            f"the target's class is {target.model_class or 'not named'}",
        ),
        next_step=step,
        place=f"{_ARGS} ({s.release})",
    )
