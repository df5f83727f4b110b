"""The algorithm and its draft: each case from both sides, and each class that drafts for itself.

The releases are those in whose wheels the list of classes was read (server_args.py, and from 0.5.13 on
arg_groups/speculative_hook.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.launch.rules.asking import DEEPSEEK, DRAFT, LLAMA, NEWEST, answer, ask, found, repaired
from workbench.launch.rules.records import Model
from workbench.launch.rules.speculation import ALGORITHM, OWN_DRAFT

NAME = ALGORITHM
PATH = " --speculative-draft-model-path d"
SAME = " --speculative-draft-model-path t"
SPEC = "--speculative-algorithm "
NO_NEXTN = DEEPSEEK | {"num_nextn_predict_layers": 0}
NEXTN = LLAMA | {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
MTP = LLAMA | {"architectures": ["Qwen3NextForCausalLM"], "mtp_num_hidden_layers": 1}
EAGLE_CLASS = LLAMA | {"architectures": ["LlamaForCausalLMEagle"]}
UNSAID = {key: value for key, value in DEEPSEEK.items() if key != "num_nextn_predict_layers"}


@pytest.mark.parametrize(
    ("words", "target", "right"),
    [
        ("", LLAMA, "ok"),
        (PATH, LLAMA, "wrong draft_without_algorithm"),
        (f"{SPEC}NONE", LLAMA, "ok"),
        (f"{SPEC}NONE{PATH}", LLAMA, "wrong draft_without_algorithm"),
        (f"{SPEC}MADEUP{PATH}", LLAMA, "open"),
        (f"{SPEC}FROZEN_KV_MTP{PATH}", LLAMA, "open"),
        (f"{SPEC}NGRAM", LLAMA, "ok"),
        (f"{SPEC}NGRAM{PATH}", LLAMA, "ok draft_unused"),
        (f"{SPEC}EAGLE3{PATH}", LLAMA, "ok"),
        (f"{SPEC}eagle3{PATH}", LLAMA, "ok"),
        (f"{SPEC}EAGLE3", LLAMA, "wrong no_draft"),
        (f"{SPEC}DFLASH{PATH}", LLAMA, "ok"),
        (f"{SPEC}DFLASH", LLAMA, "wrong no_draft"),
        (f"{SPEC}DFLASH", DEEPSEEK, "wrong no_draft"),
        (f"{SPEC}STANDALONE", DEEPSEEK, "wrong no_draft"),
        # Where the target drafts for itself
        (f"{SPEC}EAGLE", DEEPSEEK, "ok"),
        (f"{SPEC}NEXTN", DEEPSEEK, "ok"),
        (f"{SPEC}EAGLE", UNSAID, "ok"),  # the class has one where the config does not count it
        (f"{SPEC}EAGLE", NO_NEXTN, "wrong no_draft"),
        (f"{SPEC}EAGLE3", DEEPSEEK, "wrong no_draft"),
        (f"{SPEC}EAGLE3", NO_NEXTN, "wrong no_draft"),
        (f"{SPEC}EAGLE", LLAMA, "wrong no_draft"),
        (f"{SPEC}EAGLE", None, "open"),
        (f"{SPEC}EAGLE", Model("t"), "open"),
    ],
)  # fmt: skip
def test_both_sides(words: str, target: dict[str, Any] | Model | None, right: str) -> None:
    assert answer(NAME, ask(words, target=target)) == right


@pytest.mark.parametrize(
    ("words", "release", "right"),
    [
        (f"{SPEC}eagle3{PATH}", "0.5.11", "open"),  # in capitals only; the parser refuses it
        (f"{SPEC}eagle3{PATH}", "0.5.12", "ok"),
        (f"{SPEC}STANDALONE{PATH}", "0.5.1.post3", "open"),
        (f"{SPEC}STANDALONE{PATH}", "0.5.2", "ok"),
        (f"{SPEC}NGRAM", "0.5.2", "open"),
        (f"{SPEC}NGRAM", "0.5.3", "ok"),
        (f"{SPEC}DFLASH{PATH}", "0.5.10.post1", "open"),
        (f"{SPEC}DFLASH{PATH}", "0.5.11", "ok"),
        (f"{SPEC}DSPARK{PATH}", "0.5.15.post1", "open"),
        (f"{SPEC}DSPARK{PATH}", "0.5.16", "ok"),
        (f"{SPEC}UNO", "0.5.20", "open"),
    ],
)
def test_both_sides_of_a_release(words: str, release: str, right: str) -> None:
    assert answer(NAME, ask(words, release)) == right


@pytest.mark.parametrize(
    ("name", "before", "first"),
    [
        ("DeepseekV3ForCausalLM", "0.4.6.post1", "0.4.6.post2"),
        ("Glm4MoeForCausalLM", "0.4.9.post4", "0.4.9.post5"),
        ("DeepseekV32ForCausalLM", "0.5.2", "0.5.3"),
        ("BailingMoeForCausalLM", "0.5.2", "0.5.3"),
        ("BailingMoeV2ForCausalLM", "0.5.2", "0.5.3"),
        ("MistralLarge3ForCausalLM", "0.5.6", "0.5.6.post1"),
        ("PixtralForConditionalGeneration", "0.5.6", "0.5.6.post1"),
        ("Glm4MoeLiteForCausalLM", "0.5.7", "0.5.8"),
        ("GlmMoeDsaForCausalLM", "0.5.8.post1", "0.5.9"),
        ("BailingMoeV2_5ForCausalLM", "0.5.8.post1", "0.5.9"),
        ("HYV3ForCausalLM", "0.5.10.post1", "0.5.11"),
        ("DeepseekV4ForCausalLM", "0.5.11", "0.5.12"),
        ("HYV4ForCausalLM", "0.5.19", "0.5.20"),
        ("Qwen4ExpForConditionalGeneration", "0.5.19", "0.5.20"),
    ],
)
def test_a_class_that_drafts_for_itself(name: str, before: str, first: str) -> None:
    target = DEEPSEEK | {"architectures": [name]}
    assert answer(NAME, ask(f"{SPEC}EAGLE", before, target)) == "wrong no_draft"
    assert answer(NAME, ask(f"{SPEC}EAGLE", first, target)) == "ok"
    assert answer(NAME, ask(f"{SPEC}EAGLE", NEWEST, target)) == "ok"
    assert name in OWN_DRAFT


@pytest.mark.parametrize(
    ("words", "target", "right"),
    [
        (f"{SPEC}EAGLE{SAME}", LLAMA, "wrong target_as_draft"),
        (f"{SPEC}EAGLE3{SAME}", LLAMA, "wrong target_as_draft"),
        (f"{SPEC}EAGLE{SAME}", DEEPSEEK, "ok"),
        (f"{SPEC}EAGLE{SAME}", NO_NEXTN, "ok"),  # the keys of its layer decide, and are compared
        (f"{SPEC}EAGLE{SAME}", NEXTN, "ok"),
        (f"{SPEC}EAGLE{SAME}", MTP, "ok"),
        (f"{SPEC}EAGLE{SAME}", EAGLE_CLASS, "ok"),
        (f"{SPEC}STANDALONE{SAME}", LLAMA, "ok"),
        (f"{SPEC}EAGLE{PATH}", LLAMA, "ok"),
        (f"{SPEC}EAGLE{SAME}", Model("t"), "ok"),
        (f"{SPEC}EAGLE{SAME}", None, "ok"),
    ],
)  # fmt: skip
def test_the_target_as_its_own_draft(
    words: str, target: dict[str, Any] | Model | None, right: str
) -> None:
    asked = ask(words, target=target)
    draft = Model("t", asked.target.config) if asked.target is not None and SAME in words else None
    served = type(asked)(asked.launch, asked.version, asked.target, draft or asked.draft)
    assert answer(NAME, served) == right


@pytest.mark.parametrize(
    ("words", "own", "other", "right"),
    [
        (f"{SPEC}STANDALONE{PATH}", 1000, 1000, "ok"),
        (f"{SPEC}STANDALONE{PATH}", 1000, 1001, "wrong standalone_vocabulary"),
        (f"{SPEC}STANDALONE{PATH}", None, 1001, "ok"),
        (f"{SPEC}STANDALONE{PATH}", 1000, None, "ok"),
        (f"{SPEC}EAGLE3{PATH}", 1000, 1001, "ok"),
    ],
)
def test_a_model_that_drafts_by_itself_has_the_same_vocabulary(
    words: str, own: int | None, other: int | None, right: str
) -> None:
    draft, target = LLAMA | {"vocab_size": own}, LLAMA | {"vocab_size": other}
    assert answer(NAME, ask(words, target=target, draft=draft)) == right
    assert answer(NAME, ask(words, target=None, draft=draft)) == "ok"
    assert answer(NAME, ask(words, target=target, draft=None)) == "ok"


@pytest.mark.parametrize(
    ("draft", "fixed"),
    [
        (DRAFT, "--speculative-draft-model-path d --speculative-algorithm EAGLE3"),
        (EAGLE_CLASS, "--speculative-draft-model-path d --speculative-algorithm EAGLE"),
        (LLAMA | {"architectures": ["DeepseekV3ForCausalLMNextN"]},
         "--speculative-draft-model-path d --speculative-algorithm EAGLE"),
        (LLAMA, "--speculative-draft-model-path d"),
        (None, "--speculative-draft-model-path d"),
    ],
)  # fmt: skip
def test_the_algorithm_that_a_draft_asks_for(draft: dict[str, Any] | None, fixed: str) -> None:
    assert repaired(NAME, ask(PATH, draft=draft)) == fixed


@pytest.mark.parametrize(
    ("words", "target", "release", "moment"),
    [
        (PATH, LLAMA, "0.5.14", "serving"),
        (f"{SPEC}EAGLE3", LLAMA, "0.5.14", "load"),
        (f"{SPEC}EAGLE3", DEEPSEEK, "0.5.14", "load"),
        (f"{SPEC}DFLASH", LLAMA, "0.5.14", "checks"),
        (f"{SPEC}DSPARK", LLAMA, "0.5.16", "checks"),
    ],
)
def test_when_it_shows(words: str, target: dict[str, Any], release: str, moment: str) -> None:
    assert [one.moment for one in found(NAME, ask(words, release, target))] == [moment]


def test_arguments_alone_may_not_be_all() -> None:
    asked = ask(f"{SPEC}EAGLE3", line="--model-path t")
    assert answer(NAME, asked) == "open"


def test_why_the_target_does_not_draft() -> None:
    says = [found(NAME, ask(f"{SPEC}EAGLE3", target=one))[0].how for one in (DEEPSEEK, NO_NEXTN)]
    assert says[0].endswith("a NextN layer is no EAGLE-3 draft")
    assert says[1].endswith("it has no NextN layer")
