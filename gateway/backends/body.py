"""Decompresses the body of a response while it arrives, so that no bomb or endless body fills memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.backends.codings import BrokenCoding, Coding, codings
from gateway.bounds import Area, Bound, size
from gateway.errors import Reason, Refusal

ACCEPT_ENCODING = "gzip, deflate, br, zstd"
"""The content codings that the gateway accepts."""

RATIO = 200
"""Bytes out per byte in, beyond which a body larger than `RATIO_FROM` counts as a bomb (Apache's default)."""

RATIO_FROM = 1024 * 1024

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "compressed responses",
        f"the route's `response` after decompression; ratio {RATIO} beyond the first {size(RATIO_FROM)}",
        "`response-too-large`",
    ),
)

(_COMPRESSED,) = BOUNDS


class Decoder:
    """Decodes `coding` (a `content-encoding` value, RFC 9110 8.4) of a body that may have `limit` bytes.

    Limit and ratio apply to the output of each of several codings, as to the body itself. A coding that ends before the
    body does, or is truncated, is handled as in browsers. Raises `Refusal`: `response-too-large`, or `backend-protocol`
    for a coding that is broken or was not requested.
    """

    def __init__(self, coding: str, limit: int) -> None:
        try:
            made = codings(coding)
        except ValueError as error:
            raise Refusal(Reason.BACKEND_PROTOCOL, f"the answer's content-encoding {error}") from error
        self._layers: tuple[Coding, ...] = tuple(make() for make in reversed(made))  # the last one was applied last
        self._limit = limit
        self._read = 0
        self._given = [0] * (len(self._layers) + 1)

    def expect(self, told: int | None) -> None:
        """Check the content length of the head, before the first byte of the body."""
        if told is not None and told > self._limit:
            raise self._too_large()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes from the connection into pieces of the body."""
        self._read += len(data)
        if not self._layers:
            yield self._count(data, 0)
            return
        # A compressed body may be slightly larger than its content; more than that is endless padding.
        if self._read > self._limit + self._limit // 1000 + 1024:
            raise self._too_large()
        try:
            yield from self._decode(data, 0)
        except BrokenCoding as error:
            raise Refusal(Reason.BACKEND_PROTOCOL, "the answer's content-encoding is broken") from error

    def check_end(self) -> None:
        """Check that the coding is complete, when the connection's end alone marks the end of the body."""
        if not all(layer.whole for layer in self._layers):
            raise Refusal(Reason.BACKEND_PROTOCOL, "the answer's content-encoding ends too early")

    def _decode(self, data: bytes, layer: int) -> Iterator[bytes]:
        """Decode `data` by the codings from `layer` on."""
        if layer == len(self._layers):
            yield data
            return
        for piece in self._layers[layer].feed(data):
            yield from self._decode(self._count(piece, layer), layer + 1)

    def _count(self, piece: bytes, layer: int) -> bytes:
        """Count the output of `layer`, and return it. Raises `Refusal` beyond the limits."""
        self._given[layer] += len(piece)
        size = self._given[layer]
        if size > self._limit or (self._layers and size > RATIO_FROM and size > RATIO * self._read):
            raise self._too_large()
        return piece

    def _too_large(self) -> Refusal:
        _COMPRESSED.report()
        return Refusal(Reason.RESPONSE_TOO_LARGE, f"the answer is larger than {self._limit} bytes, or is a bomb")


class Body:
    """Collects a body of at most `limit` bytes, decoding `coding`. Raises `Refusal` as `Decoder` does."""

    def __init__(self, coding: str, limit: int) -> None:
        self._decoder = Decoder(coding, limit)
        self._whole = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes from the connection."""
        for piece in self._decoder.feed(data):
            self._whole += piece

    def check_end(self) -> None:
        """As `Decoder`."""
        self._decoder.check_end()

    def close(self) -> bytes:
        """Return the whole body, after the last `feed`."""
        return bytes(self._whole)
