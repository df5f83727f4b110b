"""The watching core on small modules: every way in which a loader may write, on memory and without."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from workbench.loaders.tracer import dispatch, memory, watch

Named = Iterable[tuple[str, torch.Tensor]]
Loader = Callable[[nn.Module, Named], Any]


class Model(nn.Module):
    """A fused parameter, a plain one, and a place for something kept outside parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = nn.Parameter(torch.zeros(6, 4), requires_grad=False)
        self.plain = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.register_buffer("table", torch.zeros(4))
        self.kept: Any = None


def run(load: Loader, tensors: dict[str, torch.Tensor], meta: bool) -> dict[str, Any]:
    """Load into real memory, or into a copy without."""
    if meta:
        empty = {k: t.to("meta") if t.is_floating_point() else t for k, t in tensors.items()}
        return watch.trace_load_weights(Model(), empty.items(), load)
    return watch.watch_load(Model, lambda _: iter(tensors.items()), load)


@pytest.fixture(params=[False, True], ids=["memory", "meta"])
def meta(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def parts(*rows: int, columns: int = 4) -> dict[str, torch.Tensor]:
    return {f"part{n}": torch.ones(size, columns) for n, size in enumerate(rows)}


def by_narrow(model: Any, named: Named) -> None:
    at = 0
    for _, tensor in named:
        model.fused.data.narrow(0, at, len(tensor)).copy_(tensor)
        at += len(tensor)


def by_columns(model: Any, named: Named) -> None:
    at = 0
    for _, tensor in named:
        model.fused[:, at : at + tensor.shape[1]].copy_(tensor)
        at += tensor.shape[1]


def by_cat(model: Any, named: Named) -> None:
    model.fused.data.copy_(torch.cat([tensor for _, tensor in named]))


def by_chunks(model: Any, named: Named) -> None:
    for _, tensor in named:
        for piece, place in zip(tensor.chunk(2), model.fused.data.chunk(2), strict=True):
            place.copy_(piece)


def by_index(model: Any, named: Named) -> None:
    for _, tensor in named:
        model.fused.data[torch.tensor([0, 2])] = tensor


def by_mask(model: Any, named: Named) -> None:
    for _, tensor in named:
        model.fused.data[torch.arange(6) % 2 == 0] = tensor


def by_index_copy(model: Any, named: Named) -> None:
    for _, tensor in named:
        model.fused.data.index_copy_(0, torch.tensor([5]), tensor)


def by_broadcast(model: Any, named: Named) -> None:
    for _, tensor in named:
        model.fused.data.copy_(tensor)


def by_new_data(model: Any, named: Named) -> None:
    for _, tensor in named:
        model.fused.data = tensor


def by_setattr(model: Any, named: Named) -> None:
    for _, tensor in named:
        model.fused = nn.Parameter(tensor.contiguous(), requires_grad=False)


def by_new_data_in_parts(model: Any, named: Named) -> None:
    fresh = torch.empty(6, 4, device=model.fused.device)
    at = 0
    for _, tensor in named:
        fresh[at : at + len(tensor)] = tensor
        at += len(tensor)
    model.fused.data = fresh


def by_conversion(model: Any, named: Named) -> None:
    for _, tensor in named:
        model.fused.data.copy_(tensor.to(torch.float16).t().contiguous().t().to(torch.bfloat16))


def by_foreach(model: Any, named: Named) -> None:
    (_, first), (_, second) = named
    torch._foreach_copy_([model.fused.data, model.plain.data], [first, second])


@pytest.mark.parametrize(
    ("load", "tensors", "share"),
    [
        (by_narrow, parts(3, 2, 1), 1.0),
        (by_narrow, parts(3, 2), 5 / 6),
        (by_columns, parts(6, columns=1), 0.25),
        (by_cat, parts(3, 3), 1.0),
        (by_chunks, parts(6), 1.0),
        (by_index, parts(2), 2 / 6),
        (by_mask, parts(3), 0.5),
        (by_index_copy, parts(1), 1 / 6),
        (by_broadcast, {"row": torch.ones(4)}, 1.0),
        (by_new_data, parts(6), 1.0),
        (by_setattr, parts(6), 1.0),
        (by_new_data_in_parts, parts(2, 2), 4 / 6),
        (by_conversion, parts(6), 1.0),
    ],
)
def test_every_way_of_writing_is_seen(
    load: Loader, tensors: dict[str, torch.Tensor], share: float, meta: bool
) -> None:
    seen = run(load, tensors, meta)
    if meta and load is by_index_copy:
        # torch itself does not do that with an index that has values: no verdict, and not a wrong one.
        assert "values" in seen["unsupported"]
        return
    assert seen["error"] is None
    assert seen["unsupported"] is None
    assert seen["writes"] == {key: ["fused"] for key in tensors}
    assert seen["written"]["fused"] == pytest.approx(share)
    assert seen["written"]["plain"] == 0
    assert not seen["unreached_or_dropped"]


def test_lists_of_tensors_are_paired(meta: bool) -> None:
    seen = run(by_foreach, {"a": torch.ones(6, 4), "b": torch.ones(4)}, meta)
    assert seen["writes"] == {"a": ["fused"], "b": ["plain"]}


def test_what_is_kept_outside_parameters_is_told_from_what_is_lost(meta: bool) -> None:
    def load(model: Any, named: Named) -> None:
        for key, tensor in named:
            if key.endswith("d2t"):
                model.kept = {"ids": tensor + torch.arange(len(tensor))}
            elif key == "table":
                model.table.copy_(tensor)

    offsets = torch.arange(4)
    tensors = {"d2t": offsets, "table": torch.ones(4), "lost": torch.ones(4), "x.d2t": offsets}
    seen = run(load, tensors, meta)
    # Of two maps the last one stays, but both were taken.
    assert seen["attributes"] == ["d2t", "table", "x.d2t"]
    assert seen["unreached_or_dropped"] == ["lost"]
    assert seen["writes"] == {}


def test_a_loader_that_stops_early_leaves_the_rest_unreached(meta: bool) -> None:
    def load(model: Any, named: Named) -> None:
        for _, tensor in named:
            model.plain.data.copy_(tensor)
            return

    seen = run(load, {"a": torch.ones(4), "b": torch.ones(4)}, meta)
    assert list(seen["writes"]) == ["a"]
    assert seen["unreached_or_dropped"] == ["b"]


def load_by_name(model: nn.Module, named: Named) -> None:
    def load_weights(rest: Named) -> None:
        parameters = dict(model.named_parameters())
        for key, tensor in rest:
            put(parameters[key], tensor)

    def put(parameter: torch.Tensor, tensor: torch.Tensor) -> None:
        parameter.data.copy_(tensor)

    load_weights(named)


def test_all_keys_at_which_the_loader_raises_are_found(meta: bool) -> None:
    tensors = {
        "fused": torch.ones(5, 4),
        "unknown": torch.ones(1),
        "plain": torch.ones(4),
        "strange": torch.ones(1),
    }
    seen = run(load_by_name, tensors, meta)
    assert seen["error"]["key"] == "fused"
    assert "loaders/test_tracer.py" in seen["error"]["place"]
    assert list(seen["mismatched"]) == ["fused", "unknown", "strange"]
    assert seen["misfit_parameters"] == {"fused": "fused"}
    assert seen["writes"] == {"plain": ["plain"]}
    assert seen["written"] == {"fused": 0.0, "plain": 1.0}


def test_a_loader_that_takes_everything_first_is_blamed_right() -> None:
    def load(model: nn.Module, named: Named) -> None:
        load_by_name(model, dict(named).items())

    seen = run(load, {"plain": torch.ones(4), "fused": torch.ones(5, 4)}, meta=False)
    assert list(seen["mismatched"]) == ["fused"]
    assert seen["writes"] == {"plain": ["plain"]}


def test_an_exception_after_the_last_key_blames_nobody(meta: bool) -> None:
    def load(model: Any, named: Named) -> None:
        def load_weights() -> None:
            for _, tensor in named:
                model.plain.data.copy_(tensor)
            raise ValueError("something is wrong with all of it")

        load_weights()

    seen = run(load, {"a": torch.ones(4), "b": torch.ones(4)}, meta)
    assert seen["error"]["key"] is None
    assert "something is wrong" in seen["error"]["message"]
    assert "something is wrong" in seen["unexplained"]
    assert seen["mismatched"] == {}
    assert list(seen["writes"]) == ["a", "b"]


def test_values_that_look_unwritten_are_seen(meta: bool) -> None:
    tensors = {"part0": torch.full((6, 4), float("nan"))}
    tensors["part0"].view(torch.uint8).fill_(dispatch.SENTINEL)
    assert run(by_narrow, tensors, meta)["written"]["fused"] == 1.0


def test_values_that_come_without_torch_operations_are_seen() -> None:
    def load(model: Any, named: Named) -> None:
        for _, tensor in named:
            model.fused.numpy()[:3] = tensor.numpy()

    seen = run(load, parts(3), meta=False)
    assert seen["written"]["fused"] == 0.5


def test_what_is_cut_or_filled_up_is_named(meta: bool) -> None:
    def load(model: Any, named: Named) -> None:
        for key, tensor in named:
            if key == "long":
                model.fused.data.copy_(tensor.narrow(0, 0, 6))
            elif key == "short":
                padding = torch.zeros(2, device=tensor.device)
                model.plain.data.copy_(torch.cat([tensor, padding]))

    seen = run(load, {"long": torch.ones(12, 4), "short": torch.ones(2)}, meta)
    assert set(seen["resized"]) == {"long", "short"}
    assert (
        "resized" not in run(by_narrow, parts(6), meta)
        or not run(by_narrow, parts(6), meta)["resized"]
    )


def test_threads_are_followed(meta: bool) -> None:
    def load(model: Any, named: Named) -> None:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = [pool.submit(model.plain.data.copy_, tensor) for _, tensor in named]
            for job in concurrent.futures.as_completed(jobs):
                job.result()

    assert run(load, {"a": torch.ones(4)}, meta)["writes"] == {"a": ["plain"]}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: 5).result() == 5


def test_tied_parameters_are_named_once_with_their_alias(meta: bool) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(4, 4, bias=False)
            self.head = nn.Linear(4, 4, bias=False)
            self.head.weight = self.embed.weight

        def load_weights(self, named: Named) -> None:
            for _, tensor in named:
                self.head.weight.data.copy_(tensor)

    tensor = torch.ones(4, 4, device="meta" if meta else "cpu")
    seen = watch.trace_load_weights(Tied(), [("w", tensor)])
    assert seen["writes"] == {"w": ["embed.weight"]}
    assert seen["aliases"] == {"head.weight": "embed.weight"}


def test_two_parameters_in_one_memory_are_told_apart() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            memory = torch.zeros(8)
            self.low = nn.Parameter(memory[:4], requires_grad=False)
            self.high = nn.Parameter(memory[4:], requires_grad=False)

    def load(model: Any, named: Named) -> None:
        for _, tensor in named:
            model.high.data[:2].copy_(tensor)

    seen = watch.watch_load(Shared, lambda _: iter([("x", torch.ones(2))]), load)
    assert seen["writes"] == {"x": ["high"]}
    assert seen["written"] == {"low": 0.0, "high": 0.5}


def test_the_original_module_is_left_alone() -> None:
    class Bound(nn.Module):
        """Its weight loader hangs on the parameter, bound to the module, as in serving engines."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4))
            self.weight.loader = self.put  # type: ignore[attr-defined]
            self.count = 0

        def put(self, parameter: torch.Tensor, tensor: torch.Tensor) -> None:
            self.count += 1
            parameter.data.copy_(tensor)

        def load_weights(self, named: Iterator[tuple[str, torch.Tensor]]) -> None:
            for _, tensor in named:
                self.weight.loader(self.weight, tensor)  # type: ignore[attr-defined]

    model = Bound()
    seen = watch.trace_load_weights(model, [("w", torch.ones(4))])
    assert seen["writes"] == {"w": ["weight"]}
    assert model.count == 0
    assert not model.weight.any()


def test_a_loader_that_wants_values_is_no_verdict() -> None:
    def load(model: Any, named: Named) -> None:
        for _, tensor in named:
            if tensor.sum().item() > 0:
                model.plain.data.copy_(tensor)

    seen = run(load, {"a": torch.ones(4)}, meta=True)
    assert seen["error"] is None
    assert "values" in seen["unsupported"]


def test_warnings_of_the_loader_are_kept() -> None:
    import logging

    def load(model: Any, named: Named) -> None:
        for key, _ in named:
            logging.getLogger("engine").warning("%s not found", key)

    assert run(load, {"a": torch.ones(4)}, meta=False)["log"] == ["WARNING engine: a not found"]


@pytest.mark.parametrize(
    ("tensor", "block", "count"),
    [
        (torch.zeros(3, 4), (0, 48, ()), 48),
        (torch.zeros(3, 4).t(), (0, 48, ()), 48),
        (torch.zeros(3, 4)[1:], (16, 32, ()), 32),
        (torch.zeros(3, 4)[:, 1:3], (4, 8, ((16, 3),)), 24),
        (torch.zeros(4, 3, 4)[:, 1:, 1:3], (20, 8, ((16, 2), (48, 4))), 64),
        (torch.zeros(4).expand(3, 4), (0, 16, ()), 16),
        (torch.zeros(()), (0, 4, ()), 4),
    ],
)
def test_bytes_of_views(tensor: torch.Tensor, block: memory.Block, count: int) -> None:
    assert memory.block_of(tensor) == block
    assert memory.measure([block]) == count
    assert memory.measure([block, block]) == count
    assert memory.block_of(torch.zeros(0, 4)) is None


def test_overlapping_bytes_are_counted_once() -> None:
    blocks: list[memory.Block] = [
        (0, 10, ()),
        (5, 10, ()),
        (2, 3, ()),
        (20, 2, ((4, 3),)),
        (24, 6, ()),
    ]
    assert memory.measure(blocks) == 15 + 2 + 6
    assert memory.measure([]) == 0
