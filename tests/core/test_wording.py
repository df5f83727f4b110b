"""How sentences begin."""

from __future__ import annotations

import pytest

from workbench.core.wording import begun


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("an EAGLE-3 draft is launched", "An EAGLE-3 draft is launched"),
        ("sglang 0.5.11 refuses this config", "sglang 0.5.11 refuses this config"),
        ("--tp 3 does not divide 4", "--tp 3 does not divide 4"),
        ("config.json is missing", "config.json is missing"),
        ("d2t holds target ids", "d2t holds target ids"),
        ("", ""),
    ],
)
def test_words_begin_a_sentence_and_names_stay(text: str, sentence: str) -> None:
    assert begun(text) == sentence
