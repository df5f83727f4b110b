"""One round as text: what was there, what was drafted, what the target chose, and why the rest fell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from workbench.display import text as lines
from workbench.errors import WorkbenchError, clean
from workbench.speculation.records import Node, Round

if TYPE_CHECKING:
    from workbench.speculation.kept import Kept
    from workbench.speculation.result import Replay

_BEFORE = 240  # characters of the text so far
_NODES = 40
STOPS = {
    "rejected": "the target chose another token",
    "leaf": "every draft was accepted",
    "length": "the text ends here",
    "unknown": "what the target chose is not known",
}


def round_text(replay: Replay, row: int, width: int | None = None) -> str:
    """Return one round as text.

    Raises
    ------
    WorkbenchError
        There is no such round.
    """
    kept = replay.kept
    if kept is None or not -len(kept) <= row < len(kept):
        raise WorkbenchError(
            f"there is no round {row}",
            why=f"{len(kept) if kept else 0} rounds are kept",
            next_step="Ask for show(0), or for show(replay.next_rejection()).",
        )
    row %= len(kept)
    item, page = kept.round(row), lines.Page(width)
    asked = kept.requests[item.request]
    told_of = f"Round {row + 1} of {len(kept):,}: request "
    own = f", its round {item.index + 1}" if page.width >= 64 else ""
    room = page.width - len(told_of) - len(own) - 4  # a heading ends in a rule
    page.heading(told_of + lines.middle(clean(asked.name), max(4, room)) + own)
    page.out.pop(0)
    before = told(asked.tokens[: item.prefix], kept.words)
    cut = f"…{before[-_BEFORE:]}" if len(before) > _BEFORE else before
    page.prose(quoted(cut), "  so far    ")
    page.prose(
        " ".join(quoted(word(t, kept.words)) for t in item.accepted) or "nothing", "  accepted  "
    )
    bonus = "unknown" if item.bonus is None else quoted(word(item.bonus, kept.words))
    page.prose(bonus, "  then      ")
    if item.observed is not None:
        same = item.observed == (*item.accepted, item.bonus)
        said = f"{lines.plural(len(item.observed) - 1, 'draft')} accepted"
        page.prose(said + (", the same" if same else ", not the same"), "  engine    ")
    page.out.append("")
    for node in _tree(page, item, kept):
        page.add(node)
    page.prose(_why(item), "  stop: ")
    return str(page)


def _tree(page: lines.Page, item: Round, kept: Kept) -> Iterator[list[str]]:
    """Yield the lines of each node, children under their parents."""
    children: dict[int, list[int]] = {}
    for number, node in enumerate(item.nodes):
        children.setdefault(node.parent, []).append(number)
    todo, shown = [*reversed(children.get(-1, []))], 0
    while todo and shown < _NODES:
        number = todo.pop()
        node = item.nodes[number]
        todo += reversed(children.get(number, []))
        shown += 1
        state = "beside" if node.reason == "parent rejected" else "rejected"
        state = "accepted" if node.accepted else state
        lead = "  " + "  " * min(node.depth - 1, 12)
        name = f"{quoted(word(node.token, kept.words))}  {percent(node.probability)}"
        yield lines.group_line(
            state, name, [reason(node, kept.words)],
            width=page.width, indent=lead, colour=page.colour, unicode=page.unicode,
        )  # fmt: skip
        first = number == children[node.parent][0]
        if first and node.target_top:
            pairs = [f"{quoted(word(t, kept.words))} {percent(p)}" for t, p in node.target_top[:3]]
            yield lines.wrap(", ".join(pairs), page.width, first=f"{lead}    target: ")
    if todo:
        yield [f"  … and {len(todo)} more nodes"]


def _why(item: Round) -> str:
    fell = where_it_fell(item)
    said = STOPS.get(item.stop, item.stop)
    if item.stop == "rejected" and fell is not None and math.isnan(fell.probability):
        said += "; the draft's own logits are no numbers"
    elif item.stop == "rejected" and fell is not None and fell.target_rank is not None:
        said += f"; it was number {fell.target_rank} in the draft's own order"
    elif item.stop == "rejected" and fell is not None:
        said += "; the draft's vocabulary has no such token, or its rank is not known"
    return said


def where_it_fell(item: Round) -> Node | None:
    """Return the first draft that the target turned down at the end of the accepted path."""
    end = max((n for n, node in enumerate(item.nodes) if node.accepted), default=-1)
    return next((node for node in item.nodes if node.parent == end and not node.accepted), None)


def reason(node: Node, words: Mapping[int, str]) -> str:
    """Return why a node fell, with words in the place of ids."""
    start = "target chose "
    if node.accepted:
        return "accepted"
    if node.reason.startswith(start) and node.reason[len(start) :].isdecimal():
        return start + quoted(word(int(node.reason[len(start) :]), words))
    return node.reason


def word(token: int, words: Mapping[int, str]) -> str:
    """Return the text of a token, or its id where there is none."""
    return words.get(token, f"#{token}")


def told(tokens: tuple[int, ...], words: Mapping[int, str]) -> str:
    """Return tokens as text; ids where there are no words."""
    return ("" if words else " ").join(word(t, words) for t in tokens)


def quoted(text: str) -> str:
    """Return text with its spaces and line breaks to be seen, in quotes."""
    return "“" + text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·") + "”"


def percent(value: float) -> str:
    """Return a probability: 3.2 %, 41 %."""
    if math.isnan(value):
        return "? %"
    return f"{100 * value:.0f} %" if value >= 0.0995 else f"{100 * value:.1f} %"
