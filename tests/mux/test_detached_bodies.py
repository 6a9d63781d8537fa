"""Bodies that travel outside the frames, and values that only look as if they did."""

from __future__ import annotations

import pytest

from gateway.errors import MuxError
from gateway.model import Json
from gateway.mux import BODY_LIMIT, is_large, join_body, named_body, split_body

BODY = "b" * 22


def call(params: dict[str, Json]) -> dict[str, Json]:
    """Return a call with these params."""
    return {"jsonrpc": "2.0", "id": "1", "method": "tools/call", "params": params}


def test_a_large_message_is_split_and_joined() -> None:
    """Joining restores the message."""
    message = call({"arguments": {"body": "é" * (BODY_LIMIT // 2)}})
    named, text = split_body(message, BODY)
    assert is_large(message)
    assert named["params"] == {"$body": BODY}
    assert named_body(named) == BODY
    assert join_body(named, text) == message


def test_a_result_is_split_too() -> None:
    """The detached body is its result."""
    named, text = split_body({"jsonrpc": "2.0", "id": 1, "result": {"content": []}}, BODY)
    assert (named["result"], text) == ({"$body": BODY}, '{"content":[]}')


def test_a_small_message_stays_whole() -> None:
    """A `$body` inside the params belongs to the app."""
    message = call({"arguments": {"body": {"$body": BODY}}})
    assert not is_large(message)
    assert named_body(message) is None


def test_what_looks_like_a_name_is_split() -> None:
    """So a page cannot name a body that it did not send."""
    message = call({"$body": "x" * 22})
    named, text = split_body(message, BODY)
    assert is_large(message)
    assert join_body(named, text) == message


@pytest.mark.parametrize("name", [1, "", "../" + "x" * 22, "x" * 65, None])
def test_a_name_that_is_no_id_is_refused(name: Json) -> None:
    """The id becomes a part of a URL."""
    with pytest.raises(MuxError):
        named_body(call({"$body": name}))


@pytest.mark.parametrize("text", ["[]", "1", "{", "[" * 100])
def test_a_body_that_is_no_object_is_refused(text: str) -> None:
    """Params and results are objects."""
    with pytest.raises(MuxError):
        join_body(call({"$body": BODY}), text)
