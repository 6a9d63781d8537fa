"""The secrets that the gateway injected, masked where a backend echoes them, also across the parts of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.model import Headers

MASK: Final = "***"
SHORTEST: Final = 8
"""Characters of the shortest injected value that is looked for: shorter ones stand in any text."""


class Echo:
    """Masks `values`; `heard` says whether one was there."""

    def __init__(self, values: Sequence[str]) -> None:
        self._secrets = sorted({value.encode() for value in values if len(value) >= SHORTEST}, key=len, reverse=True)
        self._held = b""
        self.heard = False

    def whole(self, data: bytes) -> bytes:
        """`data` with every secret masked."""
        for secret in self._secrets:
            if secret in data:
                self.heard = True
                data = data.replace(secret, MASK.encode())
        return data

    def headers(self, headers: Headers) -> Headers:
        """The same for the values of header fields."""
        if not self._secrets:
            return headers
        return tuple((name, self.whole(value.encode("latin-1")).decode("latin-1")) for name, value in headers)

    def part(self, data: bytes) -> bytes:
        """The same for the next part of a stream: its end is held back where a secret may begin there."""
        if not self._secrets:
            return data
        data = self.whole(self._held + data)
        held = max(_beginning(data, secret) for secret in self._secrets)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def rest(self) -> bytes:
        """What was held back, once the stream has ended."""
        data, self._held = self._held, b""
        return data


def _beginning(data: bytes, secret: bytes) -> int:
    """How many bytes at the end of `data` are a beginning of `secret`."""
    longest = min(len(data), len(secret) - 1)
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)
