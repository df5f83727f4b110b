"""What values remember of their making: the edge of an init, and the lattice of its generator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.weights.stored import judged
from workbench.weights.families import fan, formulas
from workbench.weights.spectrum import spectrum


def drawn(seed: int = 0, size: int = 320) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.nn.Linear(size, size).weight.detach().clone()


def moved(weight: torch.Tensor, step: float, steps: int = 1) -> torch.Tensor:
    """Each value one way or the other, as AdamW's first steps move it."""
    generator = torch.Generator().manual_seed(1)
    return weight + steps * step * torch.randn(weight.shape, generator=generator).sign()


def test_untouched_is_bit_for_bit_as_it_was_made(tmp_path: Path) -> None:
    found = judged(tmp_path, drawn())
    assert (found.verdict, found.family) == ("at_init", "uniform")
    assert "bit for bit as a float32 generator makes it" in "; ".join(found.corroboration)


@pytest.mark.parametrize("scheme", ["xavier_uniform_", "kaiming_uniform_"])
@pytest.mark.parametrize("shape", [(256, 320), (96, 64, 3, 3)])
def test_the_lattice_of_other_bounds(tmp_path: Path, scheme: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    weight = getattr(torch.nn.init, scheme)(torch.empty(shape))
    found = judged(tmp_path, weight, "conv.weight")
    assert "bit for bit as a float32 generator" in "; ".join(found.corroboration)


def test_one_step_leaves_the_lattice(tmp_path: Path) -> None:
    """A decay of 1e-4 keeps every value within the bound; a step of 1e-6 takes some beyond."""
    found = judged(tmp_path, drawn() * (1 - 1e-4))
    assert found.verdict == "undecided"
    assert "not on the lattice" in found.reason
    assert "something moved them" in judged(tmp_path, moved(drawn(), 1e-6)).reason


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
def test_an_edge_that_was_crossed_is_no_init(tmp_path: Path, kind: torch.dtype) -> None:
    assert judged(tmp_path, drawn().to(kind)).verdict == "at_init"
    found = judged(tmp_path, moved(drawn(), 1e-4, 10).to(kind))
    assert found.verdict == "undecided"
    assert "something moved them" in found.reason


def test_the_edge_of_a_cut_normal(tmp_path: Path) -> None:
    torch.manual_seed(2)
    weight = torch.nn.init.trunc_normal_(torch.empty(320, 320), std=0.02, a=-0.04, b=0.04)
    assert judged(tmp_path, weight).family == "truncated"
    assert "something moved them" in judged(tmp_path, moved(weight, 1e-4, 20)).reason


def test_a_convolution_counts_the_area_of_its_kernel() -> None:
    assert fan((96, 64, 3, 3)) == (576, 864)
    assert fan((96, 64)) == (64, 96)
    known = dict(formulas((96, 64, 3, 3), None, None))
    assert known["√(2/(fan_in + fan_out)) (Xavier)"] == pytest.approx((2 / 1440) ** 0.5)


def test_a_type_that_was_cut_off_is_still_an_init(tmp_path: Path) -> None:
    bits = (torch.randn(512, 512, generator=torch.Generator().manual_seed(4)) * 0.02).view(
        torch.int32
    )
    cut = (bits & -65536).view(torch.float32).bfloat16()
    assert judged(tmp_path, cut).verdict == "at_init"


@pytest.mark.parametrize(("scale", "verdict"), [(0.02, "at_init"), (0.338, "undecided")])
def test_faint_structure_is_an_init_only_at_a_known_scale(
    tmp_path: Path, scale: float, verdict: str
) -> None:
    noise = torch.randn(64, 64, generator=torch.Generator().manual_seed(5))
    left, right = (
        torch.randn(64, generator=torch.Generator().manual_seed(seed)) for seed in (6, 7)
    )
    for strength in torch.linspace(0.1, 0.4, 31).tolist():
        values = noise + strength * torch.outer(left, right)
        faint = max(spectrum(values.numpy()).edge, spectrum(values.numpy()).gram)
        if 3.1 < faint < 3.9:
            break
    assert 3.1 < faint < 3.9
    assert judged(tmp_path, values / values.std() * scale).verdict == verdict
