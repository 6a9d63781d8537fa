"""Refused callers: each is counted, and some are logged and recorded."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from gateway.doors.access import SCRAPED, SIGNED, Site
from gateway.doors.responses import RefusedResponse
from gateway.exchange.record import Recorder
from gateway.exchange.refusals import CALLER
from gateway.model import Door, Json, Principal
from gateway.telemetry import Metrics
from gateway.throttle import ThrottledLog
from gateway.traces import CLIENT

REFUSED: Final = web.RequestKey("refused", RefusedResponse)
"""The refusal of a caller that was sent otherwise than in the HTTP answer, as on a WebSocket."""

MALFORMED: Final = "malformed"
"""The reason recorded for callers that do not speak HTTP."""

CODES: Final = (
    *("bad-csrf", "bad-request", "bad-signature", "bad-ticket", "foreign-page", "http-version", "login-too-old"),
    *("invalid-client", "invalid-request", "invalid-scope", "invalid-target", "slow-down"),
    "unsupported-grant-type",
    *(MALFORMED, "no-login", "not-allowed", "not-logged-in", "other-person", "rate-limited", "too-many-requests"),
    *("too-many-streams", "transfer-coding", "unidentified", "unknown-host"),
)
"""Codes that refuse a caller. "Not found" and "busy" do not; refusals of an exchange have their own record."""

_SITES: Final = {
    Site.CONSOLE: Door.CONSOLE,
    Site.SANDBOX: Door.SANDBOX,
    Site.DEDICATED: Door.SANDBOX,
    Site.PLAIN: Door.PLAIN,
}

SHOWN: Final = 200
"""Characters of a target in the log and the record."""

log = logging.getLogger(__name__)


class RefusedCallers:
    """Counts refusals in `metrics`, and writes them to the log and the audit log, both rate-limited."""

    def __init__(self, metrics: Metrics, recorder: Recorder) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._log = ThrottledLog(log)

    async def note(
        self, request: web.Request, answer: web.StreamResponse | None, site: Site | None, by: Principal | None
    ) -> None:
        """Record the refusal in an answer, if there is one; `answer` is None after a cancellation.
        `site` is the gateway's site, None at an unknown host; `by` is the caller, if known.
        """
        refusal = answer if isinstance(answer, RefusedResponse) else request.get(REFUSED)
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
        await self._recorder.write_refusal(fields)

    def note_malformed(self, client: str | None) -> None:
        """Count a malformed request of this address: nothing of it was read, and aiohttp has logged why."""
        self._metrics.callers_refused.add(Door.UNKNOWN, MALFORMED)
        fields: dict[str, Json] = {"principal": None, "door": Door.UNKNOWN, "client": client, "status": 400}
        self._recorder.refusals.add(kind=CALLER, reason=MALFORMED, **fields)

    def flush(self) -> None:
        """Write pending log summaries, at shutdown."""
        self._log.flush()


def _door(request: web.Request, site: Site | None) -> Door:
    path = request.path
    if site is None:
        return Door.UNKNOWN
    if site is Site.APP:
        return Door.SITE
    if path == SIGNED:
        return Door.WEBHOOK
    if path == "/mcp" or path.startswith("/mcp/"):
        return Door.MCP
    if path == "/bridge" or path.startswith("/bridge/"):
        return Door.BRIDGE
    return Door.METRICS if path == SCRAPED and site is Site.PLAIN else _SITES[site]
