"""Gauges that are set on each scrape of the metrics: views, questions, circuits, journal, notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from gateway.config import NoticeKind, Notices
from gateway.exchange.backend_protection import Circuits
from gateway.ports.approvals import Approvals
from gateway.stores.journal import Journal
from gateway.telemetry import Metrics, level
from gateway.views.registry import Views


def gauge_callback(
    metrics: Metrics, *, views: Views, approvals: Approvals, circuits: Circuits, journal: Journal, notices: Notices
) -> Callable[[], None]:
    """Return a callback that sets the gauges of `metrics` from the current state."""

    def look() -> None:
        level(metrics.views, _count((view.app,) for view in views.of(None)))
        level(metrics.questions, _count((one.question.app,) for one in approvals.open()))
        level(metrics.circuits, dict.fromkeys(circuits.opened(), 1.0))
        level(metrics.problems, _count((notice.kind.value,) for notice in notices.now()) | _none_of(notices))
        metrics.journal_bytes.set(journal.size)

    return look


def _count(labels: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    return {label: float(count) for label, count in Counter(labels).items()}


def _none_of(notices: Notices) -> dict[tuple[str, ...], float]:
    """Return 0 for each kind without a notice, so that its series always exists for alerts."""
    there = {notice.kind for notice in notices.now()}
    return {(kind.value,): 0.0 for kind in NoticeKind if kind not in there}
