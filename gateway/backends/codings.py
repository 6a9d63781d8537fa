"""Decodes content codings (RFC 9110 8.4.1) in bounded steps, while a body arrives, and broken ones as browsers do."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import brotli

from gateway.bounds import Area, Bound, size
from gateway.errors import Reason, Refusal

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STEP: Final = 64 * 1024
"""Bytes of the largest piece of one step; brotli's library exceeds a limit by up to 32 KiB."""

WINDOW: Final = 23
"""The binary logarithm of the largest window of zstd (RFC 9659 3), which bounds the memory of a body."""

MOST: Final = 16
"""Codings of one body that are decoded."""

LONGEST_HEAD: Final = 64 * 1024
"""Bytes of the longest head of a gzip member; its names and comments may be of any length."""

AGAIN: Final = 256 * 1024
"""Bytes of the longest brotli body that is decoded again, to find its end before trailing bytes."""

SNIFFED: Final = 1000
"""Bytes without error after which `deflate` is known to be the zlib format."""

_BROTLI_STEP: Final = STEP // 2
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]*", re.ASCII)
_GZIP: Final = b"\x1f\x8b\x08"
_FIXED_HEAD: Final = 10
_FOOT: Final = 8
_HEAD_CRC, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16
"""Flags of a gzip member (RFC 1952 2.3.1)."""


class BrokenCoding(ValueError):
    """Bytes that are invalid in the coding."""


class Coding(Protocol):
    """One coding of one body."""

    @property
    def whole(self) -> bool:
        """True if the coding is complete, or has not begun."""
        ...

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes into pieces of up to `STEP` bytes. Raises `BrokenCoding`."""
        ...


class Gzip:
    """One member of gzip (RFC 1952). As in browsers, its checksum and all that follows it are ignored."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self._behind = 0

    @property
    def whole(self) -> bool:
        """As `Coding`."""
        return self._head == b"" or self._behind + len(self._stream.unused_data) >= _FOOT

    def feed(self, data: bytes) -> Iterator[bytes]:
        """As `Coding`."""
        if self._stream.eof:
            self._behind += len(data)
            return
        if self._head is not None:
            head = self._head + data
            end = _head_end(head)
            if end is None:
                if len(head) > LONGEST_HEAD:
                    raise BrokenCoding
                self._head = head
                return
            self._head, data = None, head[end:]
        yield from _inflate(self._stream, data)


class Deflate:
    """The zlib format, or raw deflate, which some servers send instead (RFC 9110 8.4.1.2)."""

    def __init__(self) -> None:
        self._seen: bytes | None = b""
        self._stream = zlib.decompressobj()
        self._sum: int | None = None
        """The checksum of raw deflate's output; None for the zlib format."""
        self._behind = b""

    @property
    def whole(self) -> bool:
        """As `Coding`."""
        return self._seen == b"" or self._stream.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """As `Coding`."""
        if self._sum is not None:
            yield from self._contents(data, self._sum)
            return
        if self._seen is None:
            yield from _inflate(self._stream, data)
            return
        self._seen += data
        try:
            first = self._stream.decompress(data, STEP)
        except zlib.error:
            data, self._seen = self._seen, None
            self._stream, self._sum = zlib.decompressobj(-zlib.MAX_WBITS), zlib.adler32(b"")
            yield from self._contents(data, self._sum)
            return
        if first or len(self._seen) >= SNIFFED or self._stream.eof:
            self._seen = None
        yield first
        yield from _inflate(self._stream, self._stream.unconsumed_tail, more=len(first) == STEP)

    def _contents(self, data: bytes, checked: int) -> Iterator[bytes]:
        """Decode raw deflate: browsers take the bytes behind it for the checksum of the zlib format (RFC 1950 2.2)."""
        if self._stream.eof:
            self._behind = (self._behind + data)[:4]
        else:
            for piece in _inflate(self._stream, data):
                checked = self._sum = zlib.adler32(piece, checked)
                yield piece
            self._behind = self._stream.unused_data[:4]
        if len(self._behind) == 4 and int.from_bytes(self._behind, "big") != checked:
            raise BrokenCoding


class Brotli:
    """Brotli (RFC 7932). As in browsers, trailing bytes are ignored.

    The library fails there without the output of that step, or a sign of the end: such a body is decoded again, its
    last bytes one by one, unless it is longer than `AGAIN`.
    """

    def __init__(self) -> None:
        self._stream = brotli.Decompressor()
        self._ended = False
        self._fed = 0
        self._input_bytes = 0
        self._buffer: bytearray | None = bytearray()

    @property
    def whole(self) -> bool:
        """As `Coding`."""
        return not self._fed or self._ended

    def feed(self, data: bytes) -> Iterator[bytes]:
        """As `Coding`."""
        if not data or self._ended:
            return
        self._fed += len(data)
        if self._fed > AGAIN:
            self._buffer = None
        try:
            for piece in _unpack(self._stream, data):
                self._input_bytes += len(piece)
                yield piece
            self._ended = self._stream.is_finished()
        except brotli.error as error:
            if self._buffer is None:
                raise BrokenCoding from error
            yield from self._decode_again(bytes(self._buffer), data)
        if self._buffer is not None:
            self._buffer += data

    def _decode_again(self, before: bytes, data: bytes) -> Iterator[bytes]:
        """Decode the rest of the output of `data`, which contains the end; `before` is the earlier input."""
        stream, skipped = brotli.Decompressor(), self._input_bytes
        for part in (before, *(data[at : at + 1] for at in range(len(data)))):
            try:
                for piece in _unpack(stream, part):
                    rest, skipped = piece[skipped:], max(0, skipped - len(piece))
                    if rest:
                        yield rest
            except brotli.error as error:
                raise BrokenCoding from error
            if stream.is_finished():
                self._ended = True
                return


def _unpack(stream: brotli.Decompressor, data: bytes) -> Iterator[bytes]:
    more = bool(data)
    while more:
        piece = stream.process(data, output_buffer_limit=_BROTLI_STEP)
        if piece:
            yield piece
        data = b""
        more = not stream.is_finished() and (bool(piece) or not stream.can_accept_more_data())


class Zstd:
    """Consecutive frames of zstd (RFC 8878)."""

    def __init__(self) -> None:
        self._stream = _frame()
        self._begun = False

    @property
    def whole(self) -> bool:
        """As `Coding`."""
        return not self._begun or self._stream.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """As `Coding`."""
        while data or not (self._stream.eof or self._stream.needs_input):
            if self._stream.eof:
                self._stream = _frame()
            self._begun = True
            try:
                piece = self._stream.decompress(data, STEP)
            except zstd.ZstdError as error:
                raise BrokenCoding from error
            if piece:
                yield piece
            data = self._stream.unused_data


def _frame() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW})


_KNOWN: Final[dict[str, Callable[[], Coding]]] = {
    "gzip": Gzip,
    "x-gzip": Gzip,
    "deflate": Deflate,
    "br": Brotli,
    "zstd": Zstd,
}


_NOT_ASKED_FOR: Final = frozenset({"dcb", "dcz"})
"""Codings with a dictionary (RFC 9842), which browsers decode only if they requested them with one."""


def codings(value: str) -> tuple[Callable[[], Coding], ...]:
    """Return the codings in a `content-encoding`, in the order in which they were applied.

    An unknown one, among them `identity` and an empty one, leaves the body as it is, as in browsers. Raises ValueError
    for an invalid list, for too many, and for codings that only browsers decode.
    """
    names = [name.strip(" \t") for name in value.lower().split(",")]
    if not all(map(_TOKEN.fullmatch, names)):
        raise ValueError("is not a list of names")
    if other := _NOT_ASKED_FOR.intersection(names):
        raise ValueError(f"is {min(other)}, which was not requested")
    known = tuple(_KNOWN[name] for name in names if name in _KNOWN)
    if len(known) < len(names):
        return ()
    if len(known) > MOST:
        raise ValueError(f"names more than {MOST} codings")
    return known


def is_coded(value: str) -> bool:
    """Return whether a `content-encoding` changes the body, or is invalid."""
    try:
        return bool(codings(value))
    except ValueError:
        return True


def _inflate(stream: zlib._Decompress, data: bytes, *, more: bool = False) -> Iterator[bytes]:
    """Decompress `data`; `more`: the stream still holds output of earlier input."""
    while (data or more) and not stream.eof:
        try:
            piece = stream.decompress(data, STEP)
        except zlib.error as error:
            raise BrokenCoding from error
        if piece:
            yield piece
        data, more = stream.unconsumed_tail, len(piece) == STEP


def _head_end(head: bytes) -> int | None:
    """Return the end of a gzip member's head; None if it is incomplete. Raises `BrokenCoding`."""
    if not head.startswith(_GZIP[: len(head)]):
        raise BrokenCoding
    if len(head) < _FIXED_HEAD:
        return None
    flags, at = head[3], _FIXED_HEAD
    if flags & _EXTRA:
        at += 2 + int.from_bytes(head[at : at + 2], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            at = head.find(b"\0", at) + 1 if at < len(head) else 0
            if not at:
                return None
    at += 2 if flags & _HEAD_CRC else 0
    return at if at <= len(head) else None


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
            layers = codings(coding)
        except ValueError as error:
            raise Refusal(Reason.BACKEND_PROTOCOL, f"the answer's content-encoding {error}") from error
        self._layers: tuple[Coding, ...] = tuple(make() for make in reversed(layers))  # the last one was applied last
        self._limit = limit
        self._input_bytes = 0
        self._output_bytes = [0] * (len(self._layers) + 1)

    def expect(self, length: int | None) -> None:
        """Check the content length of the head, before the first byte of the body."""
        if length is not None and length > self._limit:
            raise self._too_large()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes from the connection into pieces of the body."""
        self._input_bytes += len(data)
        if not self._layers:
            yield self._count(data, 0)
            return
        # A compressed body may be slightly larger than its content; more than that is endless padding.
        if self._input_bytes > self._limit + self._limit // 1000 + 1024:
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
        self._output_bytes[layer] += len(piece)
        size = self._output_bytes[layer]
        if size > self._limit or (self._layers and size > RATIO_FROM and size > RATIO * self._input_bytes):
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
