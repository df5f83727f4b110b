"""Run by the writers' interpreter: quantise weights with the real libraries, and write what they read back.

Usage: ``python quantize.py FOLDER``. Each file holds one weight as the library stores it, and what the same
library makes of it again, under ``expected``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

# The environments hold a CUDA build of torchvision, which cannot be imported beside a CPU torch.
sys.modules["torchvision"] = None  # type: ignore[assignment]

TALL, WIDE = 64, 256


def weight(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(TALL, WIDE, generator=generator) * 0.05


def groups_of(values: torch.Tensor, size: int) -> torch.Tensor:
    return values.reshape(TALL, -1, size)


def compressed(folder: Path) -> None:
    """Write every layout of compressed-tensors."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    def case(name: str, form: str, state: dict[str, torch.Tensor], **arguments: Any) -> None:
        args = QuantizationArgs(**arguments)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        compressor = BaseCompressor.get_value_from_registry(form)
        stored = compressor.compress(state, scheme)
        back = compressor.decompress(stored, scheme)["weight"]
        tensors = {f"layer.{key}": value.contiguous() for key, value in stored.items()}
        settings = {
            "quant_method": "compressed-tensors",
            "format": form,
            "config_groups": {"group_0": {"weights": json.loads(args.model_dump_json())}},
        }
        write(folder / name, tensors, back.float(), settings)

    w = weight(1)
    for bits in (4, 8):
        scale = groups_of(w, 32).abs().amax(-1) / (2 ** (bits - 1) - 1)
        case(
            f"pack-int{bits}", "pack-quantized", {"weight": w, "weight_scale": scale},
            num_bits=bits, strategy="group", group_size=32, symmetric=True, type="int",
        )  # fmt: skip
    low, high = groups_of(w, 32).amin(-1), groups_of(w, 32).amax(-1)
    scale = (high - low) / 15
    zero = (torch.round(-low / scale) - 8).clamp(-8, 7).to(torch.int8)
    asymmetric = {"weight": w, "weight_scale": scale, "weight_zero_point": zero}
    case(
        "pack-zeros", "pack-quantized", asymmetric,
        num_bits=4, strategy="group", group_size=32, symmetric=False, type="int",
    )  # fmt: skip
    order = torch.randperm(WIDE, generator=torch.Generator().manual_seed(3)) % (WIDE // 32)
    ordered = {**asymmetric, "weight_g_idx": order.to(torch.int32)}
    case(
        "pack-order", "pack-quantized", ordered,
        num_bits=4, strategy="group", group_size=32, symmetric=False, type="int", actorder="group",
    )  # fmt: skip
    whole = 448 * 6 / w.abs().max().reshape(1)
    fine = (groups_of(w, 16).abs().amax(-1) / 6 * whole).to(torch.float8_e4m3fn)
    case(
        "nvfp4", "nvfp4-pack-quantized",
        {"weight": w, "weight_scale": fine.float(), "weight_global_scale": whole},
        num_bits=4, strategy="tensor_group", group_size=16, symmetric=True, type="float",
    )  # fmt: skip
    power = torch.exp2(torch.ceil(torch.log2(groups_of(w, 32).abs().amax(-1) / 6)))
    case(
        "mxfp4", "mxfp4-pack-quantized", {"weight": w, "weight_scale": power},
        num_bits=4, strategy="group", group_size=32, symmetric=True, type="float",
    )  # fmt: skip
    rows = w.abs().amax(1, keepdim=True)
    case(
        "fp8-rows", "float-quantized", {"weight": w, "weight_scale": rows / 448},
        num_bits=8, strategy="channel", symmetric=True, type="float",
    )  # fmt: skip
    case(
        "int8-rows", "int-quantized", {"weight": w, "weight_scale": rows / 127},
        num_bits=8, strategy="channel", symmetric=True, type="int",
    )  # fmt: skip


def gpt_oss(folder: Path) -> None:
    """Write random MXFP4 blocks, and what transformers makes of them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(2)
    blocks = torch.randint(0, 256, (3, 8, 2, 16), generator=generator).to(torch.uint8)
    scales = torch.randint(110, 125, (3, 8, 2), generator=generator).to(torch.uint8)
    back = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    tensors = {"experts.down_proj_blocks": blocks, "experts.down_proj_scales": scales}
    # transformers gives [experts, inputs, outputs]; the blocks lie by outputs.
    write(folder / "gpt-oss", tensors, back.transpose(1, 2), {"quant_method": "mxfp4"})


def write(
    folder: Path, tensors: dict[str, torch.Tensor], back: torch.Tensor, settings: dict[str, Any]
) -> None:
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    save_file({"expected": back.float().contiguous()}, folder / "expected.st")
    config = {"model_type": "x", "quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    compressed(Path(sys.argv[1]))
    gpt_oss(Path(sys.argv[1]))
