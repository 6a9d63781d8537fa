"""The messages between nodes: whole in any chunks, and an answer that ends early is never taken for a whole one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from subprocess import run

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cluster.messages import (
    LARGEST,
    Answered,
    Broken,
    Failed,
    Message,
    Refused,
    RemoteCall,
    Values,
    Visiting,
    decode_call,
    encode,
    encode_call,
    messages,
)
from gateway.model import Part, Response, Visit

ALL: tuple[Message, ...] = (
    Visiting(Visit("id", "https://gateway.example/x", "Open it")),
    Answered(Response(200, (("a", "b"),), b"\0\xff", "/x", part=Part("stream-1", last=False), length=9)),
    Values(b"{}"),
    Refused("policy-denied", "no", (("retry-after", "1"),), 403, None, "Not allowed."),
    Failed(-32602, "Unknown tool", b"null"),
)


async def chunks(text: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    """Yield the text, cut at these places."""
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    for start, end in pairwise(places):
        yield text[start:end]


@given(st.lists(st.integers(0, 2000), max_size=20))
async def test_messages_arrive_in_any_chunks(cuts: list[int]) -> None:
    """Each kind of message is the same at the other end."""
    text = b"".join(encode(message) for message in ALL)
    assert [message async for message in messages(chunks(text, cuts))] == list(ALL)


@given(st.integers(1, 400))
async def test_an_answer_that_ends_early_is_an_error(missing: int) -> None:
    """Wherever the connection broke, unless it was between two messages."""
    text = b"".join(encode(message) for message in ALL)
    left = text[: max(0, len(text) - missing)]
    borders = {sum(len(encode(message)) for message in ALL[:count]) for count in range(len(ALL) + 1)}
    if len(left) in borders:
        return
    with pytest.raises(Broken):
        _ = [message async for message in messages(chunks(left, []))]


@pytest.mark.parametrize(
    "text", [b"\0\0\0\1\xc1", b"\0\0\0\2{}", (LARGEST + 1).to_bytes(4, "big"), b"\0\0\0\0"], ids=repr
)
async def test_other_bytes_are_an_error(text: bytes) -> None:
    """Such as the answer of another program, or a length that nobody would send."""
    with pytest.raises(Broken):
        _ = [message async for message in messages(chunks(text, []))]


def test_a_call_is_the_same_at_the_other_end() -> None:
    """With its body; other bytes are an error."""
    call = RemoteCall(
        "http_request", b'{"url": "/"}', is_app=True, asks=False, has_body=True, body=b"\0", body_type="a/b"
    )
    assert decode_call(encode_call(call)) == call
    for text in (b"", b"x", encode_call(call)[:-1]):
        with pytest.raises(Broken):
            decode_call(text)


def test_one_process_loads_none_of_this() -> None:
    """A gateway without the section `cluster` has no module, and no library, of a node."""
    script = (
        "import sys, gateway.app, gateway.cli.serve\n"
        "print(*[name for name in sys.modules if name.startswith('gateway.cluster')"
        " or name in ('gateway.mcp.elsewhere', 'gateway.doors.nodes', 'gateway.stores.nodes', 'asyncpg', 'redis')])"
    )
    found = run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
