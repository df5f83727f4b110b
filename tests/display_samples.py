"""Results to look at: the incident's diff, a hostile one, and one of 210,816 rows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.core.saving import Saved
from workbench.core.verdict import Verdict, unrecorded
from workbench.views.parts import Document, Findings, Group, Groups, document, head

SCHEMA = "workbench.keydiff/1"


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Sample(Result):
    """A result with a ready-made payload; it is never loaded."""

    schema: ClassVar[str] = SCHEMA
    data: dict[str, Any]
    findings: tuple[Finding, ...] = ()
    limits: ClassVar[list[int | None]] = []

    @property
    def title(self) -> str:
        return str(self.data["title"])

    @property
    def verdict(self) -> Verdict:  # type: ignore[override]
        given = self.data["verdict"]
        return Verdict("sample", given["line"], coverage=unrecorded(given["ok"], "sample"))

    def to_dict(self) -> dict[str, Any]:
        return self.data

    def saved(self) -> Saved:
        raise NotImplementedError

    @classmethod
    def restored(cls, saved: Any, verdict: Verdict) -> Self:
        raise NotImplementedError

    def contradiction(self) -> str:
        return ""

    def rows(self) -> Iterator[dict[str, Any]]:
        yield from self.data["table"]["groups"]

    def document(self) -> Document:
        facts = [(name, value) for name, value in self.data["facts"]]
        rows = tuple(
            Group(
                group["status"],
                group["text"],
                (f"{group['count']:,}×", str(group["shape"]), group["dtype"] or ""),
                (("", f"→ {group['rename']}" if group["rename"] else group["reason"]),),
            )
            for group in self.data["table"]["groups"]
        )
        return document(self, facts, [Findings(self.findings), Groups(rows)])

    def payload(self, limit: int | None = None) -> dict[str, Any]:
        self.limits.append(limit)
        return head(self.document()) | self.data | {"verdict": head(self.document())["verdict"]}


def group(status: str, text: str, **more: Any) -> dict[str, Any]:
    side = "key" if status in ("dropped", "loaded", "ignored", "mismatched") else "parameter"
    base = {
        "side": side,
        "status": status,
        "text": text,
        "template": text,
        "index": None,
        "names": [text],
        "count": 1,
        "shape": [64],
        "dtype": "BF16" if side == "key" else None,
        "parameter": "",
        "reason": "",
        "place": "",
        "rename": None,
    }
    return base | more


def payload(groups: list[dict[str, Any]], ok: bool | None = False, **more: Any) -> dict[str, Any]:
    base = {
        "schema": SCHEMA,
        "title": "Sample",
        "verdict": {"ok": ok, "line": "A sample."},
        "facts": [],
        "findings": [],
        "renames": [],
        "table": {
            "groups": groups,
            "rows": sum(g["count"] for g in groups),
            "left_out": 0,
        },
    }
    return base | more


_LAYER = {
    "hidden_norm.weight": [64],
    "input_layernorm.weight": [64],
    "post_attention_layernorm.weight": [64],
    "self_attn.q_proj.weight": [64, 128],
    "self_attn.k_proj.weight": [32, 128],
    "self_attn.v_proj.weight": [32, 128],
    "self_attn.o_proj.weight": [64, 64],
    "mlp.gate_proj.weight": [128, 64],
    "mlp.up_proj.weight": [128, 64],
    "mlp.down_proj.weight": [64, 128],
}
_FUSED = {
    f"{room}.{part}.weight": f"{room}.{whole}.weight"
    for room, whole, parts in (
        ("self_attn", "qkv_proj", ("q_proj", "k_proj", "v_proj")),
        ("mlp", "gate_up_proj", ("gate_proj", "up_proj")),
    )
    for part in parts
}
_LOST = {
    "hidden_norm.weight": [64],
    "input_layernorm.weight": [64],
    "post_attention_layernorm.weight": [64],
    "self_attn.qkv_proj.weight": [128, 128],
    "self_attn.o_proj.weight": [64, 64],
    "mlp.gate_up_proj.weight": [256, 64],
    "mlp.down_proj.weight": [64, 128],
}


def incident() -> Sample:
    """The draft of the incident on SGLang 0.5.11: ten of sixteen keys dropped."""
    place = "sglang/srt/models/llama_eagle3.py:210"
    groups = [
        group(
            "dropped",
            f"layers.0.{name}",
            shape=shape,
            template=f"layers.{{}}.{name}",
            index=[[0]],
            names=None,
            reason="no parameter of this name; the loader silently ignores it",
            place=place,
            rename=f"midlayer.{name}",
        )
        for name, shape in _LAYER.items()
    ]
    groups += [
        group("missing", f"midlayer.{n}", shape=s, reason="not written: uninitialised memory")
        for n, s in _LOST.items()
    ]
    groups += [
        group(
            "ignored", "t2d", shape=[256], dtype="BOOL", reason="skipped on purpose", place=place
        ),
        group(
            "loaded", "embed_tokens.weight", shape=[256, 64], parameter="model.embed_tokens.weight"
        ),
        group("loaded", "fc.weight", shape=[64, 192], parameter="model.fc.weight"),
        group("loaded", "norm.weight", parameter="model.norm.weight"),
        group("loaded", "lm_head.weight", shape=[128, 64], parameter="lm_head.weight"),
        group("loaded", "d2t", shape=[128], dtype="I64", parameter="hot_token_id"),
    ]
    findings = (
        Finding(
            "keys.dropped",
            "error",
            "The whole decoder layer is lost: 10 of 16 keys reach no parameter",
            detail="The trainer wrote `layers.0.*`; this class looks for `midlayer.*` and drops what it "
            "does not know, without an error or a warning. Seven parameters stay uninitialised.",
            evidence_for=(
                "10 keys begin with `layers.0.`, which `LlamaForCausalLMEagle3` of 0.5.11 does not map",
                "7 parameters under `midlayer.` are written by no key",
            ),
            evidence_against=("0.5.12 and newer map `layers.0` themselves",),
            changes_output=True,
            next_step="workbench fix drafts/speculators sglang==0.5.11 -o drafts/repaired",
            place=place,
        ),
        Finding(
            "config.nested",
            "warning",
            "SGLang cannot read this config: it is speculators' nested form",
            detail="`transformer_layer_config` must be flattened. `workbench fix` writes a flat one.",
            confidence="likely",
            changes_output=True,
        ),
        Finding("keys.ignored", "note", "`t2d` is skipped on purpose: the engine needs only `d2t`"),
        Finding("config.unread", "note", "`norm_before_residual` is not read by this version"),
    )
    data = payload(
        groups,
        title="speculators draft → sglang 0.5.11",
        verdict={
            "ok": False,
            "line": "sglang 0.5.11 silently drops 10 of 16 keys: the whole decoder layer.",
        },
        facts=[
            ["Checkpoint", "drafts/speculators"],
            ["Engine", "sglang 0.5.11 · LlamaForCausalLMEagle3"],
            ["Basis", "profile checked against the real loader of this version"],
        ],
        findings=[f.to_dict() for f in findings],
        renames=[
            {
                "rule": [["^layers\\.0\\.", "midlayer."]],
                "example": ["layers.0.self_attn.q_proj.weight", "midlayer.self_attn.q_proj.weight"],
                "renamed": 10,
                "proved": True,
                "proof": "All 10 keys land one-to-one on the shards of the 7 parameters that lack them, "
                "with equal shapes and dtypes, and nothing is left behind.",
                "leaves_keys": [],
                "leaves_parameters": [],
                "chosen": True,
                "fuses": [],
                "pairs": [
                    [f"layers.0.{n}", f"midlayer.{n}", f"midlayer.{_FUSED.get(n, n)}"]
                    for n in _LAYER
                ],
            }
        ],
    )
    return Sample(data, findings)


def big(layers: int = 61, experts: int = 384) -> Sample:
    """A target shaped like Kimi-K2.5's, with one expert shard taken out."""
    pairs = [list(pair) for pair in itertools.product(range(1, layers), range(experts))]
    groups = [
        group(
            "missing",
            "model.layers.60.mlp.experts.w13_weight_packed",
            shape=[384, 4096, 896],
            reason="expert 383 has no gate_proj.weight_packed",
        )
    ]
    for projection in ("gate_proj", "up_proj", "down_proj"):
        for part, dtype in (
            ("weight_packed", "I32"),
            ("weight_scale", "BF16"),
            ("weight_shape", "I64"),
        ):
            at = f"language_model.model.layers.{{}}.mlp.experts.{{}}.{projection}.{part}"
            index = pairs[:-1] if (projection, part) == ("gate_proj", "weight_packed") else pairs
            groups.append(
                group(
                    "loaded",
                    at.replace("{}", "{%s}") % (f"1...{layers - 1}", f"0...{experts - 1}"),
                    template=at,
                    index=index,
                    names=None,
                    count=len(index),
                    shape=[2048, 896],
                    dtype=dtype,
                    parameter=f"model.layers.{{0}}.mlp.experts.w13_{part}",
                )
            )
    for name, shape in _LAYER.items():
        groups.append(
            group(
                "loaded",
                f"language_model.model.layers.{{0...{layers - 1}}}.{name}",
                template=f"language_model.model.layers.{{}}.{name}",
                index=[[n] for n in range(layers)],
                names=None,
                count=layers,
                shape=shape,
                parameter=f"model.layers.{{0}}.{name}",
            )
        )
    data = payload(
        groups,
        title="Kimi-K2.5 → sglang 0.5.14",
        verdict={"ok": False, "line": "One expert shard is missing: layer 60, expert 383."},
        facts=[["Checkpoint", "moonshotai/Kimi-K2.5"], ["Engine", "sglang 0.5.14"]],
    )
    return Sample(data)


HOSTILE = '</script><img src=x onerror="window.owned=1"><b>&amp;\'`{0}\u2028\u202e'


def hostile() -> Sample:
    """Names and texts that try to become markup, wherever text is shown."""
    finding = Finding(
        HOSTILE,
        "error",
        HOSTILE,
        detail=HOSTILE,
        evidence_for=(HOSTILE,),
        evidence_against=(HOSTILE,),
        next_step="workbench fix " + HOSTILE,
        place=HOSTILE,
    )
    rename = {
        "rule": [[HOSTILE, HOSTILE]],
        "example": [HOSTILE, HOSTILE],
        "renamed": 1,
        "proved": False,
        "proof": HOSTILE,
        "leaves_keys": [HOSTILE],
        "leaves_parameters": [HOSTILE],
        "chosen": False,
    }
    groups = [
        group("dropped", HOSTILE, parameter=HOSTILE, reason=HOSTILE, place=HOSTILE, rename=HOSTILE),
        group("missing", HOSTILE, parameter=HOSTILE, reason=HOSTILE, dtype=HOSTILE),
        group("loaded", "=cmd|' /C calc'!A0", parameter=HOSTILE),
    ]
    data = payload(
        groups,
        title=HOSTILE,
        verdict={"ok": None, "line": HOSTILE},
        facts=[[HOSTILE, HOSTILE]],
        findings=[finding.to_dict()],
        renames=[rename],
    )
    return Sample(data, (finding,))
