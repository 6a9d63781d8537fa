"""An upstream in the gateway's own process: an object of the MCP SDK, named as `module:object`."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from gateway.mcp.upstreams.conversation import Message, Receive, UpstreamLost

BUFFER = 64


class Inside:
    """Serves the object that `place` names, and carries messages to it; a callable is called for each connection."""

    def __init__(self, place: str) -> None:
        self._place = place
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
        server = self._server()
        to_server, from_us = anyio.create_memory_object_stream[SessionMessage | Exception](BUFFER)
        to_us, from_server = anyio.create_memory_object_stream[SessionMessage](BUFFER)
        async with to_server, from_us, to_us, from_server, server.lifespan(server) as state:
            serving = asyncio.ensure_future(serve_dual_era_loop(server, from_us, to_us, lifespan_state=state))
            self._to.set_result(to_server)
            try:
                async for item in from_server:
                    receive(item.message.model_dump(by_alias=True, mode="json", exclude_unset=True), None, 0)
            finally:
                serving.cancel()
                await asyncio.wait({serving})
        raise UpstreamLost("the server ended")

    def _server(self) -> Server[Any]:
        module, _, name = self._place.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
            if not isinstance(found, Server | MCPServer) and callable(found):
                found = found()
        except Exception as error:  # the code of others, whatever it raises
            self._to.set_exception(UpstreamLost(f"{self._place} cannot be had: {error}", unsent=True))
            self._to.exception()  # nobody may wait for it
            raise UpstreamLost(f"{self._place} cannot be had: {error}", unsent=True) from error
        if isinstance(found, MCPServer):
            found = found._lowlevel_server  # the SDK's own client does the same; there is no public name
        if not isinstance(found, Server):
            self._to.cancel()
            raise UpstreamLost(f"{self._place} is no server of the MCP SDK", unsent=True)
        return found
