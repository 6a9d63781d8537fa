"""Marks the secrets of the tests, and finds them in any form in which they may be written."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

MARK: Final = "k4naRieZq9"
"""Occurs in every secret that tests give to a gateway, and nowhere else."""

LONGEST: Final = 64
"""Bytes of the longest form: the last so many bytes of earlier output are scanned again with the next."""


def _forms() -> Iterator[bytes]:
    raw = MARK.encode()
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield "".join(f"\\u{ord(char):04x}" for char in MARK).encode()
    yield "".join(f"%{byte:02X}" for byte in raw).encode()
    yield MARK.encode("utf-16-le")
    for shift in range(3):  # base64 of a text around it: three alignments to groups of three bytes
        text = base64.b64encode(b"\0" * shift + raw + b"\0\0")
        whole = (shift + len(raw)) // 3 * 4
        yield text[4 if shift else 0 : whole]


FORMS: Final = tuple(_forms())


_OTHERS: Final[set[bytes]] = set()
_SHORTEST: Final = 8
_LINE: Final = 40


def look_for(secret: str) -> None:
    """From now on find this unmarked secret, too; of a multi-line key any line counts."""
    lines = [line for line in secret.splitlines() if len(line) > _LINE] if "\n" in secret else [secret]
    for raw in (line.encode("utf-8", "surrogateescape") for line in lines):
        if len(raw) >= _SHORTEST and not any(form in raw for form in FORMS):
            _OTHERS.add(raw)


def found_in(data: bytes) -> bytes | None:
    """Return the form in which a secret occurs, None if there is none."""
    return next((form for form in (*FORMS, *_OTHERS) if form in data), None)
