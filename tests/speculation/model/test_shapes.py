"""A draft's config and its tensors: what is computed, and what is refused before anything is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.speculation.model.test_draft import CONFIG, D, H, V, target_of, write_draft
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.speculation.ablate.static_checks import check
from workbench.speculation.evidence.driving import read_ids
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.config_fields import DraftConfig
from workbench.speculation.model.eagle3 import Draft, Settings
from workbench.speculation.model.layers import Numerics
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.rope import rope_of
from workbench.speculation.rounds.setup import as_launched

NEW = "sglang==0.5.14"
LAYER = "layers.0."
Q, GATE = f"{LAYER}self_attn.q_proj.weight", f"{LAYER}mlp.gate_proj.weight"
Change = Callable[[dict[str, torch.Tensor]], Any]


def written(folder: Path, change: Change | None = None, **config: Any) -> Path:
    """Write the small draft with changed tensors and another config."""
    write_draft(folder)
    if change is not None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        kept = {name: value.contiguous() for name, value in tensors.items()}
        save_file(kept, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


def loaded(folder: Path, engine: str | None = None, **more: Any) -> Draft:
    return load_draft(open_checkpoint(folder), target_of(), engine=engine, **more)


def put(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    return lambda tensors: tensors.update({name: change(tensors[name])})


WRONG_FIELDS: dict[str, list[Any]] = {
    "hidden_size": [0, -16, "16", None, 16.0, True, [], 1 << 23, 10**400],
    "num_attention_heads": [0, 5, "4", 1 << 20, 4096],
    "num_key_value_heads": [3, 8, "2", 0, -1],
    "head_dim": [0, "6", 1 << 20, [6]],
    "num_hidden_layers": [0, "1", 1_000_000],
    "intermediate_size": ["x", [1], -7, 0, 20.0, 1 << 19, 1 << 40],
    "draft_vocab_size": ["x", [], -1, 0, 10**9, True],
    "target_hidden_size": [0, "16", 10**6],
    "rms_norm_eps": ["1e-5", None, [1], -1.0, float("nan"), float("inf"), True],
    "norm_before_fc": ["no", "false", {}, 2],
    "norm_output": ["false", [True]],
    "kv_lora_rank": [8, "8"],
}


def settings_of(**config: Any) -> Settings:
    made = DraftConfig({**CONFIG, **config})
    assert made.vocabulary
    assert made.gated
    return made.settings(3, "", Numerics())


@pytest.mark.parametrize(
    ("field", "value"), [(f, v) for f, values in WRONG_FIELDS.items() for v in values]
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(WorkbenchError) as caught:
        settings_of(**{field: value})
    said = str(caught.value)
    assert field in said or (field == "kv_lora_rank" and "q_lora_rank" in said)
    assert caught.value.why
    assert caught.value.next_step


def test_there_are_no_more_layers_than_the_file_holds(tmp_path: Path) -> None:
    folder = written(tmp_path / "d", num_hidden_layers=1024)
    for engine in (None, "sglang==0.5.20"):
        with pytest.raises(WorkbenchError, match="num_hidden_layers is 1,024") as caught:
            loaded(folder, engine)
        assert "the weights of 1" in caught.value.why
    write_draft(tmp_path / "three", layers=3)
    assert loaded(tmp_path / "three").settings.layers == 3


def test_right_fields_are_settings() -> None:
    made = DraftConfig({**CONFIG, "norm_output": 1, "fc_norm": None})
    settings = made.settings(3, "", Numerics())
    assert (settings.hidden, settings.heads, settings.key_heads, settings.head_dim) == (H, 4, 2, 6)
    assert (settings.norm_output, settings.fc_norm, settings.aux) == (True, False, 3)
    assert (made.vocabulary, made.gated, made.width) == (D, 20, H)
    plain = {k: v for k, v in CONFIG.items() if k not in ("head_dim", "rms_norm_eps")}
    settings = DraftConfig(plain).settings(3, "", Numerics())
    assert (settings.head_dim, settings.epsilon) == (4, 1e-6)
    # What an engine makes of a text is what its own code makes of it.
    facts = {"norm_output": "false", "num_aux": 2}
    settings = DraftConfig({**CONFIG, "norm_output": "false"}, facts).settings(3, "", Numerics())
    assert (settings.norm_output, settings.aux) == (True, 2)


@pytest.mark.parametrize(
    "table",
    [
        {"rope_theta": 0}, {"rope_theta": -1}, {"rope_theta": float("nan")}, {"rope_theta": 10**400},
        {"rope_theta": 5e-324}, {"rope_theta": "1e4"}, {"partial_rotary_factor": 5.0},
        {"partial_rotary_factor": 1e-9}, {"partial_rotary_factor": "x"}, {"rope_type": ["x"]},
        {"rope_type": "yarn", "rope_theta": 1.0, "factor": 2.0},
        {"rope_type": "yarn", "factor": 1e300}, {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e-300},
        {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1e308},
        {"rope_type": "linear", "factor": True},
    ],
)  # fmt: skip
def test_rotary_numbers_are_bounded(table: dict[str, Any]) -> None:
    with pytest.raises(WorkbenchError) as caught:
        rope_of({"rope_parameters": table}, 64)
    assert caught.value.why
    assert rope_of({"rope_parameters": {"rope_theta": 1.0}}, 64).inverse == (1.0,) * 32
    with pytest.raises(WorkbenchError, match="must be an object"):
        rope_of({"rope_scaling": [1]}, 64)


WRONG_TENSORS: dict[str, tuple[Change, str]] = {
    "fc transposed": (put("fc.weight", torch.t), r"fc\.weight has shape \[48, 16\]"),
    "fc of one dimension": (put("fc.weight", lambda v: v[0]), r"fc\.weight has shape \[48\]"),
    "fc of 2.5 blocks": (put("fc.weight", lambda v: v[:, :40]), r"fc\.weight has shape \[16, 40\]"),
    "fc of nothing": (put("fc.weight", lambda v: v[:0]), r"fc\.weight has shape \[0, 48\]"),
    "fc of codes": (put("fc.weight", lambda v: v.to(torch.int8)), r"fc\.weight holds int8"),
    "q of fewer rows": (put(Q, lambda v: v[:10]), r"q_proj\.weight has shape \[10, 32\]"),
    "q transposed": (put(Q, torch.t), r"q_proj\.weight has shape \[32, 24\]"),
    "gate alone narrower": (put(GATE, lambda v: v[:8]), r"mlp\.\w+_proj\.weight has shape"),
    "norm of one": (put("norm.weight", lambda v: v[:1]), r"norm\.weight has shape \[1\]"),
    "norm of two dimensions": (put("norm.weight", lambda v: v[None]), r"norm\.weight has shape \[1, 16\]"),
    "norm of one block": (put("fc_norm.1.weight", lambda v: v[:3]), r"fc_norm\.1\.weight has shape \[3\]"),
    "head too wide": (put("lm_head.weight", lambda v: v.repeat(1, 2)), r"lm_head\.weight has shape"),
    "head of nothing": (put("lm_head.weight", lambda v: v[:0]), r"lm_head\.weight has shape \[0, 16\]"),
    "head of one number": (put("lm_head.weight", lambda v: v[0, 0]), r"lm_head\.weight has shape \[\]"),
    "embedding too short": (lambda t: t.update({"embed_tokens.weight": torch.ones(5, H)}), "has 5 rows"),
    "embedding too wide": (lambda t: t.update({"embed_tokens.weight": torch.ones(V, 9)}), r"\[40, 9\]"),
    "embedding flat": (lambda t: t.update({"embed_tokens.weight": torch.ones(V)}), r"\[40\]"),
    "bias too long": (lambda t: t.update({"fc.bias": torch.ones(3)}), r"fc\.bias has shape \[3\]"),
    "a norm of queries alone": (
        lambda t: t.update({f"{LAYER}self_attn.q_norm.weight": torch.ones(6)}),
        "no layers.0.self_attn.k_norm",
    ),
    "fused and too short": (
        lambda t: t.update({f"{LAYER}self_attn.qkv_proj.weight": torch.ones(10, 32)}),
        "its parts have 48 rows",
    ),
    "twice": (lambda t: t.update({"midlayer.hidden_norm.weight": torch.ones(H)}), "the same tensor"),
    "latent attention": (
        lambda t: (t.pop(f"{LAYER}self_attn.k_proj.weight"),
                   t.update({f"{LAYER}self_attn.kv_a_proj_with_mqa.weight": torch.ones(4, 32)})),
        "the file holds weights of latent attention",
    ),
    "d2t of another length": (put("d2t", lambda v: v[:5]), r"d2t has shape \[5\]"),
    "d2t twice as long": (put("d2t", lambda v: v.repeat(2)), r"d2t has shape \[24\]"),
    "d2t of two dimensions": (put("d2t", lambda v: v[:, None]), r"d2t has shape \[12, 1\]"),
    "d2t of one number": (put("d2t", lambda v: v[0]), r"d2t has shape \[\]"),
    "d2t of nothing": (put("d2t", lambda v: v[:0]), r"d2t has shape \[0\]"),
    "d2t of NaN": (put("d2t", lambda v: v * float("nan")), "d2t holds float32"),
    "d2t of infinity": (put("d2t", lambda v: v.float() + float("inf")), "d2t makes target id inf"),
    "d2t of halves": (put("d2t", lambda v: v + 0.5), "d2t holds float32"),
    "d2t of truth": (put("d2t", lambda v: v > 0), "d2t holds bool"),
    "d2t below 0": (put("d2t", lambda v: v - 30), "d2t makes target id -"),
    "d2t far too large": (put("d2t", lambda v: v + 10**12), "d2t makes target id 1000000000"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_TENSORS)
def test_a_tensor_that_does_not_fit_is_named(name: str, tmp_path: Path) -> None:
    change, said = WRONG_TENSORS[name]
    with pytest.raises(WorkbenchError, match=said) as caught:
        loaded(written(tmp_path / "d", change))
    assert caught.value.next_step


RIGHT_TENSORS: dict[str, Change] = {
    "as it is": lambda t: None,
    "d2t in 32 bits": put("d2t", lambda v: v.int()),
    "d2t as whole floats": put("d2t", lambda v: v.float()),
    "half precision": lambda t: t.update({k: v.half() for k, v in t.items() if v.is_floating_point()}),
    "double precision": lambda t: t.update(
        {k: v.double() for k, v in t.items() if v.is_floating_point()}
    ),
    "an embedding with rows to spare": lambda t: t.update({"embed_tokens.weight": torch.ones(V + 8, H)}),
    "biases": lambda t: t.update(
        {"fc.bias": torch.zeros(H), f"{LAYER}self_attn.q_proj.bias": torch.zeros(24)}
    ),
    "norms of queries and keys": lambda t: t.update(
        {f"{LAYER}self_attn.{part}_norm.weight": torch.ones(6) for part in ("q", "k")}
    ),
    "a tensor that nobody reads": lambda t: t.update({"<b>\x1b": torch.zeros(2)}),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT_TENSORS)
def test_a_tensor_that_fits_is_read(name: str, tmp_path: Path) -> None:
    draft = loaded(written(tmp_path / "d", RIGHT_TENSORS[name]))
    plain = loaded(written(tmp_path / "p"))
    assert not draft.filled
    assert not draft.notes
    assert torch.equal(draft.to_target, plain.to_target)
    torch.testing.assert_close(
        draft.tensors["fc.weight"], plain.tensors["fc.weight"], rtol=1e-3, atol=1e-3
    )


def test_ids_saved_as_offsets_are_left_to_the_ablations(tmp_path: Path) -> None:
    """They point past the vocabulary, and what is wrong with them can be named."""
    draft = loaded(written(tmp_path / "d", put("d2t", lambda v: v + torch.arange(D))))
    assert int(draft.to_target.max()) >= V
    assert "past the target's vocabulary" in draft.notes[0]


def test_the_files_own_sizes_go_before_the_configs_and_that_is_said(tmp_path: Path) -> None:
    sizes = {"draft_vocab_size": 30, "intermediate_size": 24}
    draft = loaded(written(tmp_path / "d", **sizes))
    assert draft.vocabulary == D
    assert draft.tensors[GATE].shape == (20, H)
    assert [note.split(",")[0] for note in draft.notes] == [
        "the config says draft_vocab_size is 30", "the config says intermediate_size is 24",
    ]  # fmt: skip
    second = written(tmp_path / "e", lambda t: t.update({"layers.1.x.weight": torch.ones(1)}))
    assert "holds 2 decoder layers, and the config says 1" in loaded(second).notes[0]


def test_a_width_that_is_not_the_targets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="width 32, and the target's have 16"):
        loaded(written(tmp_path / "h", hidden_size=32))
    with pytest.raises(WorkbenchError, match="width 8, and the target's have 16"):
        loaded(written(tmp_path / "t", target_hidden_size=8))
    # Nothing lends a vocabulary larger than the target's.
    bare = written(
        tmp_path / "v", lambda t: (t.pop("lm_head.weight"), t.pop("d2t")), draft_vocab_size=1 << 23
    )
    with pytest.raises(WorkbenchError, match="draft_vocab_size is 8388608"):
        loaded(bare)
    empty = written(
        tmp_path / "i",
        lambda t: [t.pop(f"{LAYER}mlp.{part}_proj.weight") for part in ("gate", "up", "down")],
        intermediate_size=None,
    )
    with pytest.raises(WorkbenchError, match="feed-forward part is not known"):
        loaded(empty)


def test_a_quantised_draft_is_refused(tmp_path: Path) -> None:
    def pack(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[GATE]
        base = GATE.removesuffix(".weight")
        tensors[f"{base}.weight_packed"] = torch.zeros(20, 2, dtype=torch.int32)
        tensors[f"{base}.weight_scale"] = torch.ones(20, 1)
        tensors[f"{base}.weight_shape"] = torch.tensor([20, 16])

    said = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    with pytest.raises(WorkbenchError, match="the draft is quantised"):
        loaded(written(tmp_path / "d", pack, quantization_config=said))


STOPS = ("fc transposed", "fc of one dimension", "fc of 2.5 blocks", "fc of nothing", "q of fewer rows",
         "norm of one", "norm of two dimensions", "head too wide", "head of nothing",
         "fused and too short", "d2t of one number")  # fmt: skip


@pytest.mark.parametrize("engine", ["sglang==0.5.8", NEW, "sglang==0.5.20"])
@pytest.mark.parametrize("name", STOPS)
def test_what_a_loader_stops_at_is_not_replayed(name: str, engine: str, tmp_path: Path) -> None:
    """The file holds the tensor, in another shape: memory has nothing to do with it."""

    def served(tensors: dict[str, torch.Tensor]) -> None:
        WRONG_TENSORS[name][0](tensors)
        for key in [k for k in tensors if k.startswith(LAYER)]:  # both ranges know the old name
            tensors["midlayer." + key.removeprefix(LAYER)] = tensors.pop(key)
        for key in ("input_norm.weight", *(f"fc_norm.{n}.weight" for n in range(3))):
            del tensors[key]

    with pytest.raises(WorkbenchError, match="does not load this draft") as caught:
        loaded(written(tmp_path / "d", served), engine)
    assert "shape" in caught.value.why
    assert "workbench diff" in caught.value.next_step


@pytest.mark.parametrize("name", [n for n in WRONG_TENSORS if n.startswith("d2t")])
def test_no_engine_drafts_with_such_a_map(name: str, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError):
        loaded(written(tmp_path / "d", WRONG_TENSORS[name][0]), NEW)


def test_a_tensor_that_a_loader_cuts_is_cut_and_said(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(written(tmp_path / "d", intermediate_size=8))
    target = target_of()
    launch = DraftLaunch(NEW, "EAGLE3", steps=2, draft_tokens=3, backend="triton")
    draft, driving = as_launched(launch, checkpoint, target)
    whole = checkpoint.tensor(GATE).float()
    assert torch.equal(draft.tensors[GATE], whole[:8])
    assert draft.tensors[f"{LAYER}mlp.down_proj.weight"].shape == (H, 8)
    assert not draft.filled
    assert len(draft.notes) == 3
    trace = target.trace([[1, 2, 3, 4]], [2])
    trial = Trial(target, trace, checkpoint, launch, draft, driving)
    cut = [hint for hint in check(trial) if hint.finding.code == "tensor_cut"]
    assert {hint.fact for hint in cut} == {"decoder layer"}
    assert "tensor_absent" not in {hint.finding.code for hint in check(trial)}


def test_captured_memory_has_the_drafts_shapes(tmp_path: Path) -> None:
    folder = written(tmp_path / "d")
    for name, value in (
        ("model.fc.weight", torch.ones(4, 4)),
        ("model.layers.0.self_attn.qkv_proj.weight", torch.tensor(1.0)),
        ("model.layers.0.mlp.gate_up_proj.weight", torch.tensor(1.0)),
    ):  # fmt: skip
        with pytest.raises(WorkbenchError):
            loaded(folder, NEW, memory={name: value})
    held = loaded(folder, NEW, memory={"model.fc.weight": torch.ones(H, 3 * H)})
    assert held.origins["fc.weight"] == "memory"


@pytest.mark.parametrize(
    "ids", ["2,6,9", {"a": 1}, 5, [2.0, 6.0, 9.0], [-1, 2, 3], [True, 2, 3], [2, 6, 10**6]]
)
def test_layers_that_are_no_list_of_numbers_are_refused(ids: Any) -> None:
    with pytest.raises(WorkbenchError, match="eagle_aux_hidden_state_layer_ids is"):
        read_ids({"eagle_aux_hidden_state_layer_ids": ids}, trainer=True)
    with pytest.raises(WorkbenchError, match="eagle_aux_hidden_state_layer_ids is"):
        read_ids({"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}, trainer=False)
    # SGLang does not read the outer list.
    assert read_ids({"eagle_aux_hidden_state_layer_ids": ids}, trainer=False) is None


def test_layers_that_are_a_list_are_read() -> None:
    assert read_ids({"eagle_aux_hidden_state_layer_ids": [2, 6, 9]}, trainer=True) == (2, 6, 9)
    assert (
        read_ids({"eagle_config": {"eagle_aux_hidden_state_layer_ids": None}}, trainer=True) is None
    )
    assert read_ids({"eagle_config": None}, trainer=True) is None
    with pytest.raises(WorkbenchError, match="eagle_config is 'x'"):
        read_ids({"eagle_config": "x"}, trainer=True)


@pytest.mark.parametrize("ids", [[2], [2, 3], [0, 1, 2, 3], list(range(200))])
def test_as_many_layers_are_read_as_fc_joins(ids: list[int], tmp_path: Path) -> None:
    target = target_of()
    checkpoint = open_checkpoint(written(tmp_path / "d", eagle_aux_hidden_state_layer_ids=ids))
    with pytest.raises(
        WorkbenchError, match=rf"joins 3 layers of the target, and {len(ids)} are read"
    ):
        as_launched(DraftLaunch(""), checkpoint, target)
    right = written(tmp_path / "r", eagle_aux_hidden_state_layer_ids=[1, 2, 3])
    assert as_launched(DraftLaunch(""), open_checkpoint(right), target)[1].aux == (1, 2, 3)


def test_one_layer_goes_through_fc_but_in_sglang(tmp_path: Path) -> None:
    """SGLang tells by the width alone whether fc is to be used."""
    target, one = target_of(), [2]

    def narrow(tensors: dict[str, torch.Tensor]) -> None:
        tensors["fc.weight"] = tensors["fc.weight"][:, :H]
        del tensors["input_norm.weight"]

    checkpoint = open_checkpoint(
        written(
            tmp_path / "d", narrow, eagle_aux_hidden_state_layer_ids=one,
            eagle_config={"eagle_aux_hidden_state_layer_ids": one},
        )
    )  # fmt: skip
    draft, driving = as_launched(DraftLaunch(""), checkpoint, target)
    assert (draft.settings.aux, driving.aux) == (1, (2,))
    features = torch.ones(2, H)
    assert torch.equal(draft.features(features), features @ draft.tensors["fc.weight"].T)
    launch = DraftLaunch(NEW, "EAGLE3", steps=2, draft_tokens=3, backend="triton")
    served, driving = as_launched(launch, checkpoint, target)
    assert driving.aux == (3,)
    assert served.features(features) is features
