"""Requests in flight: each person has a share of them at all doors together, and as many standing streams at `/mcp`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from gateway.bounds import Area, Bound
from gateway.doors.responses import RefusedResponse, refused
from gateway.model import Principal
from gateway.shares import Shares

EACH: Final = 1000
"""Requests of one person where nothing is said."""

IN_ALL: Final = 10_000
"""Those of all: each has a connection of its own."""

CODE: Final = "too-many-requests"
"""Why a request too many is refused."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "requests in flight",
        f"`server.requests_each` ({EACH:,}) per person, `server.connections` in all, at all doors together; a small "
        "share each once half of that is taken",
        "429; at `/mcp` with a JSON-RPC error",
    ),
    Bound(
        Area.MCP,
        "standing streams: of sessions, and of changes",
        f"`server.requests_each` ({EACH:,}) per person, `server.connections` in all, of all mounts together; a small "
        "share each once half of that is taken",
        "429 with a JSON-RPC error",
    ),
)

_REQUESTS, _STANDING = BOUNDS

_SERVER_ERROR: Final = -32000
_LISTEN: Final = "subscriptions/listen"


class InFlight:
    """The places of all persons, for requests that end by themselves and for streams that do not."""

    def __init__(self, each: int = EACH, in_all: int = IN_ALL) -> None:
        self.requests = Shares(each, in_all)
        self._streams = Shares(each, in_all)
        self._each = each

    @contextmanager
    def place(self, request: web.Request, principal: Principal | None) -> Iterator[RefusedResponse | None]:
        """A place for the block; what to answer instead where there is none.

        Who is not known has nothing here that lasts, and the connections of one address are bounded.
        """
        if principal is None:
            yield None
            return
        stands = _stands(request)
        with (self._streams if stands else self.requests).place(principal.person) as free:
            if free:
                yield None
                return
            (_STANDING if stands else _REQUESTS).exceeded(principal.id)
            yield self._refusal(request, "standing streams" if stands else "requests in flight")

    def _refusal(self, request: web.Request, of: str) -> RefusedResponse:
        detail = (
            f"This caller has as many {of} as `server.requests_each` says ({self._each}), or as others leave room for. "
            "Wait until some have ended."
        )
        headers = {"retry-after": "1"}
        if not _is_mcp(request):
            return refused(429, CODE, detail, headers)
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": _SERVER_ERROR, "message": detail}}
        body = json.dumps(error).encode()
        return RefusedResponse(CODE, detail, status=429, body=body, content_type="application/json", headers=headers)


def _is_mcp(request: web.Request) -> bool:
    return request.path == "/mcp" or request.path.startswith("/mcp/")


def _stands(request: web.Request) -> bool:
    """Whether an MCP client waits for what may come, for as long as it likes."""
    listens = request.method == "POST" and request.headers.get("mcp-method") == _LISTEN
    return _is_mcp(request) and (request.method == "GET" or listens)
