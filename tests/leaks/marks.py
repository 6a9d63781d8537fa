"""What marks a secret of the tests, and finding it in whatever form it was written."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

MARK: Final = "k4naRieZq9"
"""Stands in every secret that tests hand to a gateway, and nowhere else."""

LONGEST: Final = 64
"""Bytes of the longest form: so much of what was written before is looked at again, with what follows it."""


def _forms() -> Iterator[bytes]:
    raw = MARK.encode()
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield "".join(f"\\u{ord(char):04x}" for char in MARK).encode()
    yield "".join(f"%{byte:02X}" for byte in raw).encode()
    yield MARK.encode("utf-16-le")
    for shift in range(3):  # base64 of a text around it: three ways to lie on the groups of three bytes
        text = base64.b64encode(b"\0" * shift + raw + b"\0\0")
        whole = (shift + len(raw)) // 3 * 4
        yield text[4 if shift else 0 : whole]


FORMS: Final = tuple(_forms())


_OTHERS: Final[set[bytes]] = set()
_SHORTEST: Final = 8
_LINE: Final = 40


def look_for(secret: str) -> None:
    """From now on find this one, too, if it is not marked; of a key in lines any of them gives it away."""
    lines = [line for line in secret.splitlines() if len(line) > _LINE] if "\n" in secret else [secret]
    for raw in (line.encode("utf-8", "surrogateescape") for line in lines):
        if len(raw) >= _SHORTEST and not any(form in raw for form in FORMS):
            _OTHERS.add(raw)


def found_in(data: bytes) -> bytes | None:
    """The form in which a secret is there, None where there is none."""
    return next((form for form in (*FORMS, *_OTHERS) if form in data), None)
