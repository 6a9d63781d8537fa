"""Tests of `gateway.backends.body`: decompression in bounded steps, however the bytes arrive."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backends.body import RATIO_FROM, Body
from gateway.errors import Reason, Refusal


def raw_deflate(data: bytes) -> bytes:
    """The deflate format without the zlib header, as some servers send it."""
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "X-GZIP": gzip.compress,
    "deflate": zlib.compress,
    " deflate ": raw_deflate,
}


@given(data=st.binary(max_size=5000), coding=st.sampled_from(sorted(PACKERS)), step=st.integers(1, 400))
def test_round_trip(data: bytes, coding: str, step: int) -> None:
    """Whatever was packed comes out again, for every cut of the bytes."""
    packed = PACKERS[coding](data)
    body = Body(coding, 5000)
    for start in range(0, len(packed), step):
        body.feed(packed[start : start + step])
    assert body.close() == data


@given(step=st.integers(1, 50))
def test_members_of_gzip(step: int) -> None:
    """A gzip body of several members is one body; what follows the last is passed over."""
    packed = gzip.compress(b"one") + gzip.compress(b"two") + b"\0" * 20
    body = Body("gzip", 100)
    for start in range(0, len(packed), step):
        body.feed(packed[start : start + step])
    assert body.close() == b"onetwo"


@given(size=st.integers(1, 5).flatmap(lambda steps: st.integers(steps * 65536 - 300, steps * 65536 + 300)))
def test_output_that_waits_inside(size: int) -> None:
    """Output that the decompressor holds back at the end of a step is not lost."""
    body = Body("deflate", size)
    body.feed(raw_deflate(bytes(size)))
    assert body.close() == bytes(size)


def test_large_but_honest() -> None:
    """A large text that packs well is no bomb."""
    text = b"".join(b'{"id": %d, "name": "item %d"},\n' % (number, number) for number in range(200_000))
    body = Body("gzip", len(text))
    body.feed(gzip.compress(text))
    assert body.close() == text


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bomb_by_ratio(coding: str) -> None:
    """A body that grows too fast is refused soon after the first mebibyte, whatever its limit is."""
    body = Body(coding, 10**10)
    with pytest.raises(Refusal) as caught:
        body.feed(PACKERS[coding](bytes(50_000_000)))
    assert caught.value.reason is Reason.RESPONSE_TOO_LARGE
    assert len(body._whole) <= RATIO_FROM + 10**7


def test_bomb_by_size() -> None:
    """A body over its limit is refused before it is held."""
    body = Body("gzip", 1000)
    with pytest.raises(Refusal):
        body.feed(gzip.compress(bytes(100_000)))
    assert len(body._whole) <= 1000


def test_endless_empty_members() -> None:
    """Compressed bytes that come to nothing have an end, too."""
    body = Body("gzip", 1000)
    with pytest.raises(Refusal) as caught:
        body.feed(gzip.compress(b"") * 1000)
    assert caught.value.reason is Reason.RESPONSE_TOO_LARGE


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "gzip;q=1", "nonsense"])
def test_codings_not_asked_for(coding: str) -> None:
    """A coding that was not asked for is refused by name of what is."""
    with pytest.raises(Refusal, match="gzip, deflate"):
        Body(coding, 1000)
