"""The gauges that each scrape of the metrics reads, the checks and facts of `/readyz`, and the drain at a stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client import Gauge

from gateway.config import Config, Notice, NoticeKind, Notices
from gateway.doors.admin import Health, ReadinessCheck, Stage
from gateway.exchange.backend_protection import Circuits
from gateway.exchange.drain import RunningCalls
from gateway.exchange.record import OnFailure
from gateway.mcp.server import McpMount
from gateway.mcp.upstreams.registry import Upstreams
from gateway.model import Json
from gateway.ports.approvals import Approvals
from gateway.stores.journal import Journal
from gateway.stores.sql import Database
from gateway.telemetry import Metrics, level
from gateway.views.registry import Views


class Countable(Protocol):
    """Something that can be counted."""

    @property
    def count(self) -> int: ...


class Cluster(Protocol):
    """This process as a node of several."""

    async def check_lease(self) -> None:
        """Raise OSError if the lease does not hold."""
        ...

    def problem(self) -> str | None:
        """Return in what other nodes differ."""
        ...

    def facts(self) -> Json:
        """Return this node and the others."""
        ...


def gauge_callback(
    metrics: Metrics,
    *,
    views: Views,
    approvals: Approvals,
    circuits: Circuits,
    journal: Journal,
    notices: Notices,
    counts: Mapping[Gauge, Countable],
) -> Callable[[], None]:
    """Return a callback that sets the gauges of `metrics` from the current state."""

    def set_gauges() -> None:
        level(metrics.views, _count((view.app,) for view in views.of(None)))
        level(metrics.questions, _count((one.question.app,) for one in approvals.own()))
        level(metrics.circuits, dict.fromkeys(circuits.list_open(), 1.0))
        level(metrics.problems, _count((notice.kind.value,) for notice in notices.now()) | _none_of(notices))
        metrics.journal_bytes.set(journal.size)
        for gauge, counted in counts.items():
            gauge.set(counted.count)

    return set_gauges


def _count(labels: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    return {label: float(count) for label, count in Counter(labels).items()}


def _none_of(notices: Notices) -> dict[tuple[str, ...], float]:
    """Return 0 for each kind without a notice, so that its series always exists for alerts."""
    there = {notice.kind for notice in notices.now()}
    return {(kind.value,): 0.0 for kind in NoticeKind if kind not in there}


def health_of(
    config: Config,
    *,
    database: Database,
    journal: Journal,
    notices: Notices,
    upstreams: Upstreams,
    calls: RunningCalls,
    needs_restart: Callable[[], Sequence[str]],
    packing: Callable[[], int],
    degraded: Callable[[], str | None],
    cluster: Cluster | None,
) -> Health:
    """Return the health of a gateway: all requests depend on its checks, and none on its facts.

    `needs_restart` returns the changed settings that wait for a restart,
    `packing` how many apps are still to be packed, `degraded` why the Redis of `stores.redis` cannot be used.
    `cluster` is None for a gateway of one process.
    """

    async def check_journal() -> None:
        if config.audit.on_failure != OnFailure.CONTINUE:  # otherwise the record may be missing
            journal.check()

    def facts() -> dict[str, Json]:
        problems: dict[str, Json] = dict(Counter(notice.kind.value for notice in notices.now()))
        states: dict[str, Json] = {name: state.value for name, (state, _) in upstreams.states().items()}
        return {
            "running_calls": calls.count,
            "configuration": problems,
            "broken_apps": [*dict.fromkeys(app for notice in notices.now() for app in _broken_apps(notice))],
            "needs_restart": [*needs_restart()],
            "apps_to_pack": packing(),
            "upstreams": states,
            **({"cluster": cluster.facts()} if cluster is not None else {}),
        }

    checks = {"database": ReadinessCheck(database.check), "journal": ReadinessCheck(check_journal)}
    optional = {"redis": degraded} if config.redis is not None else {}
    if cluster is not None:
        checks["lease"] = ReadinessCheck(cluster.check_lease)
        optional["nodes"] = cluster.problem
    return Health(checks, facts, optional)


def _broken_apps(notice: Notice) -> list[str]:
    """Return the apps that are not served because of what a notice is about."""
    apps = (notice.app, *notice.problem.apps) if notice.kind is NoticeKind.BROKEN else ()
    return [app for app in apps if app]


class GatewayDrain:
    """The stop of a gateway, step by step; `stops` end streams, polls and waits for persons, `faces` are its mounts.

    `announced` is called when the stop is announced.
    """

    def __init__(
        self,
        health: Health,
        calls: RunningCalls,
        stops: Sequence[Callable[[], None]],
        faces: Callable[[], Iterable[McpMount]],
        announced: Callable[[], None] = lambda: None,
    ) -> None:
        self._announced = announced
        self._health = health
        self._calls = calls
        self._stops = stops
        self._faces = faces

    def announce(self) -> None:
        """Report at `/readyz` that the gateway stops."""
        self._health.stage = Stage.DRAINING
        self._announced()

    @property
    def running(self) -> int:
        """The number of running calls."""
        return self._calls.count

    def begin(self) -> None:
        """End the long-lived streams, answer polls, and void open questions: their pages cannot be reached any more."""
        self.announce()
        self._calls.begin()
        for stop in self._stops:
            stop()
        for face in self._faces():
            face.drain()

    async def end(self, seconds: float) -> None:
        """Wait until no call runs; those left after `seconds` are answered with an error."""
        await self._calls.end(seconds)

    def cut(self) -> None:
        """Answer all running calls with an error now."""
        self._calls.cut()
