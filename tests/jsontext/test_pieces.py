"""JSON written in pieces is the same, and no piece is large."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.jsontext import writing
from gateway.jsontext.writing import SIZE, compact_stable, escape_parts, gather, is_large, write_pieces

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=9,
)


@given(VALUES, st.integers(1, 9), st.integers(0, 9))
def test_it_is_the_same_json(value: Any, size: int, parts: int) -> None:
    """Wherever it is cut: as written whole, and as a string within other JSON."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "SIZE", size)
        patch.setattr(writing, "PARTS", parts)
        plain = list(write_pieces(value, lambda one: compact_stable(one).decode()))
        assert "".join(plain) == compact_stable(value).decode()
        assert json.loads(b"".join(gather(write_pieces(value)))) == value
        assert json.loads(b"".join(gather(escape_parts(plain)))) == compact_stable(value).decode()


@pytest.mark.parametrize(
    "value",
    [
        "é\n" * SIZE,
        ["x" * 1000] * 3000,
        [{"a": 1}] * 30_000,
        {f"k{number}": number for number in range(30_000)},
        [[[]] * 9_000],
    ],
)
def test_no_piece_is_large(value: object) -> None:
    """Strings, arrays and objects, still in few pieces."""
    assert is_large(value)
    texts = list(write_pieces(value))
    assert max(map(len, texts)) <= 12 * SIZE
    whole = gather(texts)
    assert json.loads(b"".join(whole)) == value
    assert max(map(len, whole)) <= 13 * SIZE
    assert len(whole) <= sum(map(len, whole)) // SIZE + 1


@pytest.mark.parametrize("value", ["", "x" * 1000, [1] * 1000, {"a": ["b"] * 1000, "c": None}])
def test_what_is_small_is_written_in_one_go(value: object) -> None:
    """As most values are."""
    assert not is_large(value)
    assert len(list(write_pieces(value))) == 1
