"""The metrics of several workers together: the sum at any of them, also after one was killed and started again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.stores import worker_metrics
from gateway.stores.worker_metrics import WorkerMetrics
from gateway.telemetry import Metrics


def worker(folder: Path, name: str) -> tuple[Metrics, WorkerMetrics]:
    """A worker that has just started."""
    metrics = Metrics()
    return metrics, WorkerMetrics(folder, name, metrics)


def value(text: bytes, sample: str) -> float:
    """The value of a sample of ours, with its labels."""
    (found,) = re.findall(rf"^webmcp_gateway_{re.escape(sample)} (\S+)$", text.decode(), re.MULTILINE)
    return float(found)


REQUESTS = 'requests_total{app="a",decision="allowed",door="site",route="0",status="200"}'
LABELS = ("a", "site", "0", "allowed", "200")


def test_any_worker_has_the_sum(tmp_path: Path) -> None:
    """Counters, histograms and amounts are added; what holds for all is the worst of them."""
    (one, first), (two, second) = worker(tmp_path, "worker-1"), worker(tmp_path, "worker-2")
    for metrics, count in ((one, 2), (two, 3)):
        for _ in range(count):
            metrics.requests.add(*LABELS)
            metrics.request_seconds.add(0.02, "http", "a")
            metrics.refusals.labels("a", "site", "no-route").inc()
        metrics.views.labels("a").set(count)
        metrics.stores.labels("redis").set(count - 2)
        metrics.nodes.labels("serving").set(2)
    first.write()
    second.write()
    for shared in (first, second):
        text = shared.render()
        assert value(text, REQUESTS) == 5
        assert value(text, 'request_seconds_bucket{app="a",kind="http",le="0.025"}') == 5
        assert value(text, 'request_seconds_bucket{app="a",kind="http",le="0.01"}') == 0
        assert value(text, 'refusals_total{app="a",door="site",reason="no-route"}') == 5
        assert value(text, 'views{app="a"}') == 5
        assert value(text, 'store_up{store="redis"}') == 0
        assert value(text, 'cluster_nodes{state="serving"}') == 2
        assert value(text, "process_resident_memory_bytes") > 2 * 10_000_000
        assert value(text, "process_open_fds") < value(text, "process_max_fds")
        assert text.count(b"# TYPE webmcp_gateway_requests_total counter") == 1


def test_counters_go_on_after_a_kill(tmp_path: Path) -> None:
    """What was scraped was written before: no counter decreases, and a gauge is that of the new process."""
    (one, first), (_, second) = worker(tmp_path, "worker-1"), worker(tmp_path, "worker-2")
    for _ in range(4):
        one.requests.add(*LABELS)
        one.reloads.labels("done").inc()
    one.views.labels("a").set(4)
    scraped = first.render()
    again, first = worker(tmp_path, "worker-1")  # as after a kill: nothing more was written
    assert value(second.render(), REQUESTS) == value(scraped, REQUESTS) == 4
    again.requests.add(*LABELS)
    again.views.labels("a").set(1)
    for text in (first.render(), second.render()):
        assert value(text, REQUESTS) == 5
        assert value(text, 'reloads_total{result="done"}') == 4
        assert value(text, 'reloads_created{result="done"}') == value(scraped, 'reloads_created{result="done"}')
        assert value(text, 'views{app="a"}') == 1


def test_gauges_of_a_worker_that_is_gone_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counters stay; a file that cannot be read is left out."""
    (one, first), (_, second) = worker(tmp_path, "worker-1"), worker(tmp_path, "worker-2")
    one.requests.add(*LABELS)
    one.views.labels("a").set(7)
    first.write()
    (tmp_path / "worker-3").write_bytes(b"half a file")
    assert value(second.render(), 'views{app="a"}') == 7
    monkeypatch.setattr(worker_metrics, "GONE", -1.0)
    text = second.render()
    assert value(text, REQUESTS) == 1
    assert b"views{" not in text
