"""JSON of too many parts is not read: nothing else runs while it is, in whichever thread that would be done."""

from __future__ import annotations

import re
from typing import Final

MOST: Final = 500_000
"""Commas and opening brackets outside texts of what a rule or a mask reads, in a thread."""

AT_ONCE: Final = 100_000
"""Those of what is read in one go: nothing else runs for some hundredths of a second."""


def why(most: int) -> str:
    """What is said of JSON that is bulky."""
    return f"more than {most} commas and brackets, or a number of hundreds of digits"


_SLICE: Final = 1024 * 1024
"""Characters that are looked through at a time: other threads may run in between."""

_STEP: Final = 200
"""Digits in a row that are found in any case where there are twice as many.

No double holds such a number; what Python takes to read one grows with the square of its length.
"""

_DIGITS: Final = re.compile(rb"[0-9]{%d}" % _STEP)
_PAIR: Final = re.compile("[0-9](?=[0-9])")


def is_bulky(text: str | bytes, most: int = AT_ONCE) -> bool:
    """Whether JSON has more parts than `most`, or numbers of hundreds of digits. Texts in it may be of any size."""
    if len(text) <= most or not (_marks(text) > most or _may_count(text)):
        return False
    parts = Parts()
    for start in range(0, len(text), _SLICE):
        parts.add(text[start : start + _SLICE])
        if parts.over(most):
            return True
    return False


class Parts:
    """Counts the parts of JSON that is looked at piece by piece."""

    def __init__(self) -> None:
        self.count = 0
        self._texts = 0
        self._inside = 0
        self._digits = False
        self._backslash = b""

    def add(self, piece: str | bytes) -> None:
        """The next piece; what a backslash at its end escapes stands in the one after it."""
        raw = self._backslash + (piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass"))
        self._backslash = b"\\" if (len(raw) - len(raw.rstrip(b"\\"))) % 2 else b""
        raw = raw[: len(raw) - len(self._backslash)]
        # No JSON in UTF-8 has a NUL; of wider encodings it is not known here where texts end.
        pieces = [raw] if b"\0" in raw else raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[self._inside :: 2])
        self._inside ^= len(pieces) & 1 ^ 1
        self._texts += len(pieces) // 2
        self.count += _marks(outside)
        self._digits = self._digits or _DIGITS.search(outside) is not None

    def over(self, most: int) -> bool:
        """Whether there are more than `most` until now, or a number of hundreds of digits."""
        return self.count > most or self._texts > 2 * most or self._digits


def _marks(text: str | bytes) -> int:
    if isinstance(text, str):
        return text.count(",") + text.count("[") + text.count("{")
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _may_count(text: str | bytes) -> bool:
    """Whether there are many digits in a row anywhere; every so many characters are looked at."""
    seen = text[::_STEP]
    pairs = _PAIR.finditer(seen if isinstance(seen, str) else seen.decode("latin-1"))
    starts = (found.start() * _STEP for found in pairs)
    return any(text[start : start + _STEP].isdigit() for start in starts)
