"""Helpful messages for requests that the SDK refuses with an empty body or with its parser's message."""

from __future__ import annotations

from mcp_types import INVALID_REQUEST
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ACCEPT = "Not Acceptable: `Accept` must name application/json and text/event-stream."
CONTENT_TYPE = "`Content-Type` must be application/json."
BODY = "The body must be one JSON-RPC request, notification or response; batches are not taken."


class Worded:
    """ASGI middleware that rewords refusals of `app`; their status stays."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun: Message | None = None

        async def say(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start" and message["status"] in (400, 406):
                begun = message
                return
            words = _words(begun["status"], message.get("body", b"")) if begun is not None else None
            if begun is not None and words is not None:
                error = {"code": INVALID_REQUEST, "message": words}
                answer = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, begun["status"])
                begun = None
                await answer(scope, receive, send)
                return
            if begun is not None:
                await send(begun)
                begun = None
            await send(message)

        await self._app(scope, receive, say)


def _words(status: int, body: bytes) -> str | None:
    """Return the message that replaces `body`; None to keep it."""
    if status == 406 and not body:
        return ACCEPT
    if body == b"Invalid Content-Type header":
        return CONTENT_TYPE
    return BODY if b'"message":"Validation error: ' in body[:200] else None
