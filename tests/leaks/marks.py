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


def found_in(data: bytes) -> bytes | None:
    """The form in which a marked secret is there, None where there is none."""
    return next((form for form in FORMS if form in data), None)
