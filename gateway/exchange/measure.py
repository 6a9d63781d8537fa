"""What the metrics learn of a record when it is closed."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.model import Json
from gateway.telemetry import Metrics, status_class


def measure(
    metrics: Metrics, kind: str, fields: Mapping[str, Json], timing: Mapping[str, float], seconds: float
) -> None:
    """Count one record by its kind; `timing` is in milliseconds by step."""
    app = _word(fields, "app")
    status = fields.get("status")
    answered = status_class(status if isinstance(status, int) else 0)
    match kind:
        case "http":
            words = (_word(fields, "door"), _word(fields, "route"), _word(fields, "decision"))
            metrics.requests.labels(app, *words, answered).inc()
        case "tool":
            metrics.tool_calls.labels(app, answered).inc()
        case "approval":
            metrics.answers.labels(app, _word(fields, "decision")).inc()
            return
        case _:
            return
    metrics.refused(app, _word(fields, "door"), _word(fields, "reason") or None)
    metrics.request_seconds.labels(kind, app).observe(seconds)
    for step, milliseconds in timing.items():
        metrics.step_seconds.labels(kind, step).observe(milliseconds / 1000)


def _word(fields: Mapping[str, Json], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
