"""Values of config.json that engines stumble over: refused, or "cannot tell", never an all-clear."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.checkpoint.config import Config, parse_config
from workbench.checkpoint.open import open_checkpoint
from workbench.facts.flat_config import flattened
from workbench.loaders import registry
from workbench.loaders.config_checks import ANY, Rules, check, fits
from workbench.loaders.profile import Model, NotCovered, Refused

DRAFT = open_checkpoint(Path(__file__).parents[2] / "data" / "drafts" / "speculators").config
FLAT: dict[str, Any] = dict(flattened(DRAFT))
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
}
ABSENT = object()


def build(raw: dict[str, Any], version: str, engine: str = "sglang", **fields: Any) -> Model:
    """Build with some fields of the config changed."""
    changed = {k: v for k, v in (raw | fields).items() if v is not ABSENT}
    config = Config(changed)
    cls = raw["architectures"][0]
    choice = registry.select(registry.parse(f"{engine}=={version}:{cls}"), config)
    return choice.profiles[0][1].build(config)


def verdict(version: str, field: str, value: Any, raw: dict[str, Any] = FLAT) -> str:
    """Return what the profile says of one changed field: ok, refused, unknown."""
    try:
        build(raw, version, **{field: value})
    except Refused:
        return "refused"
    except NotCovered:
        return "unknown"
    return "ok"


ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
# What the real loaders of 0.5.11 and 0.5.14 refuse, all of them.
REFUSED = [
    ("model_type", "lama"),
    ("model_type", 5),
    ("architectures", "LlamaForCausalLMEagle3"),
    ("architectures", 5),
    ("torch_dtype", 5),
    ("torch_dtype", "float99"),
    ("torch_dtype", "torch.bfloat16"),
    ("torch_dtype", ["float16"]),
    ("torch_dtype", "int8"),
    ("torch_dtype", "auto"),
    ("rms_norm_eps", "x"),
    ("rms_norm_eps", None),
    ("rms_norm_eps", 1),
    ("rms_norm_eps", True),
    ("max_position_embeddings", None),
    ("max_position_embeddings", "512"),
    ("max_position_embeddings", 512.0),
    ("max_position_embeddings", -1),
    ("rope_parameters", [1]),
    ("rope_parameters", "x"),
    ("rope_parameters", ROPE | {"rope_theta": "x"}),
    ("rope_parameters", ROPE | {"rope_theta": None}),
    ("rope_parameters", ROPE | {"rope_type": "nope"}),
    ("rope_parameters", ROPE | {"rope_type": 5}),
    ("rope_parameters", ROPE | {"rope_type": "linear"}),
    ("rope_parameters", ROPE | {"rope_type": "linear", "factor": "x"}),
    ("rope_parameters", ROPE | {"rope_type": "llama3"}),
    ("rope_scaling", [1]),
    ("rope_scaling", {"type": "nope", "factor": 2.0}),
    ("tie_word_embeddings", "yes"),
    ("tie_word_embeddings", None),
    ("attention_bias", "x"),
    ("draft_vocab_size", 128.5),
    ("draft_vocab_size", "abc"),
    ("draft_vocab_size", [128]),
    ("intermediate_size", None),
    ("intermediate_size", "256"),
    ("num_attention_heads", 3),
    ("num_attention_heads", 0),
    ("num_attention_heads", -4),
    ("num_attention_heads", 4.0),
    ("target_hidden_size", "128"),
    ("target_hidden_size", -1),
    ("hidden_act", "nope"),
    ("quantization_config", [1]),
    ("quantization_config", {}),
    ("auto_map", 5),
    ("eos_token_id", ["x"]),
    ("max_seq_len", "x"),
    ("layer_types", "x"),
]


@pytest.mark.parametrize("version", ["0.5.11", "0.5.14"])
@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_what_the_real_loader_refuses_is_refused(version: str, field: str, value: Any) -> None:
    assert verdict(version, field, value) == "refused"


@pytest.mark.parametrize("version", ["0.4.9", "0.5.8", "0.5.10", "0.5.16", "0.5.23"])
@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_no_release_gives_an_all_clear(version: str, field: str, value: Any) -> None:
    said = verdict(version, field, value)
    # Where types are not checked; the contracts have something to say of 3 query heads for 2 key heads.
    harmless = [["rms_norm_eps", 1], ["tie_word_embeddings", None], ["num_attention_heads", 3]]
    if is_loose(version) and [field, value] in harmless and value is not True:
        assert said == "ok"
    else:
        assert said in ("refused", "unknown")


def is_loose(version: str) -> bool:
    return version in ("0.4.9", "0.5.8", "0.5.10")


@pytest.mark.parametrize("version", ["0.5.8", "0.5.11", "0.5.14", "0.5.23"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("draft_vocab_size", True),
        ("draft_vocab_size", -1),
        ("num_key_value_heads", -1),
        ("num_aux_hidden_states", True),
        ("eagle_config", [1]),
        ("eagle_config", "x"),
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", 10**6),
        ("num_hidden_layers", "1"),
        ("num_attention_heads", 10**30),
        ("hidden_size", 10**30),
        ("head_dim", "32"),
    ],
)
def test_odd_numbers_of_a_draft_end_in_words(version: str, field: str, value: Any) -> None:
    if field == "num_aux_hidden_states" and version in ("0.5.8", "0.5.11"):
        assert verdict(version, field, value) == "ok"  # not read before 0.5.12
    else:
        assert verdict(version, field, value) in ("refused", "unknown")


@pytest.mark.parametrize("version", ["0.4.9", "0.5.8", "0.5.11", "0.5.14", "0.5.23"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "qwen3"),
        ("torch_dtype", "bfloat16"),
        ("torch_dtype", None),
        ("dtype", "half"),
        ("rope_parameters", None),
        ("rope_parameters", ABSENT),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0}),
        ("rope_scaling", None),
        ("eos_token_id", [1, 2]),
        ("pad_token_id", -1),
        ("head_dim", None),
        ("attention_dropout", 0),
        ("rms_norm_eps", ABSENT),
        ("auto_map", {"AutoConfig": "configuration_x.X"}),
        ("foo", "x"),
    ],
)
def test_what_loads_is_not_accused(version: str, field: str, value: Any) -> None:
    assert verdict(version, field, value) == "ok"


def test_a_type_of_newer_transformers_is_left_open() -> None:
    assert verdict("0.5.11", "model_type", "kimi_k25") == "ok"  # SGLang's own
    later = next(n for n, first in _first_seen().items() if first == "5.19.0" and "kimi" not in n)
    assert verdict("0.5.11", "model_type", later) in ("unknown", "ok")


def _first_seen() -> dict[str, str]:
    from workbench.facts.model_types import FIRST_SEEN

    return FIRST_SEEN


def test_0_5_22_no_longer_checks_the_fields_of_every_class() -> None:
    assert verdict("0.5.11", "return_dict", "x", LLAMA) == "refused"
    assert verdict("0.5.8", "return_dict", "x", LLAMA) == "ok"
    assert verdict("0.5.23", "return_dict", "x", LLAMA) == "unknown"


def test_a_byte_order_mark_is_known_and_refused(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + json.dumps(LLAMA).encode()
    config = parse_config(data, "config.json")
    assert config.quirks == ("bom",)
    assert config.raw == LLAMA
    assert parse_config(json.dumps(LLAMA).encode(), "config.json").quirks == ()
    with pytest.raises(Refused, match="byte order mark"):
        check(config, Rules())


def test_all_problems_are_open_where_transformers_is_not_known() -> None:
    with pytest.raises(NotCovered, match="rms_norm_eps"):
        check(Config(LLAMA | {"rms_norm_eps": "x"}), ANY)
    check(Config(LLAMA), ANY)


@pytest.mark.parametrize(
    ("engine", "version"),
    [("transformers", "4.57.1"), ("transformers", "5.8.1"), ("vllm", "0.32.0")],
)
@pytest.mark.parametrize(
    ("field", "value"),
    [("model_type", "lama"), ("rms_norm_eps", "x"), ("torch_dtype", 5), ("rope_scaling", [1])],
)
def test_other_engines_give_no_all_clear(engine: str, version: str, field: str, value: Any) -> None:
    build(LLAMA, version, engine)
    with pytest.raises((Refused, NotCovered)):
        build(LLAMA, version, engine, **{field: value})


@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        ("LlamaForCausalLM", "llama"),
        ("Qwen2ForCausalLM", "qwen2"),
        ("Qwen3ForCausalLM", "qwen3"),
        ("DeepseekV3ForCausalLM", "deepseek_v3"),
        ("KimiK25ForConditionalGeneration", "kimi_k25"),
    ],
)
@pytest.mark.parametrize(
    ("layers", "experts"), [(10**9, 8), (10**6, 8), (2, 10**9), (9000, 90_000)]
)
def test_a_billion_layers_or_experts_take_no_time(
    cls: str, kind: str, layers: int, experts: int
) -> None:
    sizes = {
        "num_hidden_layers": layers,
        "n_routed_experts": experts,
        "moe_intermediate_size": 64,
        "kv_lora_rank": 64,
        "q_lora_rank": 64,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
        "n_shared_experts": 1,
    }
    raw = LLAMA | sizes | {"architectures": [cls], "model_type": kind, "text_config": LLAMA | sizes}
    if kind != "kimi_k25":
        raw.pop("text_config")
    began = time.monotonic()
    if layers == 9000 and "seek" not in kind and kind != "kimi_k25":
        build(raw, "0.5.14")
    elif experts == 8 or "seek" in kind or kind == "kimi_k25":
        with pytest.raises(NotCovered):
            build(raw, "0.5.14")
    assert time.monotonic() - began < 2


def test_a_billion_layers_in_a_folder(tmp_path: Path) -> None:
    target = Path(__file__).parents[2] / "data" / "drafts" / "target"
    shutil.copy(target / "model.safetensors", tmp_path)
    raw = json.loads((target / "config.json").read_text()) | {"num_hidden_layers": 10**9}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    diff = workbench.diff_keys(tmp_path, "sglang==0.5.14")
    assert diff.ok is None
    assert "not credible" in diff.summary


def test_kinds_of_json_values() -> None:
    assert fits(None, "int?")
    assert not fits(None, "int")
    assert not fits(True, "int")
    assert not fits(1, "float")
    assert fits(1, "number")
    assert fits([1, 2], "ints")
    assert not fits([True], "ints")
    assert not fits("x", "texts")
