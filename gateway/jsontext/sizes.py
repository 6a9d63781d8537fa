"""Limits of JSON: nesting, and its parts before parsing, since a parser holds the GIL and no other thread runs."""

from __future__ import annotations

import re
from enum import StrEnum, auto
from typing import Final

MOST: Final = 500_000
"""Commas and opening brackets outside strings in JSON that a rule or a mask reads, parsed in a thread."""

AT_ONCE: Final = 100_000
"""Commas and opening brackets in JSON that is parsed at once: it blocks for some hundredths of a second."""


class Flaw(StrEnum):
    """The reason why text or a value is not the JSON that is required."""

    SYNTAX = auto()
    CONSTANT = auto()
    NUMBER = auto()
    DUPLICATE = auto()
    ALIKE = auto()
    DEPTH = auto()
    PARTS = auto()
    VALUE = auto()


class InvalidJson(ValueError):
    """JSON with a flaw; `subject` is what it is about: a number, a constant, or a place in the text."""

    def __init__(self, flaw: Flaw, message: str, subject: str = "") -> None:
        super().__init__(message)
        self.flaw = flaw
        self.subject = subject


MAX_DEPTH: Final = 64
"""Levels of nesting, including the outermost, in bodies and in frames of the bridge."""

_CONTAINERS: Final = (dict, list, tuple)

_PART_BYTES: Final = 50
"""Bytes of each part beside its text."""


def nests_deeper(value: object, levels: int = MAX_DEPTH) -> bool:
    """Return, without recursion, whether objects and arrays nest deeper than `levels`, including the outermost."""
    layer = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(levels):
        if not layer:
            return False
        layer = [
            child
            for one in layer
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, _CONTAINERS)
        ]
    return bool(layer)


def text_size(value: object) -> int:
    """Return about how many bytes a value holds in memory, a model's fields included: its texts, and its parts."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        count += _PART_BYTES
        if isinstance(one, str | bytes):
            count += len(one)
        elif isinstance(one, dict):
            waiting += one.keys()
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif hasattr(one, "__dict__"):
            waiting += vars(one).values()
    return count


def why(most: int) -> str:
    """Describe the limit for a refusal."""
    return f"more than {most} commas and brackets, or a number of hundreds of digits"


_SLICE: Final = 1024 * 1024
"""Characters scanned at a time; other threads may run in between."""

_STEP: Final = 200
"""A run of twice this many digits is always found.

No double has that many digits; Python needs quadratic time to parse them.
"""

_DIGITS: Final = re.compile(rb"[0-9]{%d}" % _STEP)
_PAIR: Final = re.compile("[0-9](?=[0-9])")


def is_bulky(text: str | bytes, most: int = AT_ONCE) -> bool:
    """Return whether JSON has more parts than `most`, or numbers of hundreds of digits. Strings may have any size."""
    if len(text) <= most or not (_marks(text) > most or _may_count(text)):
        return False
    parts = Parts()
    for start in range(0, len(text), _SLICE):
        parts.add(text[start : start + _SLICE])
        if parts.over(most):
            return True
    return False


class Parts:
    """Counts the parts of JSON that arrives in pieces."""

    def __init__(self) -> None:
        self.count = 0
        self._texts = 0
        self._inside = 0
        self._digits = False
        self._backslash = b""

    def add(self, piece: str | bytes) -> None:
        """Count the next piece; a backslash at its end is kept for the one after it."""
        raw = self._backslash + (piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass"))
        self._backslash = b"\\" if (len(raw) - len(raw.rstrip(b"\\"))) % 2 else b""
        raw = raw[: len(raw) - len(self._backslash)]
        # JSON in UTF-8 has no NUL; in wider encodings the ends of strings are not found here.
        pieces = [raw] if b"\0" in raw else raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[self._inside :: 2])
        self._inside ^= len(pieces) & 1 ^ 1
        self._texts += len(pieces) // 2
        self.count += _marks(outside)
        self._digits = self._digits or _DIGITS.search(outside) is not None

    def over(self, most: int) -> bool:
        """Return whether there are more than `most` parts so far, or a number of hundreds of digits."""
        return self.count > most or self._texts > 2 * most or self._digits


def _marks(text: str | bytes) -> int:
    if isinstance(text, str):
        return text.count(",") + text.count("[") + text.count("{")
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _may_count(text: str | bytes) -> bool:
    """Return whether there may be a long run of digits: every `_STEP`th character is sampled."""
    seen = text[::_STEP]
    pairs = _PAIR.finditer(seen if isinstance(seen, str) else seen.decode("latin-1"))
    starts = (match.start() * _STEP for match in pairs)
    return any(text[start : start + _STEP].isdigit() for start in starts)
