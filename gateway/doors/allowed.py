"""What a principal must be allowed for what a door does: each door asks here, and refuses in the same words."""

from __future__ import annotations

from aiohttp import web

from gateway.doors.answers import refused
from gateway.doors.guard import PRINCIPAL


def lacking(request: web.Request, capability: str, app: str | None = None) -> web.Response | None:
    """The refusal of a caller without `capability`, or that of `app`; None for one who has it."""
    if request[PRINCIPAL].may(capability, app):
        return None
    named = capability if app is None else f"{capability}:{app}"
    return refused(403, "not-allowed", f"This takes the capability `{named}`, which this caller does not have.")
