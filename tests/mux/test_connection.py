"""Two ends of the bridge joined by a fake connection, and hostile input at one of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MuxError
from gateway.model import Channel, Json
from gateway.mux import (
    ClientConnection,
    Close,
    ErrorFrame,
    Frame,
    Hello,
    Message,
    Open,
    Opened,
    ServerConnection,
    decode,
)

VIEWS = ("A" * 22, "B" * 22)
WORDS = [*VIEWS, "jsonrpc", "2.0", "id", "method", "params", "result", "error", "code", "message", "view", "channel"]
WORDS += ["ui", "webmcp", "hello", "ticket", "open", "ref", "app", "close", "reason", "tools/call", "ping"]


class Wire:
    """A host and a gateway with two open views, and the frames that each end received."""

    def __init__(self) -> None:
        self.host, self.gateway = ClientConnection(), ServerConnection()
        self.host.send(Hello("ticket"))
        for number, view in enumerate(VIEWS):
            self.host.send(Open(str(number), "cart"))
            self.carry()
            self.gateway.send(Opened(str(number), view, "ui://cart/index.html", (), "token"))
            self.carry()

    def carry(self) -> tuple[list[Frame], list[Frame]]:
        """Deliver everything written to the other end; return the frames that host and gateway received."""
        told: tuple[list[Frame], list[Frame]] = ([], [])
        while pairs := [(self.host, text, 0) for text in self.gateway.pending_output()] + [
            (self.gateway, text, 1) for text in self.host.pending_output()
        ]:
            for end, text, index in pairs:
                told[index].extend(end.receive_data(text))
        return told


def json_values() -> st.SearchStrategy[Json]:
    """Return a strategy for any JSON value, with the protocol's words more likely than others."""
    words = st.sampled_from(WORDS)
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | words
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(), inner, max_size=4),
        max_leaves=20,
    )


def messages() -> st.SearchStrategy[dict[str, Json]]:
    """Return a strategy for JSON-RPC objects, well and badly shaped, with few ids so that they collide."""
    ids = st.sampled_from([1, 2, "1", "2"])
    methods = st.sampled_from(["tools/call", "ping", "tools/list", "initialize", "notifications/progress", "x"])
    call = st.builds(lambda id, method: {"jsonrpc": "2.0", "id": id, "method": method}, ids, methods)
    answer = st.builds(lambda id: {"jsonrpc": "2.0", "id": id, "result": {}}, ids)
    cancel = st.builds(cancellation, ids)
    junk: st.SearchStrategy[dict[str, Json]] = st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "result"]), json_values(), max_size=4
    )
    return st.one_of(junk, call, answer, cancel)


def cancellation(id: Json) -> dict[str, Json]:
    """Return a notification that a call is cancelled."""
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")) | json_values().map(json.dumps))
def test_garbage_raises_nothing_but_mux_errors(text: str) -> None:
    """A connection accepts any input, or ends with a MuxError that it reports to its peer."""
    for connection in (ServerConnection(), ClientConnection()):
        try:
            connection.receive_data(text)
        except MuxError:
            assert connection.ended


@given(json_values())
def test_garbage_on_an_open_channel_raises_nothing_but_mux_errors(message: Json) -> None:
    """The same on a channel of an open view."""
    wire = Wire()
    try:
        wire.gateway.receive_data(json.dumps({"view": VIEWS[0], "channel": "ui", "message": message}))
    except MuxError:
        assert isinstance(decode(wire.gateway.pending_output()[0]), ErrorFrame)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(VIEWS), st.sampled_from(Channel), messages()), max_size=40))
def test_what_one_end_lets_out_the_other_takes(steps: list[tuple[bool, str, Channel, dict[str, Json]]]) -> None:
    """An application's message, whatever it contains, never ends the connection at the peer."""
    wire = Wire()
    for from_host, view, channel, message in steps:
        end = wire.host if from_host else wire.gateway
        end.send(Message(view, channel, message))
        wire.carry()
    assert not wire.host.ended
    assert not wire.gateway.ended


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(Channel), messages()), max_size=40))
def test_two_views_never_hear_each_other(steps: list[tuple[bool, Channel, dict[str, Json]]]) -> None:
    """For any messages in one view, the other receives nothing and its own call stays open."""
    wire = Wire()
    quiet = Message(VIEWS[1], Channel.WEBMCP, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    wire.gateway.send(quiet)
    wire.carry()
    for from_host, channel, message in steps:
        end = wire.host if from_host else wire.gateway
        told = [*end.send(Message(VIEWS[0], channel, message)), *(event for told in wire.carry() for event in told)]
        assert {event.view for event in told if isinstance(event, Message | Close | ErrorFrame)} <= {VIEWS[0]}
    answer = Message(VIEWS[1], Channel.WEBMCP, {"jsonrpc": "2.0", "id": 1, "result": {}})
    wire.host.send(answer)
    assert wire.carry() == ([], [answer])


def test_closed_views_are_forgotten() -> None:
    """A host that opens and closes without end costs no more memory than the last few views."""
    wire = Wire()
    for number in range(1000):
        view = f"{number:022d}"
        wire.host.send(Open("n", "cart"))
        wire.carry()
        wire.gateway.send(Opened("n", view, "ui://cart/index.html", (), "token"))
        wire.gateway.send(Message(view, Channel.WEBMCP, {"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        wire.carry()
        wire.host.send(Close(view, "gone"))
        wire.carry()
    with pytest.raises(MuxError, match="absent"):
        wire.gateway.receive_data(json.dumps({"focus": {"view": f"{0:022d}"}}))
