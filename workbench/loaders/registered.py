"""Model classes that a release registers and nothing here describes: "cannot tell", with what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from packaging.version import Version

from workbench.facts import rows
from workbench.loaders.profile import Model, NotCovered, Profile, Route

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

EAGLE3_KIND = "an EAGLE-3 draft"
EAGLE_KIND = "an EAGLE draft"
# Parts of a class's name -> what such a checkpoint is.
_KINDS = (
    ("dspark", "a DSpark draft"),
    ("dflash", "a DFlash draft"),
    ("medusa", "a draft with Medusa heads"),
    ("nextn", "the multi-token prediction layer of its target, loaded as a draft"),
    ("mtp", "the multi-token prediction layer of its target, loaded as a draft"),
    ("eagle3", EAGLE3_KIND),
    ("eagle", EAGLE_KIND),
    ("assistant", "a draft that its target's authors call an assistant"),
    ("draft", "a draft"),
)


def kind_of(model_class: str) -> str:
    """Return what a checkpoint of this class is, by the name of the class; "" where that says nothing."""
    name = model_class.lower()
    return next((said for part, said in _KINDS if part in name), "")


def is_absent(engine: str, model_class: str, version: str) -> bool:
    """Tell whether a release is known to have no class of that name, and another release has one."""
    found = rows.rows(engine, "class", model_class)
    return bool(found) and rows.has(engine, "class", model_class, version) is False


def is_unheard_of(engine: str, model_class: str) -> bool:
    """Tell whether the classes of an engine are known, and none of its releases has one of that name."""
    return bool(rows.releases(engine)) and not rows.rows(engine, "class", model_class)


def known(engine: str, model_class: str, version: str) -> str:
    """Return in words what is known of a class in a release of an engine."""
    kind = kind_of(model_class)
    is_a = f"{model_class} is {kind}" if kind else model_class
    listed = rows.releases(engine)
    found = rows.rows(engine, "class", model_class)
    if not listed:
        return f"{is_a}: what {engine} does with its keys is not described here"
    if not found:
        span = f"from {listed[0]} to {listed[-1]}"
        return f"{is_a}: no release of {engine} {span} has a class of that name"
    row = rows.row_in(engine, "class", model_class, version) if version else found[-1]
    if row is not None:
        has = f"{engine} {version or row.last_with} has this class ({row.file})"
        return f"{is_a}: {has}, but what it does with keys is not described here"
    if rows.known(engine, version) is None:
        last = f"{found[-1].last_with} has this class"
        return f"{is_a}: {version} is not a release of {engine} that is known here; {last}"
    later = [one.first_with for one in found if Version(one.first_with) > Version(version)]
    which = (
        f"first release with it is {later[0]}"
        if later
        else f"last release with it is {found[-1].last_with}"
    )
    return f"{is_a}: there is no such class in {engine} {version}; the {which}"


def profile(engine: str, model_class: str, version: str) -> Profile:
    """Return a profile that covers nothing and says what is known of the class."""
    text = known(engine, model_class, version)
    found = rows.rows(engine, "class", model_class)
    place = found[-1].place if found else ""

    def build(config: Config) -> NoReturn:
        raise NotCovered(text, place)

    return Profile(
        engine,
        model_class,
        version or "0",
        version or "0",
        place,
        build,
        _nowhere,
    )


def _nowhere(key: str, model: Model) -> Route:
    return Route("drop", key)
