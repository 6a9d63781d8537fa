"""Matches that begin with a word are found as a plain search finds them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.apps.scripts import match_of, matches

WORDS = ("new", "from")
PATTERN = re.compile(r"(?<![.\"])\b(?:new|from)\s*(?=x|\()")


@given(st.lists(st.sampled_from(["new", "from", ".", '"', " ", "x", "(", "n", "\n"]), max_size=20))
def test_each_place_is_found(parts: list[str]) -> None:
    """Matches are found at the start and end of the text, inside words, and with text before the word."""
    text = "".join(parts)
    found = sorted(match.start() for match in matches(text, PATTERN, *WORDS))
    assert found == [match.start() for match in PATTERN.finditer(text)]
    first = match_of(text, PATTERN, "new")
    assert (first and first.start()) == next((at for at in found if text.startswith("new", at)), None)
