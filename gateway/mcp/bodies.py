"""Whole bodies of requests, before the SDK reads them: one that would take long to read is refused."""

from __future__ import annotations

import asyncio
from typing import Final

from mcp_types import INVALID_REQUEST
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.bulk import WHY, is_bulky

_LONG: Final = 1024 * 1024
"""Bytes of a body from which it is looked through in a thread."""


class Readable:
    """Stands before `app`, which is given whole bodies; the SDK reads each of them in the event loop."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        first = await receive()
        again = replayed(first, receive)
        body = first.get("body", b"")
        if await asyncio.to_thread(is_bulky, body) if len(body) > _LONG else is_bulky(body):
            error = {"code": INVALID_REQUEST, "message": f"This message has {WHY}."}
            refusal = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 413)
            await refusal(scope, again, send)
            return
        await self._app(scope, again, send)


def replayed(first: Message, receive: Receive) -> Receive:
    """`receive` as it was before it gave `first`."""
    waiting = [first]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
