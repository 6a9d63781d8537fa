"""The endpoints of operators: liveness, readiness, and metrics for a scraper that may read them."""

from __future__ import annotations

from ipaddress import ip_address

from aiohttp import web

from gateway.doors.access import SCRAPED
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import refusal_response
from gateway.telemetry import CONTENT_TYPE, Metrics


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


FORWARDED = ("forwarded", "x-forwarded-for", "via", "x-real-ip")
"""Fields by which a proxy reveals that the caller is elsewhere."""


class MetricsDoor:
    """The route `/metrics` of the plain host."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def routes(self) -> list[web.RouteDef]:
        """Return the one route."""
        return [web.get(SCRAPED, self._handle)]

    async def _handle(self, request: web.Request) -> web.Response:
        principal = request.get(PRINCIPAL)
        may = principal is not None and (principal.may("audit:read") or principal.may("admin"))
        if not may and not _is_on_this_machine(request):
            detail = "Metrics are for this machine, and for callers with the capability `audit:read` or `admin`."
            return refusal_response(403, "not-allowed", detail)
        headers = {"content-type": CONTENT_TYPE, "cache-control": "no-store"}
        return web.Response(body=self._metrics.render(), headers=headers)


def _is_on_this_machine(request: web.Request) -> bool:
    """Whether the caller uses loopback, under a loopback name, and not through a proxy."""
    host = request.url.host or ""
    if any(name in request.headers for name in FORWARDED):
        return False
    return _is_loopback(request.remote or "") and (host == "localhost" or _is_loopback(host))


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
