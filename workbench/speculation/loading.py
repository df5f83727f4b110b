"""A draft as the trainer means it, or as a version of an engine has it in memory after loading it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from workbench.checkpoint.config import Config
from workbench.engines import registry
from workbench.engines.outcome import LoadOutcome
from workbench.engines.profile import NotCovered, Refused
from workbench.engines.simulate import simulate
from workbench.errors import WorkbenchError, shown
from workbench.speculation.eagle3 import Draft, Settings
from workbench.speculation.layers import Numerics
from workbench.speculation.mla import Latent
from workbench.speculation.rope import attention_scale, rope_of

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.checkpoint.open import Checkpoint
    from workbench.speculation.features import Target

Fill = Literal["zero", "random", "nan"]
FILLS: tuple[Fill, ...] = ("zero", "random", "nan")

_OLD = (
    ("midlayer.", "layers.0."),
    ("aux_norm_low.", "fc_norm.0."),
    ("aux_norm_mid.", "fc_norm.1."),
    ("aux_norm_high.", "fc_norm.2."),
)
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
    outcome, config = (
        (None, checkpoint.config.text) if engine is None else _loaded(checkpoint, engine)
    )
    facts = outcome.facts if outcome else {}
    name = outcome.engine if outcome else ""
    settings = _settings(config, checkpoint, facts, name, numerics or Numerics())
    found: dict[str, tuple[str, Tensor]] = {}
    for key, name in _held(checkpoint, outcome).items():
        for part, value in _split(name, checkpoint.tensor(key), settings):
            found[part] = ("file", value)
    for name, held in (memory or {}).items():
        for part, value in _split(canonical(name), held, settings):
            found[part] = ("memory", value)
    as_eagle = outcome is not None and outcome.engine == "sglang" and algorithm != "EAGLE3"
    rows = int(facts.get("draft_vocab_size") or config.get("draft_vocab_size") or 0)
    _share(found, facts, target, as_eagle, rows if outcome else 0)
    mapped = _target_ids(checkpoint, outcome, as_eagle, rows or _rows(found))
    if outcome is None:
        _return_head(found, len(mapped))
    _fill(found, settings, len(mapped), fill, int(config.get("intermediate_size") or 0))
    tensors = {name: value.to(device).float() for name, (_, value) in found.items()}
    origins = {name: origin for name, (origin, _) in found.items()}
    return Draft(settings, tensors, mapped.to(device), origins, _notes(mapped, target, origins))


def canonical(key: str) -> str:
    """Return a tensor's name as speculators spells it: ``model.midlayer.…`` is ``layers.0.…``."""
    name = key.removeprefix("model.")
    for old, new in _OLD:
        if name.startswith(old):
            name = new + name[len(old) :]
    return name


def served_config(config: Config, engine: str | None) -> Config:
    """Return the config as an engine reads it; None: as the trainer wrote it.

    vLLM reads speculators' nested form. Others are given it flattened, in SGLang's words: layer ids to which
    it adds one, and which would be other layers in vLLM.
    """
    if engine is None or config.layout != "speculators" or registry.parse(engine).name == "vllm":
        return config
    return Config(config.flattened(), config.source)


def _loaded(checkpoint: Checkpoint, engine: str) -> tuple[LoadOutcome, Mapping[str, Any]]:
    """Return what an engine's loader does with the checkpoint, and the config that it reads."""
    config = served_config(checkpoint.config, engine)
    choice = registry.select(registry.parse(engine), config)
    version, profile = choice.profiles[-1]
    try:
        model = profile.build(config)
    except (Refused, NotCovered) as error:
        raise WorkbenchError(
            f"{engine} does not load this draft",
            why=error.text,
            next_step="See diff_keys for what it refuses; engine=None replays by the trainer's names.",
        ) from None
    return simulate(profile, model, checkpoint.table, version), config.text


def _held(checkpoint: Checkpoint, outcome: LoadOutcome | None) -> dict[str, str]:
    """Return the keys that reach a parameter, each with its canonical name."""
    if outcome is None:
        names: Iterable[str] = checkpoint.names
    else:
        names = (n for g in outcome.keys if g.status == "loaded" for n in g.names)
    return {key: canonical(key) for key in names if canonical(key).rpartition(".")[2] not in _MAP}


def _settings(
    config: Mapping[str, Any],
    checkpoint: Checkpoint,
    facts: Mapping[str, Any],
    engine: str,
    numerics: Numerics,
) -> Settings:
    """Return what the draft computes, by its config and by what the engine reads of it."""

    def whole(name: str, default: int | None = None) -> int:
        value = config.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 24:
            raise WorkbenchError(
                f"the draft's config says {name} is {shown(value)}",
                why="a whole number is wanted",
                next_step="Correct config.json: compare it with the training run's.",
            )
        return value

    def flag(name: str) -> bool:
        return bool(facts.get(name, config.get(name, False)))

    hidden, heads = whole("hidden_size"), whole("num_attention_heads")
    latent = None
    head_dim = whole("head_dim", hidden // heads)
    turned = head_dim
    if config.get("kv_lora_rank") is not None:
        latent = Latent(
            whole("q_lora_rank"), whole("kv_lora_rank"), whole("qk_nope_head_dim"),
            whole("qk_rope_head_dim"), whole("v_head_dim"),
        )  # fmt: skip
        turned, head_dim = latent.turned, latent.plain + latent.turned
    width = whole("target_hidden_size", hidden)
    epsilon = config.get("rms_norm_eps", 1e-6)
    return Settings(
        hidden=hidden,
        heads=heads,
        key_heads=heads if latent else whole("num_key_value_heads", heads),
        head_dim=head_dim,
        layers=whole("num_hidden_layers", 1),
        aux=int(facts.get("num_aux") or _joined(checkpoint, width)),
        aux_width=width,
        epsilon=float(epsilon),
        rope=rope_of(
            config, turned, interleaved=bool(latent and config.get("rope_interleave", True))
        ),
        scale=attention_scale(config, head_dim),
        norm_before_fc=flag("norm_before_fc"),
        fc_norm=flag("fc_norm") or flag("use_aux_norm"),
        norm_before_residual=flag("norm_before_residual"),
        norm_output=flag("norm_output"),
        later_norm="hidden_norm" if engine == "sglang" else "input_layernorm",
        latent=latent,
        numerics=numerics,
    )


def _joined(checkpoint: Checkpoint, width: int) -> int:
    """Return how many layers `fc` joins, by its shape; 3 where there is none."""
    for name in checkpoint.names:
        if canonical(name) == "fc.weight" and len(checkpoint[name].shape) == 2:
            return max(1, checkpoint[name].shape[1] // width)
    return 3


def _split(name: str, value: Tensor, settings: Settings) -> Iterable[tuple[str, Tensor]]:
    """Return a tensor, or the parts of a fused one, by name."""
    import torch

    s = settings
    sizes: list[int]
    parts: tuple[str, ...]
    if ".qkv_proj." in name:
        fused, parts = "qkv_proj", ("q_proj", "k_proj", "v_proj")
        sizes = [s.heads * s.head_dim, s.key_heads * s.head_dim, s.key_heads * s.head_dim]
    elif ".gate_up_proj." in name:
        fused, parts = "gate_up_proj", ("gate_proj", "up_proj")
        sizes = [value.shape[0] // 2] * 2
    elif ".fused_qkv_a_proj_with_mqa." in name and s.latent:
        fused, parts = "fused_qkv_a_proj_with_mqa", ("q_a_proj", "kv_a_proj_with_mqa")
        sizes = [s.latent.q_rank, s.latent.kv_rank + s.latent.turned]
    else:
        return ((name, value),)
    if sum(sizes) != value.shape[0]:
        raise WorkbenchError(
            f"{shown(name)} has {value.shape[0]} rows, {sum(sizes)} are wanted",
            next_step="Compare config.json with the training run's.",
        )
    pieces = torch.split(value, sizes)
    return [(name.replace(fused, part), piece) for part, piece in zip(parts, pieces, strict=True)]


def _share(
    found: dict[str, tuple[str, Tensor]],
    facts: Mapping[str, Any],
    target: Target | None,
    as_eagle: bool,
    rows: int,
) -> None:
    """Put in what the target lends: embedding, head. An engine reads the first `rows` of that, if not all."""
    embed, head = "embed_tokens.weight", "lm_head.weight"
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
            next_step="Give the target's checkpoint: embedding and head are all that is read of it.",
        )
    if facts.get("tied"):
        found[head] = found[embed]


def _return_head(found: dict[str, tuple[str, Tensor]], rows: int) -> None:
    """Take back a head that the target cannot lend: it speaks of every token, the draft of some."""
    origin, head = found.get("lm_head.weight", ("", None))
    if origin == "target" and head is not None and head.shape[0] != rows:
        del found["lm_head.weight"]


def _rows(found: Mapping[str, tuple[str, Tensor]]) -> int:
    """Return the size of the draft's vocabulary by its head, else by its embedding."""
    pair = found.get("lm_head.weight") or found["embed_tokens.weight"]
    return int(pair[1].shape[0])


def _target_ids(
    checkpoint: Checkpoint, outcome: LoadOutcome | None, as_eagle: bool, rows: int
) -> Tensor:
    """Return the target id of each draft id."""
    import torch

    names = [name for name in checkpoint.names if canonical(name) == "d2t"]
    if outcome is not None:
        taken = {n for g in outcome.keys if g.status == "loaded" for n in g.names}
        names = [name for name in names if name in taken]
    if as_eagle or not names:
        return torch.arange(rows)
    offsets = checkpoint.tensor(names[0]).long()
    return offsets + torch.arange(len(offsets))


def wanted_shapes(settings: Settings, rows: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors that a draft of these settings computes with, and their shapes.

    A width that the settings do not name is 0.
    """
    s = settings
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (s.hidden, s.aux * s.aux_width)}
    for layer in range(s.layers):
        name, wide = f"layers.{layer}.", s.hidden * (2 if layer == 0 else 1)
        shapes |= {f"{name}{norm}.weight": (s.hidden,) for norm in _norms(s, layer)}
        if s.latent:
            a = s.latent
            shapes |= {
                f"{name}self_attn.q_a_proj.weight": (a.q_rank, wide),
                f"{name}self_attn.q_a_layernorm.weight": (a.q_rank,),
                f"{name}self_attn.q_b_proj.weight": (s.heads * s.head_dim, a.q_rank),
                f"{name}self_attn.kv_a_proj_with_mqa.weight": (a.kv_rank + a.turned, wide),
                f"{name}self_attn.kv_a_layernorm.weight": (a.kv_rank,),
                f"{name}self_attn.kv_b_proj.weight": (s.heads * (a.plain + a.value), a.kv_rank),
                f"{name}self_attn.o_proj.weight": (s.hidden, s.heads * a.value),
            }
        else:
            shapes |= {
                f"{name}self_attn.q_proj.weight": (s.heads * s.head_dim, wide),
                f"{name}self_attn.k_proj.weight": (s.key_heads * s.head_dim, wide),
                f"{name}self_attn.v_proj.weight": (s.key_heads * s.head_dim, wide),
                f"{name}self_attn.o_proj.weight": (s.hidden, s.heads * s.head_dim),
            }
        shapes |= {f"{name}mlp.{part}_proj.weight": (0, s.hidden) for part in ("gate", "up")}
        shapes[f"{name}mlp.down_proj.weight"] = (s.hidden, 0)
    shapes["norm.weight"] = (s.hidden,)
    shapes["lm_head.weight"] = (rows, s.hidden)
    return shapes


def _norms(settings: Settings, layer: int) -> tuple[str, ...]:
    if layer == 0:
        return ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    return (settings.later_norm, "post_attention_layernorm")


def _fill(
    found: dict[str, tuple[str, Tensor]], settings: Settings, rows: int, fill: Fill, gated: int
) -> None:
    """Put something in the place of every tensor that is not there."""
    import torch

    for name, shape in wanted_shapes(settings, rows).items():
        if name in found:
            continue
        if len(shape) == 1:
            found[name] = ("ones", torch.ones(shape))
        else:
            found[name] = (fill, _filled(name, tuple(n or gated for n in shape), fill))


def _filled(name: str, shape: tuple[int, ...], fill: Fill) -> Tensor:
    import torch

    if fill == "random":
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.empty(shape).normal_(0, 0.02, generator=generator)
    return torch.full(shape, 0.0 if fill == "zero" else float("nan"))


def _notes(mapped: Tensor, target: Target | None, origins: Mapping[str, str]) -> tuple[str, ...]:
    notes = []
    lost = [name for name, origin in origins.items() if origin in FILLS]
    if lost:
        notes.append(f"{len(lost)} tensors hold no known values, {lost[0]} among them")
    if target is not None and int(mapped.max()) >= target.vocabulary:
        notes.append("the draft names tokens past the target's vocabulary: an engine stops there")
    return tuple(notes)
