"""The validation of JSON text at any depth."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.jsontext.reading import _is_value, problem_of

PIECES = st.sampled_from(
    [*'[]{},:" \t\n\\', '"a"', '"\\ud83d"', "1", "-0", "1e400", "0.5", "true", "null", "01", "NaN", "1."]
)


def is_json(text: str) -> bool:
    """Return whether Python's library parses it."""
    try:
        json.loads(text, parse_constant=lambda _: int("none"))
    except ValueError:
        return False
    return True


@given(st.lists(PIECES, max_size=12).map("".join))
def test_without_recursion_it_is_the_same(text: str) -> None:
    """A recursive parser finds the same."""
    assert _is_value(text) == is_json(text) == (problem_of(text) is None)


@given(st.recursive(st.none() | st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists, max_leaves=20))
def test_what_is_written_is_json(value: object) -> None:
    """With escapes and without."""
    for ascii_only in (True, False):
        assert _is_value(json.dumps(value, ensure_ascii=ascii_only, indent=1))


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("[" * 50_000 + "]" * 50_000, True),
        ('{"a":' * 40_000 + "1" + "}" * 40_000, True),
        ("[" * 50_000 + "]" * 49_999, False),
        ("[" * 50_000 + "]" * 50_001, False),
        ("[" * 50_000 + "}" + "]" * 49_999, False),
        ("[" * 50_000 + "]" * 50_000 + " x", False),
        ("[" * 50_000 + "1,]" + "]" * 49_999, False),
        ("[" * 3000 + "9" * 5000 + "]" * 3000, True),
        ("9" * 5000, True),
        ("[NaN]", False),
    ],
    ids=range(10),
)
def test_deep_and_long(text: str, good: bool) -> None:
    """No depth is too deep, and no number too long."""
    assert (problem_of(text) is None) is good
