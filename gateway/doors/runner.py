"""The application runner: aiohttp's, with connections that have limits, and a fast path where there is one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.http import HttpProcessingError
from aiohttp.payload import Payload
from aiohttp.typedefs import Handler

from gateway.doors.client_connection import ConnectionLimits, HttpConnection, ServerState
from gateway.doors.client_connections import IDLE, ClientConnections
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import NamelessHandler, nameless

LIMITS: Final = web.AppKey("limits", ConnectionLimits)
"""The limits of connections to an application."""

CONNECTION: Final[web.AppKey[Callable[[ServerState], HttpConnection]]] = web.AppKey("connection", Callable)  # type: ignore[arg-type]  # any callable
"""Makes the protocol of each connection; without it aiohttp reads all requests."""

log = logging.getLogger(__name__)


class GatewayRunner(web.AppRunner):
    """Runs an application with its `LIMITS` and `CONNECTION`."""

    def __init__(self, app: web.Application, *, drain: float, keepalive: float = IDLE) -> None:
        app.middlewares.insert(0, _begins)
        super().__init__(
            app,
            access_log=log,
            access_log_class=_AnswerListener,
            handler_cancellation=True,
            shutdown_timeout=drain,
            keepalive_timeout=keepalive,
        )
        self._drain = drain
        self._connections: ClientConnections | None = None

    @property
    def server(self) -> Any:
        """The protocol factory: our connections, each with aiohttp's protocol behind it."""
        behind = super().server
        if self._connections is None and behind is not None:
            kind = self.app.get(CONNECTION, HttpConnection)
            self._connections = ClientConnections(lambda: nameless(behind(), _Handler), self.app[LIMITS], kind)
        return self._connections

    async def shutdown(self) -> None:
        """Shut down like aiohttp: first idle connections, then running requests."""
        await super().shutdown()
        if self._connections is not None:
            await self._connections.drain(self._drain)


class _Handler(NamelessHandler):
    """aiohttp's protocol; requests that its parser rejects never reach the guard."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Count a malformed request."""
        connection = self.transport.get_protocol() if self.transport is not None else None
        if isinstance(connection, HttpConnection) and isinstance(exc, HttpProcessingError):
            connection.malformed()
        return super().handle_error(request, status, exc, message)


class _AnswerListener(AbstractAccessLogger):
    """An access logger by which aiohttp reports a written answer."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Notify the connection, unless aiohttp closes it now."""
        connection = request.transport.get_protocol() if request.transport is not None else None
        if isinstance(connection, HttpConnection) and response.keep_alive:
            connection.answered()


def _length(answer: web.Response) -> int:
    """Bytes of the body of an answer."""
    body = answer.body
    return (body.size or 0) if isinstance(body, Payload) else len(body or b"")


@web.middleware
async def _begins(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Notify the connection that the head of a request is complete, and of the length of the answer."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if isinstance(connection, HttpConnection):
        connection.begins()
    answer = await handler(request)
    if isinstance(connection, HttpConnection) and isinstance(answer, web.Response):
        principal = request.get(PRINCIPAL)
        connection.answers(principal.person if principal is not None else None, _length(answer))
    return answer
