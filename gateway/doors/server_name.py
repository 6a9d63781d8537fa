"""The `Server` field of every answer: it names no version, of which an attacker could look up the faults."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestHandler

NAME: Final = "webmcp-gateway"


async def name_server(_: web.Request, answer: web.StreamResponse) -> None:
    """Handle `on_response_prepare`: aiohttp has written its own name and version, and Python's."""
    answer.headers[hdrs.SERVER] = NAME


class NamelessHandler(RequestHandler):
    """The protocol of a connection that answers what its parser refuses, which never reaches an application."""

    __slots__ = ()

    def handle_error(self, *given: Any, **named: Any) -> web.StreamResponse:
        """Answer as aiohttp does, without its name."""
        answer = super().handle_error(*given, **named)
        answer.headers[hdrs.SERVER] = NAME
        return answer


def nameless(handler: RequestHandler) -> RequestHandler:
    """Make the protocol that aiohttp made for a connection one that does not name it."""
    handler.__class__ = NamelessHandler  # aiohttp has no other place for a class of ours
    return handler
