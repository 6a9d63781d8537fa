"""The metrics of the gateway for Prometheus; a label is a name of the configuration or of this program."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gateway.bounds import Area, Bound
from gateway.errors import Reason

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of `render`: the text format that every scraper reads."""

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
BOUNDS: Final = (
    Bound(
        Area.RECORD,
        "metric labels",
        "names from the configuration and the code only",
        "values from callers are counted as `other` or without a label",
        uncounted="the set is fixed",
    ),
)

_REASONS: Final = frozenset(Reason)

Combine: TypeAlias = Callable[[Iterable[float]], float]
"""Makes one value of those of several workers: `sum`, `min` or `max`."""

_PROCESS: Final[dict[str, Combine]] = {
    "webmcp_gateway_process_start_time_seconds": max,  # so that each start of a worker shows
    "webmcp_gateway_process_open_fds": max,  # of the fullest, since each has a limit of its own
    "webmcp_gateway_process_max_fds": min,
}


class Counts(Collector):
    """A counter for frequent events: it costs a tenth of the library's, and only one thread may update it."""

    def __init__(self, name: str, meaning: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self._definition = (name, meaning, None, labels)
        self._counts: dict[tuple[str, ...], int] = {}
        registry.register(self)

    def add(self, *labels: str) -> None:
        """Count one event with these labels."""
        self._counts[labels] = self._counts.get(labels, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metric family for a scrape."""
        family = CounterMetricFamily(*self._definition)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


class Durations(Collector):
    """A histogram of seconds that is as cheap as `Counts`, for the same reason."""

    def __init__(self, name: str, meaning: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self._definition = (name, meaning, None, None, labels)
        # The count of each bucket, then the sum of all seconds.
        self._observations = defaultdict[tuple[str, ...], list[float]](lambda: [0] * (len(_SECONDS) + 2))
        registry.register(self)

    def add(self, seconds: float, *labels: str) -> None:
        """Observe one duration."""
        observations = self._observations[labels]
        observations[bisect_left(_SECONDS, seconds)] += 1
        observations[-1] += seconds

    def add_all(self, label: str, parts: Mapping[str, float]) -> None:
        """Observe each of the `parts` under this label and its own name: cheaper than one by one."""
        for name, seconds in parts.items():
            observations = self._observations[label, name]
            observations[bisect_left(_SECONDS, seconds)] += 1
            observations[-1] += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the metric family for a scrape."""
        family = HistogramMetricFamily(*self._definition)
        bounds = [*map(str, _SECONDS), "+Inf"]
        for labels, (*counts, total) in self._observations.items():
            family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        yield family


class Metrics:
    """The metrics of one gateway, in a separate registry; passed by argument and updated by its components.

    No outside value may become a label: ids, paths, principals and names from pages would grow without end.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._looks: list[Callable[[], None]] = []
        self.combine: dict[str, Combine] = dict(_PROCESS)
        """The way in which values of a gauge at several workers become one, by name; those of counters are added."""
        self.render_all: Callable[[], bytes] = self.render
        """Returns what a scrape gets: with `serve --workers` the metrics of all workers together."""
        ProcessCollector(namespace="webmcp_gateway", registry=registry)

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"webmcp_gateway_{name}", meaning, labels, registry=registry)

        def gauge(name: str, meaning: str, *labels: str, of_all: Combine = sum) -> Gauge:
            self.combine[f"webmcp_gateway_{name}"] = of_all
            return Gauge(f"webmcp_gateway_{name}", meaning, labels, registry=registry)

        def counts(name: str, meaning: str, *labels: str) -> Counts:
            return Counts(f"webmcp_gateway_{name}", meaning, labels, registry)

        def seconds(name: str, meaning: str, *labels: str) -> Durations:
            return Durations(f"webmcp_gateway_{name}", meaning, labels, registry)

        self.requests = counts("requests", "Requests of apps.", "app", "door", "route", "decision", "status")
        self.tool_calls = counts("tool_calls", "Tool calls of models.", "app", "status")
        self.refusals = counter("refusals", "What the gateway answered itself.", "app", "door", "reason")
        self.callers_refused = counts("callers_refused", "Callers that a door refused.", "door", "reason")
        self.bounds_exceeded = counts("bounds_exceeded", "Times that a caller went beyond a bound.", "bound")
        self.request_seconds = seconds("request_seconds", "Whole requests and tool calls.", "kind", "app")
        self.step_seconds = seconds("step_seconds", "The steps of requests and tool calls.", "kind", "step")
        self.answers = counter("approval_answers", "Questions to persons, by outcome.", "app", "answer")
        self.questions = gauge("approvals_open", "Questions that wait for a person.", "app")
        self.views = gauge("views", "Live views.", "app")
        self.token_requests = counter("token_requests", "Requests for tokens.", "credential", "outcome")
        self.secrets_masked = counter("secrets_masked", "Answers that held an injected secret.", "credential")
        self.journal_lines = counts("journal_lines", "Lines of the record.", "kind", "phase")
        self.journal_failures = counter("journal_failures", "Lines of the record that were not written.", "consequence")
        self.journal_bytes = gauge("journal_bytes", "Size of the journal's file.")
        self.sink_lag_bytes = gauge("sink_lag_bytes", "What of the journal a sink does not have yet.", "sink")
        self.sink_failures = counter("sink_failures", "Times that a sink did not take lines; they are kept.", "sink")
        self.spans_dropped = counter("spans_dropped", "Spans that no collector took in time.")
        self.upstream_changes = counter("upstream_tool_changes", "Tools that are not what they were.", "upstream")
        self.upstreams = gauge("upstream_up", "Whether a connection to an upstream is open.", "upstream", of_all=min)
        self.problems = gauge(
            "configuration_problems", "Number of current problems in the configuration files.", "kind", of_all=max
        )
        self.reloads = counter("reloads", "Times that changed files were read.", "result")
        self.authentications = counts("authentications", "Checks of a caller's credential.", "method", "outcome")
        self.connections = gauge("connections", "Open connections of clients.")
        self.sockets = gauge("sockets", "Open WebSockets of host pages.")
        self.app_sockets = gauge("app_sockets", "Open WebSockets of apps.")
        self.socket_messages = counts("app_socket_messages", "Messages of WebSockets of apps.", "app", "direction")
        self.sessions = gauge("mcp_sessions", "Open MCP sessions with a handshake.")
        self.streams = gauge("streams", "Answers that are being streamed.")
        self.calls = gauge("calls_running", "Requests of apps and tool calls that run now.")
        self.circuits = gauge("circuit_open", "Backends that are left alone at present.", "app", "backend", of_all=max)
        self.stores = gauge("store_up", "Whether a shared store that is configured can be used.", "store", of_all=min)
        self.redis_seconds = seconds("redis_seconds", "Round trips to Redis, each with all commands that waited.")
        self.redis_failures = counts("redis_failures", "Failures of Redis, by what failed.", "failure")
        self.local_rates = counts("rates_local", "Calls whose rates were counted without Redis.")
        self.nodes = gauge("cluster_nodes", "Nodes of the gateway, as this one sees them.", "state", of_all=max)
        self.lease_age = gauge("cluster_lease_age_seconds", "Time since this node renewed its lease.", of_all=max)
        self.lapses = counter("cluster_lapses", "Times that the lease of this node ended before its end.")
        self.forward_seconds = seconds(
            "cluster_forward_seconds", "Requests to other nodes, until the answer begins.", "outcome"
        )
        self.views_moved = counter("cluster_views_moved", "Views that this node took over from another one.")
        self.sessions_adopted = counter("mcp_sessions_adopted", "Sessions that this process took over from another.")
        # A counter that first appears as 1 has not increased for Prometheus, and the alert on it would stay silent.
        for consequence in ("refused", "continued"):
            self.journal_failures.labels(consequence)

    def look(self, look: Callable[[], None]) -> None:
        """Call `look` before each scrape, to set gauges."""
        self._looks.append(look)

    def collect(self) -> list[Metric]:
        """Return all metrics, with the gauges as they are now."""
        for look in self._looks:
            look()
        return list(self.registry.collect())

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format (0.0.4)."""
        return text_of(self.collect())

    def count_refusal(self, app: str, door: str, reason: str) -> None:
        """Count an answer by the gateway itself; an unknown reason counts as `other`."""
        self.refusals.labels(app, door, reason if reason in _REASONS else "other").inc()


def text_of(families: Iterable[Metric]) -> bytes:
    """Return metrics in Prometheus' text format (0.0.4)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names need no check."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metric families."""
        return self._families


def level(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """Set a gauge to exactly these values by label."""
    gauge.clear()
    for labels, value in values.items():
        gauge.labels(*labels).set(value)


def status_class(status: int) -> str:
    """Return `2xx` for 204."""
    return f"{status // 100}xx" if 100 <= status <= 599 else "other"
