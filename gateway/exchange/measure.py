"""What the metrics learn of a record when it is closed."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Counter, Histogram

from gateway.model import Json
from gateway.telemetry import Metrics, status_class


class Measure:
    """Counts records in `metrics`; what has the same labels is looked up once, since to do so costs more than to count.

    All labels are names of the configuration, or of this program, so that what is kept is bounded.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._requests: dict[tuple[str, str, str, str, str], Counter] = {}
        self._whole: dict[tuple[str, str], Histogram] = {}
        self._steps: dict[tuple[str, str], Histogram] = {}
        self._lines: dict[tuple[str, str], Counter] = {}

    def line(self, kind: str, phase: str) -> None:
        """A line was written."""
        counter = self._lines.get((kind, phase))
        if counter is None:
            counter = self._lines[kind, phase] = self._metrics.journal_lines.labels(kind, phase)
        counter.inc()

    def closed(self, kind: str, fields: Mapping[str, Json], timing: Mapping[str, float], seconds: float) -> None:
        """Count one record by its kind; `timing` is in milliseconds by step."""
        metrics, app = self._metrics, _word(fields, "app")
        status = fields.get("status")
        answered = status_class(status if isinstance(status, int) else 0)
        match kind:
            case "http":
                words = (_word(fields, "door"), _word(fields, "route"), _word(fields, "decision"))
                self._request(app, *words, answered).inc()
            case "tool":
                metrics.tool_calls.labels(app, answered).inc()
            case "approval":
                metrics.answers.labels(app, _word(fields, "decision")).inc()
                return
            case _:
                return
        metrics.refused(app, _word(fields, "door"), _word(fields, "reason") or None)
        whole = self._whole.get((kind, app))
        if whole is None:
            whole = self._whole[kind, app] = metrics.request_seconds.labels(kind, app)
        whole.observe(seconds)
        for step, milliseconds in timing.items():
            taken = self._steps.get((kind, step))
            if taken is None:
                taken = self._steps[kind, step] = metrics.step_seconds.labels(kind, step)
            taken.observe(milliseconds / 1000)

    def _request(self, app: str, door: str, route: str, decision: str, status: str) -> Counter:
        counter = self._requests.get((app, door, route, decision, status))
        if counter is None:
            counter = self._metrics.requests.labels(app, door, route, decision, status)
            self._requests[app, door, route, decision, status] = counter
        return counter


def _word(fields: Mapping[str, Json], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
