"""The Python call that a form stands for: what is shown is what is run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.core.result import Result

_WIDEST = 88  # columns of a call on one line


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call of a public function, or of a method of the result of another call.

    Attributes
    ----------
    function
        Its name in `workbench`; with `of`, the name of the method.
    args, options
        Positional and keyword arguments, plain values only, so that `code` can write them.
    of
        The call whose result has the method.
    """

    function: str
    args: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    of: Call | None = None

    @property
    def is_given(self) -> bool:
        """Whether it is no call at all, but a result that the reader already had."""
        return self.function == ""

    def code(self) -> str:
        """Return the call as Python code, to paste into a cell."""
        if self.is_given:
            return ""
        if self.of is None:
            return self._written("workbench")
        if self.of.is_given:
            return self._written("result")
        return f"{self.of._written('workbench', 'result = ')}\n{self._written('result')}"

    def _written(self, owner: str, before: str = "") -> str:
        words = [repr(arg) for arg in self.args]
        words += [f"{name}={value!r}" for name, value in self.options]
        head = f"{before}{owner}.{self.function}"
        line = f"{head}({', '.join(words)})"
        if len(line) <= _WIDEST:
            return line
        return f"{head}(\n" + "".join(f"    {word},\n" for word in words) + ")"

    def run(self, subject: Result | None = None) -> Result:
        """Make the call; `subject` is the result that a method belongs to.

        Raises
        ------
        WorkbenchError
            As the function does.
        """
        import workbench

        if self.of is not None and subject is None:
            subject = self.of.run()
        owner: Any = workbench if self.of is None else subject
        found: Result = getattr(owner, self.function)(*self.args, **dict(self.options))
        return found


GIVEN = Call("")
"""In the place of a call: the result was handed to the panel."""
