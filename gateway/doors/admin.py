"""The endpoints of operators: liveness, readiness, and metrics for a scraper that may read them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.doors.access import SCRAPED
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import fresh, name_server, refusal_response
from gateway.model import Json
from gateway.telemetry import CONTENT_TYPE, Metrics

FRESH: Final = 1.0
"""Seconds for which the result of a check counts: callers of /readyz need not be identified."""

WAIT: Final = 0.7
"""Seconds that an answer waits for a check; Kubernetes waits a second for a probe."""

SLOW: Final = 2.0
"""Seconds after which a check that has not ended counts as failed."""


class ReadinessCheck:
    """One thing that requests depend on; `run` raises `OSError` if they would be refused for lack of it."""

    def __init__(self, run: Callable[[], Awaitable[None]]) -> None:
        self._run = run
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0
        self._ended_at = -FRESH
        self._problem: str | None = None

    async def problem(self) -> str | None:
        """Return why it cannot be used, by a check that is at most a second old; None if it can."""
        now = time.monotonic()
        if self._task is None and now - self._ended_at >= FRESH:
            self._began = now
            self._task = asyncio.ensure_future(self._check())
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=WAIT)
        if self._task is not None and time.monotonic() - self._began > SLOW:
            return "does not answer"
        return self._problem

    def cancel(self) -> None:
        """End a check that runs."""
        if self._task is not None:
            self._task.cancel()

    async def _check(self) -> None:
        try:
            await self._run()
            self._problem = None
        except OSError as error:
            self._problem = str(error)
        finally:
            self._task, self._ended_at = None, time.monotonic()


class Stage(StrEnum):
    """The stage of the process."""

    STARTING = "starting"
    SERVING = "ok"
    DRAINING = "draining"


DEGRADED: Final = "degraded"
"""The status of a gateway that serves all requests, with less than is configured."""


class Health:
    """`/healthz` answers while the process runs; `/readyz` is 503 where requests would be refused.

    `checks` are named; `facts` are further members of the answer, which have no effect on its status. `optional`
    returns why something is missing without which requests are served, with less: `/readyz` is then `degraded`, 200.
    """

    def __init__(
        self,
        checks: Mapping[str, ReadinessCheck],
        facts: Callable[[], Mapping[str, Json]],
        optional: Mapping[str, Callable[[], str | None]] | None = None,
    ) -> None:
        self.stage = Stage.STARTING
        self._checks = checks
        self._facts = facts
        self._optional = optional or {}

    def routes(self) -> list[web.RouteDef]:
        """Return the two routes; others than processes of this machine see the status alone."""
        return [web.get("/healthz", self._live), web.get("/readyz", self._ready)]

    def close(self) -> None:
        """End the checks that run."""
        for check in self._checks.values():
            check.cancel()

    async def _live(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, request: web.Request) -> web.Response:
        return await self.report(detailed=_is_on_this_machine(request))

    async def report(self, *, detailed: bool) -> web.Response:
        """Return the answer of `/readyz`."""
        results = await asyncio.gather(*(check.problem() for check in self._checks.values()))
        problems = dict(zip(self._checks, results, strict=True))
        missing = {name: problem() for name, problem in self._optional.items()}
        status = self.stage.value
        if self.stage is Stage.SERVING and any(problem is not None for problem in results):
            status = "unavailable"
        elif self.stage is Stage.SERVING and any(problem is not None for problem in missing.values()):
            status = DEGRADED
        health: dict[str, Json] = {"status": status}
        if detailed:
            states = {name: _describe(problem, "failed") for name, problem in problems.items()}
            health["checks"] = states | {name: _describe(problem, DEGRADED) for name, problem in missing.items()}
            health.update(self._facts())
        answer = fresh(health)
        answer.set_status(200 if status in (Stage.SERVING.value, DEGRADED) else 503)
        return answer


def _describe(problem: str | None, status: str) -> Json:
    return {"status": "ok"} if problem is None else {"status": status, "detail": problem}


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
        return self.answer()

    def answer(self) -> web.Response:
        """Return the metrics."""
        headers = {"content-type": CONTENT_TYPE, "cache-control": "no-store"}
        return web.Response(body=self._metrics.render_all(), headers=headers)


def admin_application(health: Health, metrics: MetricsDoor, names: Callable[[], Collection[str]]) -> web.Application:
    """Return the application of the listener for operators, which authenticates no caller.

    It answers to IP addresses, `localhost` and `names`, so that no web page reaches it by a name of its own (DNS
    rebinding), and to no web page at all.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = _without_port(request.headers.get("host", "").lower())
        if host != "localhost" and host not in names() and not _is_address(host):
            detail = f"This listener does not answer as {host[:100]!r}: list the name in server.admin_hosts."
            return refusal_response(421, "unknown-host", detail)
        if "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none":
            return refusal_response(403, "foreign-page", "No web page may use this listener.")
        return await handler(request)

    async def ready(_: web.Request) -> web.Response:
        return await health.report(detailed=True)

    async def scraped(_: web.Request) -> web.Response:
        return metrics.answer()

    app = web.Application(middlewares=[guard], client_max_size=0)
    live, _ = health.routes()
    app.router.add_routes([live, web.get("/readyz", ready), web.get(SCRAPED, scraped)])
    app.on_response_prepare.append(name_server)
    return app


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_on_this_machine(request: web.Request) -> bool:
    """Return whether the caller uses loopback, under a loopback name, and not through a proxy."""
    host = request.url.host or ""
    if any(name in request.headers for name in FORWARDED):
        return False
    return _is_loopback(request.remote or "") and (host == "localhost" or _is_loopback(host))


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
