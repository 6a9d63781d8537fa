"""What begins with a word, found where that word stands: in large scripts a search takes a hundred times as long."""

from __future__ import annotations

import re
from collections.abc import Iterator


def matches(text: str, pattern: re.Pattern[str], *words: str) -> Iterator[re.Match[str]]:
    """Where `pattern`, which matches nothing that does not begin with one of `words`, does: word by word."""
    for word in words:
        at = text.find(word)
        while at >= 0:
            if match := pattern.match(text, at):
                yield match
            at = text.find(word, at + 1)


def match_of(text: str, pattern: re.Pattern[str], word: str) -> re.Match[str] | None:
    """The first of them."""
    return next(matches(text, pattern, word), None)
