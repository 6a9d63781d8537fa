"""Compact JSON equals the standard library's, whichever of the two writers made it."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from gateway.jsontext.writing import compact, compact_ascii, quote

NUMBERS = some.integers() | some.floats(allow_nan=False, allow_infinity=False)
TEXTS = some.text(some.characters(codec="utf-8", exclude_characters="\x7f"))
OTHERS = some.none() | some.booleans() | TEXTS


def trees(leaves: some.SearchStrategy[object]) -> some.SearchStrategy[object]:
    """Return values of `leaves`, nested."""
    return some.recursive(leaves, lambda inner: some.lists(inner) | some.dictionaries(TEXTS, inner))


@given(trees(OTHERS))
def test_texts_are_written_as_the_library_does(value: object) -> None:
    """Byte for byte, except DEL, which the library escapes."""
    assert compact(value).decode() == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert json.loads(compact_ascii(value)) == value
    assert compact_ascii(value).isascii()


@given(trees(OTHERS | NUMBERS))
def test_numbers_are_exact(value: object) -> None:
    """Of any size; their notation is free."""
    for written in (compact(value), compact_ascii(value)):
        assert json.loads(written) == value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [{"a": float("-inf")}],
        {"a": float("nan")},
        {"a": float("nan"), "b": None},
        {"a": [None], "b": float("nan")},
        {"a": {1}},
        object(),
        {"a": "\ud800"},
    ],
)
def test_what_is_no_json_is_refused(value: object) -> None:
    """As the library does; a lone surrogate can be written in ASCII only."""
    with pytest.raises((ValueError, TypeError)):
        compact(value)


def test_words_that_look_like_null_are_texts() -> None:
    """The writer searches for this word to detect NaN."""
    value = {"a": "null", "b": None, "c": ["null", None], "null": 1.5}
    assert json.loads(compact(value)) == json.loads(compact_ascii(value)) == value


@given(some.text() | some.text(some.characters(max_codepoint=0x7F)))
@example("\x7f")
@example("\ud800")
def test_a_text_is_quoted_as_the_library_does(text: str) -> None:
    """Byte for byte, also lone surrogates and DEL."""
    assert quote(text) == json.dumps(text)
