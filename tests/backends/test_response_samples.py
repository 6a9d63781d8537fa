"""The gateway's HTTP client and aiohttp's read responses of every kind as llhttp does, or differ for a named reason."""

from __future__ import annotations

import asyncio

import pytest

from gateway.backends.http import HttpBackend
from gateway.errors import Refusal
from gateway.model import Outbound
from tests.backends.parsers import Outcome, read_by_aiohttp, read_by_gateway
from tests.backends.peers import raw_peer
from tests.backends.response_samples import SAMPLES, Sample

SPLITS = 200
"""Positions at which a long sample is split; the shorter ones are split at each."""

OK = b"HTTP/1.1 200 OK\r\n"
COMPLETE = [
    OK + b"Content-Length: 5\r\n\r\nhello",
    OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\nA: b\r\n\r\n",
    b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
    OK + b"X-A: 1\r\n 2\r\nContent-Length: 5\r\n\r\nhello",
    OK.replace(b"\r", b"") + b"Content-Length: 5\n\nhello",
]


def splits(sent: bytes) -> list[list[bytes]]:
    """The bytes at once, in two pieces in every way, and one by one."""
    places = range(1, min(len(sent), SPLITS))
    return [[sent], [sent[at : at + 1] for at in range(len(sent))], *([sent[:at], sent[at:]] for at in places)]


def ids(sample: Sample) -> str:
    """Name a sample by its bytes."""
    return ascii(sample.sent[:60])


@pytest.mark.parametrize("sample", SAMPLES, ids=ids)
def test_a_sample_has_one_outcome_however_it_arrives(sample: Sample) -> None:
    """The gateway's parser and aiohttp's say what the table says, in whatever pieces the bytes come."""
    for pieces in splits(sample.sent):
        assert read_by_gateway(pieces) == sample.ours, pieces
    for pieces in splits(sample.sent)[:: 1 if len(sample.sent) < SPLITS else SPLITS]:
        assert read_by_aiohttp(pieces) == sample.aiohttp, pieces


def test_each_difference_has_a_reason_and_each_reason_a_difference() -> None:
    """Nothing differs by accident, and no response is read as another one by both clients."""
    assert [one for one in SAMPLES if (one.ours == one.llhttp == one.aiohttp) is bool(one.why)] == []


@pytest.mark.parametrize("sent", COMPLETE, ids=ascii)
@pytest.mark.parametrize("read", [read_by_gateway, read_by_aiohttp])
def test_a_response_that_breaks_off_is_not_complete(read: object, sent: bytes) -> None:
    """Wherever the connection ends before the last byte, there is no response."""
    reader = read_by_gateway if read is read_by_gateway else read_by_aiohttp
    assert reader([sent]) == (200, b"hello")
    assert [at for at in range(len(sent)) if reader([sent[:at]]) is not None] == []


def test_a_response_may_end_with_its_connection() -> None:
    """Without a length it is complete wherever the connection ends after the head, and never before."""
    head = OK + b"X-A: 1\r\n\r\n"
    sent = head + b"to the end"
    for at in range(len(sent) + 1):
        expected: Outcome = (200, sent[len(head) : at]) if at >= len(head) else None
        assert (read_by_gateway([sent[:at]]), read_by_aiohttp([sent[:at]])) == (expected, expected)


@pytest.mark.parametrize("status", [b"200 OK", b"204 N", b"304 N"])
def test_the_answer_to_head_is_its_head(status: bytes) -> None:
    """The length that it declares makes no difference (RFC 9112 6.3)."""
    for framing in (b"Content-Length: 10", b"Transfer-Encoding: chunked"):
        sent = b"HTTP/1.1 " + status + b"\r\n" + framing + b"\r\n\r\n"
        assert read_by_gateway([sent], "HEAD") == read_by_aiohttp([sent], "HEAD") == (int(status[:3]), b"")


async def fetch(backend: HttpBackend, url: str) -> Outcome:
    """Return the answer to a request; None if it is refused."""
    try:
        answer = await backend.send(Outbound("GET", url))
    except Refusal:
        return None
    return answer.status, answer.body


async def test_the_clients_answer_with_what_their_parsers_say(backend: HttpBackend, http_client: str) -> None:
    """Over a real connection each sample has the same outcome; aiohttp's client refuses some more of them."""

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = peer.requests[-1].partition(b"/")[2].partition(b" ")[0]
        writer.write(SAMPLES[int(place)].sent)
        writer.close()

    async with raw_peer(script) as peer:
        for place, sample in enumerate(SAMPLES):
            passed_on = sample.ours if sample.ours and sample.ours[0] < 600 else None
            allowed = {passed_on} if http_client == "gateway" else {passed_on, sample.aiohttp, None}
            assert await fetch(backend, peer.url(f"/{place}")) in allowed, sample


@pytest.mark.parametrize(
    "more", [b"junk", b"\r\n", OK + b"Content-Length: 4\r\n\r\nlate", b"0\r\n\r\n", b"\0"], ids=ascii
)
@pytest.mark.parametrize("together", [True, False])
async def test_more_than_was_requested_answers_no_other_request(
    backend: HttpBackend, http_client: str, more: bytes, together: bool
) -> None:
    """Bytes behind a response, with it or later, end the connection: the next request gets its own answer.

    aiohttp's parser skips an empty line there, and refuses a response that other bytes arrive with.
    """
    late = asyncio.Event()

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = OK + b"Content-Length: 1\r\n\r\n%d" % len(peer.requests)
        first = len(peer.requests) == 1
        writer.write(answer + more if first and together else answer)
        await writer.drain()
        if first and not together:
            await late.wait()
            writer.write(more)
            await writer.drain()

    async with raw_peer(script) as peer:
        first = await fetch(backend, peer.url())
        late.set()
        await asyncio.sleep(0 if together else 0.05)
        assert await fetch(backend, peer.url()) == (200, b"2")
        assert first == (200, b"1") or (first is None and together and http_client == "aiohttp")
        assert peer.connections == 2 or (more == b"\r\n" and together and http_client == "aiohttp")
