"""Random ids: the system is asked for many at once, since each question costs more than all that is made of it."""

from __future__ import annotations

import os
from typing import Final

from gateway.base64url import base64url

_AT_ONCE: Final = 1024


class Randomness:
    """Bytes of the system's generator, each handed out once, for one process that does not fork."""

    def __init__(self) -> None:
        self._bytes = b""
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes, 1024 at most."""
        at, end = self._at, self._at + size
        if end > len(self._bytes):
            self._bytes, at, end = os.urandom(_AT_ONCE), 0, size
        self._at = end
        return self._bytes[at:end]

    def id(self) -> str:
        """128 bits as 22 characters (base64url, RFC 4648, section 5)."""
        return base64url(self.take(16))

    def hex(self, size: int) -> str:
        """`size` bytes in hex."""
        return self.take(size).hex()
