"""A text with a name, which reports problems by line and column."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gateway.errors import DocumentError, Problem

LARGEST: Final = 64 * 1024 * 1024
"""Characters of a packed page: small files that include each other often would otherwise fill all memory."""

TOO_LARGE: Final = "is left out: with this the packed page has more than 64 MiB"


@lru_cache(maxsize=4)
def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


@dataclass(frozen=True, slots=True)
class Text:
    """The text of the file `file`, or the part of it that starts at `start`."""

    file: str
    whole: str
    start: int = 0

    def problem(self, offset: int, message: str) -> Problem:
        """Return a problem with `message` at the character `offset` of this part."""
        at = self.start + offset
        lines = _line_starts(self.whole)
        line = bisect_right(lines, at)
        return Problem(self.file, line, at - lines[line - 1] + 1, message)

    def error(self, offset: int, message: str) -> DocumentError:
        """Return an error with `message` at `offset`, to be raised."""
        return DocumentError([self.problem(offset, message)])


@dataclass(frozen=True, slots=True)
class Splice:
    """A replacement of the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


def splice(text: str, splices: list[Splice]) -> str:
    """Apply all `splices`, which do not overlap; several at one place keep their order."""
    parts: list[str] = []
    at = 0
    for part in sorted(splices, key=lambda each: each.start):
        parts += (text[at : part.start], part.text)
        at = part.end
    return "".join((*parts, text[at:]))
