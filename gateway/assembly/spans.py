"""Exports spans to a collector in batches from a bounded queue; those that do not fit are dropped and counted."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from gateway import __version__
from gateway.assembly.otlp import Collector, otlp_value
from gateway.bounds import Area, Bound
from gateway.model import Json
from gateway.telemetry import Metrics

EVERY: Final = 2.0
BATCH: Final = 512
WAITING: Final = 8192
"""Spans that wait for the collector; traces may be incomplete, so further ones are dropped."""

BOUNDS: Final = (
    Bound(
        Area.RECORD,
        "spans queued for the trace collector",
        f"{WAITING:,}",
        "further spans are dropped and counted in `webmcp_gateway_spans_dropped_total`",
        uncounted="a separate metric counts them",
    ),
)

log = logging.getLogger(__name__)


class Spans(SpanProcessor):
    """Queues ended spans and sends them to `collector`."""

    def __init__(self, collector: Collector, metrics: Metrics) -> None:
        self._collector = collector
        self._metrics = metrics
        self._waiting: deque[ReadableSpan] = deque()

    def provider(self) -> TracerProvider:
        """Return a provider of such spans; `OTEL_TRACES_SAMPLER` and `OTEL_RESOURCE_ATTRIBUTES` apply as usual."""
        provider = TracerProvider(resource=Resource.create(RESOURCE), shutdown_on_exit=False)
        provider.add_span_processor(self)
        return provider

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing: only ended spans are exported."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the span until it is sent."""
        if not span.context.trace_flags.sampled:
            return
        if len(self._waiting) >= WAITING:
            self._metrics.spans_dropped.inc()
            return
        self._waiting.append(span)

    async def run(self) -> None:
        """Send the queue every two seconds, until cancelled; then once more."""
        failing = False
        try:
            while True:
                await asyncio.sleep(EVERY)
                try:
                    await self._send()
                    failing = False
                except OSError as error:
                    if not failing:
                        log.warning("the collector does not accept traces: %s", error)
                    failing = True
        finally:
            try:
                async with asyncio.timeout(EVERY):
                    await self._send()
            except (OSError, TimeoutError) as error:
                log.warning("the collector did not accept the last traces: %s", error)

    async def _send(self) -> None:
        while self._waiting:
            batch = [self._waiting[number] for number in range(min(BATCH, len(self._waiting)))]
            spans: list[Json] = [_span_json(span) for span in batch]
            scope: Json = {"scope": {"name": "webmcp-gateway", "version": __version__}, "spans": spans}
            resource = batch[0].resource.attributes
            resource_spans: Json = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}
            await self._collector.send("traces", {"resourceSpans": [resource_spans]})
            for _ in batch:
                self._waiting.popleft()


RESOURCE: Final = {"service.name": "webmcp-gateway", "service.version": __version__}


def _span_json(span: ReadableSpan) -> dict[str, Json]:
    place, parent = span.context, span.parent
    attributes: dict[str, Json] = {
        "traceId": otel.format_trace_id(place.trace_id),
        "spanId": otel.format_span_id(place.span_id),
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes or {}),
        "status": {"code": 2 if span.status.status_code is otel.StatusCode.ERROR else 0},
    }
    return {**attributes, "parentSpanId": otel.format_span_id(parent.span_id)} if parent is not None else attributes


def _attributes(values: object) -> list[Json]:
    items: Sequence[tuple[str, object]] = list(values.items())  # type: ignore[attr-defined]  # a mapping of the SDK's
    return [
        {"key": name, "value": otlp_value(value)}
        for name, value in items
        if isinstance(value, str | int | float | bool)
    ]
