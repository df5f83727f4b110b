"""Both sides of each border of the contracts: releases that differ by one, numbers that differ by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.drafts.test_contracts import (
    KEPT,
    OFFSETS,
    Checkpoint,
    Config,
    D,
    H,
    V,
    draft,
    run,
    target,
    with_ids,
)

VLLM = "Eagle3LlamaForCausalLM"


def joined(layers: int, **config: Any) -> Checkpoint:
    made = draft(t2d=KEPT, **config)
    made.arrays["fc.weight"] = np.zeros((H, layers * H), np.float32)
    return made


def normed(tensor: str, nested: bool = False, **config: Any) -> Checkpoint:
    made = draft(t2d=KEPT, **config)
    if tensor:
        made.arrays[tensor] = np.zeros(H, np.float32)
    if nested:
        made.config.layout = "speculators"
        made.config.raw |= {"norm_before_residual": False}
    return made


def borrowing() -> Checkpoint:
    made = draft(d2t=None, t2d=None, draft_vocab_size=...)
    made.arrays["lm_head.weight"] = np.zeros((V, H), np.float32)
    return made


def whole_vocabulary() -> Checkpoint:
    made = draft(d2t=np.zeros(V, np.int64), t2d=np.arange(V), draft_vocab_size=V)
    made.arrays["lm_head.weight"] = np.zeros((V, H), np.float32)
    return made


def nested(**config: Any) -> Checkpoint:
    made = draft(t2d=KEPT, architectures=["Eagle3DraftModel"], model_type=..., **config)
    made.config.layout = "speculators"
    made.config.raw |= {"norm_before_residual": False}
    return made


KIMI = {"target": target(model_type="kimi_k2")}
OSS = {"target": target(model_type="gpt_oss")}
LLAMA = {"target": target()}

# What is accused, of which draft, in the last release without the feature, in one between that nobody read,
# and in the first with it.
Border = tuple[
    str, Callable[[], Checkpoint], dict[str, Any], str, tuple[str, ...], tuple[bool, ...]
]
BORDERS: list[Border] = [
    ("sglang", lambda: with_ids([1, 2]), {}, "aux_layer_count",
     ("0.4.8.post1", "0.4.9rc1", "0.4.9"), (False, True, True)),
    ("sglang", lambda: with_ids([2, 16, 31]), LLAMA, "aux_layer_range",
     ("0.4.8.post1", "0.4.9rc1", "0.4.9"), (False, False, True)),
    ("sglang", borrowing, {}, "lm_head_replaced",
     ("0.5.1.post3", "0.5.2rc1", "0.5.2"), (False, False, True)),
    ("sglang", lambda: joined(4, num_aux_hidden_states=4), {}, "fc_width",
     ("0.5.11", "0.5.12rc1", "0.5.12"), (True, False, False)),
    ("sglang", lambda: joined(3, num_aux_hidden_states=4), {}, "fc_width",
     ("0.5.11", "0.5.12rc1", "0.5.12"), (False, False, True)),
    ("sglang", lambda: normed("fc_norm.0.weight", fc_norm=True), {}, "norm_not_applied",
     ("0.5.11", "0.5.12rc1", "0.5.12"), (True, False, False)),
    ("sglang", lambda: normed("", fc_norm=True), {}, "norm_missing",
     ("0.5.11", "0.5.12rc1", "0.5.12"), (False, False, True)),
    ("sglang", lambda: normed("", fc_norm=True), {}, "fc_norm_not_read",
     ("0.5.11", "0.5.12rc1", "0.5.12"), (True, False, False)),
    ("sglang", lambda: normed("", norm_output=True), {}, "norm_output_not_read",
     ("0.5.11", "0.5.12rc1", "0.5.12"), (True, False, False)),
    ("sglang", lambda: normed("input_norm.weight", norm_before_fc=True), {}, "norm_not_applied",
     ("0.5.16", "0.5.17rc1", "0.5.17"), (True, False, False)),
    ("sglang", lambda: normed("", norm_before_fc=True), {}, "norm_missing",
     ("0.5.16", "0.5.17rc1", "0.5.17"), (False, False, True)),
    ("sglang", lambda: normed("", norm_before_residual=True), {}, "norm_before_residual_not_read",
     ("0.5.23", "0.5.24rc1", "0.5.24"), (True, False, False)),
    ("sglang", nested, {}, "speculators_config",
     ("0.5.23", "0.5.24rc1", "0.5.24"), (True, False, False)),
    ("sglang", lambda: with_ids([2, 16, 29]), KIMI, "aux_layer_shift",
     ("0.5.12.post1", "0.5.13rc1", "0.5.13"), (True, False, False)),
    ("sglang", lambda: with_ids([2, 16, 32]), KIMI, "aux_layer_range",
     ("0.5.12.post1", "0.5.13rc1", "0.5.13"), (True, False, True)),
    ("sglang", lambda: with_ids([2, 16, 31]), KIMI, "aux_layer_range",
     ("0.5.12.post1", "0.5.13rc1", "0.5.13"), (True, False, False)),
    ("sglang", lambda: with_ids([2, 16, 32]), OSS, "aux_layer_range",
     ("0.5.16", "0.5.17rc1", "0.5.17"), (True, False, False)),
    ("sglang", lambda: with_ids([2, 16, 29]), OSS, "aux_layer_shift",
     ("0.5.16", "0.5.17rc1", "0.5.17"), (True, False, True)),
    ("vllm", lambda: normed("", norm_before_residual=True), {}, "norm_before_residual_not_read",
     ("0.10.0", "0.10.0.1", "0.10.1"), (True, False, False)),
    ("vllm", nested, {}, "speculators_config", ("0.10.0", "0.10.0.1", "0.10.1"), (True, False, False)),
    ("vllm", lambda: draft(t2d=KEPT, eagle_aux_hidden_state_layer_ids=[1, 2]), {}, "aux_layer_count",
     ("0.10.2", "0.11.0", "0.11.1"), (False, True, True)),
    ("vllm", lambda: with_ids([1, 2]), {}, "aux_layer_count",
     ("0.21.0", "0.21.1", "0.22.0"), (False, False, True)),
    ("vllm", lambda: normed("input_norm.weight", norm_before_fc=True), {}, "norm_not_applied",
     ("0.17.1", "0.17.2", "0.18.0"), (True, False, False)),
    ("vllm", lambda: normed("", norm_before_fc=True), {}, "norm_missing",
     ("0.17.1", "0.17.2", "0.18.0"), (False, False, True)),
    ("vllm", lambda: joined(4, num_aux_hidden_states=4), {}, "fc_width",
     ("0.21.0", "0.21.1", "0.22.0"), (True, False, False)),
    ("vllm", lambda: joined(3, num_aux_hidden_states=4), {}, "fc_width",
     ("0.21.0", "0.21.1", "0.22.0"), (False, False, True)),
    ("vllm", lambda: normed("fc_norm.0.weight", fc_norm=True), {}, "norm_not_applied",
     ("0.21.0", "0.21.1", "0.22.0"), (True, False, False)),
    ("vllm", lambda: normed("", fc_norm=True), {}, "norm_missing",
     ("0.21.0", "0.21.1", "0.22.0"), (False, False, True)),
    ("vllm", lambda: normed("", norm_output=True), {}, "norm_output_not_read",
     ("0.21.0", "0.21.1", "0.22.0"), (True, False, False)),
    ("vllm", lambda: normed("input_norm.weight", nested=True, norm_before_fc=True), {}, "norm_not_applied",
     ("0.18.1", "0.18.2", "0.19.0"), (True, False, False)),
    ("vllm", lambda: normed("", nested=True, norm_before_fc=True), {}, "norm_missing",
     ("0.18.1", "0.18.2", "0.19.0"), (False, False, True)),
    ("vllm", lambda: normed("fc_norm.0.weight", nested=True, fc_norm=True), {}, "norm_not_applied",
     ("0.24.0", "0.24.1", "0.25.0"), (True, False, False)),
    ("vllm", lambda: normed("", nested=True, fc_norm=True), {}, "norm_missing",
     ("0.24.0", "0.24.1", "0.25.0"), (False, False, True)),
    ("vllm", lambda: normed("", nested=True, norm_output=True), {}, "norm_output_not_read",
     ("0.24.0", "0.24.1", "0.25.0"), (True, False, False)),
    ("vllm", whole_vocabulary, {}, "d2t_with_full_vocabulary",
     ("0.29.0", "0.29.1", "0.30.0"), (False, False, True)),
]  # fmt: skip


@pytest.mark.parametrize(
    "case", BORDERS, ids=[f"{c[0]}-{c[4][2]}-{c[3]}-{i}" for i, c in enumerate(BORDERS)]
)
def test_what_a_release_reads(case: Border) -> None:
    engine, build, more, code, versions, accused = case
    cls = VLLM if engine == "vllm" else "LlamaForCausalLMEagle3"
    got = [code in run(build(), f"{engine}=={version}", cls, **more) for version in versions]
    assert tuple(got) == accused


@pytest.mark.parametrize(
    ("engine", "cls", "last", "beyond"),
    [("sglang", "LlamaForCausalLMEagle3", "0.5.23", "0.5.24"), ("vllm", VLLM, "0.10.2", "0.11.0")],
)
def test_ids_at_the_top_level_stop_an_engine_that_may_read_them(
    engine: str, cls: str, last: str, beyond: str
) -> None:
    odd = draft(t2d=KEPT, eagle_aux_hidden_state_layer_ids="abc")
    before = run(odd, f"{engine}=={last}", cls)["aux_layers_unreadable"]
    after = run(odd, f"{engine}=={beyond}", cls)["aux_layers_unreadable"]
    assert (before.severity, before.changes_output) == ("warning", False)
    assert (after.severity, after.changes_output) == ("error", True)


def certainty(found: Any) -> tuple[str, str, bool]:
    return found.severity, found.confidence, found.changes_output


def test_how_sure_each_contract_is() -> None:
    kimi = target(64)
    vllm = {"engine": "vllm==0.32.0", "cls": VLLM}
    wide = draft(t2d=KEPT, target_hidden_size=2 * H)
    trained = draft(t2d=KEPT, embed_requires_grad=True)
    trained.arrays["embed_tokens.weight"] = np.zeros((V, H), np.float32)
    headless = draft(t2d=KEPT)
    del headless.arrays["lm_head.weight"]
    other = KEPT.copy()
    other[9] += 1
    shuffled, twice = OFFSETS.copy(), OFFSETS.copy()
    shuffled[[3, 4]] = [OFFSETS[4] + 1, OFFSETS[3] - 1]
    twice[7] = twice[6] - 1
    top = draft(t2d=KEPT, eagle_aux_hidden_state_layer_ids=[2, 16, 29])
    nextn = Checkpoint(
        Config(
            {"architectures": ["DeepseekV3ForCausalLMNextN"], "hidden_size": H, "vocab_size": V}
        ),
        {"model.layers.61.eh_proj.weight": np.zeros((H, 2 * H), np.float32)},
    )
    nameless = draft(t2d=KEPT, architectures=...)
    said = {
        "launched_as_eagle": (
            run(draft(t2d=KEPT), launch="--speculative-algorithm EAGLE"), "error certain True"),
        "launched_without_speculation": (run(draft(t2d=KEPT), launch="--tp 8"), "note certain False"),
        "launched_as_eagle3": (
            run(nextn, cls="DeepseekV3ForCausalLMNextN", launch="--speculative-algorithm EAGLE3"),
            "warning likely False"),
        "no_architecture": (run(nameless), "error likely True"),
        "base_architecture": (
            run(draft(t2d=KEPT, architectures=["LlamaForCausalLM"]), cls="LlamaForCausalLM"),
            "error certain True"),
        "speculators_config": (run(nested()), "error certain True"),
        "d2t_absolute": (run(draft(d2t=KEPT, t2d=KEPT)), "error certain True"),
        "d2t_cannot_tell": (run(draft()), "warning unknown True"),
        "d2t_zeros": (run(draft(d2t=np.zeros(D, np.int64))), "error likely True"),
        "d2t_missing": (run(draft(d2t=None)), "error certain True"),
        "d2t_against_t2d": (run(draft(t2d=other)), "error likely True"),
        "t2d_inverted": (run(draft(t2d=np.setdiff1d(np.arange(V), KEPT))), "note certain False"),
        "t2d_size": (run(draft(t2d=KEPT, vocab_size=V + 1)), "warning certain False"),
        "draft_vocabulary": (run(draft(d2t=OFFSETS[:-1], t2d=KEPT)), "error certain True"),
        "draft_vocab_size_unset": (run(draft(t2d=KEPT, draft_vocab_size=...)), "error certain True"),
        "tied_lm_head": (run(draft(t2d=KEPT, tie_word_embeddings=True)), "error certain True"),
        "lm_head_missing": (run(headless), "error certain True"),
        "lm_head_replaced": (run(borrowing()), "warning unknown True"),
        "embedding_missing": (run(wide), "error certain True"),
        "embedding_replaced": (run(trained), "error likely True"),
        "fc_width": (run(joined(4)), "error certain True"),
        "target_hidden_size_null": (run(draft(t2d=KEPT, target_hidden_size=None)), "error certain True"),
        "target_hidden_size": (
            run(draft(t2d=KEPT), target=target(hidden_size=2 * H)), "error certain True"),
        "target_vocabulary": (
            run(draft(t2d=KEPT), target=target(vocab_size=V + 64)), "warning possible True"),
        "norm_not_applied": (run(normed("fc_norm.0.weight")), "error certain True"),
        "norm_missing": (run(normed("", fc_norm=True)), "error certain True"),
        "aux_layer_count": (run(with_ids([1, 2])), "error certain True"),
        "aux_layer_range": (run(with_ids([2, 16, 31]), target=target()), "error certain True"),
        "aux_layer_shift": (run(with_ids([2, 16, 29]), target=target()), "warning possible True"),
        "aux_layers_not_read": (run(top, target=kimi), "error certain True"),
        "heads_not_divisible": (
            run(draft(t2d=KEPT, num_attention_heads=4, num_key_value_heads=3)), "error likely True"),
        "qk_norm_dropped": (
            run(normed("midlayer.self_attn.k_norm.weight"), dropped=("midlayer.self_attn.k_norm.weight",)),
            "error certain True"),
    }  # fmt: skip
    got = {code: " ".join(map(str, certainty(found[code]))) for code, (found, _) in said.items()}
    assert got == {code: wanted for code, (_, wanted) in said.items()}
    # The same with another datum is surer, or less sure.
    pairs = {
        "d2t_zeros": run(draft(d2t=np.zeros(D, np.int64), t2d=KEPT)),
        "aux_layers_not_read": run(top),
        "lm_head_missing": run(headless, **vllm),
        "d2t_not_increasing": run(draft(d2t=twice)),
        "speculators_config": run(nested(), "vllm==0.10.0", VLLM),
        "target_hidden_size_null": run(draft(t2d=KEPT, target_hidden_size=None), **vllm),
        "d2t_with_full_vocabulary": run(whole_vocabulary(), **vllm),
    }
    assert {code: certainty(found[code]) for code, found in pairs.items()} == {
        "d2t_zeros": ("error", "certain", True),
        "aux_layers_not_read": ("warning", "unknown", True),
        "lm_head_missing": ("error", "likely", True),
        "d2t_not_increasing": ("error", "certain", True),
        "speculators_config": ("error", "likely", True),
        "target_hidden_size_null": ("error", "likely", True),
        "d2t_with_full_vocabulary": ("error", "likely", True),
    }
    assert certainty(run(draft(d2t=shuffled))["d2t_not_increasing"]) == (
        "warning",
        "possible",
        True,
    )
    assert certainty(run(top, target=target())["aux_layers_not_read"]) == ("note", "certain", False)


# -- sizes, heads, launch -----------------------------------------------------------------------


def test_fc_of_no_whole_number_of_layers() -> None:
    odd = draft(t2d=KEPT)
    odd.arrays["fc.weight"] = np.zeros((H, 3 * H + 1), np.float32)
    assert "fc_width" in run(odd)
    assert "aux_layer_count" not in run(odd)


def test_the_target_is_of_the_drafts_sizes() -> None:
    assert "target_hidden_size" not in run(draft(t2d=KEPT), target=target())
    assert "target_hidden_size" in run(draft(t2d=KEPT), target=target(hidden_size=H + 1))
    assert "target_vocabulary" not in run(draft(t2d=KEPT), target=target())
    assert "target_vocabulary" in run(draft(t2d=KEPT), target=target(vocab_size=V + 1))
    own = draft(t2d=KEPT, target_hidden_size=2 * H)
    assert "target_hidden_size" not in run(own, target=target(hidden_size=2 * H))


def test_the_embedding_is_shared_with_a_target_of_the_same_width_only() -> None:
    same, other = draft(t2d=KEPT, target_hidden_size=H), draft(t2d=KEPT, target_hidden_size=H + 1)
    assert "embedding_missing" not in run(same)
    assert "embedding_missing" in run(other)
    other.arrays["embed_tokens.weight"] = np.zeros((V, H), np.float32)
    assert "embedding_missing" not in run(other)
    other.config.raw["embed_requires_grad"] = True
    assert "embedding_replaced" not in run(other)


def test_ids_at_the_ends_of_the_target() -> None:
    def code(ids: list[int], engine: str = "sglang==0.5.14", **more: Any) -> bool:
        cls = VLLM if engine.startswith("vllm") else "LlamaForCausalLMEagle3"
        return "aux_layer_range" in run(with_ids(ids), engine, cls, target=target(**more))

    assert [code([1, 15, k]) for k in (30, 31)] == [False, True]
    assert [code([k, 15, 30]) for k in (-1, -2)] == [False, True]
    assert [code([1, 15, k], "vllm==0.32.0") for k in (32, 33)] == [False, True]
    oss = {"model_type": "gpt_oss"}
    assert [code([1, 15, k], "sglang==0.5.17", **oss) for k in (31, 32, 33)] == [False, False, True]
    # DeepSeek-like: ids as given, but for the default that begins with 1.
    kimi = {"model_type": "kimi_k2"}
    assert [code([2, 15, k], **kimi) for k in (31, 32)] == [False, True]
    assert [code([1, 15, k], **kimi) for k in (30, 31)] == [False, True]
    # A target that nobody knows the layers of, or whose class is of no kind that is known.
    assert not code([2, 15, 99], model_type="mamba")


def test_a_default_list_one_layer_off_is_not_suspected() -> None:
    assert "aux_layer_shift" in run(with_ids([2, 16, 29]), target=target())
    for ids in ([1, 16, 29], [2, 15, 29], [2, 16, 28]):
        assert "aux_layer_shift" not in run(with_ids(ids), target=target())
    assert "aux_layer_shift" not in run(
        with_ids([2, 16, 29]), "vllm==0.32.0", VLLM, target=target()
    )


def test_layers_are_whole_numbers_below_a_million() -> None:
    for ids, odd in (([1, 2, 999_999], False), ([1, 2, 1_000_000], True), ([1, 2, True], True)):
        found = run(draft(t2d=KEPT, eagle_config={"eagle_aux_hidden_state_layer_ids": ids}))
        assert ("aux_layers_unreadable" in found) is odd


@pytest.mark.parametrize(
    ("queries", "keys", "odd"),
    [
        (8, 8, False),
        (8, 4, False),
        (8, 5, True),
        (4, 8, True),
        (8, 1, False),
        (0, 3, False),
        (8, -3, False),
    ],
)
def test_heads_are_shared_out(queries: int, keys: int, odd: bool) -> None:
    made = draft(t2d=KEPT, num_attention_heads=queries, num_key_value_heads=keys)
    assert ("heads_not_divisible" in run(made)) is odd


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ("--speculative-al=EAGLE", "launched_as_eagle"),
        ("--speculative-a=EAGLE", None),
        ("--speculative-algorithms=EAGLE", None),
        ("--speculative-algorithm=nextn", "launched_as_eagle"),
        ("--speculative-algorithm=eagle3", None),
        ("--speculative-algorithm=NGRAM", None),
    ],
)
def test_which_launches_are_accused(argument: str, code: str | None) -> None:
    found = run(draft(t2d=KEPT), launch=f"--model-path m {argument}")
    assert [name for name in found if name.startswith("launched")] == ([code] if code else [])
    assert not [n for n in run(draft(t2d=KEPT)) if n.startswith("launched")]
    vllm = run(draft(t2d=KEPT), "vllm==0.32.0", VLLM, launch=f"--model m {argument}")
    assert not [n for n in vllm if n.startswith("launched")]


def test_a_draft_with_its_own_classes_is_no_base_model() -> None:
    assert "base_architecture" not in run(draft(t2d=KEPT))
    named = draft(t2d=KEPT, architectures=["LlamaForCausalLM", "LlamaForCausalLMEagle3"])
    assert "base_architecture" not in run(named)
    plain = Checkpoint(
        Config({"architectures": ["LlamaForCausalLM"], "hidden_size": H, "vocab_size": V}),
        {"fc.weight": np.zeros((H, H), np.float32)},
    )
    assert run(plain, cls="LlamaForCausalLM") == {}


def test_a_config_without_sizes_is_not_measured() -> None:
    assert "fc_width" not in run(draft(t2d=KEPT, hidden_size=...))
    assert "target_hidden_size" not in run(draft(t2d=KEPT, hidden_size=...), target=target())
    assert "target_vocabulary" not in run(draft(t2d=KEPT, vocab_size=...), target=target())
    # True is no number.
    assert "draft_vocab_size_unset" in run(draft(t2d=KEPT, draft_vocab_size=True))


def test_the_norm_of_older_drafts_is_sglangs_only() -> None:
    code = "norm_not_applied"
    assert code in run(normed("aux_norm_low.weight"))
    assert code not in run(normed("aux_norm_low.weight", use_aux_norm=True))
    assert code in run(normed("aux_norm_low.weight", use_aux_norm=True), "sglang==0.5.11")
    assert "norm_missing" in run(normed("", use_aux_norm=True))
    assert code not in run(normed("aux_norm_low.weight"), "vllm==0.32.0", VLLM)
    assert "norm_missing" not in run(normed("", use_aux_norm=True), "vllm==0.32.0", VLLM)


def test_what_reaches_beyond_the_vocabulary_is_no_list_of_its_ids() -> None:
    inside, beyond = np.arange(D) + V - D, np.arange(D) + V - D + 1  # up to 255, and to 256
    assert "d2t_absolute" in run(draft(d2t=inside))
    assert "d2t_absolute" not in run(draft(d2t=beyond))
    assert "d2t_out_of_range" in run(draft(d2t=beyond))


def test_the_last_release_before_a_norm_is_that_and_not_the_next() -> None:
    """Between two releases that were read nobody knows: no accusation, no all-clear by the flag either."""
    flagged = normed("input_norm.weight", norm_before_fc=True)
    for version, accused in (("0.17.1", True), ("0.17.2", False), ("0.18.1", False)):
        assert ("norm_not_applied" in run(flagged, f"vllm=={version}", VLLM)) is accused


def test_the_evidence_counts_what_lies_beyond() -> None:
    ids = np.arange(D) + 66  # the sums are 66, 68, … 320; 256 is the first beyond
    said = " ".join(run(draft(d2t=ids))["d2t_absolute"].evidence_for)
    assert "reaches 320 > vocab 256, 33 ids beyond it" in said
    proper = " ".join(run(draft(d2t=KEPT // 2, t2d=KEPT // 2))["d2t_absolute"].evidence_for)
    assert "beyond" not in proper


def test_the_same_ids_in_another_order_are_told_from_others() -> None:
    swapped, other = OFFSETS.copy(), OFFSETS.copy()
    swapped[[3, 4]] = [OFFSETS[4] + 1, OFFSETS[3] - 1]
    other[3] += 1
    assert "another order" in run(draft(d2t=swapped, t2d=KEPT))["d2t_against_t2d"].detail
    assert "another order" not in run(draft(d2t=other, t2d=KEPT))["d2t_against_t2d"].detail
    fewer = run(draft(d2t=OFFSETS[:-1], t2d=KEPT))["d2t_against_t2d"]
    assert "another order" not in fewer.detail


@pytest.mark.parametrize(
    ("engine", "named", "accused"),
    [
        ("sglang==0.5.7", "LlamaForCausalLMEagle3", False),
        ("sglang==0.5.8", "LlamaForCausalLMEagle3", True),
        ("sglang==0.5.16", "LlamaForCausalLMEagle3", True),
        ("vllm==0.32.0", VLLM, True),
    ],
)
def test_layers_that_are_switched_off_are_captured_by_none_that_reads_the_switch(
    engine: str, named: str, accused: bool
) -> None:
    code = "aux_layers_off"
    off = joined(3, eagle_config={"use_aux_hidden_state": False})
    assert (code in run(off, engine, named)) is accused
    assert code not in run(joined(3, eagle_config={"use_aux_hidden_state": True}), engine, named)
    # With one layer in fc the target's last features are what it may have been trained on.
    assert code not in run(joined(1, eagle_config={"use_aux_hidden_state": False}), engine, named)
