"""Large bodies are kept out of the SDK's messages, which would block the event loop to read and write them."""

from __future__ import annotations

import asyncio
import binascii
import codecs
import hashlib
import re
import secrets
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from starlette.requests import Request
from starlette.types import Scope

from gateway.contract import UploadedBody, default_type
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import compact_ascii, gather, is_large, write_pieces
from gateway.mcp.asgi import LEFT_OUT, ending_of, put_in
from gateway.mcp.fast import TOOL
from gateway.model import BodyType

LONG: Final = 1024 * 1024
"""Size of a body in bytes from which it is taken out."""

_REST: Final = 64 * 1024
"""Bytes of the largest message around a body."""

_SLICE: Final = 1024 * 1024
"""Bytes decoded at a time, a multiple of four: other threads run in between."""

_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_TYPES: Final = frozenset((BodyType.BASE64, BodyType.TEXT, BodyType.URL_ENCODED))
_KEY: Final = "webmcp-gateway.apart"


def taken_out(message: bytes) -> tuple[bytes, UploadedBody] | None:
    """Return the message with a placeholder for its large `body`, and the body; None if the message stays as it is.
    Slow: call it in a thread. A message with a missing or invalid body stays, so that the error is reported later.
    """
    start, end = -1, message.find(b'"')
    while 0 <= end < _REST and end - start <= LONG:
        start, end = end, message.find(b'"', end + 1)
    if end - start <= LONG or len(message) - (end - start) > _REST:
        return None
    word = secrets.token_hex(32)
    rest = b"".join((message[: start + 1], word.encode(), message[end:]))
    arguments = _arguments(rest)
    body_type = arguments.get("bodyType")
    body_type = BodyType.TEXT if body_type is None else body_type
    if arguments.get("body") != word or not isinstance(body_type, str) or body_type not in _TYPES:
        return None
    data = _read(memoryview(message)[start + 1 : end], body_type)
    if data is None:
        return None
    # A repeated call must have equal arguments, so the placeholder is the hash of the body.
    rest = rest.replace(word.encode(), hashlib.sha256(data).hexdigest().encode())
    return rest, UploadedBody(data, default_type(BodyType(body_type)))


def keep(scope: Scope, upload: UploadedBody) -> None:
    """Attach the body to the request that it was taken out of."""
    scope[_KEY] = upload


def detached_body(request: Request | None) -> UploadedBody | None:
    """Return the body that was taken out of the message of `request`."""
    return request.scope.get(_KEY) if request is not None else None


def _arguments(message: bytes) -> dict[str, Any]:
    try:
        params = parse_json(message)["params"]
        arguments = params["arguments"] if params["name"] == TOOL else None
    except (ValueError, RecursionError, TypeError, LookupError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _read(text: memoryview, body_type: object) -> bytes | None:
    """Return the bytes of a JSON string without escapes; None if it is invalid, or no base64."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    parts: list[bytes] = []
    try:
        for start in range(0, len(text), _SLICE):
            piece = bytes(text[start : start + _SLICE])
            last = start + _SLICE >= len(text)
            if (
                b"\\" in piece
                or _CONTROL.search(piece)
                or (body_type == BodyType.BASE64 and not last and b"=" in piece)
            ):
                return None
            utf8.decode(piece, last)
            parts.append(binascii.a2b_base64(piece, strict_mode=True) if body_type == BodyType.BASE64 else piece)
    except ValueError:
        return None
    return b"".join(parts)


Result = TypeVar("Result")

MARK: Final = f"webmcp-gateway/spliced-{secrets.token_hex(16)}-"
"""Prefix of the placeholder of a part that is spliced in later; it is random, so that no outsider can write it."""


async def splice_result(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Leave the large members out of a result and serialize them in a thread, as the SDK's outermost middleware.
    Not after a disconnect: a client that resumes its stream gets the result on another one, which knows nothing of the
    parts left out here.
    """
    result = await call_next(ctx)
    if ctx.request is None or ctx.request_id is None or not isinstance(result, dict) or not is_large(result):
        return result
    light = await asyncio.to_thread(_without_large, result, ctx.request.scope)
    return result if ending_of(ctx.request).ended else light


async def outline_params(params: dict[str, Any], request: Request | None) -> dict[str, Any] | None:
    """Return the parameters of a message for the stream of `request`, without their large values.
    None after a disconnect: large messages are not kept for session resumption.
    """
    if request is None or not is_large(params):
        return params
    ending = ending_of(request)
    light = await asyncio.to_thread(_without_large, params, request.scope) if not ending.ended else None
    return light if not ending.ended else None


async def lighten_result(result: Result, request: Request | None) -> Result | types.CallToolResult:
    """Return the result of one of the gateway's tools without its large values, before the SDK validates it."""
    if request is None or not isinstance(result, types.CallToolResult):
        return result
    texts: list[object] = [block.text for block in result.content if isinstance(block, types.TextContent)]
    if not is_large([*texts, result.structured_content]):
        return result
    return await asyncio.to_thread(_lighten, result, request.scope)


def _lighten(result: types.CallToolResult, scope: Scope) -> types.CallToolResult:
    content = [
        block.model_copy(update={"text": _placeholder(block.text, scope)})
        if isinstance(block, types.TextContent) and is_large(block.text)
        else block
        for block in result.content
    ]
    structured_content = result.structured_content
    structured_now = _placeholder(structured_content, scope) if is_large(structured_content) else structured_content
    return result.model_copy(update={"content": content, "structured_content": structured_now})


def _without_large(result: dict[str, Any], scope: Scope) -> dict[str, Any]:
    return {key: _placeholder(value, scope) if is_large(value) else value for key, value in result.items()}


def _placeholder(value: object, scope: Scope) -> object:
    """Return a placeholder for `value`; the value itself if it cannot be serialized, for the SDK to report."""
    word = MARK + secrets.token_hex(16)
    # The placeholder keeps the type, so that code on the way still finds a list, an object or a text.
    placeholder: object = word if isinstance(value, str) else [{word: 0}] if isinstance(value, list) else {word: 0}
    try:
        # Parts already left out of it are put in here, since the pieces are not searched again.
        pieces = [piece for part in gather(write_pieces(value)) for piece in put_in(scope, part)]
    except (ValueError, TypeError, RecursionError):
        return value
    scope.setdefault(LEFT_OUT, {})[compact_ascii(placeholder).encode()] = pieces
    return placeholder
