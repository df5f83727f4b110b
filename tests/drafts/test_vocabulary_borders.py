"""The maps of a draft's vocabulary, one id inside the border and one outside."""

from __future__ import annotations

import numpy as np
import pytest

from tests.drafts.test_contracts import (
    KEPT,
    OFFSETS,
    Checkpoint,
    Config,
    D,
    H,
    V,
    draft,
    run,
    target,
)
from tests.drafts.test_contracts_borders import certainty, whole_vocabulary


def moved(at: int, to: int) -> np.ndarray:
    """Return the offsets with one draft id taken for another target id."""
    d2t = OFFSETS.copy()
    d2t[at] = to - at
    return d2t


@pytest.mark.parametrize(
    ("at", "to", "out"), [(D - 1, V - 1, False), (D - 1, V, True), (0, 0, False), (0, -1, True)]
)
def test_the_last_id_of_the_vocabulary_is_one_and_the_next_is_not(
    at: int, to: int, out: bool
) -> None:
    d2t = np.full(D, V - D)  # the upper half of the vocabulary: no list of ids looks like it
    d2t[at] = to - at
    assert ("d2t_out_of_range" in run(draft(d2t=d2t))) is out


def test_t2d_that_agrees_does_not_clear_ids_beyond_the_target() -> None:
    small, same = target(vocab_size=KEPT[-1]), target(vocab_size=int(KEPT[-1]) + 1)
    assert "d2t_out_of_range" in run(
        draft(t2d=KEPT), target=Config(small.raw | {"vocab_size": 254})
    )
    assert "d2t_out_of_range" not in run(draft(t2d=KEPT), target=same)


def test_ids_are_taken_for_absolute_only_where_sums_go_far_past_the_vocabulary() -> None:
    def found(past: int) -> set[str]:
        """Return the codes for a d2t of which the sums reach `past` ids past the last."""
        return {code for code in run(draft(d2t=np.arange(D) + 1 + past)) if code.startswith("d2t_")}

    assert found(0) == {"d2t_cannot_tell"}
    # A map of offsets that is wrong by a few is out of range, and not known to be one of ids.
    assert found(1) == {"d2t_out_of_range"}
    assert found(D // 2 - 1) == {"d2t_out_of_range"}
    assert found(D // 2) == {"d2t_absolute"}


def test_one_doubled_id_is_proof_and_one_step_back_is_none() -> None:
    same = run(draft(d2t=moved(7, int(KEPT[6]))))["d2t_not_increasing"]
    back = run(draft(d2t=moved(7, int(KEPT[6]) - 1)))["d2t_not_increasing"]
    up = run(draft(d2t=moved(7, int(KEPT[6]) + 1)))
    assert (same.severity, same.confidence) == ("error", "certain")
    assert (back.severity, back.confidence) == ("warning", "possible")
    assert "d2t_not_increasing" not in up


@pytest.mark.parametrize("names", [("model.d2t",), ("a.d2t", "model.d2t")])
def test_maps_that_differ_are_one_fault_in_sglang_which_takes_every_name(
    names: tuple[str, ...],
) -> None:
    made = draft(t2d=KEPT)
    for name in names:
        made.arrays[name] = OFFSETS.copy()
    assert "d2t_overwritten" not in run(made)
    made.arrays[names[-1]][9] += 1
    found = run(made)["d2t_overwritten"]
    assert certainty(found) == ("error", "certain", True)
    assert found.title.startswith(f"{1 + len(names)} tensors")
    assert "d2t_overwritten" not in run(made, "vllm==0.32.0", "Eagle3LlamaForCausalLM")


@pytest.mark.parametrize(
    ("size", "vocab", "missing"), [(V - 1, V, True), (V, V, False), (V + 1, V, False)]
)
def test_d2t_is_missed_for_a_smaller_vocabulary_only(size: int, vocab: int, missing: bool) -> None:
    made = draft(d2t=None, draft_vocab_size=size, vocab_size=vocab)
    assert ("d2t_missing" in run(made)) is missing


@pytest.mark.parametrize(
    ("dtype", "top", "severity"),
    [("F16", 2048, "warning"), ("F16", 2049, "error"), ("F32", 4000, "warning")],
)
def test_a_cast_d2t_is_lost_beyond_what_the_type_holds(dtype: str, top: int, severity: str) -> None:
    from workbench.checkpoint.records import TensorInfo, TensorTable

    vocab = 8192
    made = draft(d2t=np.arange(D), vocab_size=vocab)

    class Cast(Checkpoint):
        @property
        def table(self) -> TensorTable:
            rows = [
                TensorInfo(k, dtype if k == "d2t" else "F32", a.shape, "m")
                for k, a in self.arrays.items()
            ]
            return TensorTable.from_rows(rows)

    values = np.arange(D, dtype=np.float64)
    values[-1] = top
    made.arrays["d2t"] = values
    found = run(Cast(made.config, made.arrays))["d2t_dtype"]
    assert found.severity == severity
    assert found.changes_output == (severity == "error")
    assert found.confidence == ("certain" if severity == "error" else "likely")


def test_a_full_vocabulary_moves_no_id() -> None:
    one = whole_vocabulary()
    one.arrays["d2t"] = np.zeros(V, np.int64)
    assert run(one) == {}
    one.arrays["d2t"][5] = 1
    assert certainty(run(one)["d2t_not_identity"]) == ("error", "likely", True)


def test_a_vocabulary_that_is_unset_needs_a_map_of_fewer_ids() -> None:
    assert "draft_vocab_size_unset" in run(draft(draft_vocab_size=...))
    full = draft(d2t=np.zeros(V, np.int64), draft_vocab_size=...)
    full.arrays["lm_head.weight"] = np.zeros((V, H), np.float32)
    assert run(full, "sglang==0.5.1") == {}


def test_t2d_that_does_not_fit_the_config() -> None:
    assert "t2d_size" not in run(draft(t2d=KEPT))
    assert "t2d_size" in run(draft(t2d=KEPT, vocab_size=V + 1))
    assert "t2d_size" in run(draft(t2d=KEPT[:-1]))
