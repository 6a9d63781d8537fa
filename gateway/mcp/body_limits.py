"""Limits on whole request bodies before the SDK reads them: a body that would take long to read is refused."""

from __future__ import annotations

import asyncio
import codecs
from typing import Final

from mcp_types import INVALID_REQUEST
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.bounds import Area, Bound, size
from gateway.jsontext.sizes import AT_ONCE, is_bulky, why
from gateway.mcp.out_of_band import LONG, keep, taken_out

BODY_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of one message, beside a large body; a larger one is answered with 413."""

BOUNDS: Final = (
    Bound(
        Area.MCP,
        "a message",
        f"{size(BODY_LIMIT)}, beside a large body",
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
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(
                scope, replayed(first, receive), send
            )
            return
        if len(body) > LONG:
            taken = await asyncio.to_thread(taken_out, body) if self._apart else None
            if taken is not None:
                body, handed = taken
                first = {**first, "body": body}
                keep(scope, handed)
        again = replayed(first, receive)
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
        MESSAGES.exceeded()
        beside = ", beside a `body` in base64 or of text, without escapes" if apart else ""
        return f"A message has {BODY_LIMIT} bytes at most{beside}."
    return f"This message has {why(AT_ONCE)}." if is_bulky(body) else None


def replayed(first: Message, receive: Receive) -> Receive:
    """Return a `receive` that yields `first` again before the rest."""
    waiting = [first]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
