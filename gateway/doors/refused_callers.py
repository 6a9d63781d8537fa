"""Callers that a door refuses: each is counted, and some of them are logged and recorded."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from gateway.client_address import CLIENT
from gateway.doors.access import SCRAPED, SIGNED, Site
from gateway.doors.answers import Refused
from gateway.exchange.record import Recorder
from gateway.exchange.refusals import CALLER
from gateway.model import Json, Principal
from gateway.telemetry import Metrics
from gateway.throttle import ThrottledLog

REFUSED: Final = web.RequestKey("refused", Refused)
"""The refusal of a caller to whom it was said otherwise than by the answer itself, as on a WebSocket."""

CODES: Final = (
    *("bad-csrf", "bad-request", "bad-signature", "bad-ticket", "foreign-page", "http-version", "login-too-old"),
    *(
        "no-login",
        "not-allowed",
        "not-logged-in",
        "other-person",
        "rate-limited",
        "too-many-streams",
        "transfer-coding",
    ),
    *("unidentified", "unknown-host"),
)
"""Why doors refuse callers. What is not there, or busy, refuses nobody; a reason of an exchange has its own record."""

SHOWN: Final = 200
"""Characters of a target that the log and the record show."""

log = logging.getLogger(__name__)


class RefusedCallers:
    """Counts in `metrics`, writes lines of the log up to a limit, and of the record up to that of its refusals."""

    def __init__(self, metrics: Metrics, recorder: Recorder) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._log = ThrottledLog(log)

    async def note(
        self, request: web.Request, answer: web.StreamResponse | None, site: Site | None, by: Principal | None
    ) -> None:
        """Look at an answer, None where it was given up, at a `site` of ours, None at another host.

        `by` is the caller, where that is known.
        """
        refusal = answer if isinstance(answer, Refused) else request.get(REFUSED)
        if refusal is None or refusal.code not in CODES or (refusal.status == 400 and by is not None):
            return
        door = _door(request, site)
        self._metrics.callers_refused.add(door, refusal.code)
        target = f"{request.headers.get('host', '')[:SHOWN]}{request.raw_path.partition('?')[0]}"[:SHOWN]
        where = (request.method, target, CLIENT.get() or "unknown", refusal.detail)
        self._log.write(
            logging.WARNING, f"callers refused at {door} ({refusal.code})", "refused %r at %r from %s: %r", *where
        )
        fields: dict[str, Json] = {
            "kind": CALLER,
            "principal": by.id if by is not None else None,
            "door": door,
            "client": CLIENT.get(),
            "method": request.method,
            "url": target,
            "status": refusal.status,
            "reason": refusal.code,
            "detail": refusal.detail,
        }
        await self._recorder.refused(fields)

    def flush(self) -> None:
        """Write the sums that are due later: the gateway ends."""
        self._log.flush()


def _door(request: web.Request, site: Site | None) -> str:
    """A name of this program for where the caller came."""
    path = request.path
    if site is None:
        return "unknown"
    if site is Site.APP:
        return "site"
    if path == SIGNED:
        return "webhook"
    if path == "/mcp" or path.startswith("/mcp/"):
        return "mcp"
    if path == "/bridge" or path.startswith("/bridge/"):
        return "bridge"
    return "metrics" if path == SCRAPED and site is Site.PLAIN else site.value
