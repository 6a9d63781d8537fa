"""Authorization at the doors: one capability check with one refusal."""

from __future__ import annotations

from aiohttp import web

from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import refused


def lacking(request: web.Request, capability: str, app: str | None = None) -> web.Response | None:
    """Return the refusal of a caller without `capability` (for `app`), else None."""
    if request[PRINCIPAL].may(capability, app):
        return None
    return _refusal(capability if app is None else f"{capability}:{app}")


def lacking_any(request: web.Request, capability: str) -> web.Response | None:
    """Return the refusal of a caller without `capability` for all apps or any single one, else None."""
    held = request[PRINCIPAL].capabilities
    if capability in held or any(one.startswith(f"{capability}:") for one in held):
        return None
    return _refusal(capability)


def _refusal(named: str) -> web.Response:
    return refused(403, "not-allowed", f"This takes the capability `{named}`, which this caller does not have.")
