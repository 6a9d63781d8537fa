"""Updates the metrics from a record when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway.model import Json
from gateway.telemetry import Metrics, status_class


class Measure:
    """Counts records in `metrics`, after their answers.

    All labels are names of the configuration or of this program, so that their number is bounded.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._closed: list[tuple[str, Mapping[str, Json], Mapping[str, float], float]] = []
        metrics.look(self._count)

    def line(self, kind: str, phase: str) -> None:
        """Count one line that was written."""
        self._metrics.journal_lines.add(kind, phase)

    def closed(self, kind: str, fields: Mapping[str, Json], timing: Mapping[str, float], seconds: float) -> None:
        """Count one record by its kind, in the next iteration of the event loop; `timing` is in seconds by step."""
        if not self._closed:
            asyncio.get_running_loop().call_soon(self._count)
        self._closed.append((kind, fields, timing, seconds))

    def _count(self) -> None:
        closed, self._closed = self._closed, []
        for record in closed:
            self._count_one(*record)

    def _count_one(self, kind: str, fields: Mapping[str, Json], timing: Mapping[str, float], seconds: float) -> None:
        metrics, app, door = self._metrics, _word(fields, "app"), _word(fields, "door")
        status = fields.get("status")
        answered = status_class(status if isinstance(status, int) else 0)
        match kind:
            case "http":
                metrics.requests.add(app, door, _word(fields, "route"), _word(fields, "decision"), answered)
                masked = fields.get("masked")
                for name in masked if isinstance(masked, list) else ():
                    metrics.secrets_masked.labels(name).inc()
            case "tool":
                metrics.tool_calls.add(app, answered)
            case "approval":
                metrics.answers.labels(app, _word(fields, "decision")).inc()
                return
            case _:
                return
        if reason := _word(fields, "reason"):
            metrics.refused(app, door, reason)
        metrics.request_seconds.add(seconds, kind, app)
        metrics.step_seconds.add_all(kind, timing)


def _word(fields: Mapping[str, Json], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
