"""An upstream in the gateway's own process: an object of the MCP SDK, named as `module:object`."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from gateway.eventloop.fair_share import RoundRobin, TimeSlices
from gateway.jsontext.messages import read
from gateway.jsontext.writing import is_large, write_pieces
from gateway.mcp.upstreams.catalog.listing import LISTS
from gateway.mcp.upstreams.transport.conversation import Message, Receive, Unreadable, UpstreamLost

BUFFER = 64
BATCH = 64
"""Messages after which the event loop gets its turn: a flood must not starve others."""


class InProcess:
    """Serves the object that `place` names, and exchanges messages with it; a callable is called for each connection.
    Its messages are parsed like those of other upstreams, and limited to `limit` bytes.
    """

    def __init__(self, place: str, *, limit: int, in_turn: RoundRobin) -> None:
        self._place = place
        self._limit = limit
        self._moments = TimeSlices(in_turn)
        self._to: asyncio.Future[MemoryObjectSendStream[SessionMessage | Exception]] = (
            asyncio.get_running_loop().create_future()
        )

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        stream = await asyncio.shield(self._to)
        try:
            await stream.send(SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False)))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, ValidationError) as error:
            raise UpstreamLost("the server ended") from error

    async def abandon(self, id: int) -> bool:
        return False

    async def run(self, receive: Receive) -> None:
        try:
            await self._serve(self._server(), receive)
        except UpstreamLost:
            raise
        except (Exception, SystemExit) as error:  # foreign code, whatever its lifespan raises
            raise self._fail(f"{self._place} failed: {error}") from error
        raise UpstreamLost("the server ended")

    async def _serve(self, server: Server[Any], receive: Receive) -> None:
        to_server, from_us = anyio.create_memory_object_stream[SessionMessage | Exception](BUFFER)
        to_us, from_server = anyio.create_memory_object_stream[SessionMessage](BUFFER)
        async with to_server, from_us, to_us, from_server, server.lifespan(server) as state:
            serving = asyncio.ensure_future(serve_dual_era_loop(server, from_us, to_us, lifespan_state=state))
            self._to.set_result(to_server)
            try:
                await self._listen(from_server, receive)
            finally:
                serving.cancel()
                await asyncio.wait({serving})

    async def _listen(self, stream: MemoryObjectReceiveStream[SessionMessage], receive: Receive) -> None:
        count = 0
        async for item in stream:
            large = is_large([getattr(item.message, name, None) for name in ("params", "result", "error")])
            text = await asyncio.to_thread(_write, item.message) if large else _write(item.message)
            if len(text) > self._limit:
                raise UpstreamLost(f"the server sent a message of more than {self._limit} bytes")
            receive(await self._read(text, getattr(item.message, "id", None)), None, len(text))
            count += 1
            if not count % BATCH:
                await asyncio.sleep(0)  # a flood must not starve others

    async def _read(self, text: str, id: object) -> object:
        """Parse a message whose `id` is known even if it is invalid."""
        try:
            return await read(text, self._moments, LISTS)
        except ValueError as error:
            why = str(error) if text else "it cannot be written as JSON"
            return Unreadable(id if isinstance(id, int) else None, why)

    def _server(self) -> Server[Any]:
        module, _, name = self._place.partition(":")
        try:
            factory = getattr(importlib.import_module(module), name)
            if not isinstance(factory, Server | MCPServer) and callable(factory):
                factory = factory()
        except (Exception, SystemExit) as error:  # foreign code, whatever it raises
            raise self._fail(f"{self._place} cannot be had: {error}") from error
        if isinstance(factory, MCPServer):
            factory = factory._lowlevel_server  # the SDK's own client does the same; there is no public name
        if not isinstance(factory, Server):
            raise self._fail(f"{self._place} is not a server of the MCP SDK")
        if _staying not in factory.middleware:
            factory.middleware.append(_staying)
        return factory

    def _fail(self, why: str) -> UpstreamLost:
        lost = UpstreamLost(why, unsent=not self._to.done())
        if not self._to.done():
            self._to.set_exception(lost)
            self._to.exception()  # marks the exception as retrieved
        return lost


async def _staying(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Turn `SystemExit` in a tool into an error of its call: the process is the gateway's."""
    try:
        return await call_next(ctx)
    except SystemExit as error:
        raise RuntimeError(f"it tried to end the process: SystemExit({error.code!r})") from error


def _write(message: JSONRPCMessage) -> str:
    """Return the message as a remote server would write it; "" if it is nested too deeply."""
    try:
        return "".join(write_pieces(message.model_dump(by_alias=True, mode="json", exclude_unset=True)))
    except (ValueError, RecursionError):
        return ""
