"""A small model gets one thread of torch, a large one what torch has, and the number is left as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from workbench.speculation.model.threads import few_threads, on_few_threads


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("hidden", "threads"), [(256, 1), (1023, 1), (1024, 2), (7168, 2)])
def test_the_size_decides(hidden: int, threads: int) -> None:
    with few_threads(hidden):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_an_error_leaves_the_number_as_it_was() -> None:
    with pytest.raises(KeyboardInterrupt), few_threads(256):
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2


def test_a_method_runs_with_the_threads_of_its_model() -> None:
    class Model:
        hidden = 256

        @on_few_threads
        def threads(self, more: int) -> int:
            return torch.get_num_threads() + more

    assert Model().threads(more=10) == 11
    assert torch.get_num_threads() == 2
