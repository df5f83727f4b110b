"""Fields of a draft's config.json, and arguments of a launch, that the replay computes nothing with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from workbench.core.finding import Finding
from workbench.core.verdict import Item
from workbench.errors import shorten, shown
from workbench.speculation.model.windows import FIELDS, window_of

if TYPE_CHECKING:
    from workbench.speculation.evidence.observed import DraftLaunch
    from workbench.speculation.judge.trial import Trial

KIND = "config field"
ARGUMENT = "argument of the launch"

# What the replay reads.
_READ = """
    hidden_size target_hidden_size num_attention_heads num_key_value_heads head_dim num_hidden_layers
    intermediate_size draft_vocab_size vocab_size q_lora_rank kv_lora_rank qk_nope_head_dim
    qk_rope_head_dim v_head_dim rms_norm_eps norm_before_fc fc_norm use_aux_norm norm_before_residual
    norm_output rope_interleave rope_theta rope_parameters rope_scaling partial_rotary_factor
    max_position_embeddings eagle_config eagle_aux_hidden_state_layer_ids speculators_config
    transformer_layer_config tie_word_embeddings dtype torch_dtype model_type architectures
    quantization_config attention_bias
"""
# What no forward pass reads.
_IDLE = """
    auto_map bos_token_id eos_token_id pad_token_id initializer_range transformers_version use_cache
    attention_dropout embed_requires_grad speculators_model_type speculators_version _name_or_path
    name_or_path return_dict output_hidden_states output_attentions chunk_size_feed_forward
    is_encoder_decoder id2label label2id problem_type tokenizer_class model_max_length
"""
# What would change the computation, and the value at which the replay computes as an engine does.
_NEUTRAL: Mapping[str, Any] = {
    "hidden_act": "silu",
    "mlp_bias": False,
    "pretraining_tp": 1,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "query_pre_attn_scalar": None,
    "logit_scale": None,
    "clip_qkv": None,
}
_LISTED = 6  # names of unknown fields


# Arguments of SGLang that change what is accepted: those of `DraftLaunch.further`, and what each does.
_EFFECTS: Mapping[str, str] = {
    "speculative-draft-window-size": "the draft attends to the last places alone",
    "speculative-accept-threshold-single": "drafts are accepted that the target did not choose",
    "speculative-accept-threshold-acc": "drafts are accepted more often than the target chooses them",
    "speculative-use-rejection-sampling": "sampled drafts are accepted by another rule",
    "speculative-use-block-verification": "sampled drafts are accepted by another rule",
    "speculative-adaptive": "the server changes the number of steps while it runs",
    "speculative-adaptive-config": "the server changes the number of steps while it runs",
    "speculative-token-map": "the draft's vocabulary is another one",
    "speculative-draft-model-quantization": "the draft's weights are quantised as they are loaded",
    "quantization": "the target's weights are quantised as they are loaded",
    "kv-cache-dtype": "keys and values are rounded",
    "page-size": "branches of the tree share pages of the draft's cache",
    "load-format": "the weights are not those of the files",
    "speculative-draft-load-format": "the draft's weights are not those of the file",
    "json-model-override-args": "fields of the config are others",
    "enable-multi-layer-eagle": "each step has a draft of its own",
    "SGLANG_SIMULATE_ACC_LEN": "acceptance is simulated, whatever is drafted",
}
_FORCED = "0.5.3"  # from here on, a chain's draft tokens are its steps and one


def items(
    config: Mapping[str, Any], *, essential: bool, longest: int | None = None
) -> Iterator[Item]:
    """Yield what of a config the replay does not compute with.

    Parameters
    ----------
    config
        The fields of config.json, those of its inner tables included.
    essential
        Whether the answer rests on the replay's own rounds: a real engine's rounds are accepted with every
        field that it reads.
    longest
        Tokens of the longest text; None: not known. A window that no text reaches changes nothing.
    """
    window = window_of(config)
    if window is not None and (longest is None or longest > window):
        yield _window("draft", window, essential=longest is not None)
    for name, neutral in _NEUTRAL.items():
        value = config.get(name, neutral)
        if value in (neutral, None):
            continue
        how = f"it is {shown(value, 40)}; the replay computes with {shown(neutral, 40)}"
        yield Item(KIND, f"{name} of the draft's config.json", "open", how, essential=essential)
    others = sorted(set(config) - {*_READ.split(), *_IDLE.split(), *_NEUTRAL, *FIELDS})
    if others:
        more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
        names = ", ".join(shorten(name, 40) for name in others[:_LISTED]) + more
        yield Item(
            KIND,
            f"fields of the draft's config.json that are not known: {names}",
            "open",
            "the replay does not read them",
            count=len(others),
            essential=False,
        )


def of_trial(trial: Trial) -> tuple[Item, ...]:
    """Return everything of a trial that the replay does not compute with."""
    longest = int(trial.trace.lengths.max())
    config, recorded = trial.checkpoint.config.text, trial.emitted is not None
    return (
        *of_launch(trial.launch),
        *of_target(trial.target, longest),
        *items(config, essential=not recorded, longest=longest),
    )


def named(found: Iterable[Item]) -> str:
    """Return in a sentence what is not modelled and decides the answer, "" where nothing is."""
    names = [item.name for item in found if item.essential and item.kind in (KIND, ARGUMENT)]
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"the replay does not model {', '.join(names[:3])}{more}"


def of_target(target: Any, longest: int) -> Iterator[Item]:
    """Yield that a target has a sliding window that some text is longer than, and that is not modelled."""
    window = getattr(target, "window", None)
    if window is not None and longest > window:
        yield _window("target", window, essential=True)


def _window(whose: str, window: int, *, essential: bool) -> Item:
    how = f"it is {window:,}, and some texts are longer; the replay attends to every place before"
    if not essential:
        how = f"it is {window:,}, and how long the texts are is not known"
    name = f"sliding_window of the {whose}'s config.json"
    return Item(KIND, name, "open", how, essential=essential)


def of_launch(launch: DraftLaunch | None) -> Iterator[Item]:
    """Yield the arguments of a launch that change what is accepted, and that the replay does not model."""
    for name, value in launch.further if launch is not None else ():
        how, essential = _EFFECTS.get(name, "what is accepted may be otherwise"), True
        if name == "page-size" and launch is not None and launch.topk == 1:
            continue  # a chain's places are the same on pages of any size
        if name == "speculative-token-map" and launch is not None and launch.algorithm == "EAGLE3":
            how, essential = "SGLang ignores it under EAGLE3: the draft's own d2t counts", False
        if name == "speculative-num-draft-tokens" and launch is not None:
            how, essential = _tokens(launch)
        spelt = name if name.isupper() else f"--{name}"
        said = "" if value == "true" else f" {shorten(value, 40)}"
        yield Item(ARGUMENT, f"{spelt}{said}", "open", how, essential=essential)


def _tokens(launch: DraftLaunch) -> tuple[str, bool]:
    """Return what an engine makes of draft tokens that no chain has, and whether that is open."""
    whole = launch.steps + 1
    try:
        forced = Version(launch.engine.rpartition("==")[2]) >= Version(_FORCED)
    except InvalidVersion:
        forced = False
    if forced:
        return (
            f"SGLang takes {whole}, as topk is 1: no round can accept more than {launch.steps}",
            False,
        )
    return f"{whole} are replayed, as topk is 1; what this version makes of it is not known", True


def findings(found: Iterable[Item]) -> Iterator[Finding]:
    """Yield a finding for each field or argument that is not modelled; those that decide are warnings."""
    for item in found:
        if item.kind == KIND and not item.essential:
            continue  # a real engine computed with it, and it is among what is not settled
        yield Finding(
            code="not_modelled",
            severity="warning" if item.essential else "note",
            title=f"the replay does not model {item.name}",
            detail=f"{item.how[:1].upper()}{item.how[1:]}.",
            confidence="certain",
            next_step="Serve once without it, and compare the acceptance lengths."
            if item.essential
            else "",
        )
