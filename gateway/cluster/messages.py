"""The messages of nodes to each other: a tool call that the owner of a view runs, and the messages that answer it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from gateway.model import Response, Visit
from gateway.ports.views import StoredTaint, TaintGroup

CALLS: Final = "/calls"
"""The path of tool calls."""

MOVED: Final = "/moved"
"""The path of the notice that a view has another owner now."""

PING: Final = "/ping"
"""The path of the question whether a node can be reached, which it answers with `Pong`."""

FORMER: Final = "/former"
"""The path of the notice that the page of a view has attached as another view, with a proof of the former one."""

TAINTS: Final = "/taints"
"""The path of messages about taints."""

BODIES: Final = "/bodies"
"""The path of requests for a body that a node holds."""

DOCUMENTS: Final = "/documents"
"""The path of requests for a page that waits for its frame."""

VIEWS: Final = "/views"
"""The path of the question which views a person may see; the answer is JSON."""

OFFERS: Final = "/offers/"
"""The path of a person's answers about links and downloads of a view, before their kind."""

CLOSED: Final = "/views/close"
"""The path of a person's wish to close a view."""

UPSTREAMS: Final = "/upstreams"
"""The path of connections to the process of a shared upstream, whose name is the mount."""

OWNER: Final = "webmcp-gateway-owner"
"""The header field with the owner that the answer `not-owner` names; empty if there is none."""

NOT_OWNER: Final = 421
"""The status of the answer `not-owner`: the request was sent to the wrong server (RFC 9110, 15.5.20)."""

LARGEST_TAINT: Final = 64 * 1024
"""Bytes of the largest message about a taint, and of the answer."""

LARGEST: Final = 512 * 1024 * 1024
"""Bytes of the largest message; the gateway's own limits are lower."""


class RemoteCall(Struct, frozen=True):
    """A call of a tool of a mount, whose client shows MCP Apps (`is_app`) and may be sent to a page (`asks`).

    `arguments` is JSON. `body` is the request's body that was sent beside the call, `body_type` its content type.
    """

    name: str
    arguments: bytes
    is_app: bool
    asks: bool
    has_body: bool = False
    body: bytes | None = None
    body_type: str | None = None


class Pong(Struct, frozen=True):
    """The time of the node's own clock, in seconds since the epoch, and why it cannot use its Redis; None if it can."""

    time: float
    redis: str | None


class Visiting(Struct, frozen=True, tag="visit"):
    """Sends the client's person to a page, while the call goes on."""

    visit: Visit


class Answered(Struct, frozen=True, tag="response"):
    """The answer of `http_request`."""

    response: Response


class Values(Struct, frozen=True, tag="values"):
    """The JSON of the values of a tool of the relay, or of the result of any other tool."""

    json: bytes


class Refused(Struct, frozen=True, tag="refusal"):
    """A refusal; `moves` says that it is `ViewMoves`."""

    reason: str
    detail: str
    headers: tuple[tuple[str, str], ...]
    status: int
    connect_url: str | None
    words: str
    moves: bool = False


class Failed(Struct, frozen=True, tag="error"):
    """A JSON-RPC error."""

    code: int
    message: str
    data: bytes


Message: TypeAlias = Visiting | Answered | Values | Refused | Failed

_CALL: Final = msgspec.msgpack.Decoder(RemoteCall)
_MESSAGE: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
_ENCODER: Final = msgspec.msgpack.Encoder()


class Broken(Exception):
    """The other node's answer ended early, or is not one."""


def encode_call(call: RemoteCall) -> bytes:
    """Return the body of a request."""
    return _ENCODER.encode(call)


def decode_call(body: bytes) -> RemoteCall:
    """Return the call. Raises `Broken`."""
    try:
        return _CALL.decode(body)
    except msgspec.MsgspecError as error:
        raise Broken(str(error)) from error


def encode(message: Message) -> bytes:
    """Return a message with its length before it, in four bytes."""
    text = _ENCODER.encode(message)
    return len(text).to_bytes(4, "big") + text


async def messages(chunks: AsyncIterator[bytes]) -> AsyncIterator[Message]:
    """Yield the messages of an answer. Raises `Broken`."""
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= 4:
            length = int.from_bytes(buffer[:4], "big")
            if length > LARGEST:
                raise Broken("a message is too long")
            if len(buffer) < 4 + length:
                break
            text = bytes(buffer[4 : 4 + length])
            del buffer[: 4 + length]
            try:
                message = _MESSAGE.decode(text)
            except msgspec.MsgspecError as error:
                raise Broken(str(error)) from error
            yield message
    if buffer:
        raise Broken("a message is incomplete")


_TEXTS: Final = msgspec.msgpack.Decoder(tuple[str, str])


def encode_texts(one: str, other: str) -> bytes:
    """Return two texts as a message."""
    return _ENCODER.encode((one, other))


def decode_texts(body: bytes) -> tuple[str, str]:
    """Return the two texts of a message. Raises `Broken`."""
    try:
        return _TEXTS.decode(body)
    except msgspec.MsgspecError as error:
        raise Broken(str(error)) from error


class AboutTaint(Struct, frozen=True, forbid_unknown_fields=True):
    """A message about the views of a principal and app.

    Those of `group` have this `taint`, as evidence and call; without one, a person acted in a view.
    """

    key: tuple[str, str]
    group: TaintGroup
    taint: tuple[str, str | None] | None = None


class TaintAnswer(Struct, frozen=True):
    """The taint that a view had, as evidence and call."""

    taint: tuple[str, str | None] | None


_ABOUT: Final = msgspec.msgpack.Decoder(AboutTaint)
_TAINT: Final = msgspec.msgpack.Decoder(TaintAnswer)


def write_about(about: AboutTaint) -> bytes:
    """Return the body of a message about a taint."""
    return _ENCODER.encode(about)


def read_about(body: bytes) -> AboutTaint:
    """Return a message about a taint. Raises `Broken`."""
    try:
        return _ABOUT.decode(body)
    except msgspec.MsgspecError as error:
        raise Broken(str(error)) from error


def write_taint(taint: StoredTaint | None) -> bytes:
    """Return the answer to the notice that a view has moved."""
    return _ENCODER.encode(TaintAnswer((taint.evidence, taint.call) if taint is not None else None))


def read_taint(body: bytes) -> StoredTaint | None:
    """Return the taint in an answer. Raises `Broken`."""
    try:
        taint = _TAINT.decode(body).taint
    except msgspec.MsgspecError as error:
        raise Broken(str(error)) from error
    return StoredTaint(*taint) if taint is not None else None
