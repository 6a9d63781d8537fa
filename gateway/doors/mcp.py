"""The door of MCP clients: `/mcp`, and `/mcp/<app>` for each app as a server of its own."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from gateway.mcp.server import Face


def routes(everything: Face, faces: Mapping[str, Face]) -> list[web.RouteDef]:
    """The routes of this door; `everything` answers `/mcp`, `faces` are by app."""
    mounted = [("/mcp", everything), *((f"/mcp/{app}", face) for app, face in faces.items())]
    return [web.route("*", path, face.handle) for path, face in mounted]
