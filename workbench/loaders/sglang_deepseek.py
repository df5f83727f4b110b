"""SGLang's DeepSeek family: V2 and V3 targets, the NextN draft layer; `sglang_kimi` adds to it.

One loader serves all of them (``deepseek_v2.py``, since 0.5.8 ``deepseek_common/deepseek_weight_loader.py``).
Shared experts are described as a module of their own. On NVIDIA GPUs DeepSeek-V3 and R1 count them among the
routed experts unless --disable-shared-experts-fusion is given: the same keys load, under another name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from workbench.loaders.families import (
    PLAIN,
    Blueprint,
    Layout,
    experts,
    layout_of,
    mla,
    mlp,
    whole,
)
from workbench.loaders.profile import Model, NotCovered, Profile, Reaction, Refused, Route, indices
from workbench.loaders.sglang_parts import (
    cut_to_share,
    flag,
    last_alike,
    merge,
    mismatch_place,
    place_in,
    readable,
    verified_in,
    vocabulary,
    worker_place,
)

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

V2 = "models/deepseek_v2.py"
COMMON = "deepseek_common/deepseek_weight_loader.py"

# Numbers past the last layer that are routed on their own: the NextN layers stand there.
PAST = 8
_HEAD = "the target's lm_head"
_EMBED = "the target's embed_tokens"
_NEXTN_OWN = ("shared_head.norm", "eh_proj", "enorm", "hnorm")


@dataclasses.dataclass(frozen=True)
class Rules:
    """How the loader of one range of releases treats keys.

    Attributes
    ----------
    joint
        q_a_proj and kv_a_proj_with_mqa become one parameter, written once both were seen.
    plain, expert
        The reaction to an unknown key, and to an unknown key of an expert; gate_proj and up_proj
        outside of experts always raise a KeyError.
    skips_layers
        Keys of layers past the last are skipped as another pipeline stage's.
    whole_experts
        ``experts.gate_up_proj`` and ``experts.down_proj`` with all experts in one tensor are taken too.
    """

    first: str
    last: str
    file: str
    joint: bool = True
    plain: Reaction = "warning"
    expert: Reaction = "raises"
    skips_layers: bool = True
    whole_experts: bool = False
    seen: str = ""

    @property
    def version(self) -> str:
        """The release whose lines are cited."""
        return self.seen or self.last

    @property
    def place(self) -> str:
        """Where the loader stands."""
        return place_in(self.file, self.version, "load_weights")

    @property
    def reads_number(self) -> bool:
        """Whether post_load_weights parses the names it was given; seen from 0.4.7 on."""
        return Version(self.first) >= Version("0.4.7")


RULES: tuple[Rules, ...] = (
    Rules(
        "0.4.4",
        "0.4.5.post3",
        V2,
        joint=False,
        plain="raises",
        skips_layers=False,
    ),
    Rules("0.4.6", "0.4.7.post1", V2, plain="raises", skips_layers=False),
    Rules("0.4.8", "0.4.10.post2", V2, skips_layers=False),
    Rules("0.5.1", "0.5.5.post3", V2),
    Rules("0.5.6", "0.5.7", V2, expert="warning"),
    Rules("0.5.8", "0.5.19", COMMON, expert="warning"),
    Rules("0.5.20", last_alike(COMMON, V2), COMMON, expert="warning", whole_experts=True),
)


def _sparse(config: Config, layers: int) -> list[int]:
    """Return the numbers of the layers with experts."""
    if config.get("n_routed_experts", None) is None:
        return []
    first, every = config.get("first_k_dense_replace", 0), config.get("moe_layer_freq", 1) or 1
    for name, value in (("first_k_dense_replace", first), ("moe_layer_freq", every)):
        if not isinstance(value, int):
            raise Refused(f"{name} is {value!r:.60} in the config: TypeError", V2)
    return [n for n in range(layers) if n >= first and n % every == 0]


def _layout(config: Config, module: str, prefix: str, *, packed: bool = False) -> Layout:
    """Return how a module is stored; codes of 4 bits are described for experts alone."""
    layout = layout_of(config, f"{prefix}{module}")
    if layout.name == "pack-quantized" and not packed:
        raise NotCovered(f"{module} in packed codes: only experts are described in this form")
    return layout


def decoder(
    out: Blueprint,
    config: Config,
    rules: Rules,
    layers: list[int],
    sparse: list[int],
    prefix: str = "",
) -> None:
    """Add decoder layers under ``model.layers.{}``.

    Parameters
    ----------
    layers, sparse
        Numbers of all layers and of those with experts.
    prefix
        What the checkpoint's names have before ``model.``, for the quantisation's list of exceptions.
    """
    hidden, some = whole(config, "hidden_size"), str(layers[-1])
    index, name = indices(layers), "model.layers.{}"
    attention = _layout(config, f"model.layers.{some}.self_attn.o_proj", prefix)
    mla(out, f"{name}.self_attn", index, config, layout=attention, joint=True)
    if attention.name == "fp8-block":
        # Scales of an FP8 cache: 1 unless a file brings them.
        for part in ("attn_mqa", "attn_mha"):
            for scale in ("k_scale", "v_scale"):
                out.add(f"{name}.self_attn.{part}.{scale}", (), index, optional=True)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        out.add(f"{name}.{norm}.weight", (hidden,), index)
    dense = sorted(set(layers) - set(sparse))
    if dense:
        layout = _layout(config, f"model.layers.{dense[0]}.mlp.up_proj", prefix)
        inner = whole(config, "intermediate_size")
        mlp(out, f"{name}.mlp", indices(dense), hidden, inner, layout=layout)
    if sparse:
        _experts(out, config, rules, sparse, prefix)
    if not rules.joint and config.get("q_lora_rank", None) is not None:
        _apart(out)


def _experts(out: Blueprint, config: Config, rules: Rules, sparse: list[int], prefix: str) -> None:
    hidden, inner = whole(config, "hidden_size"), whole(config, "moe_intermediate_size")
    count, shared = whole(config, "n_routed_experts"), config.get("n_shared_experts", None)
    index, name, some = indices(sparse), "model.layers.{}.mlp", f"model.layers.{sparse[-1]}.mlp"
    out.add(f"{name}.gate.weight", (count, hidden), index)
    if config.get("topk_method", "noaux_tc") == "noaux_tc":
        out.add(f"{name}.gate.e_score_correction_bias", (count,), index)
    layout = _layout(config, f"{some}.experts.0.up_proj", prefix, packed=True)
    experts(
        out,
        f"{name}.experts",
        sparse,
        count=count,
        hidden=hidden,
        intermediate=inner,
        layout=layout,
    )
    if layout.name == "pack-quantized":
        _packed_experts(out, f"{name}.experts", sparse, count, hidden, inner)
    if rules.whole_experts and layout == PLAIN:
        for key, into, shape in (
            ("gate_up_proj", "w13_weight", (count, 2 * inner, hidden)),
            ("down_proj", "w2_weight", (count, hidden, inner)),
        ):
            parameter = f"{name}.experts.{into}"
            out.add(f"{name}.experts.{key}", shape, index, parameter=parameter, alternative=True)
    if shared:
        layout = _layout(config, f"{some}.shared_experts.up_proj", prefix)
        mlp(out, f"{name}.shared_experts", index, hidden, inner * shared, layout=layout)


def _packed_experts(
    out: Blueprint, name: str, sparse: list[int], count: int, hidden: int, inner: int
) -> None:
    """Add what CompressedTensorsWNA16MoE keeps beside the codes, and turn the codes' shapes.

    Codes and scales are kept transposed. The activation order is kept too, though files without one
    (Kimi's) fill none of it and nothing reads it then.
    """
    for into in ("w13", "w2"):
        for suffix in ("weight_packed", "weight_scale"):
            parameter = f"{name}.{into}_{suffix}".replace("{}", "{0}", 1)
            experts_, rows, columns = out.shapes[parameter]
            out.shapes[parameter] = (experts_, columns, rows)
    index = indices(sparse)
    for projection, into, columns in (("gate_proj", "w13", hidden), ("down_proj", "w2", inner)):
        out.add(
            f"{name}.{{}}.{projection}.weight_g_idx",
            (columns,),
            indices(sparse, range(count)),
            parameter=f"{name}.{into}_weight_g_idx",
            whole=(count, columns),
            fraction=1 / count,
            optional=True,
        )
        sorted_ = f"{name}.{into}_g_idx_sort_indices"
        out.add(sorted_, (count, columns), index, optional=True)


def _apart(out: Blueprint) -> None:
    """Undo the fusing of q_a_proj and kv_a_proj_with_mqa (releases before 0.4.6)."""
    for at, slot in enumerate(out.slots):
        if slot.joint:
            own = slot.template.replace("{}", "{0}")
            out.shapes.pop(slot.parameter, None)
            if slot.shape is not None:
                out.shapes[own] = slot.shape
            out.slots[at] = dataclasses.replace(slot, parameter=own, fraction=1.0, joint="")


def _finish(out: Blueprint, rules: Rules) -> None:
    cut_to_share(out, rules.first)
    # "up_proj" is found inside "gate_up_proj": what is fused already gets a name no parameter has.
    out.slots[:] = [s for s in out.slots if not (s.alternative and ".gate_up_proj." in s.template)]


def deepseek_route(name: str, rules: Rules, facts: Mapping[str, Any]) -> Route:
    """Return where a key of a decoder goes, the numbers of layers settled already."""
    place = rules.place
    if rules.reads_number and "kv_b_proj" in name and not _third_part(name).isdecimal():
        said = (
            "after loading, SGLang reads the layer's number from the third part of each such name"
        )
        return Route("raise", reason=said, place=place)
    if "rotary_emb.inv_freq" in name:
        return Route("ignore", reason="a table that SGLang computes itself", place=place)
    if "lm_head.weight" in name and facts["tied"]:
        return Route("ignore", reason="tied to the embedding", place=place)
    if name.endswith(".bias") and "gate." not in name:
        return Route("load", name, place=place, unknown="silent")
    if "mlp.experts." in name:
        return Route("load", name, place=place, unknown=rules.expert)
    for scale in ("k_scale", "v_scale"):
        if scale in name:
            renamed = name.replace(f"{scale[0]}_proj", "attn_mqa")
            return Route("load", renamed, place=place, unknown=rules.plain)
    if "gate_proj" in name or "up_proj" in name:
        return Route("load", name, "a KeyError where there is no such parameter", place, "raises")
    if rules.joint and facts["q_lora"] and ("q_a_proj" in name or "kv_a_proj_with_mqa" in name):
        return Route("load", name, "held until its partner arrives", place, "silent")
    return Route("load", name, place=place, unknown=rules.plain)


def _third_part(name: str) -> str:
    return [*name.split("."), "", "", ""][2]


def deepseek_facts(config: Config, layers: int) -> dict[str, Any]:
    """Return what the routes need to know of a config."""
    return {
        "hidden_size": whole(config, "hidden_size"),
        "vocab_size": whole(config, "vocab_size"),
        "num_layers": layers,
        "num_nextn": int(config.get("num_nextn_predict_layers", 0) or 0),
        "tied": flag(config, "tie_word_embeddings"),
        "q_lora": config.get("q_lora_rank", None) is not None,
        "shared_experts": "apart; on NVIDIA GPUs DeepSeek-V3 and R1 count them among the experts",
    }


@dataclasses.dataclass(frozen=True)
class Target:
    """A DeepSeek target class over one range of releases; `prefix` is what Kimi's names begin with."""

    model_class: str
    rules: Rules

    def build(self, config: Config) -> Model:
        """Return what the class builds."""
        readable(config, self.rules.version)
        layers = whole(config, "num_hidden_layers")
        out = Blueprint()
        language(out, config, self.rules)
        return out.model(
            special=frozenset(range(layers, layers + PAST)), facts=deepseek_facts(config, layers)
        )

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes."""
        past = past_layer(key, model, self.rules)
        return past or deepseek_route(key, self.rules, model.facts)

    def profile(self) -> Profile:
        """Return the profile of this range."""
        return deepseek_profile(self.model_class, self.rules, self.build, self.route)


def language(out: Blueprint, config: Config, rules: Rules, prefix: str = "") -> None:
    """Add a whole language model: embedding, layers, norm and head."""
    layers, hidden = whole(config, "num_hidden_layers"), whole(config, "hidden_size")
    vocab = whole(config, "vocab_size")
    vocabulary(out, "model.embed_tokens", vocab, hidden)
    decoder(out, config, rules, list(range(layers)), _sparse(config, layers), prefix)
    out.add("model.norm.weight", (hidden,))
    if not flag(config, "tie_word_embeddings"):
        vocabulary(out, "lm_head", vocab, hidden)
    _finish(out, rules)


def past_layer(name: str, model: Model, rules: Rules) -> Route | None:
    """Return what happens to a key of a layer past the last, None for any other key."""
    parts = name.split(".")
    if len(parts) < 3 or parts[1] != "layers" or not parts[2].isdigit():
        return None
    if int(parts[2]) not in model.special:
        return None
    facts = model.facts
    if facts["num_nextn"] > 0 and int(parts[2]) < facts["num_layers"] + facts["num_nextn"]:
        return Route("ignore", reason="a NextN layer, which only the draft uses", place=rules.place)
    if facts["num_nextn"] > 0 or rules.skips_layers:
        said = f"the model has {facts['num_layers']} layers, later ones are silently skipped"
        return Route("drop", reason=said, place=rules.place)
    return None


def deepseek_profile(
    model_class: str, rules: Rules, build: Any, route: Any, **notes: str
) -> Profile:
    """Return the profile of a class and a range, with the places in its source."""
    return Profile(
        "sglang",
        model_class,
        rules.first,
        rules.last,
        rules.place,
        build,
        route,
        verified=verified_in(rules.first, rules.last),
        unknown=rules.plain,
        missing="silent",
        mismatch="raises",
        notes={
            "unknown": f"{rules.place}: … not found in params_dict."
            if rules.plain == "warning"
            else f"{rules.place}: KeyError",
            "missing": f"{rules.place}: it never checks for parameters that were not written",
            "joint": f"{rules.place}: cached_a_proj",
            "mismatch": mismatch_place(rules.version),
            **notes,
        },
    )


@dataclasses.dataclass(frozen=True)
class NextN:
    """DeepseekV3ForCausalLMNextN: the one layer after the target's last, as a draft."""

    rules: Rules

    def build(self, config: Config) -> Model:
        """Return what the class builds."""
        readable(config, self.rules.version)
        layers, count = (
            whole(config, "num_hidden_layers"),
            config.get("num_nextn_predict_layers", None),
        )
        place = f"{self.rules.place} _initialize_nextn_conf"
        if count is None:
            raise Refused("no num_nextn_predict_layers in config.json: ValueError", place)
        if count != 1:
            raise Refused(f"num_nextn_predict_layers is {count}: only 1 is supported", place)
        at, hidden = 0 if layers == 1 else layers, whole(config, "hidden_size")
        inside = Blueprint()
        decoder(inside, config, self.rules, [at], [at])
        for name, shape in (
            ("enorm", (hidden,)),
            ("hnorm", (hidden,)),
            ("eh_proj", (hidden, 2 * hidden)),
            ("shared_head.norm", (hidden,)),
        ):
            inside.add(f"model.layers.{{}}.{name}.weight", shape, indices([at]))
        _finish(inside, self.rules)
        out = Blueprint()
        merge(out, inside, _inside_nextn)
        vocab = whole(config, "vocab_size")
        shared = {"model.embed_tokens.weight": _EMBED, "lm_head.weight": _HEAD}
        for name in ("model.embed_tokens", "lm_head"):
            # Never read from the file, so a slot that no key can reach.
            out.add(f"{name}.weight", (vocab, hidden))
        facts = deepseek_facts(config, layers) | {"nextn_layer": at}
        return out.model(shared=shared, special=frozenset({at}), facts=facts)

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes."""
        place, start = self.rules.place, f"model.layers.{model.facts['nextn_layer']}"
        if not key.startswith(start):
            said = f"not of the NextN layer ({start}), so the target's"
            return Route("ignore", reason=said, place=place)
        if "shared_head.head" in key or "embed_tokens" in key:
            return Route("ignore", reason="shared with the target", place=place)
        return deepseek_route(key, self.rules, model.facts)

    def profile(self) -> Profile:
        """Return the profile of this range."""
        model_class = "DeepseekV3ForCausalLMNextN"
        return deepseek_profile(
            model_class,
            self.rules,
            self.build,
            self.route,
            embed=worker_place("set_embed_and_head", self.rules.version),
        )


def _inside_nextn(parameter: str) -> str:
    """Return the engine's name of a NextN tensor: ``model.enorm.weight``, ``model.decoder.…``."""
    rest = parameter.removeprefix("model.layers.{0}.")
    return f"model.{rest}" if any(own in rest for own in _NEXTN_OWN) else f"model.decoder.{rest}"


DEEPSEEK_RANGES: tuple[Target | NextN, ...] = (
    *(
        Target(name, rules)
        for name in ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM")
        for rules in RULES
    ),
    # Before 0.4.6.post2 a NextN draft had to be exported to a folder of its own, as layer 0.
    NextN(dataclasses.replace(RULES[1], first="0.4.6.post2")),
    *(NextN(rules) for rules in RULES[2:]),
)
