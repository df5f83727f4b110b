"""The map of one class: config found, everything seen and fitted, proved at other sizes, probed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from . import configs, enrich, families, fields, groups, loading, names
from .engine import Builder
from .expressions import column_values, constant, value_of
from .fits import Fits
from .study import DRAFT, Json, Study

Slot = list[
    Any
]  # name of the group, parameter, dimensions, rules of columns, dtype, whether it is wanted


def harvest(cls: Any, all_configs: configs.Configs, watch: Any) -> Json:
    """Return what was seen of a class, as its map holds it."""
    record: Json = {"class": cls.__name__, "module": cls.__module__.rpartition(".")[2], "slots": []}
    if not hasattr(cls, "load_weights"):
        return record | {"why": "it has no load_weights"}
    tries: list[str] = []
    best: tuple[int, Study, Json] | None = None
    for found in itertools.islice(_found(cls, all_configs, watch, tries), 4):
        study, said = _observed(found, watch, tries)
        if study is not None and (best is None or len(study.lacks) < best[0]):
            best = len(study.lacks), study, said
        if best is not None and not best[0]:
            break
    record["tries"] = tries[:3]
    if best is None:
        return record | {"why": "a config that it can be built of was not found"}
    _, study, said = best
    return record | said | _fitted(cls, study, said)


def _observed(
    found: tuple[Builder, Json, Json], watch: Any, tries: list[str]
) -> tuple[Study | None, Json]:
    """Load everything at a config; None, with the reason noted, where that cannot be done."""
    builder, raw, said = found
    try:
        raw, said["added"], said["unknown"] = enrich.enriched(builder, raw)
        study = Study(builder, raw, watch)
        study.observe()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        tries.append(f"{said['source']}: {type(error).__name__}: {str(error)[:120]}")
        return None, said
    if study.unsupported:
        tries.append(f"{said['source']}: {study.unsupported}")
        return None, said
    return study, said


def _fitted(cls: Any, study: Study, said: Json) -> Json:
    """Return what holds at every config: expressions of sizes, rules of rows, and their proof."""
    builder, raw, record = study.builder, study.raw, Json()
    added = said.pop("added")
    record["model_type"] = raw.get("model_type") if builder.config_class is None else ""
    fits = Fits(study)
    fits.try_fields()
    fits.try_pairs()
    joints, slots, disproved = _proved(study, fits)
    if disproved and _fix_unfaithful(study, fits, slots):
        joints, slots, disproved = _proved(study, fits)
    record["slots"] = slots
    record["shared"] = (
        sorted({names.template(n) for n in study.shared}) if DRAFT.search(cls.__name__) else []
    )
    record["unread"] = sorted({names.template(n) for n in study.unread})
    record["lacks"] = sorted({names.template(n) for n in study.lacks})
    record["unfit"] = [s[0] for s in slots if None in s[1:4]]
    record["disproved"] = disproved[:8]
    record["proofs"] = len(joints)
    record["fields"] = fits.kinds
    if fields.asks_type(cls):
        record["fields"]["model_type"] = ["among", raw.get("model_type")]
    record["bounds"] = _bounds(study, fits, slots) if joints else {}
    record["defaults"] = enrich.defaults(builder, raw, fits.kinds) | added
    if not record["lacks"]:
        record["defaults"] = _absent(study, fits, record["defaults"]) | record["defaults"]
        record["defaults"] |= _refused(study, fits, record["defaults"])
    record["aliases"] = enrich.aliases(builder, raw)
    record["flat"] = enrich.is_flat_too(builder, raw)
    good = joints and not (record["lacks"] or record["unfit"] or record["disproved"])
    if good:  # what else there is to know is of use to a complete map only
        record["variants"] = _variants(study, fits, slots, joints)
        record |= _probes(study, slots)
    record["builds"] = study.builds
    record["complete"] = bool(good)
    return record


def _proved(study: Study, fits: Fits) -> tuple[list[Json], list[Slot], list[str]]:
    """Return two configs at which several sizes differ, what loads, and what is otherwise there."""
    joints = [raw for raw in (fits.joint(1), fits.joint(2)) if raw is not None]
    slots = _slots(study, fits)
    return joints, slots, [said for raw in joints for said in _disproved(study, slots, raw)]


def _fix_unfaithful(study: Study, fits: Fits, slots: list[Slot]) -> bool:
    """Take fields as fixed whose change alone makes the loader do otherwise than predicted.

    transformers' files may follow a field of which the engine makes something else.
    """
    wrong = [
        path
        for path, at in fits.observations.single.items()
        if path.rpartition(".")[2] not in configs.LAYERS and _disproved(study, slots, fits.raws[at])
    ]
    for path in wrong[:3]:
        fits.fix(path)
    return 0 < len(wrong) <= 3


def _absent(study: Study, fits: Fits, known: Json) -> Json:
    """Return what else an absent field counts as: a value with which the same is built and loaded."""
    found: Json = {}
    for path, (kind, *seen) in fits.kinds.items():
        if (
            path in known
            or kind in ("free", "list", "sized", "counted")
            or isinstance(seen[0], list)
        ):
            continue
        for value in seen:
            # At other sizes, too: a value that is computed of others may be the same once.
            if all(
                fits.alike(fields.changed(raw, path, value), fields.without(raw, path))
                for raw in (study.raw, fits.raws[-1])
            ):
                found[path] = ["class", value]
                break
    return found


# How a config may be read: as a server does, or by its class alone; with sizes that differ, or as they are;
# with a class that the file would bring along.
_WAYS = (
    (True, True, False),
    (True, False, False),
    (True, False, True),
    (False, True, False),
    (False, False, False),
)


def _refused(study: Study, fits: Fits, known: Json) -> Json:
    """Return the fields without which the engine stops while it builds the class, and what it says."""
    builder = study.builder
    found: Json = {}
    if not builder.reads_like_a_server(study.raw) or hasattr(builder.cls, "remapping"):
        return found  # another class of configs, or Mistral's params.json, may fill them
    for path in fits.kinds:
        if path in known or fits.kinds[path][0] == "free" or path == "model_type":
            continue  # without its type a config may still be known by its folder's name
        said = [
            builder.objection(fields.without(raw, path), path.rpartition(".")[2])
            for raw in (study.raw, fits.raws[-1])
        ]
        if all(said):
            found[path] = ["refused", said[0]]
    return found


def _found(
    cls: Any, all_configs: configs.Configs, watch: Any, tries: list[str]
) -> Iterator[tuple[Builder, Json, Json]]:
    """Yield the configs that the class can be built of, and where each is from; note why others fail."""
    from transformers import PretrainedConfig

    for source, kind, more in configs.candidates(cls, all_configs):
        whole = kind is configs.Whole
        for served, distinct, brought in _WAYS:
            if (served and kind is None) or (whole and distinct) or (brought and not whole):
                continue
            plain = PretrainedConfig if whole or kind is None else kind
            builder = Builder(cls, None if served else plain, brought)
            try:
                small = configs.fields_of(cls, kind, more, distinct)
                raw = builder.completed(small, configs.guess)
                raw = _deep_enough(builder, raw)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                said = f"{source}: {type(error).__name__}: {str(error)[:120]}"
                tries.append(f"{said} ({watch.place_of(error)})")
                continue
            guessed = sorted(_guessed(builder, kind, raw, more))
            yield builder, raw, {"source": source, "served": served, "guessed": guessed}
            break


def _deep_enough(builder: Builder, raw: Json) -> Json:
    """Return the config with so many layers that a rule for them can be seen.

    One more dense layer must leave others with experts, and every fourth layer needs a second one.
    """
    for path, value in list(fields.leaves(raw)):
        part, _, name = path.rpartition(".")
        layers = f"{part}.num_hidden_layers" if part else "num_hidden_layers"
        need = 0
        if name in fields.DENSE_BEFORE and isinstance(value, int) and value > 0:
            need = 4
        elif name == "full_attention_interval" and value == 4:
            need = 8
        if 0 < (fields.at(raw, layers) or 9) < need:
            raw = fields.changed(raw, layers, need)
            builder.build(raw)
    return raw


def _guessed(builder: Builder, kind: Any, raw: Json, more: Json) -> set[str]:
    before = {path for path, _ in fields.leaves(configs.fields_of(builder.cls, kind, more))}
    return {path for path, _ in fields.leaves(raw)} - before


def _slots(study: Study, fits: Fits) -> list[Slot]:
    """Return every group that loads, with its target and its expressions."""
    out: list[Slot] = []
    for name, group in fits.seen[0].items():
        if not any(key in study.writes for key in group.names):
            continue
        wanted = any(key in study.wanted for key in group.names)
        target = groups.target(group, study.writes)
        slot = [
            name,
            target,
            fits.shape(name),
            fits.rows(name),
            group.dtype.rpartition(".")[2],
            wanted,
        ]
        if wanted or None not in slot:
            out.append(slot)
    return out


def predicted(
    slots: list[Slot], raw: Json, only_wanted: bool = True
) -> tuple[names.Keys, dict[str, str]]:
    """Return the keys that a map says a config asks for, and where each lands."""
    point, lists = fields.sizes(raw), fields.lists(raw)
    keys: names.Keys = {}
    lands: dict[str, str] = {}
    for name, target, dimensions, rules, dtype, wanted in slots:
        if (only_wanted and not wanted) or None in (target, dimensions, rules):
            continue
        shape = [value_of(terms, point) for terms in dimensions]
        columns = [column_values(rule, point, lists) for rule in rules]
        if None in shape or None in columns:
            continue
        for row in itertools.product(*columns):  # type: ignore[arg-type]
            key = name.partition("#")[0].format(*row)
            keys[key] = (tuple(shape), dtype)  # type: ignore[arg-type]
            lands[key] = target.format(*row)
    return keys, lands


def _disproved(study: Study, slots: list[Slot], raw: Json) -> list[str]:
    """Return what the real loader does otherwise than predicted at another config."""
    keys, lands = predicted(slots, raw)
    unread = set(map(names.template, study.unread))
    report = study.loader(raw).whole(keys)
    said = [
        f"{k}: {report['mismatched'].get(k, 'not loaded')[:80]}"
        for k in keys
        if k not in report["writes"]
    ]
    said += [
        k
        for k in keys
        if k in report["writes"] and not set(lands[k].split(" + ")) <= set(report["writes"][k])
    ]
    said += [
        f"{n} is not written"
        for n, f in report["written"].items()
        if f < 1 and n not in study.shared and names.template(n) not in unread
    ]
    return said


def _bounds(study: Study, fits: Fits, slots: list[Slot]) -> dict[str, int]:
    """Return how many layers the map holds for, where a field numbers layers beyond the first config's.

    ``moe_layer_end_index: 27`` says nothing in a model of 4 layers, and much in one of 40.
    """
    found: dict[str, int] = {}
    for path, kind in fits.kinds.items():
        part, _, name = path.rpartition(".")
        layers = f"{part}.num_hidden_layers" if part else "num_hidden_layers"
        count, value = fields.at(study.raw, layers), kind[1]
        if not isinstance(count, int) or not isinstance(value, int) or "layer" not in name:
            continue
        if path == layers or not count < value < 200:
            continue
        for more in (value, value + 1, value + 3):
            raw = fields.changed(study.raw, layers, more)
            if _disproved(study, slots, raw):
                found[layers] = min(more - 1, found.get(layers, more))
                break
    return found


def _variants(study: Study, fits: Fits, slots: list[Slot], joints: list[Json]) -> list[list[Any]]:
    """Return what other values of a field change: groups that go, and groups that come."""
    out: list[list[Any]] = []
    for path, value in fits.switches[:12]:
        raw = fields.changed(study.raw, path, value)
        try:
            made = _variant(
                study, fits, slots, raw, [fields.changed(j, path, value) for j in joints[:1]]
            )
        except TimeoutError:
            raise
        except Exception:
            made = None
        if made is not None:
            out.append([path, value, *made])
    return out


def _variant(
    study: Study, fits: Fits, slots: list[Slot], raw: Json, joints: list[Json]
) -> tuple[list[str], list[Slot]] | None:
    other = Study(study.builder, raw, study.watch)
    other.rules = dict(study.rules)
    other.observe()
    if other.lacks or not joints:
        return None
    here = groups.grouped(other.every)
    there = Fits.__new__(Fits)
    there.study, there.agreed, there.first = other, None, {}
    there.groups(raw)
    at_joint = there.groups(joints[0])
    base = fits.seen[0]
    same = {
        n
        for n, g in here.items()
        if n in base and base[n].shape == g.shape and base[n].rows == g.rows
    }
    gone = [s[0] for s in slots if s[0] not in same]
    pool = _Pool(slots, [raw, joints[0]])
    come: list[Slot] = []
    for name in sorted(set(here) - same):
        target = groups.target(here[name], other.writes)
        pair = [here[name], at_joint.get(name)]
        shape, rules = pool.shape(pair), pool.rows(pair)
        if target is None or shape is None or rules is None:
            return None
        wanted = any(key in other.wanted for key in here[name].names)
        come.append([name, target, shape, rules, here[name].dtype.rpartition(".")[2], wanted])
    whole = [s for s in slots if s[0] in same] + come
    return None if any(_disproved(other, whole, j) for j in (raw, joints[0])) else (gone, come)


class _Pool:
    """Expressions and column rules that a class is known to use, to recognise others by their values."""

    def __init__(self, slots: list[Slot], raws: list[Json]) -> None:
        self.points = [fields.sizes(raw) for raw in raws]
        self.lists = [fields.lists(raw) for raw in raws]
        self.slots = slots
        self.terms = [t for s in slots if s[2] is not None for t in s[2]]
        self.rules = [r for s in slots if s[3] is not None for r in s[3]]

    def shape(self, pair: list[Any]) -> list[Any] | None:
        if pair[1] is None or len(pair[0].shape) != len(pair[1].shape):
            return None
        out = []
        sibling = next(
            (s for s in self.slots if s[0] == pair[0].template.replace(".bias", ".weight")), None
        )
        if sibling is not None and len(pair[0].shape) == 1 and sibling[2]:
            return [sibling[2][0]]
        for values in zip(pair[0].shape, pair[1].shape, strict=True):
            made = constant(values[0]) if values[0] == values[1] else None
            known = (t for t in self.terms if tuple(value_of(t, p) for p in self.points) == values)
            found = next(known, made)
            if found is None:
                return None
            out.append(found)
        return out

    def rows(self, pair: list[Any]) -> list[Any] | None:
        if pair[1] is None:
            return None
        columns = [groups.columns(g.rows) for g in pair]
        if columns[0] is None or columns[1] is None:
            return None
        out = []
        for c in range(len(columns[0])):
            wanted = [list(columns[0][c]), list(columns[1][c])]
            for rule in self.rules:
                if [
                    column_values(rule, p, x) for p, x in zip(self.points, self.lists, strict=True)
                ] == wanted:
                    out.append(rule)
                    break
            else:
                return None
        return out


def _probes(study: Study, slots: list[Slot]) -> Json:
    """Return what the loader does with names that almost match, and with some that stand alone."""
    model, loader = study.model(study.raw), study.loader(study.raw)
    first = {
        s[0]: g for s in slots for n, g in groups.grouped(study.every).items() if n == s[0] and s[5]
    }
    taken = {names.template(k) for k in study.every}
    seen: dict[str, dict[str, str]] = {}
    for family, change in families.all_families():
        for name, group in first.items():
            key = change(group.names[0])
            if not key or key == group.names[0] or names.template(key) in taken:
                continue
            what, to = loader.one(model, key, group.shape, group.dtype)
            right = set(study.writes.get(group.names[0], ())) == set(to)
            seen.setdefault(family, {})[name] = (
                what if what != loading.LOADED or right else "elsewhere"
            )
    beyond: dict[str, str] = {}
    for name, group in first.items():
        if not group.rows[0]:
            continue
        after = 1 + max(row[0] for row in group.rows)
        key = name.partition("#")[0].format(after, *group.rows[0][1:])
        if key not in study.every:
            what, _ = loader.one(model, key, group.shape, group.dtype)
            beyond[name] = what
    words = _passed_over(study, first)
    last = str(study.last(study.raw))
    for word in (*families.WORDS, *families.PREDICTION):
        name = word.replace(".N.", f".{last}.")
        if names.template(name) not in taken and first:
            words[word] = loader.one(model, name, *_shape_of(name, first))[0]
    return {
        "families": {f: _compact(r) for f, r in seen.items()},
        "beyond": _compact(beyond),
        "words": words,
    }


def _passed_over(study: Study, first: dict[str, groups.Group]) -> dict[str, str]:
    """Return what becomes of the names that transformers writes for this class and that load nothing."""
    known = {group.template for group in first.values()}
    model, loader = study.model(study.raw), study.loader(study.raw)
    said: dict[str, str] = {}
    for key, (shape, dtype) in names.saved_by_transformers(
        study.name, study.builder.config(study.raw)
    ).items():
        text = names.template(key)
        if key not in study.every and text not in known and text not in said:
            said[text] = loader.one(model, key, shape, dtype)[0]
            if said[text] == loading.RAISES and loader.raises_by_name(model, key, shape, dtype):
                said[text] = loading.ABSENT
    return said


def _shape_of(word: str, first: dict[str, groups.Group]) -> tuple[names.Shape, str]:
    """Return the shape that a word's tensor has in real files, by the nearest known name."""
    if word.endswith(("d2t", "t2d")):
        return (16,), "int64" if word.endswith("d2t") else "bool"
    tails = [word, ".".join(word.split(".")[-2:])]
    for tail in tails:
        for name, group in first.items():
            if f".{name}".endswith(f".{tail}"):
                return group.shape, group.dtype
    norm = next((g for n, g in first.items() if "norm" in n), None) if "norm" in word else None
    group = norm or next(iter(first.values()))
    return group.shape, group.dtype


def _compact(reactions: dict[str, str]) -> Any:
    """Return one reaction where all are the same, else the most frequent and the exceptions."""
    kinds = sorted(set(reactions.values()))
    if len(kinds) <= 1:
        return kinds[0] if kinds else ""
    common = max(kinds, key=list(reactions.values()).count)
    return [common, {n: r for n, r in reactions.items() if r != common}]
