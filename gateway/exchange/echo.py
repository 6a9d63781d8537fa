"""The secrets that the gateway injected, masked where a backend echoes them, also across the parts of a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from gateway.model import Headers
from gateway.recall import recalled

MASK: Final = "***"
SHORTEST: Final = 8
"""Characters of the shortest injected value that is looked for: shorter ones stand in any text."""

_WIDEST: Final = len(r"\u0041")


class Echo:
    """Masks `values`; `heard` are those that were there."""

    def __init__(self, values: Iterable[str]) -> None:
        self._secrets = _looked_for(tuple(values))
        self._held = b""
        self.heard: set[str] = set()

    def whole(self, data: bytes) -> bytes:
        """`data` with every secret masked, also where it is escaped as in JSON, or in UTF-16."""
        for secret in self._secrets:
            if b"\\" in data or b"\0" in data:
                data, found = _disguised(secret).subn(MASK.encode(), data)
            elif found := secret in data:
                data = data.replace(secret, MASK.encode())
            if found:
                self.heard.add(secret.decode())
        return data

    def text(self, text: str) -> str:
        """The same for a text."""
        if not self._secrets or len(text) < SHORTEST:  # no form of a secret is shorter than it
            return text
        return self.whole(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def headers(self, headers: Headers) -> Headers:
        """The same for the values of header fields."""
        # Nearly always nothing is there: one look at all of them together finds that out.
        if not self._secrets or not _may_hold(headers, self._secrets):
            return headers
        return tuple((name, self.whole(value.encode("latin-1")).decode("latin-1")) for name, value in headers)

    def part(self, data: bytes) -> bytes:
        """The same for the next part of a stream: its end is held back where a secret may begin there."""
        if not self._secrets:
            return data
        data = self._held + data
        end = self._end(data)
        self._held = data[end:]
        return self.whole(data[:end])

    def rest(self) -> bytes:
        """What was held back, once the stream has ended."""
        data, self._held = self._held, b""
        return self.whole(data)

    def _end(self, data: bytes) -> int:
        """Where `data` can be cut: behind it a secret may begin that ends later, and over it goes none."""
        end, before = len(data) - max(_beginning(data, secret) for secret in self._secrets), -1
        while end != before:
            before = end
            for secret in self._secrets:
                near = _disguised(secret).finditer(data, max(0, end - _WIDEST * len(secret)))
                end = next((match.start() for match in near if match.start() < end < match.end()), end)
        return end


@lru_cache(maxsize=64)
def _looked_for(values: tuple[str, ...]) -> tuple[bytes, ...]:
    """The longest first."""
    found = {value.encode() for value in values if len(value) >= SHORTEST}
    return tuple(sorted(found, key=len, reverse=True))


@recalled
def _may_hold(headers: Headers, secrets: tuple[bytes, ...]) -> bool:
    """Whether the values of `headers` may hold a secret."""
    data = "\n".join([value for _, value in headers]).encode("latin-1")
    return b"\\" in data or b"\0" in data or any(secret in data for secret in secrets)


@lru_cache(maxsize=64)
def _disguised(secret: bytes) -> re.Pattern[bytes]:
    """Finds a secret whose characters may be written as in JSON (`\\u0041`, `\\/`), or which stands in UTF-16."""
    text = secret.decode("latin-1")
    escaped = b"".join(rb"(?:\\u(?i:%04x)|\\?%b)" % (ord(char), re.escape(char.encode())) for char in text)
    return re.compile(b"|".join((escaped, *map(re.escape, _wide(secret)))))


@lru_cache(maxsize=64)
def _wide(secret: bytes) -> tuple[bytes, ...]:
    """A secret in UTF-16."""
    text = secret.decode("latin-1")
    return text.encode("utf-16-le"), text.encode("utf-16-be")


def _beginning(data: bytes, secret: bytes) -> int:
    """How many bytes at the end of `data` may be a beginning of `secret`, in any of the forms that are masked."""
    tail = data[-(_WIDEST * len(secret) - 1) :]
    starts = re.compile(b"[%b\\\\\0]" % re.escape(secret[:1]))
    found = (match.start() for match in starts.finditer(tail) if _may_begin(tail[match.start() :], secret))
    return len(tail) - next(found, len(tail))


def _may_begin(data: bytes, secret: bytes) -> bool:
    """Whether `secret` begins with all of `data`: as it is, as JSON may write it, or in UTF-16."""
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
    """With the hexadecimal digits of an escape in lower case."""
    return said.lower() if said.startswith(b"\\u") else said
