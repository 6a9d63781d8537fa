"""Liveness and readiness of the gateway."""

from __future__ import annotations

from aiohttp import web


class Health:
    """`/healthz` answers while the process runs, `/readyz` from the start until it drains."""

    def __init__(self) -> None:
        self.ready = False

    def routes(self) -> list[web.RouteDef]:
        """Return the two routes."""
        return [web.get("/healthz", self._live), web.get("/readyz", self._ready)]

    async def _live(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok" if self.ready else "draining"}, status=200 if self.ready else 503)
