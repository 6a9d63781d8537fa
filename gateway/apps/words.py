"""Finds patterns by their first word: in large scripts a plain regex search takes a hundred times as long."""

from __future__ import annotations

import re
from collections.abc import Iterator


def matches(text: str, pattern: re.Pattern[str], *words: str) -> Iterator[re.Match[str]]:
    """Yield the matches of `pattern`, which must begin with one of `words`, word by word."""
    for word in words:
        at = text.find(word)
        while at >= 0:
            if match := pattern.match(text, at):
                yield match
            at = text.find(word, at + 1)


def match_of(text: str, pattern: re.Pattern[str], word: str) -> re.Match[str] | None:
    """Return the first match."""
    return next(matches(text, pattern, word), None)
