"""Rows of engine facts: which versions are known, what is said of the others, and both sides of a border."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from packaging.version import Version

from workbench.facts import rows
from workbench.facts.features import SGLANG, VLLM, border, newest, since
from workbench.facts.read_wheel import text_of

RELEASES = rows.releases("sglang")


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.5.14", "0.5.14"),
        ("00.5.14", "0.5.14"),
        ("0.5.14+cu128", "0.5.14"),
        ("0.5.12-1", "0.5.12.post1"),
        ("0.5.14+g3f2a91c", None),
        ("0.5.14+fork", None),
        ("0.5.14.dev3", None),
        ("0.5.14rc1", None),
        ("99.0.0", None),
        ("0.4.3", None),
        ("main", None),
        ("", None),
    ],
)
def test_only_a_release_that_was_read_is_known(version: str, release: str | None) -> None:
    assert rows.known("sglang", version) == release
    answer = since("sglang", "norm_output", version)
    assert (answer is None) == (release is None)


def test_releases_are_in_order_and_follow_each_other() -> None:
    assert list(RELEASES) == sorted(RELEASES, key=Version)
    for before, release in pairwise(("", *RELEASES)):
        assert rows.read_release("sglang", release).before == before


def test_each_file_is_written_as_it_is_read() -> None:
    for release in RELEASES:
        text = text_of(rows.read_release("sglang", release))
        assert msgspec.json.decode(text, type=rows.Release) == rows.read_release("sglang", release)


def test_a_row_ends_where_the_next_begins() -> None:
    order = {release: at for at, release in enumerate(RELEASES)}
    names = rows.names("sglang", "flag")
    assert len(names) > 500
    for name in names:
        found = rows.rows("sglang", "flag", name)
        for one, two in pairwise(found):
            assert order[one.first_without] <= order[two.first_with]
        for row in found:
            if row.last_without:
                assert order[row.first_with] == order[row.last_without] + 1
            if row.first_without:
                assert order[row.first_without] == order[row.last_with] + 1


@pytest.mark.parametrize(
    ("engine", "feature", "last", "first"),
    [
        ("sglang", "norm_output", "0.5.11", "0.5.12"),
        ("sglang", "norm_before_fc", "0.5.16", "0.5.17"),
        ("sglang", "eagle_config", "0.4.8.post1", "0.4.9"),
        ("sglang", "lm_head from target", "0.5.1.post3", "0.5.2"),
        ("sglang", "kimi_k2", "0.5.11", "0.5.12"),
        ("sglang", "both models before the pools", "0.5.13.post1", "0.5.14"),
        ("sglang", "pads short projections", "0.5.2", "0.5.3"),
        ("vllm", "num_aux", "0.21.0", "0.22.0"),
    ],
)
def test_both_sides_of_a_border(engine: str, feature: str, last: str, first: str) -> None:
    assert border(engine, feature) == (last, first)
    assert since(engine, feature, last) is False
    assert since(engine, feature, first) is True


def test_what_no_release_has_is_false_up_to_the_newest_and_unknown_after() -> None:
    for feature in ("speculators", "norm_before_residual", "top-level aux ids"):
        assert since("sglang", feature, newest("sglang")) is False
        assert since("sglang", feature, "99.0") is None
        assert border("sglang", feature) == (newest("sglang"), "")


def test_between_two_releases_of_vllm_nobody_looked() -> None:
    assert since("vllm", "num_aux", "0.21.1") is None
    assert since("vllm", "num_aux", "0.32.1") is None
    assert since("vllm", "no such feature", "0.22.1") is None
    assert since("llama.cpp", "num_aux", "1.0") is None


def test_every_feature_has_an_answer_for_every_release() -> None:
    for feature in SGLANG:
        assert {since("sglang", feature, release) for release in RELEASES} <= {True, False}
    for feature, read in VLLM.items():
        assert since("vllm", feature, read.first_with) is True


def test_what_may_be_there_is_not_denied() -> None:
    name = "capture_one_shape@model_executor/runner/decode_cuda_graph_runner.py"
    assert rows.may_have("sglang", "function", name, "0.5.14")
    assert not rows.may_have("sglang", "function", name, "0.5.12")
    assert rows.may_have("sglang", "function", name, "0.5.12+fork")
    # Looked up since after the wheels were read: nothing is known of it yet.
    assert rows.may_have("sglang", "function", "new_function@srt/new.py", "0.5.14")


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.5.14+fork", "0.5.14"),
        ("0.5.8.post7", "0.5.8"),
        ("0.1", RELEASES[0]),
        ("main", RELEASES[-1]),
    ],
)
def test_the_nearest_release(version: str, release: str) -> None:
    assert rows.nearest("sglang", version) == release
