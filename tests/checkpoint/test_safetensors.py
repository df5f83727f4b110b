"""Safetensors headers: equal to the format's own reader, or an error that says what is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from workbench.checkpoint import safetensors as reader
from workbench.checkpoint.header_columns import Columns, Specs
from workbench.checkpoint.header_strict import read_strict
from workbench.checkpoint.records import DTYPE_BITS
from workbench.checkpoint.safetensors import parse_header
from workbench.errors import CheckpointError

# The workbench reads all of the format by itself; to compare, the library must know all of it too.
whole_format = pytest.mark.skipif(
    Version(safetensors.__version__) < Version("0.8"),
    reason="this safetensors does not know every dtype of the format yet",
)


def packed(header: object, data: int = 0, pad: bytes = b"", **dumps: Any) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header, **dumps).encode()
    text += pad
    return len(text).to_bytes(8, "little") + text + b"\0" * data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def ours(blob: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Read a file as the workbench does: dtype, shape and bytes of each tensor."""
    length = int.from_bytes(blob[:8], "little")
    specs = Specs()
    header = parse_header(blob[8 : 8 + length], len(blob), "file", specs)
    kinds = list(specs.codes)
    return {
        name: (*kinds[code], blob[begin:end])
        for name, code, begin, end in zip(
            header.names, header.spec.tolist(), header.begin, header.end, strict=True
        )
    }


def theirs(blob: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Read it as the safetensors package does."""
    return {
        name: (view["dtype"], tuple(view["shape"]), bytes(view["data"]))
        for name, view in safetensors.deserialize(blob)
    }


def why(blob: bytes, tmp_path: Path, name: str = "m.safetensors") -> CheckpointError:
    from workbench.checkpoint.open import open_checkpoint

    path = tmp_path / name
    path.write_bytes(blob)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert str(path) in caught.value.what or name in caught.value.what
    assert caught.value.next_step
    return caught.value


# --- what is valid ---------------------------------------------------------------------------------

TWO = {"a.weight": entry("F32", [2, 3], 0, 24), "b": entry("I64", [], 24, 32)}


@pytest.mark.parametrize(
    ("header", "dumps", "pad"),
    [
        (TWO, {"separators": (",", ":")}, b""),
        (TWO, {"separators": (",", ":")}, b"     "),
        (TWO, {}, b" "),
        (TWO, {"indent": 2}, b"\n"),
        ({"__metadata__": {"format": "pt"}} | TWO, {"separators": (",", ":")}, b""),
        ({"__metadata__": {"note": 'a "b" \\ ä\n'}} | TWO, {"separators": (",", ":")}, b""),
        (TWO | {"__metadata__": {"format": "pt"}}, {"separators": (",", ":")}, b""),
        ({"ä.ü": TWO["a.weight"], "b": TWO["b"]}, {"ensure_ascii": False}, b""),
        ({"ä.ü": TWO["a.weight"], "b": TWO["b"]}, {}, b""),
        ({"b": TWO["b"], "a": TWO["a.weight"]}, {"separators": (",", ":")}, b""),
        ({"": TWO["a.weight"], "b": TWO["b"]}, {"separators": (",", ":")}, b""),
    ],
)
def test_equal_to_safetensors(header: Any, dumps: dict[str, Any], pad: bytes) -> None:
    blob = packed(header, 32, pad, **dumps)
    assert ours(blob) == theirs(blob)


@whole_format
def test_zero_size_and_every_dtype() -> None:
    header, at = {}, 0
    for number, (dtype, bits) in enumerate(DTYPE_BITS.items()):
        header[f"t.{number}"] = entry(dtype, [8], at, at + bits)
        at += bits
        header[f"empty.{number}"] = entry(dtype, [0, 3], at, at)
    blob = packed(header, at, separators=(",", ":"))
    assert ours(blob) == theirs(blob)


@whole_format
def test_dtypes_are_those_of_the_format() -> None:
    """A dtype that safetensors knows and we do not would be called damage."""
    with pytest.raises(safetensors.SafetensorError) as caught:
        safetensors.deserialize(packed({"a": entry("NEW", [1], 0, 1)}, 1))
    for dtype in DTYPE_BITS:
        assert f"`{dtype}`" in str(caught.value)
    assert str(caught.value).count("`") == 2 * (len(DTYPE_BITS) + 1)


def test_no_tensors() -> None:
    assert ours(packed({})) == {} == theirs(packed({}))
    assert ours(packed({"__metadata__": {"a": "b"}})) == {}


def test_readers_agree_on_the_usual_form() -> None:
    header = {"__metadata__": {"format": "pt"}}
    at = 0
    for number in range(300):
        header[f"layers.{number}.{'x' * (number % 90)}"] = entry(
            "F16", [number, 2], at, at + 4 * number
        )
        at += 4 * number
    raw = json.dumps(header, separators=(",", ":")).encode()
    found = []
    for read in (
        reader._read_canonical,
        reader._read_typed,
        lambda r, s: read_strict(r, "", s),
    ):
        specs = Specs()
        columns = read(raw, specs)
        assert isinstance(columns, Columns)
        kinds = list(specs.codes)
        spec = [kinds[code] for code in columns.spec]
        found.append(
            (columns.names, spec, columns.begin.tolist(), columns.end.tolist(), columns.metadata)
        )
    assert found[0] == found[1] == found[2]


# --- what is broken --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blob", "text"),
    [
        (b"", "is empty"),
        (b"\x10\0\0", "has 3 bytes"),
        (b"\0" * 8, "header has 0 bytes, and even one without tensors takes 2"),
        ((1).to_bytes(8, "little") + b"5", "header has 1 byte, and"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "1,099,511,627,776"),
        ((100).to_bytes(8, "little") + b"{}", "cut short"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>401</body></html>", "web page"),
        (b"\n  <html>", "web page"),
        (b"GGUF\3\0\0\0" + b"\0" * 64, "GGUF"),
        (b"\x93NUMPY\1\0" + b"v" * 100, "NumPy array"),
        (b"PK\3\4" + b"a" * 100, "zip archive"),
        (b"\x80\2}q\0" + b"." * 100, "bare pickle"),
        (b'{"weight_map": {}}' + b" " * 100, "JSON text"),
        (b"\x1f\x8b\x08" + b"a" * 100, "gzip"),
    ],
)
def test_other_files(blob: bytes, text: str, tmp_path: Path) -> None:
    message = str(why(blob, tmp_path))
    assert text in message
    assert len(message) < 1_800


@pytest.mark.parametrize(
    ("header", "data", "text"),
    [
        (b"{ ", 0, "not JSON"),
        (b"[1]", 0, "not an object"),
        (b'"ab"', 0, "not an object"),
        (b'{"a": NaN}', 0, "not JSON"),
        (b"\xff\xfe{}", 0, "not UTF-8"),
        (b'{"\\ud800": {"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1, "half a character"),
        ({"a": 3}, 0, "not described by an object"),
        ({"a": {"dtype": "F32"}}, 0, "shape null"),
        ({"a": entry("F33", [1], 0, 4)}, 4, "dtype 'F33'"),
        ({"a": entry("F32", [-1], 0, 4)}, 4, "shape [-1]"),
        ({"a": entry("F32", [-2, -2], 0, 16)}, 16, "shape [-2, -2]"),
        ({"a": entry("F32", [1.0], 0, 4)}, 4, "shape [1.0]"),  # type: ignore[list-item]
        ({"a": entry("F32", [True], 0, 4)}, 4, "shape [True]"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}, 4, "data_offsets [0]"),
        (
            {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
            4,
            "run backwards",
        ),
        ({"a": entry("F32", [1 << 62, 4], 0, 4)}, 4, "whole number of bytes"),
        ({"a": entry("F4", [3], 0, 1)}, 1, "whole number of bytes"),
        ({"a": entry("F32", [2], 0, 4)}, 4, "takes 8 bytes"),
        ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, 6, "'b' overlaps"),
        ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 6, 10)}, 10, "'b' leaves a hole"),
        ({"a": entry("U8", [4], 1, 5)}, 5, "'a' leaves a hole"),
        ({"a": entry("U8", [4], 0, 4)}, 3, "1 byte missing"),
        ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [40], 4, 44)}, 20, "'b' is the first"),
        ({"a": entry("U8", [4], 0, 4)}, 9, "5 bytes belonging to no tensor"),
        ({}, 5, "names no tensor"),
        ({"__metadata__": {"a": 1}}, 0, "__metadata__"),
        ({"__metadata__": ["a"]}, 0, "__metadata__"),
        (b'{"a":{"dtype":"U8","shape":[007],"data_offsets":[0,7]}}', 7, "not JSON"),
        (b'{"a":{"dtype":"U8","shape":[7],"data_offsets":[00,7]}}', 7, "not JSON"),
        (b'{"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7],}}', 7, "not JSON"),
        (b"[" * 200_000, 0, "nested thousands of levels deep"),
        (b"[]", 0, "it is [], not an object"),
        (b"null", 0, "it is null, not an object"),
        (
            {"a": {"dtype": "U8", "shape": {}, "data_offsets": [0, 1]}},
            1,
            "the shape {} (an object)",
        ),
        ({"a": entry("U8", [1] * 50_000, 0, 2)}, 2, "1…, 1"),
        ({"a": entry("F" * 1_000_000, [1], 0, 2)}, 2, "known: BF16"),
        (b'{"a":' + b"9" * 5000 + b"}", 0, "thousands of digits"),
        ({"n" * 60_000: entry("U8", [1], 0, 2)}, 2, "takes 1 bytes"),
    ],
)
def test_broken_headers(header: Any, data: int, text: str, tmp_path: Path) -> None:
    blob = packed(header, data)
    error = why(blob, tmp_path)
    assert text in str(error)
    assert len(str(error)) < 1_500
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(blob)
    if not isinstance(header, bytes):  # the same in the form that the fast reader takes
        assert text in str(why(packed(header, data, separators=(",", ":")), tmp_path))


@pytest.mark.parametrize("space", ["", " "])
def test_duplicates_are_named(space: str, tmp_path: Path) -> None:
    """safetensors keeps the last one silently where the offsets allow it; we never do."""
    one = f'"a":{space}{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    error = why(packed(f"{{{one},{space}{one}}}".encode()), tmp_path)
    assert "names 'a' twice" in error.what
    twice = b'{"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}'
    assert "has the same field twice" in str(why(packed(twice), tmp_path))
    spelled = f"{{{one},{one.replace('a', chr(92) + 'u0061', 1)}}}".encode()
    assert "names 'a' twice" in str(why(packed(spelled), tmp_path))
    metadata = b'{"__metadata__":{"k":"1"},"__metadata__":{"k":"2"}}'
    assert "twice" in str(why(packed(metadata), tmp_path))


def test_sparse_file_beyond_memory(tmp_path: Path) -> None:
    """Half a terabyte on paper: the header alone is read, and one row of a tensor."""
    from workbench.checkpoint.open import open_checkpoint

    rows, width = 1 << 25, 1 << 13
    size = rows * width * 2
    path = tmp_path / "huge.safetensors"
    path.write_bytes(packed({"w": entry("BF16", [rows, width], 0, size)}))
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size + size)
    checkpoint = open_checkpoint(path)
    assert checkpoint["w"].nbytes == size
    assert checkpoint.tensor("w", (rows - 1, slice(0, 4))).tolist() == [0.0] * 4


def test_a_file_that_shrinks(tmp_path: Path) -> None:
    from workbench.checkpoint.open import open_checkpoint

    path = tmp_path / "m.safetensors"
    path.write_bytes(packed(TWO, 32))
    checkpoint = open_checkpoint(path)
    os.truncate(path, path.stat().st_size - 4)
    with pytest.raises(CheckpointError, match="shorter than when it was opened"):
        checkpoint.tensor("b")


# --- anything at all -------------------------------------------------------------------------------

small = st.integers(0, 5)
fuzzed_entry = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPE_BITS, "F32", "U8", "X", "f32"]),
        "shape": st.lists(st.one_of(small, st.integers(-1, 1 << 66)), max_size=3),
        "data_offsets": st.lists(
            st.one_of(small, st.integers(-1, 1 << 66)), min_size=1, max_size=3
        ),
    }
)


@st.composite
def nearly_valid(draw: st.DrawFn) -> bytes:
    """A valid file with up to three bytes of its header changed, or an entry of it replaced."""
    header: dict[str, Any] = {}
    if draw(st.booleans()):
        header["__metadata__"] = draw(
            st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
        )
    at = 0
    names = draw(st.lists(st.text(max_size=6), max_size=5, unique=True))
    for name in names:
        dtype = draw(st.sampled_from(["F32", "BF16", "U8", "F4", "I64", "BOOL"]))
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        size = int(np.prod(shape, dtype=object)) * DTYPE_BITS[dtype]
        header[name] = entry(dtype, shape, at, at + (size + 7) // 8)
        at += (size + 7) // 8
    if names and draw(st.integers(0, 4)) == 0:
        header[draw(st.sampled_from(names))] = draw(fuzzed_entry)
    spaces = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    ascii_only = draw(st.booleans())
    text = bytearray(json.dumps(header, separators=spaces, ensure_ascii=ascii_only).encode())
    for _ in range(draw(st.integers(0, 3))):
        where = draw(st.integers(0, len(text) - 1))
        text[where] = draw(st.one_of(st.integers(0, 255), st.sampled_from(b'"{}[],:0123456789 \\')))
    extra = draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    return packed(bytes(text), max(0, at + extra), draw(st.sampled_from([b"", b" ", b"   "])))


def unambiguous(blob: bytes) -> bool:
    """Whether no key occurs twice: there, ours is stricter on purpose."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(items)) == len(items)
        return dict(items)

    try:
        json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")], object_pairs_hook=pairs)
    except AssertionError:
        return False
    return True


@whole_format
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(nearly_valid(), st.binary(max_size=60).map(packed)))
def test_as_safetensors_or_an_error(blob: bytes) -> None:
    try:
        mine = ours(blob)
    except CheckpointError as error:
        mine = error
    try:
        other = theirs(blob)
    except safetensors.SafetensorError:
        assert isinstance(mine, CheckpointError)
        return
    if unambiguous(blob):
        assert mine == other


# --- keys of names ---------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=20))
def test_keys_depend_on_the_name_alone(names: list[str]) -> None:
    from workbench.checkpoint.columns import keys_of

    keys = keys_of(names).tolist()
    assert keys == [keys_of([name]).tolist()[0] for name in names]
    assert len(set(keys)) == len(set(names))


def test_keys_of_names_with_a_pattern() -> None:
    from workbench.checkpoint.columns import keys_of

    names = [f"a.{i}.bb.{j}.ccc.{k}.w" for i in range(60) for j in range(60) for k in range(60)]
    names += ["x" * n for n in range(1024)]
    assert len(np.unique(keys_of(names))) == len(names)
    assert keys_of([]).tolist() == []
    long = ["y" * 1024 + end for end in ("a" * 1024, "b" * 1024)]
    assert len(set(keys_of(long).tolist())) == 2


@pytest.mark.parametrize("letter", ["n", "ä", "1."])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_longest_name(letter: str, separators: tuple[str, str], tmp_path: Path) -> None:
    """Engines set no bound, but a name of megabytes would make everything that shows it useless."""
    form = {"ensure_ascii": False, "separators": separators}
    name = letter * ((1 << 16) // len(letter))
    assert ours(packed({name: entry("U8", [1], 0, 1)}, 1, **form)).keys() == {name}
    error = why(packed({name + "x": entry("U8", [1], 0, 1)}, 1, **form), tmp_path)
    assert "65,537 characters" in error.why
    error = why(packed({letter * 5_000_000: entry("U8", [1], 0, 1)}, 1, **form), tmp_path)
    assert len(str(error)) < 500
