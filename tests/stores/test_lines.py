"""Tests of `gateway.stores.lines`: bytes and records, forwards and backwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import AuditRecord, Json
from gateway.stores import lines
from gateway.stores.lines import NO_HASH, raw_lines, raw_lines_backwards, read_line
from tests.stores.journals import write_line

JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(fields=st.dictionaries(st.text(), JSON, max_size=5), id=st.text(), time=st.floats(0, 1e10))
def test_round_trip(fields: dict[str, Json], id: str, time: float) -> None:
    """Every record is read as it was written, in one line of ASCII."""
    line = write_line("w", 7, NO_HASH, AuditRecord(id, "intent", time, fields))
    raw = line.text.encode("ascii")
    assert b"\n" not in raw
    assert read_line(raw) == line


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_any_altered_byte(position: int, byte: int) -> None:
    """A line in which one byte was altered is not read."""
    raw = bytearray(write_line("w", 1, NO_HASH, AuditRecord("a", "intent", 1.5, {"url": "/x"})).text.encode())
    position %= len(raw)
    if raw[position] == byte:
        return
    raw[position] = byte
    with pytest.raises(ValueError):
        read_line(bytes(raw))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_what_json_cannot_say(value: object) -> None:
    """A value without a JSON form is refused, not written as something else."""
    with pytest.raises(ValueError):
        write_line("w", 1, NO_HASH, AuditRecord("a", "intent", 1, {"x": value}))  # type: ignore[dict-item]


@given(
    content=st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")), max_size=20),
    block=st.integers(1, 40),
)
def test_backwards_is_forwards_reversed(content: list[bytes], block: int) -> None:
    """Read backwards, in blocks of any size, a file has the same lines at the same places."""
    whole = b"".join(raw + b"\n" for raw in content) + b"tail"
    descriptor = os.memfd_create("lines")
    try:
        os.write(descriptor, whole)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines, "_BLOCK", block)
            backwards = list(raw_lines_backwards(descriptor, len(whole)))
        with os.fdopen(os.dup(descriptor), "rb") as file:
            forwards = [(end - len(raw) - 1, raw) for end, raw in raw_lines(file)]
    finally:
        os.close(descriptor)
    assert backwards == [(len(whole) - 4, b"tail"), *reversed(forwards)]


def test_forwards_from_a_byte(tmp_path: Path) -> None:
    """Reading continues from the byte after a line, and leaves an unfinished line out."""
    path = tmp_path / "x"
    path.write_bytes(b"one\ntwo\nthr")
    with path.open("rb") as file:
        assert list(raw_lines(file)) == [(4, b"one"), (8, b"two")]
        assert list(raw_lines(file, 4)) == [(8, b"two")]
