"""All that is seen of one class: which keys load where, of which sizes, under which fields of its config."""

from __future__ import annotations

import re
import time
from typing import Any

from . import fields, loading, names, spellings
from .engine import Builder, holders

Json = dict[str, Any]
DRAFT = re.compile(r"eagle|nextn|mtp|draft|dspark|dflash|assistant", re.IGNORECASE)
SECONDS = 40.0  # of processor time, for all configs of a class


class Study:
    """One class on the way to its map."""

    def __init__(self, builder: Builder, raw: Json, watch: Any) -> None:
        self.builder, self.raw, self.watch = builder, raw, watch
        self.until = time.process_time() + SECONDS
        self.name = builder.cls.__name__
        self.notes: list[str] = []
        self.rules: dict[str, list[tuple[str, str, str, str]]] = {}
        self.use_saved = False
        self.mapped = False
        self.stacked: set[str] = set()
        # Where the loader does not show its substitutions.
        self.assumed: list[names.Mapping] = list(spellings.MAPPINGS.get(self.name, ()))
        self.turned: set[str] = (
            set()
        )  # templates that files hold the other way round than transformers
        self.builds = 0

    # -- what there is at one config ------------------------------------------------------------

    def model(self, raw: Json) -> Any:
        """Return a new model."""
        self.builds += 1
        return self.builder.build(raw)

    def keys(self, raw: Json) -> tuple[names.Keys, names.Keys, names.Keys]:
        """Return the names at a config: got by inversion, saved by transformers, found by search."""
        model = self.model(raw)
        config = self.builder.config(raw)
        lora = next(
            (h.q_lora_rank for _, h in holders(config) if getattr(h, "q_lora_rank", 0)), None
        )
        mappings = loading.mappings_of(model, self.watch)
        if self.mapped and not mappings:
            raise ValueError("the loader does not get as far as its substitutions")
        self.mapped = bool(mappings)
        inverted, self.stacked = names.inverse(model, [*mappings, *self.assumed], lora)
        saved = names.saved_by_transformers(self.name, config) if self.use_saved else {}
        for keys in (inverted, saved):
            for key, (shape, dtype) in keys.items():
                if names.template(key) in self.turned:
                    keys[key] = ((*shape[:-2], shape[-1], shape[-2]), dtype)
        return inverted, saved, self._respelled(inverted, self.last(raw))

    def _respelled(self, inverted: names.Keys, last: int) -> names.Keys:
        found: names.Keys = {}
        for key, what in inverted.items():
            for rule in self.rules.get(names.template(key), ()):
                found[_numbered(names.respell(key, rule), last)] = what
        return found

    def last(self, raw: Json) -> int:
        """Return the number of layers, that of the text model where there are several."""
        counts = [
            (len(path) if "text" not in path else -1, value)
            for path, value in fields.sizes(raw).items()
            if path.rpartition(".")[2] in ("num_hidden_layers", "num_layers", "n_layer")
            and "vision" not in path
            and "audio" not in path
        ]
        return int(min(counts)[1]) if counts else 0

    def loader(self, raw: Json) -> loading.Loader:
        """Return a loader of models at a config."""
        return loading.Loader(lambda: self.model(raw), self.watch, self.builder.reads)

    # -- the first config -------------------------------------------------------------------------

    def observe(self) -> dict[str, Any]:
        """Load everything that may load at the first config; set what is wanted and what else is taken."""
        model = self.model(self.raw)
        self.shared = loading.shared_by_target(model) if DRAFT.search(self.name) else []
        unread = spellings.UNREAD.get(self.name, {})
        self.unread = loading.never_read(model)
        self.unread += [n for n, _ in model.named_parameters() if names.template(n) in unread]
        self.use_saved = True
        inverted, saved, _ = self.keys(self.raw)
        loader = self.loader(self.raw)
        plain = {k: v for k, v in inverted.items() if k not in self.stacked}
        every_label = (("saved", saved), ("inverted", plain))
        reports = {label: loader.whole(keys) for label, keys in every_label if keys}
        if self._turn(saved, reports.get("saved")) | self._turn(plain, reports.get("inverted")):
            inverted, again, _ = self.keys(self.raw)
            saved.update(again)
            plain.update({k: v for k, v in inverted.items() if k not in self.stacked})
            reports = {label: loader.whole(keys) for label, keys in every_label if keys}
        if not reports:
            raise ValueError("names for its parameters were not found")
        self.best = min(
            reports, key=lambda label: (self._lacking(reports[label]), label != "saved")
        )
        best = reports[self.best]
        wanted = {k: v for k, v in dict(every_label)[self.best].items() if k in best["writes"]}
        lacking = self._unwritten(best)
        self.unsupported = best["unsupported"] or ""
        if lacking and not self.unsupported:
            self._search(inverted, lacking)
        _, _, found = self.keys(self.raw)
        every = {**inverted, **saved, **found}
        union = loader.whole(every, most_errors=120)
        if union["unexplained"]:  # some names stop the loader, and it cannot be seen which
            union = loader.whole(self._harmless(every), most_errors=120)
        self.writes = union["writes"] | best["writes"]  # spellings may disturb each other
        self.attributes = union["attributes"]
        wanted |= {k: v for k, v in found.items() if k in self.writes}
        wanted |= self._others(wanted, saved, plain, inverted)
        last = loader.whole(wanted)
        self.lacks = self._unwritten(last)
        usual = [m for m in names.USUAL if m not in self.assumed]
        more = [m for m in usual if any(m[0] in n for n in self.lacks)]
        if more:
            self.assumed, self.rules = [*self.assumed, *more], {}
            return self.observe()
        self.every = {k: v for k, v in every.items() if k in self.writes}
        engine = {names.template(k) for k in (*inverted, *found)}
        # transformers' names are looked at again at each config if something loads by no other name.
        loads = {k for k in saved if k in self.every or k in wanted}
        self.use_saved = bool(set(map(names.template, loads)) - engine) or any(
            inverted.get(k, found.get(k, ((), "")))[0] != v[0] for k, v in wanted.items()
        )
        self.wanted = wanted
        return every

    def _harmless(self, every: names.Keys) -> names.Keys:
        """Return the keys without those whose kind stops the loader if it is alone."""
        model, loader = self.model(self.raw), self.loader(self.raw)
        said: dict[str, str] = {}
        for key, (shape, dtype) in every.items():
            text = names.template(key)
            if text not in said:
                said[text] = loader.one(model, key, shape, dtype)[0]
        return {k: v for k, v in every.items() if said[names.template(k)] != loading.RAISES}

    def _turn(self, saved: names.Keys, report: Json | None) -> bool:
        """Note the stacks of experts that do not fit, and may the other way round."""
        wrong = report["mismatched"] if report else {}
        stacks = {names.template(k) for k in wrong if k in saved and len(saved[k][0]) == 3}
        stacks -= self.turned
        self.turned |= stacks
        return bool(stacks)

    def _others(self, wanted: names.Keys, *sources: names.Keys) -> names.Keys:
        """Return the keys of other sources for parameters that nothing wanted writes, best first."""
        written = {p for k in wanted for p in self.writes.get(k, ())}
        taken: names.Keys = {}
        for keys in sources:
            more = {k: v for k, v in keys.items() if set(self.writes.get(k, ())) - written - {""}}
            taken |= more
            written |= {p for k in more for p in self.writes[k]}
        return taken

    def _unwritten(self, report: Json) -> list[str]:
        spared = {*self.shared, *self.unread}
        return [n for n, f in report["written"].items() if f < 1 and n not in spared]

    def _lacking(self, report: Json) -> int:
        return len(self._unwritten(report)) + (1000 if report["unsupported"] else 0)

    def _search(self, inverted: names.Keys, lacking: list[str]) -> None:
        """Find other names for the keys of parameters that nothing wrote."""
        model, last = self.model(self.raw), self.last(self.raw)
        loader = self.loader(self.raw)
        subs = names.substitutions(self.builder.cls)
        spelled = spellings.SPELLINGS.get(self.name, ())
        wanted = {names.template(p) for p in lacking}
        ends = time.process_time() + 10
        worked: list[tuple[str, str, str, str]] = []
        wanted_texts: dict[str, None] = {}
        for key, (shape, dtype) in inverted.items():
            text = names.template(key)
            if text in self.rules or time.process_time() > ends:
                continue
            _, direct = loader.one(model, key, shape, dtype)
            parameter = direct[0] if direct else _parameter_of(key, lacking)
            known = direct and key not in self.stacked
            if known or parameter is None or names.template(parameter) not in wanted:
                continue
            tries = [(names.respell(key, r), r) for r in worked]
            tries += list(names.respelled(self.builder.cls, key, subs))
            self.rules[text] = []
            wanted_texts[text] = None
            for name, rule in tries[:140]:
                _, to = loader.one(model, _numbered(name, last), shape, dtype)
                if to and any(names.template(p) in wanted for p in to):
                    self.rules[text] = [rule]
                    worked = [rule, *[r for r in worked if r != rule]][:4]
                    break
        for (
            text
        ) in wanted_texts:  # parts that only load together: what held for others is tried on them
            if not self.rules.get(text):
                own = [("", "", p, t) for p, t in spelled if re.search(p, text.replace("{}", "0"))]
                self.rules[text] = own[:1] or worked[:2]


def _numbered(name: str, last: int) -> str:
    return re.sub(r"(?<=\.)N(?=\.)", str(last), name)


def _parameter_of(key: str, lacking: list[str]) -> str | None:
    """Return which lacking parameter a key was got from: that with the longest common beginning."""

    def common(name: str) -> int:
        n = 0
        for a, b in zip(name.split("."), key.split("."), strict=False):
            if a != b:
                break
            n += 1
        return n

    best = max(lacking, key=common, default=None)
    return (
        best
        if best is not None
        and (common(best) or best.split(".")[0] == key.split(".", maxsplit=1)[0])
        else None
    )
