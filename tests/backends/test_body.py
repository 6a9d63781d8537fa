"""Tests of `gateway.backends.codings`: decompression in bounded steps, independent of how the bytes are split."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from functools import partial, reduce

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backends.codings import AGAIN, MOST, RATIO_FROM, Body
from gateway.errors import Reason, Refusal
from tests.codings import SKIPPED, zstd_of

gzipped = partial(gzip.compress, mtime=0)
"""Compressed bytes that are the same in every process, since they are part of test ids."""


def raw_deflate(data: bytes) -> bytes:
    """The deflate format without the zlib header, as some servers send it."""
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


packed_by_brotli = partial(brotli.compress, quality=3)

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "identity": bytes,
    "gzip": gzipped,
    "X-GZIP": gzipped,
    "deflate": zlib.compress,
    " deflate ": raw_deflate,
    "BR": packed_by_brotli,
    "zstd": zstd_of,
}


@given(data=st.binary(max_size=5000), coding=st.sampled_from(sorted(PACKERS)), step=st.integers(1, 400))
def test_round_trip(data: bytes, coding: str, step: int) -> None:
    """The body is restored for every split of the compressed bytes."""
    packed = PACKERS[coding](data)
    body = Body(coding, 5000)
    for start in range(0, len(packed), step):
        body.feed(packed[start : start + step])
    assert body.close() == data


DATA = b'{"ok":1}'
PACKED = gzipped(DATA)


@pytest.mark.parametrize(
    ("coding", "packed", "given"),
    [
        ("gzip, gzip", gzipped(PACKED), DATA),
        ("deflate, GZIP", gzipped(zlib.compress(DATA)), DATA),
        ("gzip,deflate", zlib.compress(PACKED), DATA),
        (", ".join(["gzip"] * MOST), reduce(lambda data, _: gzipped(data), range(MOST), DATA), DATA),
        *((coding, DATA, DATA) for coding in ("utf-8", "none", "aws-chunked", "Identity", "compress", "xgzip")),
        *(
            (coding, PACKED, PACKED)
            for coding in ("gzip, identity", "identity, gzip", "utf-8, gzip", ", gzip", "gzip,,")
        ),
        ("gzip", PACKED + b"garbage", DATA),
        ("gzip", PACKED + PACKED, DATA),
        ("gzip", PACKED + b"\x1f", DATA),
        ("gzip", PACKED[:-8], DATA),
        ("gzip", PACKED[:-8] + bytes(8), DATA),
        ("gzip", PACKED[:6], b""),
        ("gzip", b"", b""),
        ("gzip", b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x02\0exname\0why\0\0\0" + raw_deflate(DATA), DATA),
        ("br", b"", b""),
        ("br", brotli.compress(DATA) + b"garbage", DATA),
        ("br", brotli.compress(DATA) + brotli.compress(DATA), DATA),
        ("br", brotli.compress(b"") + b"garbage", b""),
        ("deflate", raw_deflate(DATA) + b"gar", DATA),
        ("deflate", raw_deflate(DATA) + zlib.adler32(DATA).to_bytes(4, "big") + b"garbage", DATA),
        ("br, gzip", gzip.compress(brotli.compress(DATA), mtime=0), DATA),
        ("zstd", b"", b""),
        ("zstd", zstd_of(DATA)[:3], b""),
        ("zstd", zstd_of(DATA) + zstd_of(b"[2]"), DATA + b"[2]"),
        ("zstd", SKIPPED + zstd_of(DATA) + SKIPPED, DATA),
        ("zstd", zstd_of(DATA, window_log=23), DATA),
        ("gzip,zstd", zstd_of(PACKED), DATA),
        ("deflate", b"", b""),
        ("deflate", zlib.compress(DATA)[:-4], DATA),
        ("deflate", zlib.compress(DATA) + b"\0\0", DATA),
        ("deflate", DATA, bytes.fromhex("e41f3d34159167")),
    ],
)
@given(step=st.integers(1, 60))
def test_as_browsers_take_it(coding: str, packed: bytes, given: bytes, step: int) -> None:
    """Chromium decodes each of these to the same bytes: `tests/browser/test_three_places.py` compares them."""
    body = Body(coding, 1000)
    for start in range(0, len(packed), step):
        body.feed(packed[start : start + step])
    assert body.close() == given


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", DATA),
        ("gzip", zlib.compress(DATA)),
        ("gzip", PACKED[:10] + b"\x07" * 30),  # the third type of block is reserved (RFC 1951 3.2.3)
        ("gzip", b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 70_000),
        ("gzip, gzip", PACKED),
        ("deflate", PACKED),
        ("deflate", zlib.compress(DATA)[:-4] + bytes(4)),
        ("br", DATA),
        ("br", b"\xff" * 20),
        ("deflate", raw_deflate(DATA) + b"garbage"),
        ("zstd", DATA),
        ("zstd", zstd_of(DATA) + b"garbage"),
        ("zstd", zstd_of(DATA, checksum_flag=1)[:-4] + bytes(4)),
        ("zstd", zstd_of(DATA, window_log=24)),
        ("gzip;q=1", PACKED),
        ('"gzip"', PACKED),
        ("gzip gzip", PACKED),
        (", ".join(["gzip"] * (MOST + 1)), PACKED),
    ],
)
def test_what_is_broken(coding: str, packed: bytes) -> None:
    """A broken body is refused, as in browsers."""
    with pytest.raises(Refusal) as caught:
        Body(coding, 100_000).feed(packed)
    assert caught.value.reason is Reason.BACKEND_PROTOCOL


def test_the_end_of_brotli_in_a_longer_body() -> None:
    """The end is found for any split, up to a bound; a longer body with other bytes after its end is broken."""
    data = random.Random(1).randbytes(AGAIN // 2) + bytes(AGAIN)
    packed = brotli.compress(data, quality=1)
    for size in (1000, 1 << 16, 1 << 20):
        body = Body("br", len(data))
        for start in range(0, len(packed) + 7, size):
            body.feed((packed + b"garbage")[start : start + size])
        assert body.close() == data
    twice = random.Random(1).randbytes(AGAIN)
    with pytest.raises(Refusal):
        Body("br", 2 * AGAIN).feed(brotli.compress(twice, quality=1) + b"garbage")
    body = Body("br", 2 * AGAIN)
    body.feed(brotli.compress(twice, quality=1))
    body.feed(b"garbage")
    assert body.close() == twice


NOTHING: dict[str, Callable[[int], bytes]] = {
    "gzip": lambda size: gzipped(b"") + bytes(size),
    "deflate": lambda size: zlib.compress(b"") + bytes(size),
    "br": lambda size: brotli.compress(b"") + bytes(size),
    "zstd": lambda size: SKIPPED[:4] + size.to_bytes(4, "little") + bytes(size),
}
"""Many bytes of a coding that decode to nothing."""


@pytest.mark.parametrize("coding", ["gzip, gzip", "deflate, gzip, gzip", "BR, gzip", "zstd, gzip", "gzip, zstd"])
def test_bomb_of_several_codings(coding: str) -> None:
    """Each coding is held to the ratio to the bytes on the wire, even if the last one yields nothing."""
    first, _, others = coding.partition(", ")
    size = 50_000_000
    for content in (PACKERS[first](bytes(size)), *(NOTHING[name](size) for name in [first] if name in NOTHING)):
        packed = reduce(lambda data, name: PACKERS[name](data), others.split(", "), content)
        body = Body(coding, 10**10)
        with pytest.raises(Refusal) as caught:
            body.feed(packed)
        assert caught.value.reason is Reason.RESPONSE_TOO_LARGE
        assert len(body._whole) <= RATIO_FROM + 10**7


@pytest.mark.parametrize("coding", [" deflate ", "BR", "zstd"])
@given(size=st.integers(1, 5).flatmap(lambda steps: st.integers(steps * 65536 - 300, steps * 65536 + 300)))
def test_output_that_waits_inside(coding: str, size: int) -> None:
    """Output that the decompressor buffers at the end of a step is not lost."""
    body = Body(coding, size)
    body.feed(PACKERS[coding](bytes(size)))
    assert body.close() == bytes(size)


def test_large_but_honest() -> None:
    """A large text with a high compression ratio is not taken for a bomb."""
    text = b"".join(b'{"id": %d, "name": "item %d"},\n' % (number, number) for number in range(200_000))
    body = Body("gzip", len(text))
    body.feed(gzipped(text))
    assert body.close() == text


@pytest.mark.parametrize("coding", ["gzip", "deflate", "BR", "zstd"])
@pytest.mark.bound("compressed responses")
def test_bomb_by_ratio(coding: str) -> None:
    """A body with too high a ratio is refused soon after the first mebibyte, whatever its limit is."""
    body = Body(coding, 10**10)
    with pytest.raises(Refusal) as caught:
        body.feed(PACKERS[coding](bytes(50_000_000)))
    assert caught.value.reason is Reason.RESPONSE_TOO_LARGE
    assert len(body._whole) <= RATIO_FROM + 10**7


def test_bomb_by_size() -> None:
    """A body over its limit is refused before it is buffered."""
    body = Body("gzip", 1000)
    with pytest.raises(Refusal):
        body.feed(gzipped(bytes(100_000)))
    assert len(body._whole) <= 1000


def test_endless_empty_members() -> None:
    """Compressed bytes that decode to nothing are bounded, too."""
    body = Body("gzip", 1000)
    with pytest.raises(Refusal) as caught:
        body.feed(gzipped(b"") * 1000)
    assert caught.value.reason is Reason.RESPONSE_TOO_LARGE


@pytest.mark.parametrize("coding", ["dcb", "dcz", "gzip, dcb"])
def test_codings_that_were_not_asked_for(coding: str) -> None:
    """Browsers would decode them, so the app must not get a body that it cannot interpret."""
    with pytest.raises(Refusal, match="not requested"):
        Body(coding, 1000)


@pytest.mark.parametrize(
    ("coding", "packed", "is_whole"),
    [
        ("gzip", PACKED, True),
        ("gzip", PACKED[:-1], False),
        ("gzip", PACKED[:8], False),
        ("gzip", b"", True),
        ("deflate", zlib.compress(DATA), True),
        ("deflate", zlib.compress(DATA)[:-1], False),
        ("deflate", raw_deflate(DATA), True),
        ("deflate", raw_deflate(DATA)[:-1], False),
        ("gzip, gzip", gzipped(PACKED[:-1]), False),
        ("utf-8", DATA, True),
    ],
)
@given(step=st.integers(1, 60))
def test_an_end_that_only_the_body_itself_tells(coding: str, packed: bytes, is_whole: bool, step: int) -> None:
    """A body that ends with the connection may have been truncated."""
    body = Body(coding, 1000)
    for start in range(0, len(packed), step):
        body.feed(packed[start : start + step])
    try:
        body.check_end()
        seen = True
    except Refusal:
        seen = False
    assert seen is is_whole
