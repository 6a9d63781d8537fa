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
    parts, texts, start, inside = 0, 0, 0, 0
    while start < len(text):
        piece = _piece(text, start)
        start += len(piece)
        raw = piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass")
        # No JSON in UTF-8 has a NUL; of wider encodings it is not known here where texts end.
        pieces = [raw] if b"\0" in raw else raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[inside::2])
        inside ^= len(pieces) & 1 ^ 1
        texts += len(pieces) // 2
        parts += _marks(outside)
        if parts > most or texts > 2 * most or _DIGITS.search(outside):
            return True
    return False


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


def _piece(text: str | bytes, start: int) -> str | bytes:
    """The next slice; what a backslash at its end escapes belongs to it."""
    piece = text[start : start + _SLICE]
    backslashes = len(piece) - len(piece.rstrip("\\") if isinstance(piece, str) else piece.rstrip(b"\\"))
    return text[start : start + _SLICE + 1] if backslashes % 2 else piece
