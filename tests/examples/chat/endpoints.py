"""Small model endpoints that speak the wire formats of OpenAI's chat completions and Anthropic's messages, streamed.

They follow a script: each request takes the next reply, and is kept for the test to look at.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from tests.world import Server

Format = Literal["openai", "anthropic"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model; `json` is the text of its arguments, in `pieces` deltas."""

    name: str
    json: str = "{}"
    id: str = "call_1"
    pieces: int = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: texts and calls in order. `size` is that of each piece on the wire, `cut` ends the connection after
    so many bytes, `holds` leaves it open without an end, `end` is the reason of the end in the format's own word.
    """

    parts: Sequence[str | Call] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    size: int = 1 << 20
    cut: int | None = None
    holds: bool = False
    end: str | None = None
    raw: bytes | None = None
    pause: bytes = b""


def sse(data: object, event: str | None = None) -> bytes:
    """Return one event; with CRLF, as some servers write it."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return ((f"event: {event}\r\n" if event else "") + f"data: {text}\r\n\r\n").encode()


def split(text: str, count: int) -> list[str]:
    """Return the text in about `count` pieces."""
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)]


CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def openai_bytes(reply: Reply) -> bytes:
    """Return the stream of an answer, as `chat.completion.chunk` events, with a comment and a usage chunk."""

    def chunk(delta: object, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return sse({**CHUNK, "choices": [choice]})

    made = b": keep-alive\n\n" + chunk({"role": "assistant", "content": "", "refusal": None})
    calls = [part for part in reply.parts if isinstance(part, Call)]
    for part in reply.parts:
        if isinstance(part, str):
            made += b"".join(chunk({"content": piece}) for piece in split(part, 4))
    for place, call in enumerate(calls):
        function = {"name": call.name, "arguments": ""}
        first = {"index": place, "id": call.id, "type": "function", "function": function}
        made += chunk({"tool_calls": [first]})
    rows = [[(place, piece) for piece in split(call.json, call.pieces)] for place, call in enumerate(calls)]
    for turn in range(max(map(len, rows), default=0)):  # the deltas of several calls take turns
        for place, piece in (row[turn] for row in rows if turn < len(row)):
            made += chunk({"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
    made += chunk({}, reply.end or ("tool_calls" if calls else "stop"))
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    made += sse({**CHUNK, "choices": [], "usage": usage})
    return made + sse("[DONE]")


def anthropic_bytes(reply: Reply) -> bytes:
    """Return the stream of an answer, as events of the Messages API, with pings and a block of thinking."""

    def event(name: str, **more: object) -> bytes:
        return sse({"type": name, **more}, name)

    message: dict[str, object] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    made = event("message_start", message=message) + event("ping")
    made += event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""})
    made += event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"})
    made += event("content_block_stop", index=0)
    for index, part in enumerate(reply.parts, 1):
        if isinstance(part, str):
            made += event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for piece in split(part, 4):
                made += event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        else:
            block = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
            made += event("content_block_start", index=index, content_block=block)
            for piece in ["", *split(part.json, part.pieces)]:
                delta = {"type": "input_json_delta", "partial_json": piece}
                made += event("content_block_delta", index=index, delta=delta)
        made += event("content_block_stop", index=index)
    calls = any(isinstance(part, Call) for part in reply.parts)
    ended = {"stop_reason": reply.end or ("tool_use" if calls else "end_turn"), "stop_sequence": None}
    return made + event("message_delta", delta=ended, usage={"output_tokens": 9}) + event("message_stop")


@dataclass(slots=True)
class Endpoint:
    """A running endpoint; `replies` may be extended while it runs, and the last one is repeated if `repeats`."""

    format: Format
    server: Server = field(default_factory=Server)
    replies: list[Reply] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    repeats: bool = False
    go: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """A client has gone in the middle of an answer."""

    @property
    def base_url(self) -> str:
        """The address for the chat's settings."""
        return f"http://127.0.0.1:{self.server.port}" + ("/v1" if self.format == "openai" else "")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Take the next reply."""
        self.requests.append(await request.json())
        self.headers.append(request.headers)
        reply = self.replies[0] if self.repeats and len(self.replies) == 1 else self.replies.pop(0)
        if reply.status != 200:
            return web.Response(
                status=reply.status, headers=reply.headers, text=reply.body, content_type="application/json"
            )
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        encoded = openai_bytes(reply) if self.format == "openai" else anthropic_bytes(reply)
        whole = reply.raw if reply.raw is not None else encoded
        try:
            if reply.pause:
                before, mark, whole = whole.partition(reply.pause)
                await response.write(before + mark)
                await self.go.wait()
            for start in range(0, len(whole[: reply.cut]), reply.size):
                await response.write(whole[: reply.cut][start : start + reply.size])
                await asyncio.sleep(0)
            if reply.holds:
                await asyncio.Event().wait()
        except (ConnectionError, asyncio.CancelledError):
            self.left.set()
            raise
        if reply.cut is not None and request.transport is not None:
            request.transport.abort()
        return response


@asynccontextmanager
async def endpoint(format: Format, *replies: Reply, repeats: bool = False) -> AsyncIterator[Endpoint]:
    """Run an endpoint with these replies."""
    made = Endpoint(format, replies=list(replies), repeats=repeats)
    app = web.Application()
    app.router.add_post("/v1/chat/completions" if format == "openai" else "/v1/messages", made.answer)
    await made.server.start(app)
    try:
        yield made
    finally:
        await made.server.stop()
