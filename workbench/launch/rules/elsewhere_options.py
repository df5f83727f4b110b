"""What the parsers of vLLM and TensorRT-LLM refuse.

Of TensorRT-LLM few releases are on file: between two of them an option that neither has is likely refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from workbench.facts import rows
from workbench.launch.rules import click_options
from workbench.launch.rules.other_options import options_of
from workbench.launch.rules.parser import Refusal
from workbench.launch.rules.records import Edit, Ruled, fault, fine, not_typed, unclear
from workbench.launch.rules.served_elsewhere import TRTLLM, ServedElsewhere

OPTIONS = "the parser takes every argument"


def parser(s: ServedElsewhere) -> Iterator[Ruled]:
    """Rule what the parser of vLLM or TensorRT-LLM refuses."""
    if not s.launch.options:
        yield unclear(OPTIONS, "a command line was not read")
        return
    yield from not_typed(OPTIONS, s.launch)
    vllm = s.launch.engine == "vllm"
    if not vllm and s.read_in is None:
        yield from _between(s)
        return
    refused = s.read.refusals if vllm else click_options.refusals(s.launch.options, s.release)
    names = options_of(s.release) if vllm else rows.names(TRTLLM, "option", s.release)
    for one in refused:
        yield _refused(s, one)
    if not refused:
        yield fine(OPTIONS, f"checked against the {len(names)} options of the release")


def _between(s: ServedElsewhere) -> Iterator[Ruled]:
    """Rule options in a release of TensorRT-LLM that was not read, by those on both sides of it."""
    read = rows.releases(TRTLLM)
    before = rows.nearest(TRTLLM, s.version)
    beside = [one for one in (before, *read[read.index(before) + 1 :][:1]) if s.version]
    unknown = [
        {
            one.option
            for one in click_options.refusals(s.launch.options, release)
            if one.sort == "unknown"
        }
        for release in beside
    ]
    neither = sorted(set.intersection(*unknown)) if unknown else []
    for option in neither:
        title = f"{s.who} likely has no option {option}: {' and '.join(beside)} have none"
        step = (
            _speculation_of(s, option)
            or "See `trtllm-serve --help`, and remove it where it is missing there."
        )
        yield fault(
            OPTIONS,
            "argument_unknown",
            title,
            "parser",
            state="open",
            confidence="likely",
            next_step=step,
        )
    if not neither:
        yield unclear(OPTIONS, f"the options of {s.who} are not on file ({', '.join(read)} are)")


def _refused(s: ServedElsewhere, one: Refusal) -> Ruled:
    title = {
        "unknown": f"{s.who} has no option {one.option}",
        "ambiguous": f"{one.option} may be several options of {s.who}",
        "value": f"{one.option} does not take {one.value[:60] or 'an empty value'}",
        "missing": f"{one.option} has no value",
        "switch": f"{one.option} is a switch and takes no value",
        "stray": f"{one.value[:60]} belongs to no option",
    }[one.sort]
    near: list[str] = []
    if one.sort == "unknown":
        near = _meant(s, one.option)
        if not near and (instead := _speculation_of(s, one.option)):
            return fault(
                OPTIONS,
                "argument_unknown",
                title,
                "parser",
                evidence=[one.option],
                next_step=instead,
            )
    step = (
        f"Write {near[0]} instead of {one.option}." if near else f"Correct or remove {one.option}."
    )
    edits = (Edit(one.option, rename=near[0]),) if near else ()
    return fault(
        OPTIONS,
        f"argument_{one.sort}",
        title,
        "parser",
        detail=one.says.capitalize() + ".",
        evidence=[one.option] if one.option else (),
        next_step=step,
        edits=edits,
        place=f"{_PARSED_IN[s.launch.engine]} ({s.release})",
    )


_PARSED_IN = {"vllm": "vllm/engine/arg_utils.py", TRTLLM: "tensorrt_llm/commands/serve.py"}


def _meant(s: ServedElsewhere, option: str) -> list[str]:
    """Return the option of the release that one most likely means; none where none is near."""
    if s.launch.engine == "vllm":
        return difflib.get_close_matches(option.replace("_", "-"), options_of(s.release), 1, 0.85)
    known = [word for one in click_options.command_of(s.release).params for word in one.opts]
    return difflib.get_close_matches(
        option.replace("-", "_").replace("__", "--", 1), known, 1, 0.85
    )


def _speculation_of(s: ServedElsewhere, option: str) -> str:
    """Return what stands for another engine's option of speculation, "" where it is none."""
    typed = option.replace("_", "-")
    if s.launch.engine == TRTLLM and typed.startswith("--spec"):
        return "Write speculative_config into the YAML file of --extra_llm_api_options."
    if typed in ("--speculative-model", "--num-speculative-tokens"):
        return (
            "Write --speculative-config with a JSON object: method, model, num_speculative_tokens."
        )
    return ""
