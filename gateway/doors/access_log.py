"""The access log: one JSON object for each request, on standard error, without secrets."""

from __future__ import annotations

import hashlib
import logging
import time
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from gateway.jsontext.writing import plain_json
from gateway.model import Json, Principal
from gateway.traces import CLIENT, SEEN, RequestFacts, read_trace

log: Final = logging.getLogger("gateway.access")
"""The logger; the log's limit of lines does not apply to it."""

ACCESS: Final = web.RequestKey("access", RequestFacts)
"""The known facts about a request that is logged."""

LONGEST_PATH: Final = 2048


def begin() -> RequestFacts | None:
    """Return the object that is filled while the current task serves a request; None if nothing is logged."""
    if not log.isEnabledFor(logging.INFO):
        return None
    seen = RequestFacts(client=CLIENT.get(), since=time.perf_counter())
    SEEN.set(seen)
    return seen


def write(
    seen: RequestFacts,
    method: str,
    target: str,
    host: str,
    status: int,
    size: int,
    principal: Principal | None,
    trace: str | None,
) -> None:
    """Write the line of a request. `target` is cut at its query; `trace` is its header `traceparent`."""
    path, mask = target.partition("?")[0].partition("#")[0], seen.mask()
    came = read_trace(trace, None) if seen.trace is None and trace else None
    line: dict[str, Json] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "logger": "access",
        "method": method[:32],
        "host": host[:256],
        "path": (path if mask is None else mask(path))[:LONGEST_PATH],
        "status": status,
        "bytes": size,
        "seconds": round(time.perf_counter() - seen.since, 6),
        "client": seen.client,
        "app": seen.app,
        "principal": hashlib.sha256(principal.id.encode()).hexdigest()[:16] if principal is not None else None,
        "trace": seen.trace or (came.id if came is not None else None),
    }
    log.info("%s", plain_json(line))
