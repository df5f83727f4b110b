"""The values that a launch sets, and the release's defaults of those that it does not set."""

from __future__ import annotations

from workbench.facts import flags
from workbench.launch.records import Launch

_TRUE = frozenset({"true", "1"})


class UnknownValueError(Exception):
    """A value that a rule needs is not known: a variable of the launch, or a part that was not read."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"{option} is not known: {why}")


class Settings:
    """What holds for each option, by its name in the newest release.

    A value that is not known raises `UnknownValueError`, so that a rule that needs it stays open.
    """

    def __init__(self, launch: Launch, release: str) -> None:
        self._launch = launch
        self._defaults = flags.defaults(release)

    def given(self, key: str) -> bool:
        """Whether the launch sets an option."""
        return self._launch.value(key) is not None

    def raw(self, key: str) -> str:
        """Return an option as it was typed: ``--tp``; as it is called, where it was not."""
        found = self._launch.argument(key)
        return found.raw if found is not None and found.raw.startswith("--") else f"--{key}"

    def _state(self, key: str) -> str:
        return self._launch.state(key)

    def text(self, key: str) -> str | None:
        """Return a value as text; None where neither the launch nor the release gives one."""
        state = self._state(key)
        if state == "unknown":
            found = self._launch.argument(key)
            depends = ", ".join(found.unknown) if found is not None else ""
            why = f"it depends on {depends}" if depends else "a part of the launch was not read"
            raise UnknownValueError(self.raw(key), why)
        value = self._launch.value(key) if state == "known" else self._defaults.get(key)
        return value if value not in (None, flags.UNSET, "None") else None

    def number(self, key: str) -> int | None:
        """Return a whole number; None where there is none, or where it is not one (the parser says so)."""
        value = self.text(key)
        try:
            return None if value is None else int(value)
        except ValueError:
            return None

    def fraction(self, key: str) -> float | None:
        """Return a number, None where there is none."""
        value = self.text(key)
        try:
            return None if value is None else float(value)
        except ValueError:
            return None

    def on(self, key: str) -> bool:
        """Whether a switch is on."""
        return (self.text(key) or "").lower() in _TRUE

    def environment(self, name: str) -> str | None:
        """Return a variable that the launch sets, None where it does not."""
        return self._launch.environment.get(name)
