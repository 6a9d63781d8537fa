"""The rights of a caller at a door: the capability that a route needs, and the approvals and records it may see."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from urllib.parse import unquote

from aiohttp import web

from gateway.callers.entitlements import Admits, admit_all
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import refusal_response
from gateway.model import AuditRecord, Json, Principal, person_of
from gateway.stores.lines import NOTE, Line


def refuse_without(request: web.Request, capability: str, app: str | None = None) -> web.Response | None:
    """Return the refusal of a caller without `capability` (for `app`), else None."""
    if request[PRINCIPAL].may(capability, app):
        return None
    return _refusal(capability if app is None else f"{capability}:{app}")


def lacking_any(request: web.Request, capability: str) -> web.Response | None:
    """Return the refusal of a caller without `capability` for all apps or any single one, else None."""
    capabilities = request[PRINCIPAL].capabilities
    if capability in capabilities or any(one.startswith(f"{capability}:") for one in capabilities):
        return None
    return _refusal(capability)


def _refusal(names: str) -> web.Response:
    return refusal_response(
        403, "not-allowed", f"This takes the capability `{names}`, which this caller does not have."
    )


KNOWN = 4096
"""Records in progress that one stream remembers."""


def is_own(principal: Principal, owner: str) -> bool:
    """Return whether the data of the principal with the id `owner` belongs to this one.
    A person in their own browser owns the data of all their clients; a client with a token only its own.
    """
    if not principal.session:
        return not principal.shared and owner == principal.id
    return person_of(owner) == principal.person


def name_in(owner: str) -> str:
    """Return the displayed name of the principal with this id: its subject, or for a shared one its client."""
    _, client, subject = (*owner.split("|", 2), "", "")[:3]
    return subject or f"{unquote(client)} (shared)"


def sees_view(principal: Principal, owner: Principal, app: str, admits: Admits = admit_all) -> bool:
    """Return whether a live view is listed: the caller's own, of apps that it may use, or all with `admin`."""
    return principal.may("admin") or (is_own(principal, owner.id) and admits(principal, app))


def sees_record(principal: Principal, fields: Mapping[str, Json], admits: Admits = admit_all) -> bool:
    """Return whether a record is shown: the caller's own, of apps that it may use, or all with `audit:read`."""
    if principal.may("audit:read"):
        return True
    return is_own(principal, str(fields.get("principal", ""))) and admits(principal, str(fields.get("app", "")))


class Lines:
    """Filters the audit records for a principal: an outcome belongs to its intent, which names the principal."""

    def __init__(self, principal: Principal, admits: Admits = admit_all) -> None:
        self._principal = principal
        self._admits = admits
        self._own = OrderedDict[str, None]()

    def sees(self, line: Line) -> bool:
        """Return whether the line is shown; the journal's own notes are not. Call it in the order of the lines."""
        if line.record.phase == NOTE:
            return False
        if self._principal.may("audit:read"):
            return True
        record: AuditRecord = line.record
        if "principal" in record.fields:
            if not sees_record(self._principal, record.fields, self._admits):
                return False
            self._own[record.id] = None
            while len(self._own) > KNOWN:
                self._own.popitem(last=False)
            return True
        return record.id in self._own
