"""The application runner with the fast path before aiohttp."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.payload import Payload
from aiohttp.typedefs import Handler

from gateway.doors.access import Asked
from gateway.doors.client_limits import InFlight, Peers, Unread
from gateway.doors.guard import PRINCIPAL, Guard
from gateway.doors.mcp import Mounts
from gateway.doors.refused_callers import RefusedCallers
from gateway.doors.responses import NamelessHandler, nameless
from gateway.doors.revocation import Revocations
from gateway.fastpath.connection import AnswerListener, Front, Gate
from gateway.fastpath.connections import IDLE, Fronts
from gateway.mcp.fast import Fast
from gateway.mcp.server import Face
from gateway.model import Principal

log = logging.getLogger(__name__)


class McpGate:
    """The guard before the mounts: `everything` is at `/mcp` itself."""

    def __init__(
        self,
        guard: Guard,
        standing: Revocations,
        refused_callers: RefusedCallers,
        in_flight: InFlight,
        peers: Peers,
        unread: Unread,
        everything: Face,
        *mounts: Mounts,
        fast_path: bool = True,
    ) -> None:
        self.fast_path = fast_path
        self._guard = guard
        self._everything = everything
        self._mounts = mounts
        self.held = standing.held
        self.malformed = refused_callers.malformed
        self.peers = peers
        self.unread = unread
        self.places = in_flight.requests

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
            access_log_class=AnswerListener,
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
            self._fronts = Fronts(lambda: nameless(behind(), _Handler), self._gate)
        return self._fronts

    async def shutdown(self) -> None:
        """Shut down like aiohttp: first idle connections, then running requests."""
        await super().shutdown()
        if self._fronts is not None:
            await self._fronts.drain(self._drain)


class _Handler(NamelessHandler):
    """The protocol of a lent connection; what aiohttp's parser refuses never reaches the guard."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Count what is no request."""
        front = self.transport.get_protocol() if self.transport is not None else None
        if isinstance(front, Front) and isinstance(exc, HttpProcessingError):
            front.malformed()
        return super().handle_error(request, status, exc, message)


def _length(answer: web.Response) -> int:
    """Bytes of the body of an answer."""
    body = answer.body
    return (body.size or 0) if isinstance(body, Payload) else len(body or b"")


@web.middleware
async def _begins(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Notify the connection that the head of a request is complete, and of the length of the answer."""
    front = request.transport.get_protocol() if request.transport is not None else None
    if isinstance(front, Front):
        front.begins()
    answer = await handler(request)
    if isinstance(front, Front) and isinstance(answer, web.Response):
        principal = request.get(PRINCIPAL)
        front.answers(principal.person if principal is not None else None, _length(answer))
    return answer
