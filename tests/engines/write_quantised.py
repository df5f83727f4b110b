"""Run by the quantisers' Python: small models, quantised and written by the programs that people use.

Reads ``[[class, method, folder], ...]`` as JSON from standard input, prints what could not be written. The
models are transformers' own, saved by `save_pretrained`. Codes are packed by compressed-tensors, AutoAWQ and
AutoRound; ModelOpt quantises and exports whole models by itself. Blocks of FP8 and MXFP4 have no packer for
CPUs: their tensors are laid out as deepseek-ai and openai publish them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import shutil
import sys
import types
from pathlib import Path
from typing import Any

sys.modules["torchvision"] = None  # type: ignore[assignment]  # built for CUDA

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

FIELDS: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
    "q_lora_rank": 128,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
# What the recipes of llm-compressor, AutoAWQ, AutoRound and deepseek-ai quantise: linear layers of these.
LINEAR = frozenset(
    [
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj",
        "gate_up_proj", "w1", "w2", "w3", "dense", "fc1", "fc2", "c_fc", "c_proj", "q_a_proj", "q_b_proj",
        "kv_a_proj_with_mqa", "kv_b_proj",
    ]
)  # fmt: skip
# compressed-tensors by name: format, arguments of weights, of activations.
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
TOKEN = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
NVFP4 = {
    "num_bits": 4,
    "type": "float",
    "strategy": "tensor_group",
    "group_size": 16,
    "symmetric": True,
}
COMPRESSED: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "ct-fp8-dynamic": ("float-quantized", FP8 | {"strategy": "channel"}, TOKEN),
    "ct-fp8-static": (
        "float-quantized",
        FP8 | {"strategy": "tensor"},
        FP8 | {"strategy": "tensor", "dynamic": False},
    ),
    "ct-fp8-block": (
        "float-quantized",
        FP8 | {"strategy": "block", "block_structure": [128, 128]},
        FP8 | {"strategy": "group", "group_size": 128, "dynamic": True},
    ),
    "ct-int8": (
        "int-quantized",
        {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
        TOKEN | {"type": "int"},
    ),
    "ct-w4a16": ("pack-quantized", INT4, None),
    "ct-w4a16-g32": ("pack-quantized", INT4 | {"group_size": 32}, None),
    "ct-w4a16-asym": ("pack-quantized", INT4 | {"symmetric": False}, None),
    "ct-w8a16": ("pack-quantized", INT4 | {"num_bits": 8, "strategy": "channel", "group_size": None}, None),
    "ct-nvfp4": ("nvfp4-pack-quantized", NVFP4, NVFP4 | {"dynamic": "local"}),
    "ct-nvfp4a16": ("nvfp4-pack-quantized", NVFP4, None),
}  # fmt: skip
METHODS = (
    *COMPRESSED, "awq", "awq-g64", "gptq", "gptq-order", "gptq-8bit", "gptq-g32",
    "fp8-block", "fp8-static", "fp8-dynamic", "modelopt-fp8", "modelopt-nvfp4", "mxfp4",
)  # fmt: skip


class _Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """What the quantisers import and do not need to pack weights."""

    NAMES = ("omegaconf", "pulp", "pynvml", "ninja", "scipy", "zstandard", "datasets", "cpuinfo")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Package(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Package(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - a module attribute, never changed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[:1].isupper() else lambda *_, **__: {}


def package(name: str) -> None:
    """Let modules of a package be imported without what its ``__init__`` imports."""
    spec = importlib.machinery.PathFinder.find_spec(name.partition(".")[0])
    assert spec is not None
    assert spec.submodule_search_locations
    for depth in range(1, name.count(".") + 2):
        part = ".".join(name.split(".")[:depth])
        made = types.ModuleType(part)
        made.__path__ = [
            str(Path(where, *part.split(".")[1:])) for where in spec.submodule_search_locations
        ]
        sys.modules.setdefault(part, made)


# -- models -------------------------------------------------------------------------------------------------


def model(name: str) -> Any:
    """Return a small model of a class."""
    import transformers

    cls = getattr(transformers, name)
    torch.manual_seed(0)
    known = {*cls.config_class().to_dict(), *(cls.config_class.attribute_map or {})}
    config = cls.config_class(**{n: v for n, v in FIELDS.items() if n in known})
    made = cls(config).to(torch.bfloat16)
    made.config.architectures = [name]
    return made


def linear(key: str, tensor: torch.Tensor, head: bool) -> bool:
    """Tell whether the recipes quantise a tensor."""
    parts = key.split(".")
    names = LINEAR | {"lm_head"} if head else LINEAR
    return tensor.dim() == 2 and parts[-1] == "weight" and len(parts) > 1 and parts[-2] in names


# -- layouts ------------------------------------------------------------------------------------------------


def compressed(method: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a weight as compressed-tensors stores it."""
    from compressed_tensors.compressors import BaseCompressor

    form, weights, inputs = COMPRESSED[method]
    w = weight.float()
    state: dict[str, torch.Tensor] = {"weight": w, **_scales(weights, w)}
    state = BaseCompressor.get_value_from_registry(form).compress(state, _scheme(method))
    if inputs is not None and inputs.get("dynamic") is False:
        state["input_scale"] = torch.tensor([0.02])
    if inputs is not None and form.startswith("nvfp4"):
        state["input_global_scale"] = torch.tensor([300.0])
    return state


def _scheme(method: str) -> Any:
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    _, weights, inputs = COMPRESSED[method]
    activations = None if inputs is None else QuantizationArgs(**inputs)
    return QuantizationScheme(
        targets=["Linear"], weights=QuantizationArgs(**weights), input_activations=activations
    )


def _scales(weights: dict[str, Any], w: torch.Tensor) -> dict[str, torch.Tensor]:
    top = 448.0 if weights["type"] == "float" else 2 ** (weights["num_bits"] - 1) - 1
    size = weights.get("group_size")
    if weights["strategy"] == "tensor":
        return {"weight_scale": w.abs().max().reshape(1) / top}
    if weights["strategy"] == "block":
        return {"weight_scale": _blocks(w) / top}
    if weights["strategy"] == "channel":
        return {"weight_scale": w.abs().amax(1, keepdim=True) / top}
    groups = w.reshape(len(w), -1, size)
    if weights["strategy"] == "tensor_group":
        whole = 448 * 6 / w.abs().max().reshape(1)
        fine = (groups.abs().amax(-1) / 6 * whole).to(torch.float8_e4m3fn).float()
        return {"weight_scale": fine, "weight_global_scale": whole}
    if weights["symmetric"]:
        return {"weight_scale": groups.abs().amax(-1) / top}
    low, high = groups.amin(-1), groups.amax(-1)
    scale = (high - low) / 15
    return {
        "weight_scale": scale,
        "weight_zero_point": (torch.round(-low / scale) - 8).clamp(-8, 7).to(torch.int8),
    }


def _blocks(w: torch.Tensor, size: int = 128) -> torch.Tensor:
    """Return the largest magnitude of each block."""
    rows, columns = -(-w.shape[0] // size), -(-w.shape[1] // size)
    padded = torch.zeros(rows * size, columns * size)
    padded[: w.shape[0], : w.shape[1]] = w.abs()
    return padded.reshape(rows, size, columns, size).amax((1, 3)).clamp(min=1e-6)


def fp8(method: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a weight as deepseek-ai (blocks) and AutoFP8 (one scale) publish it."""
    w = weight.float()
    if method == "fp8-block":
        scale = _blocks(w) / 448
        wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
        codes = (w / wide[: w.shape[0], : w.shape[1]]).to(torch.float8_e4m3fn)
        return {"weight": codes, "weight_scale_inv": scale}
    one = w.abs().max() / 448
    state = {"weight": (w / one).to(torch.float8_e4m3fn), "weight_scale": one}
    return state | ({"input_scale": torch.tensor(0.02)} if method == "fp8-static" else {})


def awq(method: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a weight as AutoAWQ packs it."""
    package("awq.modules.linear")
    package("awq.utils")
    from awq.modules.linear.gemm import WQLinear_GEMM

    size = 64 if method.endswith("g64") else 128
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight.data = weight.float()
    groups = layer.weight.data.reshape(len(weight), -1, size)
    low, high = groups.amin(-1), groups.amax(-1)
    scales = (high - low) / 15
    zeros = torch.round(-low / scales).clamp(0, 15)
    made = WQLinear_GEMM.from_linear(
        layer, 4, size, False, scales.t().contiguous(), zeros.t().contiguous()
    )
    return dict(made.state_dict())


GPTQ = {"gptq": (4, 128), "gptq-order": (4, 128), "gptq-8bit": (8, 128), "gptq-g32": (4, 32)}


def gptq(method: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a weight as AutoRound packs it for GPTQ."""
    from auto_round_extension.torch.qlinear_torch_zp import QuantLinear

    bits, size = GPTQ[method]
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight.data = weight.float()
    scales = layer.weight.data.reshape(len(weight), -1, size).abs().amax(-1) / (2 ** (bits - 1) - 1)
    made = QuantLinear(bits, size, weight.shape[1], weight.shape[0], False, g_idx=True)
    made.pack(layer, scales, 2 ** (bits - 1), None)
    state = dict(made.state_dict())
    if method == "gptq-order":
        order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(1))
        state["g_idx"] = (order // size).to(torch.int32)
    return state


# -- whole checkpoints --------------------------------------------------------------------------------------


def settings(method: str, ignored: list[str]) -> dict[str, Any]:
    """Return the quantization_config that the program writes."""
    if method in COMPRESSED:
        from compressed_tensors.quantization import QuantizationConfig

        form = COMPRESSED[method][0]
        config = QuantizationConfig(
            config_groups={"group_0": _scheme(method)},
            format=form,
            ignore=["lm_head", *ignored],
            quantization_status="compressed",
        )
        return dict(json.loads(config.model_dump_json()))
    if method.startswith("awq"):
        return {
            "quant_method": "awq", "zero_point": True, "version": "gemm", "bits": 4,
            "group_size": 64 if method.endswith("g64") else 128,
            "modules_to_not_convert": ignored or None,
        }  # fmt: skip
    if method in GPTQ:
        bits, size = GPTQ[method]
        return {
            "quant_method": "gptq", "bits": bits, "group_size": size, "sym": True, "lm_head": False,
            "desc_act": method == "gptq-order", "damp_percent": 0.01, "true_sequential": False,
            "static_groups": False, "checkpoint_format": "gptq", "model_name_or_path": None,
            "model_file_base_name": "model",
        }  # fmt: skip
    if method == "fp8-block":
        return {
            "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
            "weight_block_size": [128, 128],
        } | ({"modules_to_not_convert": ["lm_head", *ignored]} if ignored else {})  # fmt: skip
    scheme = method.partition("-")[2]
    return {
        "quant_method": "fp8",
        "activation_scheme": scheme,
        "ignored_layers": ["lm_head", *ignored],
    }


def packed(method: str, name: str, folder: Path) -> None:
    """Write a model whose linear layers are packed one by one; the head, too, with ``+head``."""
    method, _, head = method.partition("+")
    model(name).save_pretrained(folder)
    stored = load_file(folder / "model.safetensors")
    pack = compressed if method in COMPRESSED else awq if method[:3] == "awq" else gptq
    pack = fp8 if method.startswith("fp8") else pack
    half = torch.float16 if pack in (awq, gptq) else torch.bfloat16
    out: dict[str, torch.Tensor] = {}
    for key, tensor in stored.items():
        if linear(key, tensor, bool(head)):
            module = key.rpartition(".")[0]
            state = pack(method, tensor)
            out |= {f"{module}.{suffix}": value.contiguous() for suffix, value in state.items()}
        else:
            out[key] = tensor.to(half) if tensor.is_floating_point() else tensor
    gates = [
        k.rpartition(".")[0] for k in stored if k.endswith((".mlp.gate.weight", ".router.weight"))
    ]
    gates += [k.rpartition(".")[0] for k in stored if k.endswith(".block_sparse_moe.gate.weight")]
    gates += [k.rpartition(".")[0] for k in stored if k.endswith("shared_expert_gate.weight")]
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = settings(method, gates)
    config["dtype"] = str(half).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(out, folder / "model.safetensors")


def modelopt(method: str, name: str, folder: Path) -> None:
    """Quantise and export a model with ModelOpt."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    made = model(name)
    recipe = mtq.NVFP4_DEFAULT_CFG if method.endswith("nvfp4") else mtq.FP8_DEFAULT_CFG
    mtq.quantize(made, recipe, lambda m: m(torch.randint(0, 512, (2, 8))))
    export_hf_checkpoint(made, dtype=torch.bfloat16, export_dir=str(folder))


def mxfp4(method: str, name: str, folder: Path) -> None:
    """Write a gpt-oss with the experts in MXFP4, as openai publishes it."""
    model(name).save_pretrained(folder)
    stored = load_file(folder / "model.safetensors")
    out = {}
    for key, tensor in stored.items():
        if key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = tensor.shape
            out[f"{key}_blocks"] = torch.randint(
                0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8
            )
            out[f"{key}_scales"] = torch.full(
                (experts, outputs, inputs // 32), 120, dtype=torch.uint8
            )
        else:
            out[key] = tensor
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
        ],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(out, folder / "model.safetensors")


def main() -> None:
    """Write every checkpoint that is asked for."""
    sys.meta_path.append(_Missing())
    failed = {}
    for name, method, place in json.load(sys.stdin):
        write = (
            modelopt if method.startswith("modelopt") else mxfp4 if method == "mxfp4" else packed
        )
        folder = Path(place)
        try:
            write(method, name, folder)
        except Exception as error:  # a method may not fit a class
            shutil.rmtree(folder, ignore_errors=True)
            failed[place] = f"{type(error).__name__}: {str(error)[:200]}"
    print(json.dumps(failed))


if __name__ == "__main__":
    main()
