"""Digests of secrets, and their comparison in constant time, for any string.

The string may have no encoding: headers that are not UTF-8, JSON with a lone surrogate.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field


def equals_secret(given: str, known: str) -> bool:
    """Return whether `given` equals the secret `known`, in constant time."""
    return hmac.compare_digest(_raw(given), _raw(known))


def digest(shown: str) -> bytes:
    """Return the stored form of a secret: 128 random bits or more need no salt or slow hash."""
    return hashlib.sha256(_raw(shown)).digest()


def framed(*parts: str | bytes) -> bytes:
    """Join parts with their lengths, so that different lists of parts have different bytes."""
    return b"".join(
        b"%d:%b" % (len(data), data) for data in (part if isinstance(part, bytes) else _raw(part) for part in parts)
    )


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """Keys of one purpose: the first one signs, all of them verify."""

    keys: tuple[bytes, ...] = field(repr=False)

    def sign(self, *parts: str) -> str:
        """Return the signature of these parts (HMAC-SHA-256, in hex)."""
        return _signature(self.keys[0], parts)

    def secrets(self, *parts: str) -> tuple[bytes, ...]:
        """Return a secret of 32 bytes for these parts under each key: the first is current."""
        return tuple(bytes.fromhex(_signature(key, parts)) for key in self.keys)

    def verify(self, given: str, *parts: str) -> bool:
        """Return whether `given` is a signature of these parts."""
        return any(equals_secret(given, _signature(key, parts)) for key in self.keys)


def _signature(key: bytes, parts: tuple[str, ...]) -> str:
    return hmac.digest(key, framed(*parts), hashlib.sha256).hex()


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
