"""What is wrong before any replay: the census of keys and the contracts, each a hypothesis about a fact.

A static finding says that something is wrong; whether that lost the acceptance, the ablation says.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from workbench.checkpoint.config import Config
from workbench.core.finding import Finding
from workbench.drafts import contracts
from workbench.errors import WorkbenchError, shorten, shown
from workbench.launch.read import read_launch
from workbench.loaders import registry
from workbench.loaders.outcome import KeyGroup, LoadOutcome
from workbench.loaders.profile import NotCovered, Refused
from workbench.loaders.simulate import simulate
from workbench.speculation.ablate.switches_weights import by_names, equal
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.loading import served_config
from workbench.speculation.model.names import Naming, naming

# What a contract's finding is about, as the switches name it.
_FACTS = {
    "launched_as_eagle": "launch",
    "lm_head_missing": "lm_head",
    "lm_head_replaced": "lm_head",
    "tied_lm_head": "lm_head",
    "embedding_replaced": "embedding",
    "embedding_missing": "embedding",
    "norm_output_not_read": "norm_output",
    "norm_before_residual_not_read": "norm_before_residual",
    "norm_before_fc_not_read": "norm_before_fc",
    "fc_norm_not_read": "fc_norm",
    "fc_width": "auxiliary layers",
    "aux_layers_off": "use_aux_hidden_state",
    "qk_norm_dropped": "q_norm and k_norm",
}
# So many lost keys of a fact leave nothing of it.
_WHOLE = {"decoder layer": 7, "fc": 1, "eh_proj": 1, "lm_head": 1}
# Findings after which next to nothing is accepted, whatever else is wrong.
_SUFFICIENT = ("launched_as_eagle", "aux_layers_off")
_BEGINNINGS = (
    ("d2t", "draft vocabulary"),
    ("t2d", "draft vocabulary"),
    ("aux_layer", "auxiliary layers"),
)


@dataclasses.dataclass(frozen=True)
class Hint:
    """A static finding and the fact that it is about; "" where no switch is about it.

    `whole`: a draft without that accepts next to nothing, whatever else is wrong with it.
    """

    fact: str
    finding: Finding
    whole: bool = False

    @property
    def sure(self) -> bool:
        """Whether it says with certainty that the output is another."""
        return self.finding.confidence == "certain" and self.finding.changes_output


def check(trial: Trial) -> tuple[Hint, ...]:
    """Return what is known without a replay, errors first."""
    hints = list(_own(trial))
    if trial.launch.engine:
        hints += _of_engine(trial)
    order = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(hints, key=lambda h: order[h.finding.severity]))


def unchecked(trial: Trial) -> str:
    """Return why the engine's loader and the contracts were not checked, "" where they were."""
    if not trial.launch.engine:
        return ""  # by the trainer's names and flags: there is no loader to check
    try:
        known = _outcome(trial) is not None
    except WorkbenchError as error:
        return error.what
    return "" if known else f"the profile of {trial.launch.engine} does not describe this config"


def refusal(trial: Trial) -> Finding | None:
    """Return that the engine of a launch does not accept this folder's config, as `diff_keys` says.

    What is replayed then is the flat form that it would have to be given; where a real engine's rounds were
    recorded, somebody has given it that.
    """
    if not trial.launch.engine.startswith("sglang"):
        return None
    try:
        outcome = _outcome(trial)
    except WorkbenchError:
        return None
    if outcome is None:
        return None
    found = contracts.check(trial.checkpoint, outcome, target=_sizes(trial))
    return next((finding for finding in found if finding.code == "speculators_config"), None)


def sufficient(hints: Sequence[Hint]) -> tuple[str, ...]:
    """Return the titles of what alone explains that next to nothing is accepted."""
    return tuple(hint.finding.title.rstrip(".") for hint in hints if hint.whole and hint.sure)


def _of_engine(trial: Trial) -> Iterator[Hint]:
    """Yield what the loader drops, and the contracts that are broken in front of this engine."""
    try:
        outcome = _outcome(trial)
    except WorkbenchError:
        return
    if outcome is None:
        return
    layers, named = trial.draft.settings.layers, naming(trial.checkpoint.names)
    lost: dict[str, list[KeyGroup]] = {}
    for group in outcome.keys:
        if group.status == "dropped":
            lost.setdefault(_fact_of_key(group, layers, named), []).append(group)
        elif group.status == "mismatched":  # a loader that stops at it left nothing to replay
            yield Hint(_fact_of_key(group, layers, named), _cut(group, outcome))
    for fact, groups in lost.items():
        whole = fact in _WHOLE and sum(map(len, groups)) >= _WHOLE[fact]
        yield Hint(fact, _dropped(fact, groups, outcome), whole)
    algorithm = trial.launch.algorithm
    launch = read_launch(["--speculative-algorithm", algorithm]) if algorithm else None
    found = contracts.check(trial.checkpoint, outcome, target=_sizes(trial), launch=launch)
    for finding in found:
        # The replay reads the flat form of a nested config, as whoever launched must have written it.
        if finding.code != "speculators_config":
            yield Hint(_fact_of(finding), finding, finding.code in _SUFFICIENT)


def _sizes(trial: Trial) -> Config | None:
    """Return what the contracts ask of a target's config."""
    target = trial.target
    if target is None:
        return None
    return Config(
        {
            "model_type": target.model_type,
            "num_hidden_layers": target.layers,
            "hidden_size": target.hidden,
            "vocab_size": target.vocabulary,
        },
        "the target",
    )


def _outcome(trial: Trial) -> LoadOutcome | None:
    config = served_config(trial.checkpoint.config, trial.launch.engine)
    choice = registry.select(registry.parse(trial.launch.engine), config)
    version, profile = choice.profiles[-1]
    try:
        model = profile.build(config)
        return simulate(profile, model, trial.checkpoint.table, version)
    except (Refused, NotCovered):
        return None


_KEYS = (
    ("self_attn.q_norm.", "q_norm and k_norm"),
    ("self_attn.k_norm.", "q_norm and k_norm"),
    ("layers.", "decoder layer"),
    ("midlayer.", "decoder layer"),
    ("fc.", "fc"),
    ("eh_proj.", "eh_proj"),
    ("enorm.", "eh_proj"),
    ("hnorm.", "eh_proj"),
    ("input_norm.", "norm_before_fc"),
    ("fc_norm.", "fc_norm"),
    ("lm_head.", "lm_head"),
    ("d2t", "draft vocabulary"),
    ("norm.weight", "last norm"),
    ("embed_tokens", "embedding"),
)
_LAYER = re.compile(r"(?:^|\.)layers\.(\d{1,6})\.")


def _fact_of_key(group: KeyGroup, layers: int, named: Naming) -> str:
    """Return what a key is about; `layers` are those that the engine runs."""
    name = named(group.names[0])
    number = _LAYER.search(name)
    if number is not None and int(number[1]) >= layers:
        return "number of layers"
    for part, fact in _KEYS:
        if f".{part}" in f".{name}":
            return fact
    return ""


def _dropped(fact: str, groups: Sequence[KeyGroup], outcome: LoadOutcome) -> Finding:
    count = sum(len(group) for group in groups)
    what = f"{count} keys of the {fact}" if fact and count > 1 else shorten(groups[0].text)
    return Finding(
        code="key_dropped",
        severity="error",
        title=f"{outcome.engine} {outcome.version} drops {what}",
        detail=groups[0].reason,
        evidence_for=tuple(shorten(group.text) for group in groups[:4]),
        changes_output=True,
        next_step="See diff_keys for the new names, and fix_checkpoint to write them.",
        place=groups[0].place,
    )


def _cut(group: KeyGroup, outcome: LoadOutcome) -> Finding:
    return Finding(
        code="tensor_cut",
        severity="error",
        title=f"{outcome.engine} {outcome.version} loads a part of {shorten(group.text)}",
        detail=group.reason,
        evidence_for=(shorten(group.text),),
        changes_output=True,
        next_step="Correct the sizes in config.json: compare it with the training run's.",
        place=group.place,
    )


def _fact_of(finding: Finding) -> str:
    if finding.code in _FACTS:
        return _FACTS[finding.code]
    if finding.code in ("norm_missing", "norm_not_applied"):
        said = " ".join((finding.title, *finding.evidence_for))
        return "fc_norm" if "fc_norm" in said else "norm_before_fc"
    for beginning, fact in _BEGINNINGS:
        if finding.code.startswith(beginning):
            return fact
    return ""


def _own(trial: Trial) -> Iterator[Hint]:
    """Yield what the file, its config and the target say against each other, whatever the engine."""
    s, config = trial.draft.settings, trial.checkpoint.config.text
    held = trial.draft.tensors
    file = by_names(trial)
    if s.fc_norm and "fc_norm.0.weight" not in held:
        yield Hint("fc_norm", _flag("fc_norm", "fc_norm.0.weight"))
    if s.norm_before_fc and "input_norm.weight" not in held:
        yield Hint("norm_before_fc", _flag("norm_before_fc", "input_norm.weight"))
    target, own = trial.target, file.get("embed_tokens.weight")
    if target is not None and own is not None and equal(held["embed_tokens.weight"], own):
        embedding = target.embedding
        if own.shape == embedding.shape and not equal(own, embedding):
            yield Hint("embedding", _embedding())
    rope = getattr(target, "rope", None)
    if rope is not None and len(rope.inverse) == len(s.rope.inverse) and rope != s.rope:
        yield Hint("rotary positions", _rotary(config.get("rope_theta")))
    if s.joining == "eagle" and trial.launch.engine and "fc.bias" not in held:
        yield Hint("fc", _random_bias())
    for name, origin in trial.draft.origins.items():
        if origin == "ones" and name not in file:
            yield Hint(_fact_of_name(name), _norm_absent(name))
    for name in trial.draft.filled:
        if name not in file:
            yield Hint(_fact_of_name(name), _absent(name, trial.launch.engine))


def _fact_of_name(name: str) -> str:
    first = name.split(".", maxsplit=1)[0]
    joins = dict.fromkeys(("enorm", "hnorm"), "eh_proj")
    return {"layers": "decoder layer", "norm": "last norm", **joins}.get(first, first)


def _flag(name: str, tensor: str) -> Finding:
    return Finding(
        code="norm_missing",
        severity="error",
        title=f"{name} is on, but {tensor} is not in the checkpoint",
        detail="The norm is applied with weights of one.",
        evidence_for=(f"{name} is true in the config", f"the checkpoint has no {tensor}"),
        changes_output=True,
        next_step=f"Export the draft again, or set {name} to false if it was trained without.",
    )


def _embedding() -> Finding:
    return Finding(
        code="embedding_differs",
        severity="note",
        title="the draft brings an embedding that is not the target's",
        detail="It may have been trained along; engines differ in whether they keep it.",
        confidence="possible",
        changes_output=True,
        next_step="Compare with the target's embedding in the ablation.",
    )


def _rotary(theta: object) -> Finding:
    return Finding(
        code="rope_differs",
        severity="note",
        title="the draft's rotary positions are not the target's",
        detail=f"Its config has rope_theta {shown(theta, 40)}. Some drafts are trained so; most are not.",
        confidence="possible",
        changes_output=True,
        next_step="Compare with the target's rotary positions in the ablation.",
    )


def _absent(name: str, engine: str) -> Finding:
    instead = "the engine computes with uninitialised memory" if engine else "replayed with zeros"
    return Finding(
        code="tensor_absent",
        severity="error",
        title=f"{name} is in no file: {instead}",
        evidence_for=(f"the checkpoint has no {name}, under any prefix",),
        changes_output=True,
        next_step=f"Save the draft again with {name}.",
    )


def _random_bias() -> Finding:
    return Finding(
        code="bias_absent",
        severity="warning",
        title="fc.bias is in no file: SGLang's class has one all the same, with small random values",
        detail="PyTorch fills it at random when the class is built, evenly up to one by the root of twice "
        "the hidden size. It is replayed as zero.",
        evidence_for=(
            "the checkpoint has no fc.bias",
            "the class makes fc with a bias, whatever config.json says",
        ),
        changes_output=True,
        next_step="Save fc.bias with zeros.",
        place="sglang/srt/models/llama_eagle.py",
    )


def _norm_absent(name: str) -> Finding:
    return Finding(
        code="norm_absent",
        severity="error",
        title=f"{name} is in no file: the norm is applied with weights of one",
        evidence_for=(f"the checkpoint has no {name}, under any prefix",),
        changes_output=True,
        next_step=f"Save the draft again with {name}.",
    )
