"""Slow parsing is predicted before it begins, and long strings are not mistaken for it."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.jsontext import sizes
from gateway.jsontext.sizes import AT_ONCE, is_bulky

TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
INNER = st.lists(st.sampled_from(["a", ",", "[", "{", '\\"', "\\\\", "\\n", "é"]), max_size=9).map("".join)
MADE = st.lists(st.one_of(INNER.map('"{}"'.format), st.sampled_from([",", "[", "{", "1"])), min_size=3, max_size=12)


@given(MADE.map("".join), st.integers(min_value=1, max_value=9))
def test_parts_are_counted_outside_texts(text: str, most: int) -> None:
    """Wherever a slice ends, and whatever is escaped there."""
    outside = TEXT.sub("", text)
    many = len(re.findall(r"[,\[{]", outside)) > most
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "_SLICE", 7)
        if len(text) > most and text.count('"') <= most:
            assert is_bulky(text, most) == is_bulky(text.encode(), most) == many


@pytest.mark.parametrize("part", ["[]", "{}", "1", '""', '{"a":1}'])
@pytest.mark.parametrize("coding", ["utf-8", "utf-16", "utf-32"])
def test_what_has_many_parts_is_bulky(part: str, coding: str) -> None:
    """In each encoding that JSON parsers accept."""
    assert is_bulky(("[" + f"{part}," * AT_ONCE + "1]").encode(coding))


@pytest.mark.parametrize(
    "text", ["a,b;" * AT_ONCE, '"a",[{\\\n' * AT_ONCE, "\\" * AT_ONCE + "," * AT_ONCE * 2, "7" * 2 * AT_ONCE]
)
def test_a_long_text_is_one_part(text: str) -> None:
    """Tables, programs, and numbers within strings."""
    assert not is_bulky(json.dumps([text]))
    assert not is_bulky(json.dumps([text]).encode())


@pytest.mark.parametrize("before", [0, 1, 150, 399])
def test_a_number_of_hundreds_of_digits_is_bulky(before: int) -> None:
    """Wherever it is, and however many digits occur elsewhere."""
    text = json.dumps(["12ab" * AT_ONCE, "x" * before])[:-1] + f",{'9' * 401}]"
    assert is_bulky(text)
    assert is_bulky(text.encode())
    assert not is_bulky(text.replace("9" * 401, "9" * 199))
