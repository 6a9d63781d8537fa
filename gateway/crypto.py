"""Digests and signatures of secrets, their comparison in constant time, and random ids.

Strings may have no encoding: header fields that are not UTF-8, JSON with a lone surrogate.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from binascii import b2a_base64
from dataclasses import dataclass, field
from typing import Final


def equals_secret(secret: str, known: str) -> bool:
    """Return whether `secret` equals the secret `known`, in constant time."""
    return hmac.compare_digest(_raw(secret), _raw(known))


def digest(secret: str) -> bytes:
    """Return the stored form of a secret: 128 random bits or more need no salt or slow hash."""
    return hashlib.sha256(_raw(secret)).digest()


def frame_parts(*parts: str | bytes) -> bytes:
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

    def verify(self, signature: str, *parts: str) -> bool:
        """Return whether `signature` is a signature of these parts."""
        return any(equals_secret(signature, _signature(key, parts)) for key in self.keys)


def _signature(key: bytes, parts: tuple[str, ...]) -> str:
    return hmac.digest(key, frame_parts(*parts), hashlib.sha256).hex()


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def base64url(value: bytes) -> str:
    """Base64url without padding (RFC 4648, section 5)."""
    return b2a_base64(value, newline=False).translate(_SAFE).rstrip(b"=").decode("ascii")


_AT_ONCE: Final = 1024


class Randomness:
    """A buffer of the system's random bytes, each used once, for one process that does not fork."""

    def __init__(self) -> None:
        self._bytes = b""
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, 1024 at most."""
        at, end = self._at, self._at + size
        if end > len(self._bytes):
            self._bytes, at, end = os.urandom(_AT_ONCE), 0, size
        self._at = end
        return self._bytes[at:end]

    def id(self) -> str:
        """Return 128 bits as 22 characters (base64url, RFC 4648, section 5)."""
        return base64url(self.take(16))

    def hex(self, size: int) -> str:
        """Return `size` bytes in hex."""
        return self.take(size).hex()
