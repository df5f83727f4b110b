"""The table: a healthy family, one change to it, and the right answer, written down before any rule was.

`ok` lists the answers that are allowed; `says` patterns that must all occur in what a user reads, `never`
patterns that must not.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import torch

from tests.weights.whole_files.families import BF, HEALTHY, INNER, Config, H, Pool, Tensors

Change = Callable[[Tensors, Config], None]
Answers = tuple[bool | None, ...]

GOOD: Answers = (True,)
BAD: Answers = (False,)
NOT_GOOD: Answers = (False, None)
OPEN: Answers = (None,)
ANY: Answers = (False, None, True)
NOT_BAD: Answers = (True, None)


@dataclasses.dataclass(frozen=True)
class Case:
    """One checkpoint: a family, what was done to it, and what is right to say."""

    name: str
    family: str
    change: Change | None
    ok: Answers
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def tensors(self) -> tuple[Tensors, Config | None]:
        """Build the checkpoint."""
        make, config = HEALTHY[self.family]
        tensors, settings = make(), dict(config or {})
        if self.change is not None:
            self.change(tensors, settings)
        return tensors, settings or None


def _random(*shape: int, std: float = 0.02, seed: int = 5) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * std


def _only(tensors: Tensors, *parts: str) -> list[str]:
    return [name for name in tensors if all(part in name for part in parts)]


def drop(*parts: str) -> Change:
    """Leave tensors out."""

    def change(tensors: Tensors, config: Config) -> None:
        for name in _only(tensors, *parts):
            del tensors[name]

    return change


def fill(value: Callable[[torch.Tensor], torch.Tensor], *parts: str) -> Change:
    """Put other values into tensors."""

    def change(tensors: Tensors, config: Config) -> None:
        for name in _only(tensors, *parts):
            tensors[name] = value(tensors[name])

    return change


def also(name: str, value: Callable[[Tensors], torch.Tensor]) -> Change:
    """Add a tensor."""

    def change(tensors: Tensors, config: Config) -> None:
        tensors[name] = value(tensors)

    return change


def setting(**values: Any) -> Change:
    """Change the config."""

    def change(tensors: Tensors, config: Config) -> None:
        config.update(values)

    return change


def both(*changes: Change) -> Change:
    """Do several."""

    def change(tensors: Tensors, config: Config) -> None:
        for one in changes:
            one(tensors, config)

    return change


def _empty(t: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=t.dtype)


def _zero(t: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(t)


def _dummy(t: torch.Tensor) -> torch.Tensor:
    values = torch.rand(t.shape, generator=torch.Generator().manual_seed(t.numel()))
    return ((values * 2 - 1) * 1e-3).to(t.dtype)


def _times(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: (t.float() * factor).to(t.dtype)


def _codes(t: torch.Tensor) -> torch.Tensor:
    return (t.float() / t.float().abs().max() * 448).to(torch.float8_e4m3fn)


def _cast(t: torch.Tensor) -> torch.Tensor:
    return t.float().to(torch.float8_e4m3fn)


def _blocks_of_fp8(lost: str = "") -> Change:
    """Store all projections as FP8 with one scale a tensor, and lose the scales of some."""

    def change(tensors: Tensors, config: Config) -> None:
        for name in [n for n in tensors if n.endswith("proj.weight")]:
            scale = tensors[name].float().abs().max() / 448
            tensors[name] = _codes(tensors[name])
            if not lost or lost not in name:
                tensors[f"{name}_scale"] = scale.reshape(1)
        config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}

    return change


NF4_LEVELS = torch.tensor([
    -1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0, 0.0795803,
    0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0])  # fmt: skip


def nf4(only: str = "proj.weight", values: str = "own", nested: bool = False) -> Change:
    """Store matrices as bitsandbytes does: codes [N, 1], an absmax for 64 values, a quant_state."""

    def change(tensors: Tensors, config: Config) -> None:
        for name in [n for n in tensors if n.endswith(only)]:
            w = tensors.pop(name).float()
            w = w if values == "own" else _random(*w.shape, seed=len(tensors))
            rows = w.reshape(-1, 64)
            top = rows.abs().amax(1)
            codes = ((rows / top[:, None]).unsqueeze(-1) - NF4_LEVELS).abs().argmin(-1).reshape(-1)
            state = {
                "quant_type": "nf4",
                "blocksize": 64,
                "dtype": "bfloat16",
                "shape": list(w.shape),
            }
            tensors[name] = ((codes[0::2] << 4) | codes[1::2]).to(torch.uint8)[:, None]
            tensors[f"{name}.quant_map"] = NF4_LEVELS
            if nested:
                state |= {"nested_blocksize": 256, "nested_dtype": "float32",
                          "nested_offset": float(top.mean())}  # fmt: skip
                tensors |= _nested(name, top - top.mean())
            else:
                tensors[f"{name}.absmax"] = top
            raw = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
            tensors[f"{name}.quant_state.bitsandbytes__nf4"] = raw
        config["quantization_config"] = {
            "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": nested}  # fmt: skip

    return change


def _nested(name: str, rest: torch.Tensor) -> Tensors:
    """Store the absmax values themselves in 8 bits, with a map and an absmax for 256 of them."""
    levels = torch.linspace(-1, 1, 256)
    padded = torch.nn.functional.pad(rest, (0, -len(rest) % 256)).view(-1, 256)
    top = padded.abs().amax(1)
    codes = ((padded / top[:, None]) * 127.5 + 127.5).round().reshape(-1)[: len(rest)]
    return {f"{name}.absmax": codes.to(torch.uint8), f"{name}.nested_absmax": top,
            f"{name}.nested_quant_map": levels}  # fmt: skip


def _permute(tensors: Tensors, config: Config) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    tensors[name] = tensors[name][torch.randperm(H, generator=torch.Generator().manual_seed(1))]


# A router of four rows is too small to judge, and decides: cannot tell is right, too.
_MAY_BE_OPEN = ("bert, with its pooler", "mixtral", "deepseek")
HEALTHY_AS_IT_IS = tuple(
    Case(
        f"{family}, as trained",
        family,
        None,
        NOT_BAD if family in _MAY_BE_OPEN else GOOD,
    )
    for family in HEALTHY
)

HEALTHY_WITH_A_TWIST = (
    Case("gemma2, norms never moved", "gemma2", fill(_zero, "norm"), GOOD, never=("dead",)),
    Case("llama, norms never moved", "llama", fill(torch.ones_like, "norm"), GOOD),
    Case("a mask of minus infinity", "llama",
         also("model.layers.0.mask", lambda t: torch.full((1, 1, 64, 64), float("-inf")).triu(1)), GOOD,
         never=("infinite", "never written")),
    Case("a mask of the lowest value, lower triangle", "gpt2",
         fill(lambda t: torch.full((1, 1, 96, 96), torch.finfo(torch.float32).min).tril(-1), "0.attn.bias"),
         GOOD, never=("never written",)),
    Case("biases of keys at zero", "qwen2", fill(_zero, "k_proj.bias"), GOOD),
    Case("expert bias at zero in its first steps", "deepseek", None, NOT_BAD,
         never=(r"e_score_correction_bias[^\n]*(wrong|dead)",)),
    Case("all linears in nf4", "llama", nf4(), GOOD, says=("All 16 matrices",)),
    Case("all linears in nf4, absmax in 8 bits", "llama", nf4(nested=True), GOOD, says=("All 16 matrices",)),
    Case("FP8 with scales", "llama", _blocks_of_fp8(), GOOD),
    Case("FP8 as a plain cast, no scales, none declared", "llama", fill(_cast, "proj.weight"), GOOD),
    Case("the config says tied, and the head is the embedding", "llama, tied",
         also("lm_head.weight", lambda t: t["model.embed_tokens.weight"].clone()), GOOD),
    Case("norms of queries ten times the others", "qwen3", fill(_times(10), "q_norm"), GOOD),
    Case("an embedding a hundred times the linears", "llama", fill(_times(50), "embed_tokens"), GOOD),
    Case("a bias that was never needed, in one layer only", "llama",
         also("model.layers.1.self_attn.o_proj.bias", lambda t: Pool().bias(H)), GOOD),
)  # fmt: skip

COVERAGE = (
    Case("a layer's linears are empty", "qwen2", fill(_empty, "layers.1", "proj.weight"), NOT_GOOD,
         says=(r"layers\.1", r"empty|no elements|no values")),
    Case("one expert is empty", "mixtral", fill(_empty, "layers.1", "experts.2."), NOT_GOOD,
         says=(r"experts\.2", r"empty|no elements|no values")),
    Case("a layer is absent", "llama", drop("layers.0."), NOT_GOOD, says=(r"layers\.0|layer 0",)),
    Case("the last layer is absent", "qwen3", drop("layers.1."), NOT_GOOD, says=(r"layers?[. ]1",)),
    Case("one projection is absent", "llama", drop("layers.1.", "down_proj"), NOT_GOOD,
         says=(r"layers\.1\.mlp\.down_proj",)),
    Case("the head is absent, not tied", "llama", drop("lm_head"), NOT_GOOD, says=("lm_head",)),
    Case("one expert is absent", "mixtral", drop("layers.0.", "experts.3."), NOT_GOOD, says=(r"experts\.3",)),
    Case("a routed expert of DeepSeek is absent", "deepseek", drop("experts.1."), NOT_GOOD,
         says=(r"experts\.1",)),
    Case("one value projection is absent, BERT", "bert", drop("layer.1.", "self.value.weight"), NOT_GOOD,
         says=("layer.1.attention.self.value",)),
    Case("a block is absent, GPT-2", "gpt2", drop("h.1."), NOT_GOOD, says=(r"h\.1|layer 1|of 2 layers",)),
    Case("the draft lost fc", "eagle3", drop("fc.weight"), NOT_GOOD, says=(r"fc\.weight",)),
    # Of 4 bits, 65,536 values are the fewest that are called at init: keys and values have 32,768.
    Case("all linears in nf4, all random", "llama", nf4(values="random"), NOT_GOOD, says=("proj",),
         never=("All 2 matrices",)),
    Case("one nf4 matrix without its absmax", "llama",
         both(nf4(), drop("layers.1.mlp.up_proj.weight.absmax")), NOT_GOOD,
         says=(r"layers\.1\.mlp\.up_proj",)),
    Case("a matrix of unknown codes", "llama",
         fill(lambda t: torch.randint(0, 255, (t.numel() // 2,), dtype=torch.uint8), "0.mlp.up_proj"),
         NOT_GOOD, says=(r"layers\.0\.mlp\.up_proj",)),
    Case("a linear half as long", "llama", fill(lambda t: t[: INNER // 2].clone(), "1.mlp.gate_proj"),
         NOT_GOOD, says=(r"layers\.1\.mlp\.gate_proj",)),
)  # fmt: skip

MAGNITUDE = (
    Case("FP8, one scale lost", "llama", _blocks_of_fp8("layers.0.self_attn.q_proj"), NOT_GOOD,
         says=(r"layers\.0\.self_attn\.q_proj", "scale")),
    Case("FP8, all scales lost, none declared", "llama", fill(_codes, "proj.weight"), NOT_GOOD,
         says=("proj", "scale")),
    Case("one matrix times 1e4", "qwen3", fill(_times(1e4), "layers.1.mlp.up_proj"), NOT_GOOD,
         says=(r"layers\.1\.mlp\.up_proj",)),
    Case("one matrix times 1e-6", "gpt2", fill(_times(1e-6), "h.0.mlp.c_fc.weight"), NOT_GOOD,
         says=(r"h\.0\.mlp\.c_fc",)),
    Case("one expert times 1e3", "mixtral", fill(_times(1e3), "layers.0.", "experts.1.w2"), NOT_GOOD,
         says=(r"experts\.1\.w2",)),
    Case("a norm times 1e5", "llama", fill(_times(1e5), "layers.1.input_layernorm"), NOT_GOOD,
         says=(r"layers\.1\.input_layernorm",)),
    Case("both factors fine, one layer's B times 1e5", "lora",
         fill(_times(1e5), "layers.1.", "q_proj.lora_B"), NOT_GOOD, says=("lora_B",)),
)  # fmt: skip

VECTORS = (
    Case("one norm is zero", "qwen2", fill(_zero, "layers.0.post_attention_layernorm"), NOT_GOOD,
         says=(r"layers\.0\.post_attention_layernorm",), never=("bias",)),
    Case("all norms are zero, no config", "llama, no config", fill(_zero, "norm"), NOT_GOOD, says=("norm",)),
    Case("norms are dummy values", "llama", fill(_dummy, "norm"), NOT_GOOD, says=("norm",)),
    Case("norms of queries are drawn", "qwen3", fill(lambda t: _random(*t.shape).to(BF), "q_norm"), NOT_GOOD,
         says=("q_norm",)),
    Case("BERT's norms are drawn", "bert", fill(lambda t: _random(*t.shape), "LayerNorm.weight"), NOT_GOOD,
         says=("LayerNorm",)),
    Case("Gemma's norms are dummy values", "gemma2", fill(_dummy, "norm"), NOT_GOOD, says=("norm",)),
    Case("inv_freq is NaN", "neox", fill(lambda t: torch.full_like(t, float("nan")), "layers.1", "inv_freq"),
         NOT_GOOD, says=("inv_freq",)),
    Case("inv_freq is zero", "neox", fill(_zero, "layers.0", "inv_freq"), NOT_GOOD, says=("inv_freq",)),
    Case("position ids are all zero", "bert", fill(_zero, "position_ids"), NOT_GOOD, says=("position_ids",)),
    Case("the maps of the vocabulary are zero", "eagle3", fill(_zero, "2"), ANY,
         says=("d2t", "zero")),
    Case("a reward head is fresh", "llama, tied",
         both(also("score.weight", lambda t: _random(1, H).to(BF)),
              setting(architectures=["LlamaForSequenceClassification"])),
         ANY, says=("score",)),
    Case("the config says tied, the head is another", "llama", setting(tie_word_embeddings=True),
         NOT_BAD, says=("tie_word_embeddings",)),
    Case("Mamba's A is as it starts", "mamba",
         fill(lambda t: torch.log(torch.arange(1, 17).float()).repeat(H, 1), "A_log"), NOT_BAD,
         says=("A_log",)),
    Case("a router of zeros", "mixtral", fill(_zero, "layers.0.", "gate.weight"), BAD, says=("gate",)),
    Case("two experts are copies", "mixtral", None, NOT_GOOD, says=("cop",)),
)  # fmt: skip


def _copied(tensors: Tensors, config: Config) -> None:
    for name in _only(tensors, "layers.1.", "experts.0."):
        tensors[name.replace("experts.0.", "experts.1.")] = tensors[name].clone()


VECTORS = (*VECTORS[:-1], dataclasses.replace(VECTORS[-1], change=_copied, ok=ANY))

CASES = (*HEALTHY_AS_IT_IS, *HEALTHY_WITH_A_TWIST, *COVERAGE, *MAGNITUDE, *VECTORS)
