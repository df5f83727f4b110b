"""A draft as the trainer means it, or as a version of an engine has it in memory after loading it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from workbench.checkpoint.config import Config
from workbench.errors import WorkbenchError, shorten
from workbench.facts.flat_config import flattened
from workbench.loaders import registry
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.profile import NotCovered, Refused
from workbench.loaders.simulate import simulate
from workbench.speculation.model.config_fields import DraftConfig
from workbench.speculation.model.draft_kinds import replayed_as
from workbench.speculation.model.eagle3 import Draft, Settings
from workbench.speculation.model.experts import computed_in
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.names import canonical, naming
from workbench.speculation.model.shapes import (
    EMBED,
    HEAD,
    Found,
    Shape,
    check_layers,
    check_map,
    check_own,
    check_shapes,
    check_target,
    gated_width,
    held_layers,
    wanted_shapes,
    wrong_shape,
)

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.speculation.model.features import Target

Fill = Literal["zero", "random", "nan"]
FILLS: tuple[Fill, ...] = ("zero", "random", "nan")

_MAP = ("d2t", "t2d")


def load_draft(
    checkpoint: Checkpoint,
    target: Target | None = None,
    *,
    engine: str | None = None,
    algorithm: str = "EAGLE3",
    memory: Mapping[str, Tensor] | None = None,
    fill: Fill = "zero",
    numerics: Numerics | None = None,
    device: str = "cpu",
) -> Draft:
    """Read a draft.

    Parameters
    ----------
    checkpoint
        The draft's checkpoint.
    target
        Lends its embedding, and its head where the draft has none.
    engine
        ``"sglang==0.5.11"``: as that version has it after loading. None: by the trainer's names and flags.
    algorithm
        ``EAGLE3``; under ``EAGLE`` SGLang gives the draft the target's head and no map of its vocabulary.
    memory
        Tensors that were captured in the running engine, by its own names; they go before the file.
    fill
        What an engine's uninitialised matrices are taken to hold where no evidence has them; norms start at
        one in every engine.
    numerics
        Where results are rounded.

    Raises
    ------
    WorkbenchError
        The config does not describe a draft, or a tensor is missing that nothing can stand in for.
    """
    replayed = replayed_as(checkpoint)
    last = replayed.joining != "eagle3"  # the target's last features alone are read
    outcome: LoadOutcome | None = None
    text: Mapping[str, Any] = checkpoint.config.text
    notes: list[str] = []
    if engine is not None:
        try:
            outcome, text = _loaded(checkpoint, engine)
        except NotCovered as error:
            if not last:
                raise _not_run(
                    f"what {engine} loads of this draft is not known", error.text, engine
                ) from None
            notes = [f"what {engine} loads of this draft is not known: replayed with every tensor"]
    facts = outcome.facts if outcome else {}
    config = DraftConfig(text, facts)
    settings = config.settings(
        _joined(checkpoint, config),
        outcome.engine if outcome else "",
        numerics or Numerics(),
        replayed,
    )
    check_layers(settings, checkpoint.names)
    found, more = _held(checkpoint, outcome, settings, config)
    notes += more
    for name, held in (memory or {}).items():
        for part, value in _split(naming(checkpoint.names)(name), held, settings):
            found[part] = ("memory", value)
    as_eagle = (engine or "").startswith("sglang") and (last or algorithm != "EAGLE3")
    _share(found, facts, target, as_eagle, config.vocabulary if outcome else 0)
    vocabulary = check_target(found, settings, target, as_eagle or last)
    offsets = None if last else _offsets(checkpoint, outcome)
    rows = config.vocabulary if outcome else _rows(found, offsets, config.vocabulary)
    rows = rows or vocabulary
    if engine is None:
        _return_head(found, rows)
        notes += _contradictions(checkpoint, found, config, rows, settings.routing is None)
    gated = 0 if settings.routing else gated_width(found, config.gated)
    check_shapes(found, settings, rows, gated)
    mapped = _target_ids(None if as_eagle else offsets, rows, vocabulary)
    if HEAD not in found and rows > vocabulary:
        raise config.odd("draft_vocab_size", f"the target has {vocabulary:,} tokens")
    _fill(found, wanted_shapes(settings, rows, gated), fill, 1.0 - settings.centred)
    tensors = {n: computed_in(n, value.to(device)) for n, (_, value) in found.items()}
    origins = {name: origin for name, (origin, _) in found.items()}
    notes += _notes(mapped, target, origins)
    return Draft(settings, tensors, mapped.to(device), origins, tuple(notes))


def served_config(config: Config, engine: str | None) -> Config:
    """Return the config as an engine reads it; None: as the trainer wrote it.

    vLLM reads speculators' nested form. Others are given it flattened, in SGLang's words: layer ids to which
    it adds one, and which would be other layers in vLLM.
    """
    if engine is None or config.layout != "speculators" or registry.parse(engine).name == "vllm":
        return config
    return Config(dict(flattened(config, registry.parse(engine).version)), config.source)


def _loaded(checkpoint: Checkpoint, engine: str) -> tuple[LoadOutcome, Mapping[str, Any]]:
    """Return what an engine's loader does with the checkpoint, and the config that it reads.

    Raises
    ------
    NotCovered
        What it does with a name, or with such a config, is not known.
    """
    config = served_config(checkpoint.config, engine)
    choice = registry.select(registry.parse(engine), config)
    version, profile = choice.profiles[-1]
    try:
        model = profile.build(config)
    except Refused as error:
        raise WorkbenchError(
            f"{engine} does not load this draft",
            why=error.text,
            next_step="See diff_keys for what it refuses; engine=None replays by the trainer's names.",
        ) from None
    outcome = simulate(profile, model, checkpoint.table, version)
    if outcome.outcome != "loads":
        raise _not_run(f"{engine} does not load this draft", outcome.error, engine)
    for group in outcome.keys:
        if (
            group.status == "mismatched" and not group.parameter
        ):  # d2t, which goes into no parameter
            what = f"{engine} drafts with a meaningless draft vocabulary"
            raise _not_run(what, f"{group.names[0]}: {group.reason}", engine)
    return outcome, config.text


def _not_run(what: str, why: str, engine: str) -> WorkbenchError:
    return WorkbenchError(
        what,
        why=why,
        next_step=f"Run workbench diff with engine {engine}: it names every tensor that does not fit.",
    )


def _held(
    checkpoint: Checkpoint, outcome: LoadOutcome | None, settings: Settings, config: DraftConfig
) -> tuple[Found, list[str]]:
    """Return the tensors that reach a parameter, by canonical name and in parts; and what to say of them."""
    found: Found = {}
    notes: list[str] = []
    wanted = wanted_shapes(settings, config.vocabulary, config.gated)
    keys: dict[str, str] = {}
    named = naming(checkpoint.names)
    if outcome is None:
        _check_plain(checkpoint)
    for key, fits in _reaching(checkpoint, outcome).items():
        for part, value in _split(named(key), checkpoint.tensor(key), settings):
            if outcome is None:
                check_own(key, part, value, keys, wanted)
            if fits or part not in wanted:
                found[part] = ("file", value)
            else:
                found[part] = ("file", _cut(value, wanted[part]))
                held = f"{part} has shape {list(value.shape)} in the file"
                notes.append(f"{held}: cut or padded to {list(wanted[part])} silently")
    return found, notes


def _reaching(checkpoint: Checkpoint, outcome: LoadOutcome | None) -> dict[str, bool]:
    """Return the keys that reach a parameter, and whether each has its shape."""
    if outcome is None:
        keys = dict.fromkeys(checkpoint.names, True)
    else:
        taken = [g for g in outcome.keys if g.status in ("loaded", "mismatched")]
        keys = {name: g.status == "loaded" for g in taken for name in g.names}
    return {k: fits for k, fits in keys.items() if k.rpartition(".")[2] not in _MAP}


def _check_plain(checkpoint: Checkpoint) -> None:
    """Raise where the weights are stored as codes."""
    if checkpoint.quantization.groups:
        raise WorkbenchError(
            "the draft is quantised",
            why=f"its weights are stored as {checkpoint.quantization.format}, and this type is not read here",
            next_step="Give the draft before it was quantised; trainers save it in bfloat16.",
        )


def _cut(value: Tensor, shape: Shape) -> Tensor:
    """Return a tensor cut to a shape, and padded with zeros where it is too short."""
    out = value.new_zeros(shape)
    place = tuple(slice(min(a, b)) for a, b in zip(value.shape, shape, strict=True))
    out[place] = value[place]
    return out


def _joined(checkpoint: Checkpoint, config: DraftConfig) -> int:
    """Return how many layers `fc` joins, by its shape; 3 where that says nothing."""
    named = naming(checkpoint.names)
    for name in checkpoint.names:
        if named(name) == "fc.weight":
            rows, *columns = checkpoint[name].shape or (0,)
            whole = len(columns) == 1 and not columns[0] % config.width
            if whole and rows == config.whole("hidden_size"):
                return max(1, columns[0] // config.width)
    return 3


def _split(name: str, value: Tensor, settings: Settings) -> Iterable[tuple[str, Tensor]]:
    """Return a tensor, or the parts of a fused one, by name."""
    import torch

    s = settings
    sizes: list[int]
    parts: tuple[str, ...]
    if ".qkv_proj." in name:
        fused, parts = "qkv_proj", ("q_proj", "k_proj", "v_proj")
        sizes = [
            s.heads * s.head_dim * (1 + s.output_gate),
            s.key_heads * s.head_dim,
            s.key_heads * s.head_dim,
        ]
    elif ".gate_up_proj." in name:
        fused, parts = "gate_up_proj", ("gate_proj", "up_proj")
        sizes = [len(value) // 2] * 2 if value.dim() else [0]
    elif ".fused_qkv_a_proj_with_mqa." in name and s.latent:
        fused, parts = "fused_qkv_a_proj_with_mqa", ("q_a_proj", "kv_a_proj_with_mqa")
        sizes = [s.latent.q_rank, s.latent.kv_rank + s.latent.turned]
    else:
        return ((name, value),)
    if value.dim() == 0 or sum(sizes) != value.shape[0]:
        raise WorkbenchError(
            f"{shorten(name, 80)} has shape {list(value.shape)}, and its parts have {sum(sizes)} rows",
            next_step="Compare config.json with the training run's.",
        )
    pieces = torch.split(value, sizes)
    return [(name.replace(fused, part), piece) for part, piece in zip(parts, pieces, strict=True)]


def _share(
    found: Found,
    facts: Mapping[str, Any],
    target: Target | None,
    as_eagle: bool,
    rows: int,
) -> None:
    """Put in what the target lends: embedding, head. An engine reads the first `rows` of that, if not all."""
    embed, head = EMBED, HEAD
    # vLLM lends what the file does not hold, as the trainer does; SGLang by rules of its own.
    lends = facts.get("embed_from_target", embed not in found)
    borrows = facts.get("lm_head_from_target", head not in found)
    if as_eagle:
        lends = borrows = True
    if target is not None:
        if lends:
            found[embed] = ("target", target.embedding)
        if borrows:
            found[head] = ("target", target.head[: rows or None])
    elif embed not in found:
        raise WorkbenchError(
            "the draft has no embedding of its own",
            why="engines take the target's",
            next_step="Give the target's checkpoint: only its embedding and head are read.",
        )
    if facts.get("tied"):
        found[head] = found[embed]


def _return_head(found: Found, rows: int) -> None:
    """Take back a head that the target cannot lend: it speaks of every token, the draft of some."""
    origin, head = found.get(HEAD, ("", None))
    if origin == "target" and head is not None and head.shape[0] != rows:
        del found[HEAD]


def _rows(found: Found, offsets: Tensor | None, said: int) -> int:
    """Return the size of the draft's vocabulary by its own head, else by its map, else as it is said."""
    origin, head = found.get(HEAD, ("", None))
    if head is not None and origin != "target" and head.dim():
        if not len(head):
            raise wrong_shape(HEAD, tuple(head.shape), (said, *head.shape[1:]), origin)
        return len(head)
    return len(offsets) if offsets is not None and offsets.dim() else said


def _offsets(checkpoint: Checkpoint, outcome: LoadOutcome | None) -> Tensor | None:
    """Return d2t as the file holds it; None where there is none, or where the engine does not read it."""
    names = [name for name in checkpoint.names if canonical(name) == "d2t"]
    if outcome is not None:
        taken = {n for g in outcome.keys if g.status == "loaded" for n in g.names}
        names = [name for name in names if name in taken]
    return checkpoint.tensor(names[0]) if names else None


def _target_ids(offsets: Tensor | None, rows: int, vocabulary: int) -> Tensor:
    """Return the target id of each draft id."""
    import torch

    own = torch.arange(rows)
    if offsets is None:
        return own
    check_map(offsets, rows, vocabulary)
    return offsets.long() + own


def _contradictions(
    checkpoint: Checkpoint, found: Found, config: DraftConfig, rows: int, dense: bool
) -> list[str]:
    """Return where the file's own shapes are taken and the config says others."""
    notes = []
    gated = gated_width(found, config.gated) if dense else config.gated
    for name, said, held in (
        ("draft_vocab_size", config.vocabulary, rows), ("intermediate_size", config.gated, gated),
    ):  # fmt: skip
        if said and said != held:
            notes.append(
                f"the config says {name} is {said:,}, and the file holds {held:,}: replayed with the file's; "
                "an engine uses the config's"
            )
    said, layers = config.whole("num_hidden_layers", 1), held_layers(checkpoint.names)
    if layers > said:
        notes.append(
            f"the file holds {layers} decoder layers, and the config says {said}: replayed with {said}"
        )
    return notes


def _fill(found: Found, shapes: Mapping[str, Shape], fill: Fill, gain: float) -> None:
    """Put something in the place of every tensor that is not there; `gain` is what norms begin with."""
    import torch

    for name, shape in shapes.items():
        if name in found:
            continue
        if len(shape) == 1:
            found[name] = ("ones", torch.full(shape, gain))
        else:
            found[name] = (fill, _filled(name, shape, fill))


def _filled(name: str, shape: tuple[int, ...], fill: Fill) -> Tensor:
    import torch

    if fill == "random":
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.empty(shape).normal_(0, 0.02, generator=generator)
    return torch.full(shape, 0.0 if fill == "zero" else float("nan"))


def _notes(mapped: Tensor, target: Target | None, origins: Mapping[str, str]) -> list[str]:
    notes = list(getattr(target, "notes", ()))
    lost = [name for name, origin in origins.items() if origin in FILLS]
    if lost:
        notes.append(f"{len(lost)} tensors have no known values, {lost[0]} among them")
    if target is not None and int(mapped.max()) >= target.vocabulary:
        notes.append("the draft names tokens past the target's vocabulary: an engine stops there")
    return notes
