"""What rules stand on: the values that hold, the release, the table of the rules, and the corrected words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from tests.launch.rules.asking import LLAMA, NEWEST, QWEN_MOE, answer, ask, found
from workbench.checkpoint.config import Config
from workbench.core.verdict import State
from workbench.launch.read import read_launch
from workbench.launch.rules import (
    arguments,
    companions,
    exclusions,
    models,
    speculation,
    tree,
)
from workbench.launch.rules.corrected import corrected, line_of
from workbench.launch.rules.records import (
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
from workbench.launch.rules.settings import UnknownValueError
from workbench.launch.rules.sums import GROUPS, HEADS, MEMORY
from workbench.launch.rules.table import RULES, Rule, items, ruled, without_models

EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d"


def test_a_value_is_the_launch_s_or_the_release_s() -> None:
    get = ask("--tp 8 --mem-fraction-static 0.5 --trust-remote-code --quantization None").settings
    assert (get.text("tp-size"), get.text("dp-size"), get.text("context-length")) == (
        "8",
        "1",
        None,
    )
    assert get.text("quantization") is None
    assert (get.number("tp-size"), get.number("context-length")) == (8, None)
    assert (get.fraction("mem-fraction-static"), get.fraction("context-length")) == (0.5, None)
    assert get.given("tp-size")
    assert not get.given("dp-size")
    assert get.on("trust-remote-code")
    assert not get.on("enable-dp-attention")
    assert not get.on("context-length")
    assert (get.raw("tp-size"), get.raw("dp-size")) == ("--tp", "--dp-size")


def test_what_is_no_number_is_none() -> None:
    get = ask("--tp x --mem-fraction-static x").settings
    assert get.number("tp-size") is None
    assert get.fraction("mem-fraction-static") is None


def test_a_value_that_is_not_known_says_on_what_it_depends() -> None:
    get = ask("--tp $TP").settings
    assert not get.given("tp-size")
    with pytest.raises(UnknownValueError, match=r"--tp is not known: it depends on \$?TP"):
        get.text("tp-size")
    rest = ask("$MORE").settings
    with pytest.raises(UnknownValueError, match="a part of the launch was not read"):
        rest.text("dp-size")


def test_a_raw_option_is_as_it_was_typed() -> None:
    log = ask("--tp 8")
    printed = dataclasses.replace(log.launch.arguments[1], raw="tp_size")
    launch = dataclasses.replace(log.launch, arguments=(printed,))
    assert dataclasses.replace(log, launch=launch).settings.raw("tp-size") == "--tp-size"


@pytest.mark.parametrize(
    ("version", "first", "last", "right"),
    [
        ("0.5.11", "", "", True),
        ("0.5.11", "0.5.11", "0.5.11", True),
        ("0.5.11", "0.5.12", "", False),
        ("0.5.11", "", "0.5.10.post1", False),
        ("0.5.11", "0.5.9", "0.5.12", True),
        ("0.4.4", "", "0.4.4", True),
    ],
)
def test_within(version: str, first: str, last: str, right: bool) -> None:
    assert ask("", version).within(first, last) is right


@pytest.mark.parametrize(
    ("words", "version", "algorithm", "speculates", "eagle"),
    [
        ("", "0.5.14", "", False, False),
        ("--speculative-algorithm NONE", "0.5.14", "", False, False),
        ("--speculative-algorithm none", "0.5.12", "", False, False),
        ("--speculative-algorithm eagle3", "0.5.12", "EAGLE3", True, True),
        ("--speculative-algorithm eagle3", "0.5.11", "eagle3", False, False),
        *((f"--speculative-algorithm {name}", "0.5.16", name, True, True)
          for name in ("EAGLE", "NEXTN", "STANDALONE")),
        *((f"--speculative-algorithm {name}", "0.5.16", name, True, False) for name in ("DFLASH", "DSPARK")),
        ("--speculative-algorithm NGRAM", "0.5.16", "NGRAM", False, False),
    ],
)  # fmt: skip
def test_the_algorithm(
    words: str, version: str, algorithm: str, speculates: bool, eagle: bool
) -> None:
    asked = ask(words, version)
    assert (asked.algorithm, asked.speculates, asked.eagle) == (algorithm, speculates, eagle)


def test_a_release_that_was_not_read_is_not_certain() -> None:
    assert ask("", "0.5.14").certain
    later, none = ask("", "99.0"), ask("", "")
    assert (later.certain, none.certain) == (False, False)
    assert (later.release, later.who, none.who) == (NEWEST, "SGLang 99.0", "SGLang")


def test_text_without_a_program_is_a_fragment() -> None:
    assert not ask("--tp 8").fragment
    assert ask("--tp 8", line="--model-path t").fragment
    asked = ask("--tp 8", line="--model-path t")
    empty = dataclasses.replace(asked.launch, options=())
    assert not dataclasses.replace(asked, launch=empty).fragment


def test_a_number_of_a_config_is_a_whole_one() -> None:
    model = Model("t", Config({"a": True, "b": 2, "c": "3", "d": 0}))
    assert [model.number(name) for name in "abcde"] == [None, 2, None, 0, None]
    assert model.number("a", "d", "b") == 0
    assert (model.readable, Model("t").readable) == (True, False)
    assert (Model("t", Config(LLAMA)).model_class, model.model_class) == ("LlamaForCausalLM", "")


def test_a_fault_is_certain_an_error_and_changes_what_is_served() -> None:
    made = fault("item", "code", "title", "load").finding
    assert made is not None
    assert (made.confidence, made.severity, made.changes_output) == ("certain", "error", True)
    doubt = fault("item", "code", "title", "load", state="open").finding
    assert doubt is not None
    assert not doubt.changes_output
    harmless = fault("item", "code", "title", "load", changes=False).finding
    assert harmless is not None
    assert not harmless.changes_output
    remark = note("item", "code", "title")
    assert remark.finding is not None
    assert (remark.state, remark.finding.severity) == ("ok", "note")
    assert not remark.finding.changes_output


def _rule(state: State, moment: Moment, later: bool = False) -> Rule:
    def check(s: Served) -> Iterator[Ruled]:
        yield dataclasses.replace(fine("made up", "how"), state=state, moment=moment)

    return Rule("made up", check, later=later)


@pytest.mark.parametrize(
    ("state", "moment", "later", "form", "version", "right"),
    [
        ("wrong", "checks", False, "command line", "0.5.14", "wrong"),
        ("wrong", "checks", False, "log", "0.5.14", "ok"),
        ("wrong", "parser", False, "log", "0.5.14", "ok"),
        ("wrong", "load", False, "log", "0.5.14", "wrong"),
        ("wrong", "checks", True, "log", "0.5.14", "wrong"),
        ("open", "checks", False, "log", "0.5.14", "open"),
        ("wrong", "checks", False, "command line", "99.0", "open"),
        ("ok", "unknown", False, "command line", "99.0", "open"),
        ("open", "unknown", False, "command line", "99.0", "open"),
        ("wrong", "checks", False, "log", "99.0", "ok"),
    ],
)
def test_what_weakens_a_ruling(
    state: State, moment: Moment, later: bool, form: str, version: str, right: str
) -> None:
    asked = ask("--tp 8", version)
    launch = dataclasses.replace(asked.launch, form=form)  # type: ignore[arg-type]
    served = dataclasses.replace(asked, launch=launch)
    one = next(one for _, one in ruled(served, [_rule(state, moment, later)]))
    assert one.state == right
    assert ("was not read" in one.how) == (version == "99.0" and state != "open" and form != "log")


NEW_KIND = LLAMA | {"model_type": "qwen4_exp"}
FP8 = LLAMA | {"quantization_config": {"quant_method": "fp8"}}
LATER = ("model_absent", "model_type_too_new")


# launch_server runs `check_server_args` and then prints the arguments (engine.py of 0.4.4, 0.5.8 and 0.5.14).
@pytest.mark.parametrize(
    ("name", "words", "target", "version", "code"),
    [
        (arguments.NAME, "--tpp 2", LLAMA, "0.5.14", "argument_unknown"),
        (companions.NAME, "--served-model-name a:b", LLAMA, "0.5.14", "together_name_with_colon"),
        (speculation.ALGORITHM, "--speculative-algorithm DFLASH", LLAMA, "0.5.14", "no_draft"),
        (tree.SHAPE, f"{EAGLE3} --speculative-num-steps 3", LLAMA, "0.5.14", "no_topk"),
        (exclusions.WITH_OTHERS, f"{EAGLE3} --pp-size 2", LLAMA, "0.5.14", "excludes_pipeline"),
        (GROUPS, "--tp 8 --nnodes 3", LLAMA, "0.5.14", "nodes_and_ranks"),
        (models.CONTEXT, "--context-length 8193", LLAMA, "0.5.14", "context_too_long"),
        (models.QUANTISATION, "--quantization awq", FP8, "0.5.14", "quantisation_differs"),
        # The models may be read later: in 0.4.4 the configs are.
        (models.THERE, "", Model("t", absent=True), "0.5.14", "model_absent"),
        (models.CLASS, "", NEW_KIND, "0.4.4", "model_type_too_new"),
    ],
)
def test_what_a_server_has_passed_when_it_prints_its_arguments(
    name: str, words: str, target: dict[str, Any] | Model, version: str, code: str
) -> None:
    asked = ask(words, version, target)
    assert answer(name, asked) == f"wrong {code}"
    printed = dataclasses.replace(asked, launch=dataclasses.replace(asked.launch, form="log"))
    assert answer(name, printed) == ("ok" if code not in LATER else f"wrong {code}")


def test_the_rules_that_need_the_models_and_the_items() -> None:
    names = [rule.name for rule in without_models()]
    assert GROUPS in names
    assert MEMORY in names
    assert HEADS not in names
    words = "--tp 2 --ep 2 --attention-backend triton --context-length 5 " + EAGLE3
    alone, whole = ask(words, target=None, draft=None), ask(words, target=QWEN_MOE)
    assert names == [rule.name for rule in RULES if answer(rule.name, alone) != "open"]
    assert {answer(name, whole) for name in names} == {"ok"}
    aside = [item.name for item in items() if not item.essential]
    assert aside == ["memory of the GPUs"]
    assert len(list(items())) == len(RULES)


def test_a_value_that_is_not_known_leaves_the_item_open() -> None:
    assert answer(HEADS, ask("--tp $TP")) == "open"
    assert "--tp is not known" in found(HEADS, ask("--tp $TP"))[0].how
    assert unclear("item", "how").state == "open"
    assert fine("item", "how").moment == "unknown"
    assert not Model("t").absent


@pytest.mark.parametrize(
    ("words", "edit", "right"),
    [
        ("--tp 8 --x", Edit("--tp", "4"), "--tp 4 --x"),
        ("--tp=8 --x", Edit("--tp", "4"), "--tp 4 --x"),
        ("--tp 8 --x", Edit("--tp"), "--x"),
        ("--tp=8 --x", Edit("--tp"), "--x"),
        ("--tp --x", Edit("--tp"), "--x"),
        ("--tp 8 --tp 2 --x", Edit("--tp", "4"), "--tp 4 --x"),
        ("--tp 8 --y --tp=2 --x", Edit("--tp", "4"), "--y --tp 4 --x"),
        ("--list 1 2 3 --x", Edit("--list"), "--x"),
        ("--base -1 --x", Edit("--base"), "--x"),  # a number, not an option
        ("--base 1 -x", Edit("--base"), "-x"),
        ("--x", Edit("--tp", "4"), "--x --tp 4"),
        ("--x", Edit("--tp"), "--x"),
        ("--x", Edit("stray", "4"), "--x"),
        ("--x", Edit("--tpx", "4", rename="--tp"), "--x"),
        ("--x stray --y", Edit("stray"), "--x --y"),
        ("--tpx 8 --y", Edit("--tpx", rename="--tp"), "--tp 8 --y"),
        ("--tpx=8 --y", Edit("--tpx", rename="--tp"), "--tp 8 --y"),
        ("--tpx 8 --y", Edit("--tpx", "4", rename="--tp"), "--tp 4 --y"),
        ("--old --y", Edit("--old", "a b", rename="--new"), "--new a b --y"),
        ("--on=true --y", Edit("--on", rename="--on"), "--on --y"),
        ("--on=true --y", Edit("--on", "4", rename="--on"), "--on 4 --y"),
        ("--tp=8 9 --x", Edit("--tp"), "9 --x"),
        ("--x stray more --y", Edit("stray"), "--x more --y"),
        ("--x --tp 8", Edit("--tp", "4"), "--x --tp 4"),
    ],
)
def test_the_words_that_are_changed(words: str, edit: Edit, right: str) -> None:
    assert " ".join(corrected(words.split(), [edit])) == right


@pytest.mark.parametrize(
    ("line", "words", "right"),
    [
        ("python -m sglang.launch_server --model-path t --tp 8", "--model-path t --tp 4",
         "python -m sglang.launch_server --model-path t --tp 4"),
        ("--model-path t", "--model-path t", "--model-path t"),
        ("sglang serve --model-path $M", "--model-path t", "sglang serve --model-path t"),
        ("docker run lmsysorg/sglang:v0.5.14 python3 -m sglang.launch_server --model-path t",
         "--model-path t --tp 2",
         "docker run lmsysorg/sglang:v0.5.14 python3 -m sglang.launch_server --model-path t --tp 2"),
        ("bash -c 'python3 -m sglang.launch_server --model-path t'", "--model-path t --tp 2",
         "python3 -m sglang.launch_server --model-path t --tp 2"),
        ("bash -c 'sglang serve --model-path t'", "--model-path t", "sglang serve --model-path t"),
        ("sglang serve --model-path t", "--api-key abc --tp 2", "sglang serve --api-key '<left out>' --tp 2"),
        ("sglang serve --model-path t", "--api-key=abc", "sglang serve --api-key='<left out>'"),
        ("sglang serve --model-path t", "--name api_key --tp=2", "sglang serve --name api_key --tp=2"),
        ("sglang serve --model-path t", "--name a;b", "sglang serve --name 'a;b'"),
    ],
)  # fmt: skip
def test_the_line_to_paste(line: str, words: str, right: str) -> None:
    assert line_of(read_launch(line, version="0.5.14"), words.split()) == right
