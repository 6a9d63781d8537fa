"""View proof: a signature that proves that a call comes from the view itself; each number is valid once."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from gateway.base64url import base64url
from gateway.proving import shows

WINDOW = 128
"""How far behind the newest a number may arrive: calls of one view may overtake each other."""

LONGEST = 128
"""Characters of the longest proof that is parsed."""


class ViewKey:
    """The secret that a view shares with the gateway, and its used numbers."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._signing = hmac.new(self._key, digestmod=hashlib.sha256)
        self._newest = 0
        self._seen = 0

    def reveal(self) -> str:
        """Return the key for the view, base64url without padding."""
        return base64url(self._key)

    def accepts(self, sequence: str, signature: str) -> bool:
        """Whether `signature` is valid for `sequence`, and that number is unused. Marks it as used."""
        if not (sequence.isascii() and sequence.isdecimal()) or len(sequence) > 15 or sequence.startswith("0"):
            return False
        signing = self._signing.copy()  # a copy of the keyed state: half the cost of a new HMAC
        signing.update(sequence.encode())
        expected = base64url(signing.digest())
        return shows(signature, expected) and self._use(int(sequence))

    def _use(self, number: int) -> bool:
        if number > self._newest:
            self._seen = (self._seen << (number - self._newest) | 1) if number - self._newest < WINDOW else 1
            self._seen &= (1 << WINDOW) - 1
            self._newest = number
            return True
        behind = self._newest - number
        if behind >= WINDOW or self._seen >> behind & 1:
            return False
        self._seen |= 1 << behind
        return True


def split(proof: str) -> tuple[str, str, str] | None:
    """Return view id, number and signature of a `_view` argument; None if it is malformed."""
    parts = proof.split(".") if len(proof) <= LONGEST and proof.isascii() else []
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None
