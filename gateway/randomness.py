"""Random ids from buffered system randomness: one system call costs more than the ids made from it."""

from __future__ import annotations

import os
from binascii import b2a_base64
from typing import Final

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
