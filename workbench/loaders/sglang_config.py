"""How each release of SGLang reads config.json: as the transformers does that it is pinned to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.version import Version

from workbench.facts.rows import known, row_in
from workbench.loaders.config_checks import Rules, check
from workbench.loaders.profile import Model, Profile
from workbench.loaders.sglang_parts import RELEASES, config_place, release, verified_in

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

# The releases of transformers whose reading of config.json was read here; one between two of them reads it as
# the older one does. (5.3.0 reads it as 4.57.1 does, save for the rotary embedding.)
_READ = ("4.57.1", "5.6.0", "5.8.1", "5.12.1", "5.19.0")
_STRICT = ("5.6.0", "5.8.1", "5.12.1", "5.19.0")
_BASE = ("5.6.0", "5.8.1", "5.12.1")


def read_by(release: str) -> str:
    """Return the transformers that a release reads config.json as, of those that were read here."""
    row = row_in("sglang", "pin", "transformers", release)
    pinned = Version(str(row.value)) if row is not None else Version(_READ[0])
    older = [name for name in _READ if Version(name) <= pinned]
    return older[-1] if older else _READ[0]


def rules_of(versions: Sequence[str], seen: str) -> Rules:
    """Return how these releases read config.json, which all check types or all do not; `seen` is cited."""
    pins = [read_by(version) for version in versions]
    base = {pin in _BASE for pin in pins}
    return Rules(
        pins[0],
        strict=pins[0] in _STRICT,
        base=base.pop() if len(base) == 1 else None,
        only_silu=True,
        sglang=True,
        place=config_place(seen),
        release=known("sglang", seen) or "",
    )


@dataclasses.dataclass(frozen=True)
class Checked:
    """A profile's `build` behind the checks of its releases."""

    inner: Profile
    rules: Rules

    def __call__(self, config: Config) -> Model:
        """Return what the class builds, once the config has passed."""
        check(config, self.rules)
        return self.inner.build(config)


def checked(profile: Profile, seen: str = "") -> Iterator[Profile]:
    """Yield the profile with its config checked, parted where types begin to be checked; `seen` is cited."""
    inside = [v for v in RELEASES if release(profile.first) <= release(v) <= release(profile.last)]
    strict = [v for v in inside if read_by(v) in _STRICT]
    for versions in ([v for v in inside if v not in strict], strict):
        if versions:
            yield dataclasses.replace(
                profile,
                first=versions[0],
                last=versions[-1],
                build=Checked(profile, rules_of(versions, seen or versions[-1])),
                verified=verified_in(versions[0], versions[-1]),
            )
