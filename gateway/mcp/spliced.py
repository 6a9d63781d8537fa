"""Keeps large values out of the SDK's messages, which are serialized in the event loop, and splices them in later."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from starlette.requests import Request
from starlette.types import Scope

from gateway.jsontext.compact import compact_ascii
from gateway.jsontext.pieces import gathered, is_large, written
from gateway.mcp.asgi import LEFT_OUT, ending_of, put_in

Result = TypeVar("Result")

MARK: Final = f"webmcp-gateway/spliced-{secrets.token_hex(16)}-"
"""Prefix of the placeholder of a part that is spliced in later; it is random, so that no outsider can write it."""


async def spliced(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Leave the large members out of a result and serialize them in a thread, as the SDK's outermost middleware.
    Not after a disconnect: a client that resumes its stream gets the result on another one, which knows nothing of the
    parts left out here.
    """
    result = await call_next(ctx)
    if ctx.request is None or ctx.request_id is None or not isinstance(result, dict) or not is_large(result):
        return result
    light = await asyncio.to_thread(_without_large, result, ctx.request.scope)
    return result if ending_of(ctx.request).ended else light


async def outlined(params: dict[str, Any], request: Request | None) -> dict[str, Any] | None:
    """Return the parameters of a message for the stream of `request`, without their large values.
    None after a disconnect: large messages are not kept for session resumption.
    """
    if request is None or not is_large(params):
        return params
    ending = ending_of(request)
    light = await asyncio.to_thread(_without_large, params, request.scope) if not ending.ended else None
    return light if not ending.ended else None


async def lightened(result: Result, request: Request | None) -> Result | types.CallToolResult:
    """Return the result of one of the gateway's tools without its large values, before the SDK validates it."""
    if request is None or not isinstance(result, types.CallToolResult):
        return result
    texts: list[object] = [block.text for block in result.content if isinstance(block, types.TextContent)]
    if not is_large([*texts, result.structured_content]):
        return result
    return await asyncio.to_thread(_lightened, result, request.scope)


def _lightened(result: types.CallToolResult, scope: Scope) -> types.CallToolResult:
    content = [
        block.model_copy(update={"text": _left_out(block.text, scope)})
        if isinstance(block, types.TextContent) and is_large(block.text)
        else block
        for block in result.content
    ]
    structured = result.structured_content
    made = _left_out(structured, scope) if is_large(structured) else structured
    return result.model_copy(update={"content": content, "structured_content": made})


def _without_large(result: dict[str, Any], scope: Scope) -> dict[str, Any]:
    return {key: _left_out(value, scope) if is_large(value) else value for key, value in result.items()}


def _left_out(value: object, scope: Scope) -> object:
    """Return a placeholder for `value`; the value itself if it cannot be serialized, for the SDK to report."""
    word = MARK + secrets.token_hex(16)
    # The placeholder keeps the type, so that code on the way still finds a list, an object or a text.
    made: object = word if isinstance(value, str) else [{word: 0}] if isinstance(value, list) else {word: 0}
    try:
        # Parts already left out of it are put in here, since the pieces are not searched again.
        pieces = [piece for part in gathered(written(value)) for piece in put_in(scope, part)]
    except (ValueError, TypeError, RecursionError):
        return value
    scope.setdefault(LEFT_OUT, {})[compact_ascii(made).encode()] = pieces
    return made
