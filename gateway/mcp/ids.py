"""Each session of the handshake protocols has at most one request per id in flight, so that answers are not mixed up.
A request with an invalid id is refused: the SDK would take it for a notification, and its sender would wait for ever.
"""

from __future__ import annotations

import json
from typing import Final

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp_types import INVALID_REQUEST
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.mcp.body_limits import replayed
from gateway.mcp.identity import User

LARGEST: Final = 1024 * 1024
"""Bytes of the largest message whose id is looked for: parsing larger ones twice costs more than the check saves."""


class OneInFlight:
    """ASGI middleware for whole bodies. It refuses only what is the caller's own mistake."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._flying: set[tuple[str, str, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = next((value for name, value in scope["headers"] if name == MCP_SESSION_ID_HEADER.encode()), None)
        if session is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        first = await receive()
        said, again = _said(first), replayed(first, receive)
        if "id" not in said:
            await self._app(scope, again, send)
            return
        id = said["id"]
        if type(id) not in (str, int):
            error = {"code": INVALID_REQUEST, "message": "The id of a request is a text or a whole number."}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, again, send)
            return
        user = scope["user"]
        key = (user.principal.id if isinstance(user, User) else "", session.decode("latin-1"), str(id))
        if key in self._flying:
            error = {"code": INVALID_REQUEST, "message": "A call with this id is in flight."}
            refusal = JSONResponse({"jsonrpc": "2.0", "id": id, "error": error}, 400)
            await refusal(scope, again, send)
            return
        self._flying.add(key)
        try:
            await self._app(scope, again, send)
        finally:
            self._flying.discard(key)


def _said(message: Message) -> dict[str, object]:
    """Return the request or notification in a body; empty if there is none, or if the SDK has to judge it."""
    body = message.get("body", b"")
    if message["type"] != "http.request" or message.get("more_body") or len(body) > LARGEST:
        return {}
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) and "method" in said else {}
