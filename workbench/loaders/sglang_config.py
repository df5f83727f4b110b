"""How each release of SGLang reads config.json, by the transformers it is pinned to.

Read from the METADATA of every wheel: 4.48.3 to 4.57.1 up to 0.5.9 (0.5.6.post1 alone has 5.0.0rc0),
5.3.0 in 0.5.10, 5.6.0 to 5.12.1 from 0.5.11, 5.19.0 from 0.5.22.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workbench.loaders.config_checks import Rules, check
from workbench.loaders.profile import Model, Profile
from workbench.loaders.sglang_parts import CONFIG_PLACE, RELEASES, release, verified_in

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

# First release -> the transformers that config.json is read by, the nearest of those read here. 5.3.0 reads
# it as 4.57.1 does, save for the rotary embedding.
_PINS = (
    ("0.4.4", "4.57.1"),
    ("0.5.11", "5.6.0"),
    ("0.5.13", "5.8.1"),
    ("0.5.15", "5.12.1"),
    ("0.5.22", "5.19.0"),
)
_STRICT = ("5.6.0", "5.8.1", "5.12.1", "5.19.0")
_BASE = ("5.6.0", "5.8.1", "5.12.1")


def rules_of(versions: Sequence[str]) -> Rules:
    """Return how these releases read config.json, which all check types or all do not."""
    pins = [[pin for first, pin in _PINS if release(first) <= release(v)][-1] for v in versions]
    base = {pin in _BASE for pin in pins}
    return Rules(
        pins[0],
        strict=pins[0] in _STRICT,
        base=base.pop() if len(base) == 1 else None,
        only_silu=True,
        sglang=True,
        place=CONFIG_PLACE,
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


def checked(profile: Profile) -> Iterator[Profile]:
    """Yield the profile with its config checked, parted where types begin to be checked."""
    inside = [v for v in RELEASES if release(profile.first) <= release(v) <= release(profile.last)]
    strict = [v for v in inside if release(v) >= release("0.5.11")]
    for versions in (inside[: len(inside) - len(strict)], strict):
        if versions:
            yield dataclasses.replace(
                profile,
                first=versions[0],
                last=versions[-1],
                build=Checked(profile, rules_of(versions)),
                verified=verified_in(versions[0], versions[-1]),
            )
