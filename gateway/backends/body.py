"""The body of an answer, decompressed while it arrives, so that neither a bomb nor an endless body fills memory."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator

from gateway.errors import Reason, Refusal

ACCEPT_ENCODING = "gzip, deflate"
"""What the gateway asks for: the codings that it can decompress in bounded steps."""

RATIO = 200
"""Bytes out per byte in, beyond which a body larger than `RATIO_FROM` counts as a bomb (Apache's default)."""

RATIO_FROM = 1024 * 1024

_STEP = 64 * 1024
_GZIP_START = b"\x1f\x8b"
_CODINGS = {"": "", "identity": "", "gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}


class Decoder:
    """Undoes `coding` (a `content-encoding` value, RFC 9110 8.4) of a body that may have `limit` bytes.

    Raises `Refusal`: `response-too-large`, or `backend-protocol` for a coding that is broken or was not asked for.
    """

    def __init__(self, coding: str, limit: int) -> None:
        known = _CODINGS.get(coding.strip().lower())
        if known is None:
            raise Refusal(
                Reason.BACKEND_PROTOCOL, f"the answer's content-encoding is none of: {ACCEPT_ENCODING}, identity"
            )
        self._coding = known
        self._limit = limit
        self._read = 0
        self._given = 0
        self._stream: zlib._Decompress | None = None
        self._ended = False

    def expect(self, told: int | None) -> None:
        """The head told how long the body is, before the first of its bytes."""
        if told is not None and told > self._limit:
            raise self._too_large()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The body's next bytes, in pieces, from the next ones of the wire."""
        self._read += len(data)
        if not self._coding:
            yield self._counted(data)
            return
        # A compressed body may be a little larger than what it holds; more than that is padding without end.
        if self._read > self._limit + self._limit // 1000 + 1024:
            raise self._too_large()
        try:
            yield from self._inflate(data)
        except zlib.error as error:
            raise Refusal(Reason.BACKEND_PROTOCOL, f"the answer's {self._coding} coding is broken") from error

    def close(self) -> None:
        """The wire has ended."""
        if self._stream is not None and not self._ended:
            raise Refusal(Reason.BACKEND_PROTOCOL, f"the answer's {self._coding} coding ends too early")

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None or self._ended:
                if self._ended and not (self._coding == "gzip" and data.startswith(_GZIP_START[: len(data)])):
                    return  # what follows the end is no member of the body; browsers pass over it too
                self._stream, self._ended = self._new_stream(data), False
            data = yield from self._inflate_member(self._stream, data)

    def _inflate_member(self, stream: zlib._Decompress, data: bytes) -> Generator[bytes, None, bytes]:
        """Inflate to the end of the member or of `data`; gives what is left of `data`."""
        while True:
            piece = stream.decompress(data, _STEP)
            yield self._counted(piece)
            if stream.eof:
                self._ended = True
                return stream.unused_data
            data = stream.unconsumed_tail
            if not data and len(piece) < _STEP:
                return b""

    def _new_stream(self, data: bytes) -> zlib._Decompress:
        if self._coding == "gzip":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        # "deflate" means the zlib format, but some servers send it without the zlib header (RFC 9110 8.4.1.2).
        return zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS)

    def _counted(self, piece: bytes) -> bytes:
        self._given += len(piece)
        size = self._given
        if size > self._limit or (self._coding and size > RATIO_FROM and size > RATIO * self._read):
            raise self._too_large()
        return piece

    def _too_large(self) -> Refusal:
        return Refusal(Reason.RESPONSE_TOO_LARGE, f"the answer is larger than {self._limit} bytes, or is a bomb")


class Body:
    """Collects a body of at most `limit` bytes, undoing `coding`. Raises `Refusal` as `Decoder` does."""

    def __init__(self, coding: str, limit: int) -> None:
        self._decoder = Decoder(coding, limit)
        self._whole = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes from the wire."""
        for piece in self._decoder.feed(data):
            self._whole += piece

    def close(self) -> bytes:
        """The whole body, after the last `feed`."""
        self._decoder.close()
        return bytes(self._whole)
