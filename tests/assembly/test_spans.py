"""Spans are queued for their collector within bounds."""

from __future__ import annotations

import pytest

from gateway.assembly import spans
from gateway.assembly.otlp import Collector
from gateway.assembly.spans import Spans
from gateway.backends.connect import Connections
from gateway.model import Secret
from gateway.policy import parse_network
from gateway.telemetry import Metrics
from tests.world import listen


@pytest.mark.bound("spans queued for the trace collector")
async def test_spans_that_nobody_takes_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spans in the queue are kept until the collector is back."""
    monkeypatch.setattr(spans, "WAITING", 3)
    metrics = Metrics()
    with listen() as nobody:
        async with Connections() as connections:
            collector = Collector(
                f"http://127.0.0.1:{nobody.getsockname()[1]}",
                lambda: Secret(""),
                parse_network(["private"]),
                connections,
            )
            queue = Spans(collector, metrics)
            tracer = queue.provider().get_tracer("test")
            for number in range(5):
                tracer.start_span(f"span-{number}").end()
            with pytest.raises(OSError, match="cannot be reached"):
                await queue._send()
            assert [span.name for span in queue._waiting] == ["span-0", "span-1", "span-2"]
    assert metrics.registry.get_sample_value("webmcp_gateway_spans_dropped_total") == 2
