"""The `Server` field of every answer, without a version that would reveal known vulnerabilities."""

from __future__ import annotations

from typing import Final

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestHandler

NAME: Final = "webmcp-gateway"


async def name_server(_: web.Request, answer: web.StreamResponse) -> None:
    """Handle `on_response_prepare`: replace aiohttp's name and version, and Python's."""
    answer.headers[hdrs.SERVER] = NAME


class NamelessHandler(RequestHandler):
    """aiohttp's protocol, with the gateway's name in answers to requests that its parser rejects."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer as aiohttp does, without its name."""
        answer = super().handle_error(request, status, exc, message)
        answer.headers[hdrs.SERVER] = NAME
        return answer


def nameless(handler: RequestHandler, kind: type[NamelessHandler] = NamelessHandler) -> RequestHandler:
    """Make a connection's protocol hide aiohttp's name."""
    handler.__class__ = kind  # aiohttp offers no other place for a subclass
    return handler
