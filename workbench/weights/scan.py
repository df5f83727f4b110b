"""`scan_weights`: measures every weight of a checkpoint once, and judges it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.checkpoint.dequantize import LogicalWeights, logical_weights
from workbench.core import progress
from workbench.core.bars import bar as progress_bar
from workbench.errors import WorkbenchError, shorten, shown
from workbench.weights.opened import adapter_of, config_of
from workbench.weights.reading import check_sample
from workbench.weights.records import Judgement, Measure
from workbench.weights.requested import limited_to, named_positions, names_listed

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.config import Config
    from workbench.weights.likeness import Likeness
    from workbench.weights.results import WeightScan

Pair = tuple[Measure, Judgement]

_SERVER = re.compile(r"https?://[^/?#]+/?$")
# What a worker of a cluster is given at a time: enough to be worth the trip, small enough to balance.
_SHARE = 1 << 31
_MOST_TOLD = 10
CHANGED = "a file of the checkpoint changed while it was read"


def scan_weights(
    ckpt: str | os.PathLike[str] | Checkpoint,
    *,
    names: str | Iterable[str] | None = None,
    sample: float | None = None,
    device: str = "cpu",
    client: Any = None,
    target: str | os.PathLike[str] | Checkpoint | None = None,
) -> WeightScan:
    """Measure every weight and say which look trained, which as they were drawn, and which are broken.

    All values are read once, in blocks; memory does not grow with the checkpoint or with a tensor. On a
    terminal a bar shows how far it is, and tensors that are at init or broken are named as they are found.
    Ctrl-C returns what was measured until then.

    Parameters
    ----------
    ckpt
        What `open_checkpoint` takes, an open checkpoint, or the address of a running SGLang server
        (``http://127.0.0.1:30000``), which is asked for the weights that it holds.
    names
        Exact names or patterns (``"*.lm_head.*"``), one or several; None for all.
    sample
        Read less: a share of each tensor's rows (``0.05``) or a number of rows (``128``), spread over it in
        32 runs; vectors are read whole. What was not read is not judged, and the result says so.
    device
        ``"cpu"``, or ``"cuda"``: bfloat16 and fp16 are then counted on the card.
    client
        A `distributed.Client`: the tensors are spread over its workers, each of which opens the checkpoint
        itself, under the same path.
    target
        The checkpoint that a draft belongs to: weights that are one of its, in any type, or that started from
        one and changed little, are named. Of it a few rows are read of each weight of a shape that was
        measured, and all of those that agree.

    Returns
    -------
    WeightScan

    Raises
    ------
    WorkbenchError
        The checkpoint cannot be read, no tensor has such a name, or the device is not there.
    """
    check_sample(sample)
    if not isinstance(device, str):
        raise WorkbenchError(
            f"device={shown(device)} is not text", next_step='Give device="cpu" or device="cuda".'
        )
    if isinstance(ckpt, str) and _SERVER.match(ckpt):
        from workbench.weights.scan_server import scan_server

        if (sample, device, client, target) != (None, "cpu", None, None):
            raise WorkbenchError(
                "sample, device, client and target go with checkpoints",
                why="a server is asked tensor by tensor, for the first rows of each",
                next_step="Leave them out, or give names to ask for less.",
            )

        return scan_server(ckpt, None if names is None else names_listed(names), scan_weights)
    opened = _opened(ckpt)
    if changed := opened.changed():
        raise WorkbenchError(
            f"{shorten(changed[0])} changed since the checkpoint was opened",
            why="it was replaced, written to or removed, so the places of its tensors are not known",
            next_step="Open the checkpoint again when its writer is done, and scan that.",
        )
    weights = logical_weights(opened)
    chosen: Sequence[int] = range(len(weights))
    if names is not None:
        chosen = named_positions(weights.names, names, opened.source)
    notes = [*opened.warnings]
    config = config_of(opened, notes)
    if client is not None:
        from workbench.weights.cluster import scan_on

        stream = scan_on(client, opened, weights, chosen, sample, device, _SHARE)
    else:
        from workbench.weights.pool import scan_here

        stream = scan_here(weights, chosen, sample, device, config)
    theirs = None if target is None else logical_weights(_opened(target))
    found, interrupted = _collect(stream, weights, chosen, notes)
    owned: dict[str, Likeness] = {}
    if theirs is not None and not interrupted:
        whole = [at for at, (measure, _) in sorted(found.items()) if measure.digest]
        owned = _like(weights, theirs, whole, notes)
        if partly := len(found) - len(whole):
            notes.append(
                f"{partly:,} weights were not compared with the target: only tensors that are read whole "
                "can be"
            )
    return _result(opened, weights, found, notes, config, interrupted, len(chosen), owned)


def _opened(given: str | os.PathLike[str] | Checkpoint) -> Checkpoint:
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.open import open_checkpoint, open_gguf

    if isinstance(given, Checkpoint):
        return given
    local = isinstance(given, str | os.PathLike) and "://" not in os.fspath(given)
    return (open_gguf(given) if local else None) or open_checkpoint(given)


def _like(
    weights: LogicalWeights, theirs: LogicalWeights, found: Iterable[int], notes: list[str]
) -> dict[str, Likeness]:
    """Return which of the weights that were read are the target's, or started from it."""
    from workbench.weights.compare import difference
    from workbench.weights.likeness import likenesses

    try:
        return likenesses(weights, theirs, found, difference)
    except KeyboardInterrupt:
        notes.append("interrupted: not all was compared with the target")
        return {}


def _collect(
    stream: Iterator[tuple[int, Pair]],
    weights: LogicalWeights,
    chosen: Sequence[int],
    notes: list[str],
) -> tuple[dict[int, Pair], bool]:
    """Return what was found by position, and whether it was interrupted."""
    found: dict[int, Pair] = {}
    told = read = size = 0
    terminal = sys.stderr.isatty()
    bar = progress_bar(total=len(chosen), unit=" tensors")
    try:
        for at, pair in stream:
            found[at] = pair
            if progress.is_watched():
                size = size or sum(weights[number].nbytes for number in chosen)
                read += weights[at].nbytes
                bar.set_postfix_str(f"{read / 1e9:,.2f} of {size / 1e9:,.2f} GB")
            bar.update()
            measure, judged = pair
            bad = judged.verdict in ("at_init", "invalid") and len(measure.shape) > 1
            if bad and terminal and told < _MOST_TOLD:
                told += 1
                bar.write(f"{shorten(measure.name)}: {judged.verdict}", file=sys.stderr)
    except KeyboardInterrupt:
        notes.append(f"interrupted: {len(found):,} of {len(chosen):,} tensors were measured")
        return found, True
    finally:
        bar.close()
        stream.close()  # type: ignore[attr-defined]
    return found, False


def _result(
    opened: Checkpoint,
    weights: LogicalWeights,
    found: Mapping[int, Pair],
    notes: list[str],
    config: Config | None,
    interrupted: bool,
    wanted: int,
    target: Mapping[str, Likeness] | None = None,
) -> WeightScan:
    from workbench.weights.context import context_of
    from workbench.weights.kin import among_kin
    from workbench.weights.needed import needed
    from workbench.weights.norms import convention
    from workbench.weights.pool import cannot_tell
    from workbench.weights.relations import relate
    from workbench.weights.results import WeightScan
    from workbench.weights.tied import tied

    changed = opened.changed()
    if changed:
        found = {at: cannot_tell(weights[at], CHANGED) for at in found}
        notes.append(f"changed during the scan: {', '.join(map(shorten, changed[:3]))}")
    order = sorted(found)
    measures = [found[at][0] for at in order]
    known = context_of("", (), config)
    start = 0.0 if convention(config) == "less one" else 1.0
    judged = among_kin(
        measures, [found[at][1] for at in order], known.initializer_range, known.layers, start
    )
    judged = relate(measures, judged, target)
    bytes_read = sampled = 0
    for at, measure in zip(order, measures, strict=True):
        if changed or measure.seen == measure.count:
            bytes_read += weights[at].nbytes
        else:
            bytes_read += weights[at].nbytes * measure.seen // max(measure.count, 1)
            sampled = max(sampled, measure.seen)
    if sampled:
        seen, count = (sum(getattr(m, field) for m in measures) for field in ("seen", "count"))
        notes.append(
            f"a sample: {seen:,} of {count:,} values were read; rows that were not read are not judged"
        )
    for group in opened.quantization.groups:
        if group.incomplete_count:
            name, role = group.incomplete[0]
            notes.append(
                f"{group.incomplete_count:,} parts of {group.format} weights are missing, first "
                f"the {role.replace('_', ' ')} of {shorten(name)}"
            )
    partly = interrupted or changed or wanted < len(weights)
    wants = None if partly else needed(measures, config, adapter_of(opened, notes))
    return WeightScan.build(
        opened.source,
        zip(measures, judged, strict=True),
        notes=tuple(notes),
        bytes_read=bytes_read,
        sampled=sampled or None,
        interrupted=interrupted,
        config=config,
        needed=wants,
        changed=", ".join(map(shorten, changed[:3])),
        limited=limited_to(wanted, len(weights)),
        tied=None if interrupted or changed else tied(weights, measures, config),
    )
