"""The application runner with the fast path before aiohttp."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.doors.asked import Asked
from gateway.doors.front import Answered, Front, Gate
from gateway.doors.fronts import IDLE, Fronts
from gateway.doors.guard import Guard
from gateway.doors.mcp import Mounts
from gateway.doors.server_name import nameless
from gateway.doors.standing import Standing
from gateway.mcp.fast import Fast
from gateway.mcp.server import Face
from gateway.model import Principal

log = logging.getLogger(__name__)


class McpGate:
    """The guard before the mounts: `everything` is at `/mcp` itself."""

    def __init__(self, guard: Guard, standing: Standing, everything: Face, *mounts: Mounts) -> None:
        self._guard = guard
        self._everything = everything
        self._mounts = mounts
        self.held = standing.held

    def fast(self, mount: str) -> Fast[Any] | None:
        """Return the current fast path of a mount."""
        if not mount:
            return self._everything.fast
        for faces in self._mounts:
            face = faces.get(mount)
            if face is not None:
                return face.fast
        return None

    def client(self, request: Asked) -> str | None:
        """Return the address of the client, as reported by trusted proxies."""
        return self._guard.client(request)

    async def caller(self, request: Asked, mount: str) -> Principal | None:
        """Return the authorized caller; None if the guard or the door would refuse."""
        principal = await self._guard.caller(request, mount)
        return principal if principal is not None and principal.may("mcp") else None


class FrontRunner(web.AppRunner):
    """Runs an application with the fast path before it, for the requests that pass `gate`."""

    def __init__(self, app: web.Application, gate: Gate, *, drain: float, keepalive: float = IDLE) -> None:
        app.middlewares.insert(0, _begins)
        super().__init__(
            app,
            access_log=log,
            access_log_class=Answered,
            handler_cancellation=True,
            shutdown_timeout=drain,
            keepalive_timeout=keepalive,
        )
        self._gate = gate
        self._drain = drain
        self._fronts: Fronts | None = None

    @property
    def server(self) -> Any:
        """The protocol factory: the fast path, with aiohttp's protocol behind it."""
        behind = super().server
        if self._fronts is None and behind is not None:
            self._fronts = Fronts(lambda: nameless(behind()), self._gate)
        return self._fronts

    async def shutdown(self) -> None:
        """Shut down like aiohttp: first idle connections, then running requests."""
        await super().shutdown()
        if self._fronts is not None:
            await self._fronts.drain(self._drain)


@web.middleware
async def _begins(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Notify the connection that the head of a request is complete."""
    front = request.transport.get_protocol() if request.transport is not None else None
    if isinstance(front, Front):
        front.begins()
    return await handler(request)
