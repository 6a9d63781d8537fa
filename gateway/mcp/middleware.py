"""ASGI middleware before the SDK's server: body limits, request ids in flight, the state of a client's session.

The state of a session of the handshake protocols is read from its messages, and repeated as messages after a restart.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mcp.server.streamable_http import LAST_EVENT_ID_HEADER, MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp_types import INVALID_REQUEST, InitializeRequestParams
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.bounds import Area, Bound, size
from gateway.jsontext.reading import parse_json
from gateway.jsontext.sizes import AT_ONCE, is_bulky, why
from gateway.jsontext.writing import plain_json
from gateway.mcp.asgi import ENDING, LEFT_OUT, Ending, User
from gateway.mcp.out_of_band import LONG, keep, taken_out
from gateway.model import Json
from gateway.ports.sessions import McpClientState

BODY_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of one message, beside a large body; a larger one is answered with 413."""

BOUNDS: Final = (
    Bound(
        Area.MCP,
        "MCP messages",
        f"{size(BODY_LIMIT)}, apart from one large body",
        "413",
    ),
)

(MESSAGES,) = BOUNDS

_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The byte order marks that JSON may begin with; without one, other encodings have a NUL in the first four bytes."""


class Readable:
    """ASGI middleware for whole bodies; the SDK reads each of them in the event loop.
    With `apart`, a large body of an `http_request` is handed on beside its message.
    """

    def __init__(self, app: ASGIApp, *, apart: bool) -> None:
        self._app = app
        self._apart = apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        first = await receive()
        body = first.get("body", b"")
        if body.startswith(_MARKS) or b"\0" in body[:4]:
            error = {"code": INVALID_REQUEST, "message": "A message is JSON in UTF-8, without a byte order mark."}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, replay(first, receive), send)
            return
        if len(body) > LONG:
            extraction = await asyncio.to_thread(taken_out, body) if self._apart else None
            if extraction is not None:
                body, upload = extraction
                first = {**first, "body": body}
                keep(scope, upload)
        again = replay(first, receive)
        apart = self._apart
        wrong = await asyncio.to_thread(_wrong, body, apart=apart) if len(body) > LONG else _wrong(body, apart=apart)
        if wrong is not None:
            error = {"code": INVALID_REQUEST, "message": wrong}
            refusal = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 413)
            await refusal(scope, again, send)
            return
        await self._app(scope, again, send)


def _wrong(body: bytes, *, apart: bool) -> str | None:
    """Return the reason to refuse a message, or None; with `apart`, a large body was taken out of it."""
    if len(body) > BODY_LIMIT:
        MESSAGES.report()
        beside = ", beside a `body` in base64 or of text, without escapes" if apart else ""
        return f"A message has {BODY_LIMIT} bytes at most{beside}."
    return f"This message has {why(AT_ONCE)}." if is_bulky(body) else None


def replay(first: Message, receive: Receive) -> Receive:
    """Return a `receive` that yields `first` again before the rest."""
    waiting = [first]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


LARGEST: Final = 1024 * 1024
"""Bytes of the largest message whose id is looked for: parsing larger ones twice costs more than the check saves."""


@dataclass(slots=True)
class _Flight:
    """A request; `answered` is whether its whole answer was handed on, `ended` whether `app` has returned, too."""

    answered: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class OneInFlight:
    """ASGI middleware for whole bodies. It refuses only what is the caller's own mistake.

    The SDK ends a request shortly after its answer; a client that uses the id again at once waits for that.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._flying: dict[tuple[str, str, str], _Flight] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = next((value for name, value in scope["headers"] if name == MCP_SESSION_ID_HEADER.encode()), None)
        if session is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        first = await receive()
        request, again = request_in(first), replay(first, receive)
        if "id" not in request:
            await self._app(scope, again, send)
            return
        id = request["id"]
        if type(id) not in (str, int):
            error = {"code": INVALID_REQUEST, "message": "The id of a request is a text or a whole number."}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, again, send)
            return
        user = scope["user"]
        key = (user.principal.id if isinstance(user, User) else "", session.decode("latin-1"), str(id))
        while (other := self._flying.get(key)) is not None:
            if not other.answered:
                error = {"code": INVALID_REQUEST, "message": "A call with this id is in flight."}
                refusal = JSONResponse({"jsonrpc": "2.0", "id": id, "error": error}, 400)
                await refusal(scope, again, send)
                return
            await other.ended.wait()
        flight = self._flying[key] = _Flight()

        async def note_answer(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                flight.answered = True  # before the client can have it
            await send(message)

        try:
            await self._app(scope, again, note_answer)
        finally:
            del self._flying[key]
            flight.ended.set()


def request_in(message: Message) -> dict[str, object]:
    """Return the request or notification in a body; empty if there is none, or if the SDK has to judge it."""
    body = message.get("body", b"")
    if message["type"] != "http.request" or message.get("more_body") or len(body) > LARGEST:
        return {}
    try:
        request = parse_json(body)
    except (ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) and "method" in request else {}


ACCEPT = "Not Acceptable: `Accept` must name application/json and text/event-stream."
CONTENT_TYPE = "`Content-Type` must be application/json."
BODY = "The body must be one JSON-RPC request, notification or response; batches are not supported."


class RefusalWording:
    """ASGI middleware that rewords refusals of `app`; their status stays."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start_message: Message | None = None

        async def say(message: Message) -> None:
            nonlocal start_message
            if message["type"] == "http.response.start" and message["status"] in (400, 406):
                start_message = message
                return
            words = _words(start_message["status"], message.get("body", b"")) if start_message is not None else None
            if start_message is not None and words is not None:
                error = {"code": INVALID_REQUEST, "message": words}
                answer = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, start_message["status"])
                start_message = None
                await answer(scope, receive, send)
                return
            if start_message is not None:
                await send(start_message)
                start_message = None
            await send(message)

        await self._app(scope, receive, say)


def _words(status: int, body: bytes) -> str | None:
    """Return the message that replaces `body`; None to keep it."""
    if status == 406 and not body:
        return ACCEPT
    if body == b"Invalid Content-Type header":
        return CONTENT_TYPE
    return BODY if b'"message":"Validation error: ' in body[:200] else None


SUBSCRIPTIONS: Final = 256
"""Subscriptions of one session that its next process restores."""

LONGEST_URI: Final = 2048
"""Characters of the longest URI among these."""

log = logging.getLogger(__name__)


def read_declaration(first: Message) -> McpClientState | None:
    """Return what a message that opens a session declares; None if it is no `initialize`, or an invalid one."""
    message = request_in(first)
    if message.get("method") != "initialize":
        return None
    try:
        params = InitializeRequestParams.model_validate(message.get("params"), by_name=False)
    except ValidationError:
        return None
    version = str(params.protocol_version)
    return state_of(params, version if version in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION)


def state_of(params: InitializeRequestParams, version: str) -> McpClientState:
    """Return the state of a session with this negotiated version whose client has declared `params`."""
    return McpClientState(
        version,
        params.client_info.model_dump(by_alias=True, mode="json", exclude_none=True),
        params.capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
    )


def params_of(state: McpClientState) -> InitializeRequestParams:
    """Return what the client of a session has declared, as the SDK's object."""
    message = {"protocolVersion": state.version, "clientInfo": state.info, "capabilities": state.capabilities}
    return InitializeRequestParams.model_validate(message, by_name=False)


def messages_of(state: McpClientState) -> Iterator[dict[str, Json]]:
    """Yield the messages after which a session is in `state`."""
    yield {"jsonrpc": "2.0", "method": "notifications/initialized"}
    sent: list[tuple[str, dict[str, Json]]] = []
    if state.level is not None:
        sent.append(("logging/setLevel", {"level": state.level}))
    sent += [("resources/subscribe", {"uri": uri}) for uri in state.subscriptions]
    for method, params in sent:
        yield {"jsonrpc": "2.0", "id": f"restored-{secrets.token_hex(8)}", "method": method, "params": params}


def _level(state: McpClientState, *, params: Mapping[str, Any]) -> McpClientState:
    return replace(state, level=str(params.get("level")))


def _add_subscription(state: McpClientState, *, params: Mapping[str, Any]) -> McpClientState:
    uri = str(params.get("uri"))
    if uri in state.subscriptions or len(uri) > LONGEST_URI or len(state.subscriptions) >= SUBSCRIPTIONS:
        return state
    return replace(state, subscriptions=(*state.subscriptions, uri))


def _remove_subscription(state: McpClientState, *, params: Mapping[str, Any]) -> McpClientState:
    uri = str(params.get("uri"))
    return replace(state, subscriptions=tuple(one for one in state.subscriptions if one != uri))


CHANGES: Final = {
    "logging/setLevel": _level,
    "resources/subscribe": _add_subscription,
    "resources/unsubscribe": _remove_subscription,
}
"""The requests that change the state of a session, by method."""


async def repeat(transport: StreamableHTTPServerTransport, message: dict[str, Json], scope: Scope) -> None:
    """Handle a message as if the client had posted it; its answer is dropped."""
    left_out = (b"content-type", b"content-length", b"accept", LAST_EVENT_ID_HEADER.encode())
    fields = [(name, value) for name, value in scope["headers"] if name not in left_out]
    fields += [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
    sent = {**scope, "method": "POST", "headers": fields, ENDING: (ending := Ending())}
    sent.pop(LEFT_OUT, None)
    body = {"type": "http.request", "body": plain_json(message).encode(), "more_body": False}

    async def disconnected() -> Message:
        await ending.wait()
        return {"type": "http.disconnect"}

    async def drop(_: Message) -> None:
        """Drop the answer."""

    try:
        await transport.handle_request(sent, replay(body, disconnected), drop)
    except Exception:
        log.exception("a setting of a session was not restored: %s", message["method"])
    finally:
        ending.end()
