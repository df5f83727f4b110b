"""What a running server holds, as far as it can be asked: its target's weights, on one rank.

A server gives the parameters of its target worker only. A draft's parameters are named alike, so a name of a
draft may be answered with the target's values: every result says whose they are.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.dequantize import LogicalWeight, logical_weights, matrix_shape
from workbench.core.bars import bar as progress_bar
from workbench.core.wording import plural
from workbench.errors import WorkbenchError, shorten
from workbench.weights.server import BadAnswer, Server, number_of, told

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.weights.compare import Values

Floats = np.ndarray[Any, np.dtype[np.float32]]

MOST_VALUES = 1 << 20
"""Values of one tensor that are asked for: some 20 MB of JSON."""
MOST_ELEMENTS = 1 << 25
"""A larger tensor is not asked for: the server would turn all of it into Python numbers, about a gigabyte."""
_MOST_NAMES = 4096
_PADDING = 64  # a vocabulary is padded to a multiple of it on each rank
_OWN_LAYOUT = "not requested: the engine holds quantised weights in its own layout"
_GLOB = re.compile(r"[*?\[]")

# Parameters that the engine joins from several of the file, in this order (sglang/srt/models/llama.py).
_FUSED = (
    (".qkv_proj.", (".q_proj.", ".k_proj.", ".v_proj.")),
    (".gate_up_proj.", (".gate_proj.", ".up_proj.")),
)


@dataclasses.dataclass(frozen=True)
class Held:
    """What the engine holds of one tensor of the file: its first rows.

    ``asked`` is the name that the engine was asked for, ``whole`` whether these are all rows.
    """

    name: str
    asked: str
    values: Floats
    whole: bool

    dtype = "F32"  # as it is answered; the engine's own type is not told
    flaw = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what was seen."""
        return tuple(self.values.shape)

    def rows(self, start: int, stop: int) -> Floats:
        """Return some rows."""
        return self.values.reshape(matrix_shape(self.shape))[start:stop]


@dataclasses.dataclass(frozen=True)
class _OfFile:
    """What of a weight in a file stands beside what a server gave, or did not."""

    weight: LogicalWeight

    @property
    def name(self) -> str:
        """The weight's name."""
        return self.weight.name

    @property
    def dtype(self) -> str:
        """The weight's stored type."""
        return self.weight.dtype


@dataclasses.dataclass(frozen=True)
class FirstRows(_OfFile):
    """The rows of a weight in a file that stand beside what a server gave."""

    count: int
    first: int = 0

    @property
    def flaw(self) -> str:
        """Why its values cannot be told."""
        return self.weight.flaw

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of these rows."""
        return (self.count, *self.weight.shape[1:])

    def rows(self, start: int, stop: int) -> Floats:
        """Return some rows."""
        return self.weight.rows(self.first + start, self.first + min(stop, self.count))


@dataclasses.dataclass(frozen=True)
class NotHeld(_OfFile):
    """A weight of the file of which the server gave nothing that could stand beside it."""

    flaw: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The weight's shape in the file."""
        return self.weight.shape

    def rows(self, start: int, stop: int) -> Floats:
        """Return nothing: there are none."""
        raise WorkbenchError(f"{shorten(self.name, 80)} was not read", why=self.flaw)


def gather_server(address: str, names: Sequence[str] | None) -> tuple[str, Gathered, list[str]]:
    """Return a server's own address, the tensors that it answered with, and whose values these are."""
    server = Server(address)
    info = server.info()
    exact = names is not None and not any(_GLOB.search(name) for name in names)
    if exact:
        assert names is not None
        gathered = _by_name(server, names)
    else:
        opened = _checkpoint_of(info)
        gathered = _by_file(server, _choose(_weights_of(opened), names), number_of(info, "tp_size"))
        gathered.changed = ", ".join(map(shorten, opened.changed()[:3]))
    return server.address, gathered, _whose(info)


def held_beside(
    address: str, source: str, beside: Mapping[str, Values], notes: list[str]
) -> tuple[dict[str, Values], dict[str, Values], bool]:
    """Return a checkpoint's weights and what a server holds of them, row for row, by the file's names.

    The third says whether the server names that checkpoint as its own, so that both have to be equal.

    Raises
    ------
    WorkbenchError
        `source` is the server's draft, which cannot be asked, or the server has none of its names.
    """
    server = Server(address)
    info = server.info()
    is_own = _check_source(info, source, notes)
    weights = [weight for weight in beside.values() if isinstance(weight, LogicalWeight)]
    gathered = _by_file(server, weights, number_of(info, "tp_size"))
    notes += [*_whose(info), *gathered.notes()]
    held: dict[str, Values] = {one.name: one for one in gathered.found}
    left: dict[str, Values] = {
        weight.name: FirstRows(weight, len(held[weight.name].shape) and held[weight.name].shape[0])
        for weight in weights
        if weight.name in held
    }
    if not held:
        raise WorkbenchError(
            f"{address} has none of the parameters that this checkpoint names",
            why="; ".join(gathered.failures())
            or "it answers for its target only; its model class may not offer its weights",
            next_step="Compare with the checkpoint of the server's target.",
        )
    why = gathered.why()
    for weight in weights:
        if weight.name not in held:
            held[weight.name] = NotHeld(weight, why.get(weight.name, "its value was not answered"))
            left[weight.name] = weight
    return left, held, is_own


def _check_source(info: Mapping[str, Any], source: str, notes: list[str]) -> bool:
    """Say whether it is the checkpoint that the server names, and refuse its draft.

    Names that a draft shares with the target would be answered with the target's.
    """
    target, draft = told(info, "model_path"), told(info, "speculative_draft_model_path")
    if _is_same(source, target):
        return True
    if draft and _is_same(source, draft):
        raise WorkbenchError(
            f"{shorten(source, 80)} is the server's draft; its weights cannot be read from outside",
            why="the draft runs in its own worker, and the server only answers for its target",
            next_step="Run `workbench diff`: it shows which of the draft's keys this engine loads.",
        )
    notes.append(
        f"{shorten(source, 80)} is not the checkpoint that the server names ({target}): names that both have "
        "still belong to the target"
    )
    return False


def _is_same(one: str, other: str) -> bool:
    try:
        first, second = (Path(path).expanduser().resolve() for path in (one, other))
    except (OSError, ValueError, RuntimeError):
        return one == other
    return one == other or first == second


def _whose(info: Mapping[str, Any]) -> list[str]:
    version, model = told(info, "version"), told(info, "model_path")
    notes = [
        f"answered by SGLang {version or '(version unknown)'} for its target, {model}: "
        "it never returns the draft's weights"
    ]
    draft = told(info, "speculative_draft_model_path")
    if draft:
        notes.append(f"the draft {draft} runs in its own worker, which cannot be queried")
    ranks, replicas = number_of(info, "tp_size"), number_of(info, "dp_size")
    if ranks > 1 or replicas > 1:
        notes.append(
            f"only rank 0 of {ranks} answers, of the first of {plural(replicas, 'replica')}: its shard"
        )
    notes.append("values come as float32; NaN and infinities both come as null")
    return notes


def _checkpoint_of(info: Mapping[str, Any]) -> Checkpoint:
    from workbench.checkpoint.open import open_checkpoint

    path = info["model_path"]
    if not isinstance(path, str) or not _exists(path):
        raise WorkbenchError(
            "the names of the server's parameters are not known",
            why=f"its checkpoint {shorten(str(path), 80)} is not on this machine",
            next_step='Give them: scan_weights(address, names=["model.layers.0.mlp.down_proj.weight"]).',
        )
    return open_checkpoint(path)


def _weights_of(opened: Checkpoint) -> list[LogicalWeight]:
    weights = logical_weights(opened)
    return [weights[at] for at in range(len(weights))]


def _exists(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (
        OSError,
        ValueError,
        RuntimeError,
    ):  # what another machine calls a path may be none here
        return False


def _choose(weights: list[LogicalWeight], names: Sequence[str] | None) -> list[LogicalWeight]:
    from fnmatch import fnmatchcase

    if names is None:
        return weights
    chosen = [w for w in weights if any(fnmatchcase(w.name, name) for name in names)]
    if not chosen:
        raise WorkbenchError(
            f"the server has no parameter like {', '.join(shorten(name, 60) for name in names[:3])}",
            next_step="Give the engine's names, or a pattern such as model.layers.0.*.",
        )
    return chosen


@dataclasses.dataclass
class Gathered:
    """What was answered so far, and the names of what was not, by reason."""

    found: list[Held] = dataclasses.field(default_factory=list)
    missing: list[str] = dataclasses.field(default_factory=list)
    large: list[str] = dataclasses.field(default_factory=list)
    odd: list[str] = dataclasses.field(default_factory=list)
    not_asked: list[str] = dataclasses.field(default_factory=list)
    own_layout: list[str] = dataclasses.field(default_factory=list)
    failed: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    interrupted: bool = False
    changed: str = ""

    def stop(self, error: WorkbenchError, names: Sequence[str]) -> None:
        """Keep what was answered when the server stops answering; without any answer that is an error."""
        if not self.found:
            raise error
        why = f"not answered: the server stopped answering ({error.why or error.what})"
        self.failed.setdefault(why, []).extend(names)

    def why(self) -> dict[str, str]:
        """Say of every name that was not read why."""
        return {name: f"its value was {why}" for names, why in self._unseen() for name in names}

    def failures(self) -> list[str]:
        """Say how many were answered wrongly, and how."""
        return [f"{plural(len(names), 'tensor')} {why}" for why, names in self.failed.items()]

    def _unseen(self) -> list[tuple[list[str], str]]:
        return [
            (
                self.missing,
                "not answered: the server does not have that name, or does not offer it",
            ),
            (
                self.large,
                f"not requested: more than {MOST_ELEMENTS:,} values each would stall the server",
            ),
            (self.odd, "not compared: the shape of the answer does not show how it was split"),
            (self.not_asked, "not requested: interrupted, or too many at once"),
            (self.own_layout, _OWN_LAYOUT),
            *((names, why) for why, names in self.failed.items()),
        ]

    def notes(self) -> list[str]:
        """Say what was not read, and why."""
        told = []
        partly = [one.name for one in self.found if not one.whole]
        for names, why in (
            *self._unseen(),
            (partly, "read in part: the first rows, or this rank's"),
        ):
            if names:
                few = ", ".join(shorten(name, 70) for name in names[:3])
                more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
                told.append(f"{plural(len(names), 'tensor')} {why} ({few}{more})")
        return told


def _by_name(server: Server, names: Sequence[str]) -> Gathered:
    """Ask for names as they are given; how large each is shows only in the answer."""
    wanted = list(dict.fromkeys(names))
    seen = Gathered(not_asked=wanted[_MOST_NAMES:])
    for at, name in enumerate(wanted[:_MOST_NAMES]):
        try:
            first = server.weight(name, 1)
            rows = max(MOST_VALUES // first.size, 1) if first is not None and first.size else 0
            values = server.weight(name, rows + 1) if rows else None
        except KeyboardInterrupt:
            seen.not_asked, seen.interrupted = wanted[at:], True
            break
        except BadAnswer as error:
            seen.failed.setdefault(str(error), []).append(name)
            continue
        except WorkbenchError as error:
            seen.stop(error, wanted[at:])
            break
        if values is None:
            seen.missing.append(name)
            continue
        values = _one_replica(values)
        seen.found.append(Held(name, name, values[:rows], whole=len(values) <= rows))
    return seen


def _one_replica(values: Floats) -> Floats:
    return values[0] if values.ndim == 3 else values


def _by_file(server: Server, weights: Sequence[LogicalWeight], ranks: int) -> Gathered:
    """Ask for what a checkpoint names, joined as the engine joins it, and give each tensor its own rows."""
    asks = list(_asks(weights))
    own = [weight.name for weight in weights if weight.flaw or weight.layout]
    seen = Gathered(own_layout=own, not_asked=[name for name, _ in asks[_MOST_NAMES:]])
    bar = progress_bar(asks[:_MOST_NAMES], unit=" tensors")
    for at, (asked, members) in enumerate(bar):
        names = [member.name for member in members]
        sides = [matrix_shape(member.shape) for member in members]
        total = sum(rows for rows, _ in sides)
        if total * sides[0][1] > MOST_ELEMENTS:
            seen.large += names
            continue
        try:
            values = server.weight(asked, total + 1 + _PADDING * ranks)
        except KeyboardInterrupt:
            seen.not_asked, seen.interrupted = [name for name, _ in asks[at:]], True
            break
        except BadAnswer as error:
            seen.failed.setdefault(str(error), []).extend(names)
            continue
        except WorkbenchError as error:
            seen.stop(error, [one.name for _, rest in asks[at:] for one in rest])
            break
        if values is None:
            seen.missing += names
            continue
        parts = _split(_one_replica(values), [m.shape for m in members], ranks)
        if parts is None:
            seen.odd += names
            continue
        for member, part in zip(members, parts, strict=True):
            seen.found.append(Held(member.name, asked, part, whole=part.shape == member.shape))
    return seen


def _asks(weights: Sequence[LogicalWeight]) -> Iterator[tuple[str, list[LogicalWeight]]]:
    """Yield the engine's names with the weights of the file that each holds, in their order."""
    known = {weight.name: weight for weight in weights}
    done: set[str] = set()
    for name, weight in known.items():
        if name in done or weight.flaw or weight.layout:
            continue
        for whole, parts in _FUSED:
            part = next((text for text in parts if text in name), None)
            names = [name.replace(part, text) for text in parts] if part else []
            if part and all(text in known and not known[text].flaw for text in names):
                done.update(names)
                yield name.replace(part, whole), [known[text] for text in names]
                break
        else:
            yield name, [weight]


def _split(values: Floats, shapes: Sequence[tuple[int, ...]], ranks: int) -> list[Floats] | None:
    """Cut what the engine gave into the rows of each member; None where the shape leaves that open.

    One rank of several holds the first of `ranks` equal parts of each. A vocabulary is padded at its end.
    """
    if any(len(shape) != values.ndim or shape[1:] != values.shape[1:] for shape in shapes):
        return None
    rows = [shape[0] for shape in shapes]
    total = sum(rows)
    if len(values) == total or (len(rows) == 1 and total < len(values) <= total + _PADDING * ranks):
        ends = np.cumsum(rows)
    elif ranks > 1 and len(values) * ranks == total and not any(r % ranks for r in rows):
        ends = np.cumsum([r // ranks for r in rows])
    else:
        return None
    return np.split(values[: ends[-1]], ends[:-1])
