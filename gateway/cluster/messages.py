"""The messages of nodes to each other: a tool call that the owner of a view runs, and the messages that answer it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from gateway.model import Response, Visit

CALLS: Final = "/calls"
"""The path of tool calls."""

MOVED: Final = "/moved"
"""The path of the notice that a view has another owner now."""

PING: Final = "/ping"
"""The path of the question whether a node can be reached, which it answers with `Pong`."""

OWNER: Final = "webmcp-gateway-owner"
"""The header field with the owner that the answer `not-owner` names; empty if there is none."""

NOT_OWNER: Final = 421
"""The status of the answer `not-owner`: the request was sent to the wrong server (RFC 9110, 15.5.20)."""

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
    """A refusal."""

    reason: str
    detail: str
    headers: tuple[tuple[str, str], ...]
    status: int
    connect_url: str | None
    words: str


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
