"""The words for one round: its tokens, what was drafted, what the target chose, and why the rest fell."""

from __future__ import annotations

import math
from collections.abc import Mapping

from workbench.speculation.rounds.records import Node, Round

STOPS = {
    "rejected": "the target chose another token",
    "leaf": "every draft was accepted",
    "length": "the text ends here",
    "unknown": "what the target chose is not known",
}


def why_it_stopped(item: Round) -> str:
    """Return why the accepted path of a round ended, with the rank of what the target chose."""
    fell = where_it_fell(item)
    why = STOPS.get(item.stop, item.stop)
    if item.stop == "rejected" and fell is not None and math.isnan(fell.probability):
        why += "; the draft's own logits are NaN"
    elif item.stop == "rejected" and fell is not None and fell.target_rank is not None:
        why += f"; it was number {fell.target_rank} in the draft's own order"
    elif item.stop == "rejected" and fell is not None and fell.outside:
        why += "; the draft's vocabulary does not have it"
    return why


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


def tokens_as_text(tokens: tuple[int, ...], words: Mapping[int, str]) -> str:
    """Return tokens as text; ids where there are no words."""
    return ("" if words else " ").join(word(t, words) for t in tokens)


def quoted(text: str) -> str:
    """Return text in quotes, its spaces and line breaks visible."""
    return "“" + text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·") + "”"


def percent(value: float) -> str:
    """Return a probability: 3.2 %, 41 %."""
    if math.isnan(value):
        return "? %"
    return f"{100 * value:.0f} %" if value >= 0.0995 else f"{100 * value:.1f} %"
