"""Shared timeouts fire in order, unless cancelled."""

import asyncio

from gateway.eventloop.shared_timeouts import SharedTimeouts


async def test_alarms_ring_in_the_order_in_which_they_were_set() -> None:
    """A cancelled one does not fire, and one that was set later still does."""
    alarms, rung, over = SharedTimeouts(0.01), [], asyncio.Event()
    alarms.set(lambda: rung.append("first"))
    cancelled = alarms.set(lambda: rung.append("cancelled"))
    alarms.set(lambda: alarms.set(over.set))
    alarms.cancel(cancelled)
    alarms.set(lambda: rung.append("last"))
    await over.wait()
    assert rung == ["first", "last"]


async def test_an_alarm_that_rings_may_cancel_the_next_one() -> None:
    """A cancelled one does not fire, although both are due in the same moment."""
    alarms, rung, over = SharedTimeouts(0.01), [], asyncio.Event()
    keys: list[int] = []
    alarms.set(lambda: alarms.cancel(keys[0]))
    keys.append(alarms.set(lambda: rung.append("cancelled")))
    alarms.set(over.set)
    await over.wait()
    assert rung == []


async def test_none_rings_after_the_end() -> None:
    """Timeouts may still be cancelled after the close."""
    alarms, rung = SharedTimeouts(0.0), []
    key = alarms.set(lambda: rung.append("closed"))
    alarms.close()
    alarms.cancel(key)
    other, over = SharedTimeouts(0.001), asyncio.Event()
    other.set(over.set)
    await over.wait()
    assert rung == []
