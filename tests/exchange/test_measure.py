"""Records are counted after their answers, and a reader of the metrics misses none."""

import asyncio
from collections.abc import Mapping

from prometheus_client import generate_latest

from gateway.exchange.record import Measure
from gateway.model import Json
from gateway.telemetry import Metrics

FIELDS: Mapping[str, Json] = {"app": "cart", "door": "mcp", "route": "r", "decision": "allow", "status": 200}
COUNTED = b'requests_total{app="cart",decision="allow",door="mcp",route="r",status="2xx"}'


async def test_records_are_counted_in_the_next_turn_of_the_loop() -> None:
    """Each once, also if the metrics are not read: they do not accumulate."""
    metrics = Metrics()
    measure = Measure(metrics)
    for _ in range(2):
        for _ in range(2):
            measure.count_entry("http", FIELDS, {}, 0.1)
        await asyncio.sleep(0)
    assert COUNTED + b" 4.0" in generate_latest(metrics.registry)


async def test_who_looks_before_that_misses_none() -> None:
    """And counts none twice later."""
    metrics = Metrics()
    Measure(metrics).count_entry("http", FIELDS, {}, 0.1)
    assert COUNTED + b" 1.0" in metrics.render()
    await asyncio.sleep(0)
    assert COUNTED + b" 1.0" in metrics.render()
