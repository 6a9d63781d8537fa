"""The door of MCP clients: `/mcp`, and `/mcp/<app>` for each app as a server of its own."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from gateway.doors.allowed import lacking
from gateway.doors.answers import refused
from gateway.mcp.server import Face


def routes(everything: Face, faces: Mapping[str, Face]) -> list[web.RouteDef]:
    """The routes of this door; `everything` answers `/mcp`, `faces` are by app, and read for each request."""

    async def all_apps(request: web.Request) -> web.StreamResponse:
        return lacking(request, "mcp") or await everything.handle(request)

    async def one(request: web.Request) -> web.StreamResponse:
        face = faces.get(request.match_info["app"])
        if face is None:
            return refused(404, "unknown-app", "There is no such app here.")
        return lacking(request, "mcp") or await face.handle(request)

    return [web.route("*", "/mcp", all_apps), web.route("*", "/mcp/{app}", one)]
