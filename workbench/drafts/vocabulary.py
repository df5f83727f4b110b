"""Contracts of d2t and t2d: which target id each draft id stands for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.checkpoint.records import TensorInfo
from workbench.core.finding import Finding
from workbench.drafts.subject import Array, Subject

_REBUILD = (
    "Rewrite d2t in the checkpoint as offsets: with i = numpy.flatnonzero(t2d), "
    "d2t = i - numpy.arange(len(i)), dtype int64."
)
_EXPORT = "Export the draft again with the d2t of its training (d2t[i] = target id - i)."


def vocabulary(s: Subject) -> Iterator[Finding]:
    """Check the map of draft ids to target ids, and what stands on it."""
    d2t, t2d = _first(s, "d2t"), _first(s, "t2d")
    kept = np.flatnonzero(s.values(t2d)) if t2d else None
    yield from _mask(s, t2d, kept)
    if d2t is None:
        yield from _absent(s, t2d)
        return
    yield from _several(s)
    values = s.values(d2t)
    yield from _storage(s, d2t, values)
    yield from _length(s, values, kept)
    if _draft_vocab(s) == _vocab(s, t2d) and _vocab(s, t2d) is not None:
        yield from _full(s, d2t, values)
        return
    yield from _map(s, t2d, values, kept)


def _several(s: Subject) -> Iterator[Finding]:
    """Check that one tensor alone is taken for d2t: SGLang takes every name with d2t in it."""
    if s.engine != "sglang":
        return
    found = s.containing("d2t")
    first = s.values(found[0])
    if all(t.shape == found[0].shape and np.array_equal(s.values(t), first) for t in found[1:]):
        return
    names = [f"{t.name} {t.dtype} {list(t.shape)}" for t in found]
    yield Finding(
        code="d2t_overwritten",
        severity="error",
        title=f"{len(found)} tensors are taken for d2t, and they differ: the last one is kept",
        detail="SGLang reads every key with d2t in its name as the map of draft ids. The map that is kept is "
        f"that of {found[-1].name}, if the files are read in the order of their names.",
        evidence_for=tuple(names[:6]),
        confidence="certain",
        changes_output=True,
        next_step="Keep the d2t of the draft's training, and remove the others from the checkpoint.",
        place=s.place(),
    )


def _first(s: Subject, text: str) -> TensorInfo | None:
    return next(iter(s.containing(text)), None)


def _draft_vocab(s: Subject) -> int | None:
    return s.draft_vocab if s.draft_vocab is not None else s.vocab


def _vocab(s: Subject, t2d: TensorInfo | None) -> int | None:
    """Return the target's vocabulary size: the target knows best, then the config, then t2d."""
    return s.of_target("vocab_size") or s.vocab or (t2d.numel if t2d else None)


def _rebuild(kept: Array | None) -> str:
    return _EXPORT if kept is None else _REBUILD


def _mask(s: Subject, t2d: TensorInfo | None, kept: Array | None) -> Iterator[Finding]:
    """Check t2d itself; no engine reads it, so nothing here changes the output."""
    if t2d is None or kept is None:
        return
    wrong = []
    if s.vocab is not None and t2d.numel != s.vocab:
        wrong.append(f"t2d has {t2d.numel} entries, vocab_size is {s.vocab}")
    if s.draft_vocab is not None and len(kept) != s.draft_vocab:
        wrong.append(f"t2d keeps {len(kept)} ids, draft_vocab_size is {s.draft_vocab}")
    if wrong:
        yield Finding(
            code="t2d_size",
            severity="warning",
            title="t2d does not fit the vocabulary sizes of the config",
            detail="Engines skip t2d, so serving is not affected. It is a sign that the "
            "tensors and the config come from two different runs.",
            evidence_for=tuple(wrong),
            confidence="certain",
            next_step="Compare d2t and lm_head with the config of the run that wrote them.",
        )


def _absent(s: Subject, t2d: TensorInfo | None) -> Iterator[Finding]:
    size, vocab = s.draft_vocab, _vocab(s, t2d)
    if size is None or vocab is None or size >= vocab:
        return
    yield Finding(
        code="d2t_missing",
        severity="error",
        title=f"d2t is not in the checkpoint, although the draft covers only {size} of {vocab} ids",
        detail=f"Without d2t, draft id i is read as target id i: the draft can propose only the "
        f"first {size} ids of the target.",
        evidence_for=(
            f"draft_vocab_size {size} < vocab_size {vocab}",
            f"none of the {len(s.table)} tensors has d2t in its name",
        ),
        confidence="certain",
        changes_output=True,
        next_step=(_REBUILD.replace("Rewrite", "Add") if t2d else _EXPORT)
        + " Some trainers leave d2t in a .pt file next to the checkpoint.",
        place=s.place(),
    )


def _storage(s: Subject, d2t: TensorInfo, values: Array) -> Iterator[Finding]:
    if d2t.dtype[:1] in "IU":
        return
    top = float(np.abs(values).max(initial=0))
    lost = d2t.dtype in ("BF16", "F16") and top > {"BF16": 256, "F16": 2048}[d2t.dtype]
    yield Finding(
        code="d2t_dtype",
        severity="error" if lost else "warning",
        title=f"d2t is stored as {d2t.dtype}, not as whole numbers",
        detail="It was cast with the weights. SGLang indexes with it unchanged; vLLM casts it "
        "back." + (f" {d2t.dtype} cannot hold every whole number up to {top:.0f}." if lost else ""),
        evidence_for=(f"{d2t.name} is {d2t.dtype}, its largest value {top:.0f}",),
        confidence="certain" if lost else "likely",
        changes_output=lost,
        next_step="Store d2t as int64, from the trainer's own map, before any cast of the weights.",
        place=s.place(),
    )


def _length(s: Subject, values: Array, kept: Array | None) -> Iterator[Finding]:
    """Check that d2t, lm_head and draft_vocab_size say one and the same number."""
    rows = [t.shape[0] for t in s.find("lm_head.weight")[:1] if t.shape]
    said = {"d2t": len(values)}
    said |= {"lm_head": rows[0]} if rows else {}
    said |= {"draft_vocab_size": s.draft_vocab} if s.draft_vocab is not None else {}
    if len(set(said.values())) > 1:
        yield Finding(
            code="draft_vocabulary",
            severity="error",
            title="d2t, lm_head and draft_vocab_size disagree about the draft's vocabulary",
            detail="Each row of lm_head is one draft id, and d2t names the target id of each.",
            evidence_for=tuple(f"{name}: {value}" for name, value in said.items())
            + ((f"t2d keeps {len(kept)} ids",) if kept is not None else ()),
            confidence="certain",
            changes_output=True,
            next_step="Take d2t, lm_head and config.json from the same export.",
            place=s.place(),
        )
    if s.draft_vocab is None and s.vocab is not None and len(values) < s.vocab:
        yield Finding(
            code="draft_vocab_size_unset",
            severity="error",
            title=f"config.json has no draft_vocab_size, but d2t maps {len(values)} ids",
            detail="Engines then build a head of the target's vocabulary size"
            + (" and fill it from the target" if s.engine == "sglang" else "")
            + f"; d2t covers only its first {len(values)} rows.",
            evidence_for=(f"d2t has {len(values)} entries, vocab_size is {s.vocab}",),
            confidence="certain",
            changes_output=True,
            next_step=f'Set "draft_vocab_size": {len(values)} in config.json.',
            place=s.place(),
        )


def _full(s: Subject, d2t: TensorInfo, values: Array) -> Iterator[Finding]:
    """Check a draft that speaks the whole vocabulary: only all zeros is right."""
    if values.any():
        at = int(np.flatnonzero(values)[0])
        yield Finding(
            code="d2t_not_identity",
            severity="error",
            title="d2t moves ids although the draft covers the whole vocabulary",
            detail="With as many draft ids as target ids, a map in ascending order is the identity.",
            evidence_for=(
                f"d2t[{at}] = {values[at]}, so draft id {at} is read as {at + values[at]}",
                f"{np.count_nonzero(values)} of {len(values)} entries are not 0",
            ),
            confidence="likely",
            changes_output=True,
            next_step="Remove d2t from the checkpoint, or store zeros, if lm_head's rows are in "
            "the order of target ids.",
            place=s.place(),
        )
    if s.since("d2t refused at full vocabulary") and not values.any():
        yield Finding(
            code="d2t_with_full_vocabulary",
            severity="error",
            title=f"{s.who} stops at d2t, because the draft covers the whole vocabulary",
            detail="It builds draft_id_to_target_id only if draft_vocab_size differs from the "
            "target's vocabulary size, and raises ValueError for the tensor.",
            evidence_for=(f"draft_vocab_size and vocab_size are {_draft_vocab(s)}",),
            evidence_against=()
            if s.target_config is not None
            else ("the target is not known: its vocabulary may differ from the draft's config",),
            confidence="certain" if s.target_config is not None else "likely",
            changes_output=True,
            next_step=f"Remove {d2t.name} from the checkpoint: all its entries are 0.",
            place=s.place(),
        )


def _map(
    s: Subject, t2d: TensorInfo | None, values: Array, kept: Array | None
) -> Iterator[Finding]:
    """Check the numbers of d2t against what they may mean."""
    n = len(values)
    vocab = _vocab(s, t2d)
    whole = values.astype(np.int64)
    ids = whole + np.arange(n)
    if kept is not None and np.array_equal(ids, kept):
        yield from _range(s, ids, vocab)
        return
    rising = bool((np.diff(whole) > 0).all())
    plain = rising and n > 1 and int(whole[0]) >= 0 and (vocab is None or int(whole[-1]) < vocab)
    over = vocab is not None and n > 0 and int(ids.max()) >= vocab
    # Ids read as offsets go far past the vocabulary; offsets that are wrong by a few, just past its end.
    far = over and vocab is not None and 2 * (int(ids.max()) - vocab + 1) >= n
    if plain and ((kept is not None and np.array_equal(whole, kept)) or (kept is None and far)):
        yield _absolute(s, whole, ids, vocab, kept)
    elif not whole.any():
        yield _zeros(s, n, vocab, kept)
    elif over or (n and int(ids.min()) < 0):
        yield from _range(s, ids, vocab, whole)
    elif kept is not None:
        yield from _against_mask(s, whole, ids, kept, t2d)
    elif (np.diff(ids) <= 0).any():
        yield _unordered(s, whole, ids)
    elif plain:
        yield _ambiguous(whole, ids)


def _absolute(
    s: Subject, whole: Array, ids: Array, vocab: int | None, kept: Array | None
) -> Finding:
    at = int(np.flatnonzero(whole)[0])
    proof = (
        f"d2t equals nonzero(t2d), all {len(whole)} entries"
        if kept is not None
        else f"d2t rises strictly from {whole[0]} to {whole[-1]} and stays below {vocab}"
    )
    beyond = int((ids >= vocab).sum()) if vocab is not None else 0
    return Finding(
        code="d2t_absolute",
        severity="error",
        title="d2t holds target ids, but engines read it as offsets",
        detail="Engines add the draft id: target id = i + d2t[i]. With ids in d2t the sum is "
        "another token, or none at all.",
        evidence_for=(
            proof,
            f"d2t[{at}] = {whole[at]}, so draft id {at} is read as {ids[at]}",
            f"arange+d2t reaches {int(ids.max())}"
            + (f" > vocab {vocab}, {beyond} ids beyond it" if beyond else ""),
        ),
        confidence="certain",
        changes_output=True,
        next_step="Subtract the draft id from each entry: d2t = d2t - numpy.arange(len(d2t)).",
        place=s.place(),
    )


def _zeros(s: Subject, n: int, vocab: int | None, kept: Array | None) -> Finding:
    return Finding(
        code="d2t_zeros",
        severity="error",
        title=f"d2t is all zeros: the draft's ids are read as the first {n} target ids",
        detail="All zeros is right only if the draft covers the whole vocabulary, or exactly its "
        "first ids.",
        evidence_for=(f"all {n} entries of d2t are 0", f"vocab is {vocab}")
        + ((f"t2d keeps other ids: {_list(kept)}",) if kept is not None else ()),
        evidence_against=()
        if kept is not None
        else (f"no t2d to compare with: a vocabulary of the first {n} ids would look the same",),
        confidence="certain" if kept is not None else "likely",
        changes_output=True,
        next_step=_rebuild(kept),
        place=s.place(),
    )


def _range(
    s: Subject, ids: Array, vocab: int | None, whole: Array | None = None
) -> Iterator[Finding]:
    low, high = int(ids.min(initial=0)), int(ids.max(initial=0))
    if low >= 0 and (vocab is None or high < vocab):
        return
    beyond = np.flatnonzero((ids < 0) | (ids >= (vocab if vocab is not None else high + 1)))
    at = int(beyond[0])
    known = f"d2t[{at}] = {ids[at] - at}: draft id {at} is read as {ids[at]}"
    yield Finding(
        code="d2t_out_of_range",
        severity="error",
        title="d2t points outside the target's vocabulary",
        detail="Engines do not check it: the token does not exist, and the look-up fails or "
        "reads another row.",
        evidence_for=(
            f"arange+d2t runs from {low} to {high}, vocab {vocab}",
            f"{len(beyond)} of {len(ids)} draft ids are outside",
            known,
        ),
        confidence="certain",
        changes_output=True,
        next_step=_EXPORT
        if whole is not None
        else "Check that the draft belongs to this target: "
        "d2t and t2d agree with each other, not with its vocabulary.",
        place=s.place(),
    )


def _against_mask(
    s: Subject, whole: Array, ids: Array, kept: Array, t2d: TensorInfo | None
) -> Iterator[Finding]:
    others = np.setdiff1d(np.arange(t2d.numel if t2d else 0), kept)
    if np.array_equal(ids, others):
        yield Finding(
            code="t2d_inverted",
            severity="note",
            title="t2d marks the ids that the draft does not cover",
            detail="d2t is a proper offset map of the others. Engines read only d2t.",
            evidence_for=(f"arange+d2t equals the {len(others)} ids where t2d is false",),
            next_step="Nothing for serving; invert t2d before further training.",
        )
        return
    same = len(ids) == len(kept)
    at = int(np.flatnonzero(ids != kept)[0]) if same else -1
    sorted_same = same and np.array_equal(np.sort(ids), kept)
    yield Finding(
        code="d2t_against_t2d",
        severity="error",
        title="d2t and t2d name different ids",
        detail="Both come from one list of kept ids; engines read d2t, so serving is wrong "
        "unless t2d is the damaged one."
        + (" The ids are the same, in another order." if sorted_same else ""),
        evidence_for=(
            f"draft id {at}: d2t says {ids[at]}, t2d says {kept[at]}"
            if same
            else f"d2t maps {len(ids)} ids, t2d keeps {len(kept)}",
            f"{int((ids != kept).sum())} of {len(ids)} differ" if same else f"d2t: {_list(ids)}",
        ),
        evidence_against=("the checkpoint does not show which of the two is right",),
        confidence="likely",
        changes_output=True,
        next_step="Compare both with the vocabulary map of the training run; "
        + _REBUILD[0].lower()
        + _REBUILD[1:],
        place=s.place(),
    )


def _unordered(s: Subject, whole: Array, ids: Array) -> Finding:
    at = int(np.flatnonzero(np.diff(ids) <= 0)[0])
    twice = len(ids) - len(np.unique(ids))
    return Finding(
        code="d2t_not_increasing",
        severity="error" if twice else "warning",
        title="d2t maps several draft ids to one target id"
        if twice
        else "d2t does not increase with the draft id",
        detail="Trainers write d2t from the kept ids in ascending order."
        + ("" if twice else " A permuted vocabulary would look like this too; nothing proves it."),
        evidence_for=(
            f"draft ids {at} and {at + 1} are read as {ids[at]} and {ids[at + 1]}",
            f"{twice} of {len(ids)} draft ids share a target id",
        ),
        confidence="certain" if twice else "possible",
        changes_output=True,
        next_step=_EXPORT,
        place=s.place(),
    )


def _ambiguous(whole: Array, ids: Array) -> Finding:
    return Finding(
        code="d2t_cannot_tell",
        severity="warning",
        title="d2t could be offsets or target ids: without t2d they cannot be distinguished",
        detail="It is a valid map both as offsets, as engines read it, and as target ids.",
        evidence_for=(
            f"as offsets: {_list(ids)}",
            f"as target ids: {_list(whole)}",
        ),
        confidence="unknown",
        changes_output=True,
        next_step="Give the t2d of the training run, or check which of the two lists holds the "
        "target's frequent tokens.",
    )


def _list(values: Array) -> str:
    head = ", ".join(str(int(v)) for v in values[:4])
    return f"{head}, … {int(values[-1])}" if len(values) > 4 else head
