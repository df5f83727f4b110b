"""Chains that SGLang's own draft classes make on a CPU, in the engine's environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.engines import environments, sglang_last_features
from workbench.speculation.model.features import TargetTrace

ROOT = Path(__file__).resolve().parents[3]
STEPS = sglang_last_features.STEPS


def chains_of_sglang(
    version: str, target: Path, draft: Path, trace: TargetTrace, roots: list[list[int]], file: Path
) -> dict[str, torch.Tensor]:
    """Return ``drafted`` [texts, rounds, STEPS], and the first ``logits`` of each round.

    Parameters
    ----------
    target
        Folder with the config, the embedding and the head.
    roots
        The last known place of each round, as many for each text.
    """
    assert trace.final is not None
    save_file({"tokens": trace.tokens, "features": trace.final, "roots": torch.tensor(roots)}, file)
    script = Path(sglang_last_features.__file__)
    tracer = ROOT / "workbench" / "loaders" / "tracer"
    python = environments.ensure(f"sglang-{version}")
    subprocess.run([python, script, tracer, target, draft, file], check=True, capture_output=True)
    return load_file(file)
