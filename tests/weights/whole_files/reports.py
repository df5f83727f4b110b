"""A second table: 25 checkpoints rebuilt from public bug reports, written before the rules were read for it.

The name of a case begins with the report: repository and number. What is right was written down first; the
first run is the untuned figure in docs/weights.md.
"""

from __future__ import annotations

import torch

from tests.weights.whole_files.cases import (
    ANY,
    BAD,
    NOT_BAD,
    NOT_GOOD,
    Case,
    Change,
    _blocks_of_fp8,
    _empty,
    _only,
    _random,
    _zero,
    both,
    drop,
    fill,
    setting,
)
from tests.weights.whole_files.families import BF, Config, H, Pool, Tensors


def redrawn(*parts: str, std: float = 0.02) -> Change:
    """Put a normal init, another one each time, into the matrices of these names."""

    def change(tensors: Tensors, config: Config) -> None:
        for seed, name in enumerate(_only(tensors, *parts)):
            if tensors[name].dim() > 1:
                fresh = _random(*tensors[name].shape, std=std, seed=100 + seed)
                tensors[name] = fresh.to(tensors[name].dtype)

    return change


def uniform(*parts: str, scale: float = 1.0) -> Change:
    """Put `nn.Linear`'s own init into the matrices of these names."""

    def change(tensors: Tensors, config: Config) -> None:
        for seed, name in enumerate(_only(tensors, *parts)):
            random = torch.Generator().manual_seed(200 + seed)
            bound = scale * tensors[name].shape[1] ** -0.5
            fresh = (torch.rand(tensors[name].shape, generator=random) * 2 - 1) * bound
            tensors[name] = fresh.to(tensors[name].dtype)

    return change


def nan(*parts: str) -> Change:
    """Make tensors NaN."""
    return fill(lambda t: torch.full_like(t, float("nan")), *parts)


def _uninitialised(tensors: Tensors, config: Config) -> None:
    """Fill the experts with the bytes of other memory, as `torch.empty` leaves them."""
    for seed, name in enumerate(_only(tensors, "experts.")):
        random = torch.Generator().manual_seed(seed)
        words = torch.randint(0, 1 << 16, tensors[name].shape, generator=random)
        tensors[name] = words.to(torch.uint16).view(BF)


def _batch_norms(moved: bool) -> Change:
    """Add two convolutions with batch norms, whose statistics are as they start or have followed data."""

    def change(tensors: Tensors, config: Config) -> None:
        p = Pool()
        for layer in range(2):
            at = f"decoder.{layer}"
            tensors[f"{at}.conv.weight"] = p.matrix(64, 576).view(64, 64, 3, 3).float()
            tensors[f"{at}.bn.weight"] = p.norm(64).float()
            tensors[f"{at}.bn.bias"] = p.bias(64).float()
            away = torch.rand(64, generator=torch.Generator().manual_seed(layer))
            tensors[f"{at}.bn.running_mean"] = away - 0.5 if moved else torch.zeros(64)
            tensors[f"{at}.bn.running_var"] = away + 0.1 if moved else torch.ones(64)
            tensors[f"{at}.bn.num_batches_tracked"] = torch.tensor(90000 if moved else 0)

    return change


def _codes_as_bf16(*parts: str) -> Change:
    """Store the codes of FP8 as they are, in bfloat16: the scale was never multiplied in."""

    def codes(t: torch.Tensor) -> torch.Tensor:
        return (t.float() / t.float().abs().max() * 448).to(torch.float8_e4m3fn).to(BF)

    return fill(codes, *parts)


def _next_token_layer(tensors: Tensors, config: Config) -> None:
    """Add DeepSeek's layer for the token after the next one, at a normal init."""
    old, new = "model.layers.1.", "model.layers.2."
    for seed, name in enumerate(_only(tensors, old)):
        value = tensors[name]
        fresh = _random(*value.shape, seed=300 + seed).to(value.dtype)
        tensors[name.replace(old, new)] = fresh if value.dim() > 1 else torch.ones_like(value)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        tensors[f"{new}{name}.weight"] = torch.ones(H, dtype=BF)
    tensors[f"{new}eh_proj.weight"] = _random(H, 2 * H, seed=299).to(BF)
    config["num_nextn_predict_layers"] = 1


def _both_layouts(tensors: Tensors, config: Config) -> None:
    """Store the experts of layer 0 a second time, as one stack."""
    at = "model.layers.0.block_sparse_moe.experts"
    tensors[f"{at}.w1"] = torch.stack([tensors[f"{at}.{e}.w1.weight"] for e in range(4)])


def _projector(tensors: Tensors, config: Config) -> None:
    """Add LLaVA's projector, which was left at the init of `nn.Linear`."""
    for layer, rows in ((0, H), (2, H)):
        tensors[f"model.mm_projector.{layer}.weight"] = torch.empty(rows, H, dtype=BF)
        tensors[f"model.mm_projector.{layer}.bias"] = Pool().bias(rows)
    uniform("mm_projector", "weight")(tensors, config)


def _empty_tower(tensors: Tensors, config: Config) -> None:
    for layer in range(2):
        at = f"model.vision_tower.vision_tower.vision_model.encoder.layers.{layer}.self_attn"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            tensors[f"{at}.{name}.weight"] = torch.empty(0, dtype=BF)


def _repeated(tensors: Tensors, config: Config) -> None:
    for name in _only(tensors, "layers.1."):
        tensors[name.replace("layers.1.", "layers.2.")] = tensors[name].clone()
    config["num_hidden_layers"] = 3


def _expanded(tensors: Tensors, config: Config) -> None:
    _repeated(tensors, config)
    fill(_zero, "layers.2.", "o_proj")(tensors, config)
    fill(_zero, "layers.2.", "down_proj")(tensors, config)


def _padded(tensors: Tensors, config: Config) -> None:
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = torch.cat((tensors[name], torch.zeros(64, H, dtype=BF)))
    config["vocab_size"] += 64


def _two_of_four(t: torch.Tensor) -> torch.Tensor:
    """Keep the larger two of four values in a row."""
    groups = t.float().view(-1, 4)
    kept = torch.zeros_like(groups).scatter(1, groups.abs().topk(2, 1).indices, 1)
    return (groups * kept).view(t.shape).to(t.dtype)


def _rotated(tensors: Tensors, config: Config) -> None:
    """Turn the hidden state by a random rotation, as QuaRot and SpinQuant do; norms become ones."""
    turn = torch.linalg.qr(torch.randn(H, H, generator=torch.Generator().manual_seed(3)))[0]
    for name, value in list(tensors.items()):
        if "norm" in name:
            tensors[name] = torch.ones_like(value)
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = (turn.T @ value.float()).to(BF)
        else:
            tensors[name] = (value.float() @ turn).to(BF)


def _all_new(tensors: Tensors, config: Config) -> None:
    redrawn("")(tensors, config)
    fill(torch.ones_like, "norm")(tensors, config)


REPORTS = (
    Case("Megatron-LM 5844: the converter left all experts at their init", "mixtral",
         redrawn("experts."), BAD, says=("experts",)),
    Case("Megatron-LM 5844: the same, with --no-initialization", "mixtral", _uninitialised, BAD,
         says=("experts",)),
    Case("pytorch 1206: running statistics are NaN", "llama",
         both(_batch_norms(True), nan("running_mean"), nan("running_var")), BAD, says=("running_mean",)),
    Case("bts 90: running statistics never followed any data", "llama", _batch_norms(False), ANY,
         says=("running_(mean|var)",)),
    Case("sglang 27829: a draft vocabulary, and no head for it", "eagle3", drop("lm_head"), NOT_GOOD,
         says=("lm_head",)),
    Case("compressed-tensors 832: a scale is NaN", "llama",
         both(_blocks_of_fp8(), nan("layers.1.mlp.up_proj.weight_scale")), BAD,
         says=(r"layers\.1\.mlp\.up_proj",)),
    Case("unsloth 6200: every gate_proj lost its FP8 scale", "llama", _codes_as_bf16("gate_proj"), NOT_GOOD,
         says=("gate_proj",)),
    Case("LTX-2 172: every linear lost its FP8 scale", "llama", _codes_as_bf16("proj.weight"), NOT_GOOD,
         says=("proj",)),
    Case("vllm 35548: the config counts a layer for the next tokens, the file has none", "deepseek",
         setting(num_nextn_predict_layers=1), ANY, says=(r"nextn|MTP|layers?[. ]2|next",)),
    Case("miles 1007: the layer for the next tokens is at its init", "deepseek", _next_token_layer, BAD,
         says=(r"layers\.2",)),
    Case("AReaL 1403: a skipped shard held the head and a layer", "llama",
         both(drop("lm_head"), drop("layers.1.")), NOT_GOOD, says=("lm_head", r"layers?[. ]1")),
    Case("slime 1904: the experts are there in both layouts", "mixtral", _both_layouts, NOT_BAD,
         never=("random",)),
    Case("transformers 45079: the resized head was initialised again", "llama", redrawn("lm_head"), BAD,
         says=("lm_head",)),
    Case("transformers 45591: out_proj was initialised again on load", "mamba",
         uniform("out_proj", scale=2**-0.5), BAD, says=("out_proj",)),
    Case("flash-linear-attention 754: A_log is NaN", "mamba", nan("A_log"), BAD, says=("A_log",)),
    Case("LLaVA 808: the projector is newly initialised", "llama", _projector, BAD, says=("mm_projector",)),
    Case("LLaVA 1347: the vision tower is empty", "llama", _empty_tower, NOT_GOOD, says=("vision_tower",)),
    Case("OpenRLHF 180: a reward model without its head", "llama, tied",
         setting(architectures=["LlamaForSequenceClassification"]), NOT_GOOD, says=("score",)),
    Case("transformers 26112: the embedding is empty after a resize", "llama", fill(_empty, "embed_tokens"),
         NOT_GOOD, says=("embed_tokens",)),
    Case("mergekit 445: a layer is there twice", "llama", _repeated, ANY, says=(r"cop|same values|equal",),
         never=("random",)),
    Case("mergekit 198: an added block that passes its input on", "llama", _expanded, NOT_GOOD,
         says=("o_proj", "down_proj"), never=("random",)),
    Case("transformers 26387: a vocabulary padded with zeros", "llama", _padded, NOT_BAD,
         never=("random init",)),
    Case("vllm sparse24: two of four values are zero", "llama", fill(_two_of_four, "proj.weight"), NOT_BAD,
         never=("random init",)),
    Case("QuaRot: the hidden state is rotated", "llama", _rotated, NOT_BAD, never=("random init",)),
    Case("transformers 46620: the whole model was initialised again", "llama", _all_new, BAD,
         says=("proj",)),
)  # fmt: skip
