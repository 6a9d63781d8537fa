"""The state of a client's session of the handshake protocols: read from its messages, and repeated as messages."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from mcp.server.streamable_http import LAST_EVENT_ID_HEADER, StreamableHTTPServerTransport
from mcp_types import InitializeRequestParams
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError
from starlette.types import Message, Scope

from gateway.jsontext.writing import plain_json
from gateway.mcp.asgi import ENDING, LEFT_OUT, Ending
from gateway.mcp.middleware import replay, request_in
from gateway.model import Json
from gateway.ports.sessions import McpClientState

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
