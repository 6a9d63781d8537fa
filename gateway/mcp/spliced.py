"""What is large in a result stays out of the SDK's message, which is written in the event loop: it is put in later."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from starlette.requests import Request
from starlette.types import Scope

from gateway.compact import compact_ascii
from gateway.mcp.asgi import LEFT_OUT, ending_of, put_in
from gateway.pieces import gathered, is_large, written

Result = TypeVar("Result")

MARK: Final = f"webmcp-gateway/spliced-{secrets.token_hex(16)}-"
"""What stands for a part that is put in later begins so; nobody outside can say it."""


async def spliced(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """The SDK's outermost middleware: leaves the large members of a result out, and has them written in a thread.

    Not where the connection is gone: a session's client that takes its stream up hears the result on another one, which
    knows nothing of what was left out here.
    """
    result = await call_next(ctx)
    if ctx.request is None or ctx.request_id is None or not isinstance(result, dict) or not is_large(result):
        return result
    light = await asyncio.to_thread(_without_large, result, ctx.request.scope)
    return result if ending_of(ctx.request).ended else light


async def outlined(params: dict[str, Any], request: Request | None) -> dict[str, Any] | None:
    """The parameters of a message that goes on the stream of `request`, without what is large in them.

    None where the connection is gone: so much is not kept for a client that takes its stream up.
    """
    if request is None or not is_large(params):
        return params
    ending = ending_of(request)
    light = await asyncio.to_thread(_without_large, params, request.scope) if not ending.ended else None
    return light if not ending.ended else None


async def lightened(result: Result, request: Request | None) -> Result | types.CallToolResult:
    """The result of a tool of ours without what is large in it, before the SDK looks through it."""
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
    """What stands for it; the value itself where the SDK has to say what is wrong with it."""
    word = MARK + secrets.token_hex(16)
    # What reads the message on the way still finds a list, an object or a text there.
    made: object = word if isinstance(value, str) else [{word: 0}] if isinstance(value, list) else {word: 0}
    try:
        # What is left out of it already is put in here: nobody looks through the pieces again.
        pieces = [piece for part in gathered(written(value)) for piece in put_in(scope, part)]
    except (ValueError, TypeError, RecursionError):
        return value
    scope.setdefault(LEFT_OUT, {})[compact_ascii(made).encode()] = pieces
    return made
