"""Redacts injected secrets that a backend echoes, also across the parts of a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from gateway.caches import recalled
from gateway.model import Headers

MASK: Final = "***"
SHORTEST: Final = 8
"""Characters of the shortest injected value that is searched for: shorter ones occur in any text."""

_WIDEST: Final = len(r"\u0041")


class Echo:
    """Masks `values`; `heard` are those that were found."""

    def __init__(self, values: Iterable[str]) -> None:
        self._secrets = _looked_for(tuple(values))
        self._held = b""
        self.heard: set[str] = set()

    def whole(self, data: bytes) -> bytes:
        """Return `data` with every secret masked, also if it is escaped as in JSON, or in UTF-16."""
        for secret in self._secrets:
            if b"\\" in data or b"\0" in data:
                data, found = _disguised(secret).subn(MASK.encode(), data)
            elif found := secret in data:
                data = data.replace(secret, MASK.encode())
            if found:
                self.heard.add(secret.decode())
        return data

    def text(self, text: str) -> str:
        """Mask a text as `whole` does."""
        if not self._secrets or len(text) < SHORTEST:  # no form of a secret is shorter than it
            return text
        return self.whole(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def headers(self, headers: Headers) -> Headers:
        """Mask the values of header fields."""
        # Secrets are rare here: one search in all values together is fast.
        if not self._secrets or not _may_hold(headers, self._secrets):
            return headers
        return tuple((name, self.whole(value.encode("latin-1")).decode("latin-1")) for name, value in headers)

    def part(self, data: bytes) -> bytes:
        """Mask the next part of a stream; hold back its end if a secret may begin there."""
        if not self._secrets:
            return data
        data = self._held + data
        end = self._end(data)
        self._held = data[end:]
        return self.whole(data[:end])

    def rest(self) -> bytes:
        """Return what was held back, once the stream has ended."""
        data, self._held = self._held, b""
        return self.whole(data)

    def _end(self, data: bytes) -> int:
        """Return where to cut `data`, so that no secret crosses the cut and none may begin before it and end later."""
        end, before = len(data) - max(_beginning(data, secret) for secret in self._secrets), -1
        while end != before:
            before = end
            for secret in self._secrets:
                near = _disguised(secret).finditer(data, max(0, end - _WIDEST * len(secret)))
                end = next((match.start() for match in near if match.start() < end < match.end()), end)
        return end


@lru_cache(maxsize=64)
def _looked_for(values: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the values to search for, longest first."""
    found = {value.encode() for value in values if len(value) >= SHORTEST}
    return tuple(sorted(found, key=len, reverse=True))


@recalled
def _may_hold(headers: Headers, secrets: tuple[bytes, ...]) -> bool:
    """Whether the values of `headers` may contain a secret."""
    data = "\n".join([value for _, value in headers]).encode("latin-1")
    return b"\\" in data or b"\0" in data or any(secret in data for secret in secrets)


@lru_cache(maxsize=64)
def _disguised(secret: bytes) -> re.Pattern[bytes]:
    """Match a secret whose characters may be escaped as in JSON (`\\u0041`, `\\/`), or which is encoded in UTF-16."""
    text = secret.decode("latin-1")
    escaped = b"".join(rb"(?:\\u(?i:%04x)|\\?%b)" % (ord(char), re.escape(char.encode())) for char in text)
    return re.compile(b"|".join((escaped, *map(re.escape, _wide(secret)))))


@lru_cache(maxsize=64)
def _wide(secret: bytes) -> tuple[bytes, ...]:
    """Return a secret in UTF-16, in both byte orders."""
    text = secret.decode("latin-1")
    return text.encode("utf-16-le"), text.encode("utf-16-be")


def _beginning(data: bytes, secret: bytes) -> int:
    """Return how many bytes at the end of `data` may be the beginning of `secret`, in any form that is masked."""
    tail = data[-(_WIDEST * len(secret) - 1) :]
    starts = re.compile(b"[%b\\\\\0]" % re.escape(secret[:1]))
    found = (match.start() for match in starts.finditer(tail) if _may_begin(tail[match.start() :], secret))
    return len(tail) - next(found, len(tail))


def _may_begin(data: bytes, secret: bytes) -> bool:
    """Whether `data` is a beginning of `secret`: as it is, escaped as in JSON, or in UTF-16."""
    if any(wide.startswith(data) for wide in _wide(secret)):
        return True
    ends = {0}
    for byte in secret:
        forms = (b"%c" % byte, b"\\%c" % byte, b"\\u%04x" % byte)
        pairs = [(at, form, data[at : at + len(form)]) for at in ends for form in forms]
        if any(len(said) < len(form) and form.startswith(_lower(said)) for _, form, said in pairs):
            return True
        ends = {at + len(form) for at, form, said in pairs if form == _lower(said)}
        if not ends:
            break
    return False


def _lower(said: bytes) -> bytes:
    """Lower the hexadecimal digits of an escape."""
    return said.lower() if said.startswith(b"\\u") else said
