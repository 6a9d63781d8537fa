"""The door of MCP clients: `/mcp`, and `/mcp/<name>` for each app and upstream as a separate server."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from gateway.callers.entitlements import Admits, admit_all
from gateway.doors.authorization import refuse_without
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import no_endpoint, refusal_response
from gateway.mcp.server import McpMount


class Mounts(Protocol):
    """Mounts by name, read for each request."""

    def get(self, name: str, /) -> McpMount | None: ...


def routes(everything: McpMount, *mounts: Mounts, admits: Admits = admit_all) -> list[web.RouteDef]:
    """Return the routes of this door; `everything` serves `/mcp`, the others are mounts of apps and upstreams.

    A mount does not exist for callers that it does not admit, by `admits`.
    """

    async def all_apps(request: web.Request) -> web.StreamResponse:
        return refuse_without(request, "mcp") or await everything.handle(request)

    async def one(request: web.Request) -> web.StreamResponse:
        candidates = (mount.get(request.match_info["app"]) for mount in mounts)
        face = next((face for face in candidates if face is not None), None)
        if face is None or not admits(request[PRINCIPAL], request.match_info["app"]):
            return refusal_response(
                404, "unknown-app", f"There is no app or upstream {request.match_info['app'][:40]!r} here."
            )
        return refuse_without(request, "mcp") or await face.handle(request)

    return [
        web.route("*", "/mcp", all_apps),
        web.route("*", "/mcp/{app}", one),
        web.route("*", "/mcp/{rest:.*}", _unknown_mount),
    ]


async def _unknown_mount(request: web.Request) -> web.StreamResponse:
    return no_endpoint(request)
