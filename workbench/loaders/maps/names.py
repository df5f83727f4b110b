"""Names that a map knows: its own templates, what nearly is one of them, and words that stand alone."""

from __future__ import annotations

import dataclasses
import functools
import re

from workbench.loaders.harvest.families import PREDICTION, WORDS, all_families
from workbench.loaders.maps.records import ClassMap

_NUMBER = re.compile(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])")


@dataclasses.dataclass(frozen=True)
class Known:
    """What the loader was seen to do with a name.

    ``loads``, ``dropped``, ``warned``, ``raises``, ``kept`` outside of parameters, or ``elsewhere``. ``name``
    is the right name for it, with the number of the key, where it is one of a family.
    """

    reaction: str
    name: str = ""


def template_of(name: str) -> str:
    """Return a name with ``{}`` for each number that stands alone."""
    return _NUMBER.sub("{}", name)


@dataclasses.dataclass(frozen=True)
class Near:
    """A family's version of a template: its pattern, the right template, and the reaction."""

    pattern: re.Pattern[str]
    template: str
    reaction: str


class Names:
    """The names of one class."""

    def __init__(self, found: ClassMap) -> None:
        self.found = found
        self.own = {slot.template for slot in found.slots}
        self.own |= {slot.template for variant in found.variants for slot in variant.come}
        self.near: dict[str, Near] = {}
        self.literal: list[Near] = []
        changes = dict(all_families())
        wanted = [slot.name for slot in found.slots if slot.wanted]
        for family, reactions in found.families.items():
            change = changes.get(family)
            if change is None:
                continue
            for name in wanted:
                self._add(change(name.partition("#")[0]), name, reactions)

    def _add(self, text: str, name: str, reactions: object) -> None:
        right = name.partition("#")[0]
        reaction = _of(reactions, name)
        if not text or text == right or text in self.own or not reaction:
            return
        parts = re.split(r"(\{\})", text)
        pattern = "".join(r"(\d+)" if part == "{}" else re.escape(part) for part in parts)
        near = Near(re.compile(pattern), right, reaction)
        if _NUMBER.search(text):
            self.literal.append(near)
        old = self.near.get(text)
        if old is not None and old.reaction != reaction:
            near = dataclasses.replace(near, reaction="elsewhere")  # two families disagree
        self.near[text] = near

    def find(self, key: str) -> Known | None:
        """Return what is known of a name that is no template of the class; None where nothing is."""
        near = self.near.get(template_of(key))
        if near is None:
            near = next((n for n in self.literal if n.pattern.fullmatch(key)), None)
        if near is not None:
            match = near.pattern.fullmatch(key)
            numbers = list(match.groups()) if match else []
            numbers = ["0"] * (near.template.count("{}") - len(numbers)) + numbers
            if len(numbers) == near.template.count("{}"):
                return Known(near.reaction, near.template.format(*numbers))
            return None
        words = self.found.words
        reaction = words.get(self._word(key)) or words.get(template_of(key))
        if reaction == "absent":  # it raised whatever its shape was
            return Known("raises")
        # A word that raised may have raised because of its shape.
        return Known(reaction) if reaction and reaction not in ("raises", "loads") else None

    def _word(self, key: str) -> str:
        if key in WORDS:
            return key
        spelled = _NUMBER.sub("N", key)
        return spelled if spelled in PREDICTION else key

    def beyond(self, name: str) -> str:
        """Return what the loader does with a row of numbers that a slot does not have."""
        return _of(self.found.beyond, name)


def _of(reactions: object, name: str) -> str:
    if isinstance(reactions, str):
        return reactions
    if isinstance(reactions, list) and len(reactions) == 2:
        return str(reactions[1].get(name, reactions[0]))
    return ""


@functools.lru_cache(maxsize=64)
def names_of(engine: str, release: str, model_class: str) -> Names:
    """Return the names of a class of a release."""
    from workbench.loaders.maps.records import maps_of

    return Names(maps_of(engine, release).classes[model_class])
