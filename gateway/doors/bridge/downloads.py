"""Files that an app offers a person on the console: an audit record of names, sizes, and the person's answer."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from aiohttp import web

from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import json_of, refused
from gateway.errors import STATUS, Reason, Refusal
from gateway.exchange.record import Recorder
from gateway.model import Door, Json, Principal
from gateway.ports.approvals import ApprovalState
from gateway.views.registry import Views

_MOST = 16
_LONGEST_NAME = 256
_LARGEST = 2**53


@dataclass(frozen=True, slots=True)
class DownloadOffer:
    """The console's question to the person: `files` of `view`, as name and bytes."""

    view: str
    files: tuple[tuple[str, int], ...]
    answered: bool


class DownloadDoor:
    """Records the offer and the answer, before the console saves anything."""

    def __init__(self, views: Views, recorder: Recorder) -> None:
        self._views = views
        self._recorder = recorder

    async def handle(self, request: web.Request) -> web.Response:
        """Handle `{view, files: [{name, size}], answered}`. Raises ValueError."""
        offer = _offer(await json_of(request))
        if offer is None:
            said = f"view: a text; files: 1 to {_MOST} of name and size; answered: true or false."
            return refused(400, "bad-request", said)
        try:
            await self._record(offer, request[PRINCIPAL])
        except Refusal as refusal:
            return refused(STATUS[refusal.reason], refusal.reason, refusal.detail)
        return web.json_response({"recorded": True}, headers={"cache-control": "no-store"})

    async def _record(self, offer: DownloadOffer, principal: Principal) -> None:
        view = self._views.find(offer.view, principal)
        if view is None:
            raise Refusal(Reason.VIEW_UNPROVEN, "This view is not open here. Open the app again.")
        record = self._recorder.start("download", self._views.caller_of(view, Door.BRIDGE), safe=not offer.answered)
        files: list[Json] = [{"name": name, "size": size} for name, size in offer.files]
        record.note(
            files=files, decision=ApprovalState.APPROVED.value if offer.answered else ApprovalState.DECLINED.value
        )
        if offer.answered:
            await record.open()
        reason = None if offer.answered else Reason.APPROVAL_DECLINED
        await record.close(status=200 if reason is None else STATUS[reason], reason=reason)


def _offer(body: object) -> DownloadOffer | None:
    """Return the offer in a body; None if it is invalid."""
    if not isinstance(body, dict):
        return None
    view, files, answered = body.get("view"), body.get("files"), body.get("answered")
    if not isinstance(view, str) or not isinstance(answered, bool) or not isinstance(files, list):
        return None
    read = tuple(file for given in files[: _MOST + 1] if (file := _file(given)) is not None)
    return DownloadOffer(view, read, answered) if len(read) == len(files) and 1 <= len(read) <= _MOST else None


def _unfit(name: str) -> bool:
    return any(unicodedata.category(char) in ("Cc", "Cs") for char in name)


def _file(given: object) -> tuple[str, int] | None:
    if not isinstance(given, dict):
        return None
    name, size = given.get("name"), given.get("size")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or _unfit(name):
        return None
    return (name, size) if type(size) is int and 0 <= size < _LARGEST else None
