"""Slow clients that stop in the middle of a request: they must not block others, and must time out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from gateway.backends.connect import Connections
from gateway.cli.attack.raw import RawTarget, Wire, exchanged, held, opened
from gateway.cli.attack.sessions import Outcome

CLIENTS: Final = 20
"""Connections at once: enough to notice, too few to harm."""

_HEALTHY: Final = {
    "raw": "@start@ HTTP/1.1\r\nhost: @host@\r\n@fields@content-length: @length@\r\n\r\n@body@",
    "expect": {"answered": 1},
}
_HALVES: Final = {
    "head": "@start@ HTTP/1.1\r\nhost: @host@\r\n@fields@x-a",
    "body": "@start@ HTTP/1.1\r\nhost: @host@\r\n@fields@content-length: 1000\r\n\r\n{",
    "chunk": "@start@ HTTP/1.1\r\nhost: @host@\r\n@fields@transfer-encoding: chunked\r\n\r\nff\r\n{",
}


async def slow(connections: Connections, place: RawTarget, patience: float, wait: float) -> AsyncIterator[Outcome]:
    """Check that others are answered meanwhile; and within `patience` seconds (0: skip) each half request is closed."""
    for name, half in _HALVES.items():
        wires = [await opened(connections, place.url) for _ in range(CLIENTS)]
        try:
            for wire in wires:
                wire.transport.write(place.written(half))
            healthy = await exchanged(connections, place, _HEALTHY, wait)
            why = f"{CLIENTS} clients that stop in the middle of a {name} hold nobody up"
            yield f"slow-{name}", why, next(iter(healthy.statuses), 0), held(_HEALTHY["expect"], healthy)
            if patience:
                given_up = await asyncio.gather(*(_given_up(wire, patience) for wire in wires))
                yield f"endless-{name}", f"a {name} that is never whole is given up", 0, all(given_up)
        finally:
            for wire in wires:
                wire.transport.abort()


async def _given_up(wire: Wire, seconds: float) -> bool:
    """Return whether it was answered with a refusal, or closed."""
    await wire.silence(1, seconds)
    return wire.closed or held("refused", wire)
