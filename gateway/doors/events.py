"""The event stream of the console's page: new audit records, and current approvals, views, problems and apps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from gateway.bounds import Area, Bound, Shares
from gateway.callers.entitlements import Admits, admit_all
from gateway.config import Notice, NoticeKind, Notices
from gateway.doors.approvals import ApprovalDoor
from gateway.doors.authorization import Lines
from gateway.doors.guard import PRINCIPAL
from gateway.doors.live_views import EVERY, ViewsDoor
from gateway.doors.responses import refusal_response
from gateway.event_stream import UNBUFFERED
from gateway.jsontext.writing import plain_json
from gateway.model import Json, Principal
from gateway.ports.approvals import Approvals, Grants
from gateway.stores.journal import FOLLOWER_LINES, Follower, Journal
from gateway.views.registry import Views

HEARTBEAT = 15.0
"""Seconds between two heartbeats."""

MOMENT = 0.05
"""Seconds for which records are batched: each write wakes the page, which also carries a model's calls."""

HISTORY = 200
"""Audit records that a new page receives."""


EACH: Final = 64
"""Event streams of one person."""

IN_ALL: Final = 2048
"""Event streams of all persons."""

BOUNDS: Final = (
    Bound(
        Area.BRIDGE,
        "event streams of the console",
        f"{EACH} per person, {IN_ALL:,} in all; {FOLLOWER_LINES:,} buffered record lines per stream",
        "429; a slow stream is closed, and the page reconnects",
    ),
)

(_STREAMS,) = BOUNDS


class Events:
    """The event streams of all open console pages (WHATWG HTML, server-sent events)."""

    def __init__(
        self,
        journal: Journal,
        approvals: Approvals,
        grants: Grants,
        door: ApprovalDoor,
        views: Views,
        views_door: ViewsDoor,
        notices: Notices,
        apps: Callable[[], list[Json]],
        admits: Admits = admit_all,
    ) -> None:
        self._apps = apps
        self._admits = admits
        self._journal = journal
        self._approvals = approvals
        self._grants = grants
        self._door = door
        self._views = views
        self._views_door = views_door
        self._notices = notices
        self._open: set[_Changes] = set()
        self._places = Shares(EACH, IN_ALL)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one stream until the page or the gateway closes it. A slow page is disconnected, and reconnects."""
        with self._places.place(request[PRINCIPAL].person) as free:
            if not free:
                _STREAMS.report(request[PRINCIPAL].id)
                detail = f"{EACH} event streams of one person may be open, and {IN_ALL} of all. Close one of them."
                return refusal_response(429, "too-many-streams", detail, {"retry-after": "5"})
            return await self._follow(request)

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"content-type": "text/event-stream", **UNBUFFERED})
        principal = request[PRINCIPAL]
        changes = _Changes(principal, Lines(principal, self._admits))
        stops = (
            self._approvals.watch(lambda: changes.mark("approvals")),
            self._grants.watch(lambda: changes.mark("grants")),
            self._views.watch(lambda _: changes.mark("views")),
            self._notices.watch(lambda: changes.mark("problems")),
        )
        self._open.add(changes)  # before the page knows that it follows, and reads its state
        try:
            await stream.prepare(request)
            with self._journal.subscribe() as lines:
                for line in self._journal.last(HISTORY):
                    if changes.lines.sees(line):
                        await stream.write(_event("record", line.text))
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(_tell_lines(stream, lines, changes))
                    await self._tell_changes(stream, changes)
                    lines.end()
        except* ConnectionError:
            pass  # the page disconnected
        finally:
            self._open.discard(changes)
            for stop in stops:
                stop()
        return stream

    def apps_changed(self) -> None:
        """Send every page the current apps."""
        for changes in self._open:
            changes.mark("apps")

    def drain(self) -> None:
        """End every stream."""
        for changes in self._open:
            changes.end()

    def end(self, principal: Principal) -> None:
        """End the streams of a person who logs out."""
        for changes in self._open:
            if changes.principal == principal:
                changes.end()

    async def _tell_changes(self, stream: web.StreamResponse, changes: _Changes) -> None:
        expires = changes.principal.expires
        while not changes.ended and (expires is None or time.time() < expires):
            if (learning := self._views.learn(changes.principal)) is not None:  # its views at other processes
                await learning
            if (others := await self._views_door.read_elsewhere(changes.principal)) != changes.others:
                changes.others = others
                changes.mark("views")
            for what in changes.take():
                await stream.write(_event(what, plain_json(self._whole(what, changes))))
            if await self._wait(changes):
                continue
            self._approvals.sweep()
            await stream.write(b": alive\n\n")

    async def _wait(self, changes: _Changes) -> bool:
        """Wait for a change, or until other nodes are asked again; return False when a heartbeat is due."""
        silent = self._views_door.elsewhere is None
        try:
            async with asyncio.timeout(HEARTBEAT if silent else EVERY):
                await changes.wake.wait()
        except TimeoutError:
            changes.waited += HEARTBEAT if silent else EVERY
            if changes.waited < HEARTBEAT:
                return True
            changes.waited = 0.0
            return False
        return True

    def _whole(self, what: str, changes: _Changes) -> list[Json]:
        principal = changes.principal
        if what == "approvals":
            return self._door.open_questions(principal)
        if what == "grants":
            return self._door.revocable_grants(principal)
        if what == "apps":
            return [app for app in self._apps() if isinstance(app, dict) and self._offers(str(app["id"]), principal)]
        if what == "problems":
            return problems(self._notices, principal, self._admits)
        return self._views_door.all(principal, changes.others)

    def _offers(self, app: str, principal: Principal) -> bool:
        return principal.may("bridge", app) and self._admits(principal, app)

    def rights_changed(self, recognize: Callable[[Principal], Principal | None]) -> None:
        """Go on for each person with the rights that `recognize` returns; `Revocations` ends the streams of others."""
        for changes in self._open:
            known = recognize(changes.principal)
            if known is not None and known.capabilities != changes.principal.capabilities:
                changes.principal, changes.lines = known, Lines(known, self._admits)

    def access_changed(self, principal: Principal | None) -> None:
        """Send the pages of `principal`, or all, what they may see now."""
        for changes in self._open:
            if principal is None or changes.principal == principal:
                for what in ("apps", "approvals", "grants", "problems", "views"):
                    changes.mark(what)


class _Changes:
    """The kinds of data that a page has yet to receive; initially all but the apps."""

    def __init__(self, principal: Principal, lines: Lines) -> None:
        self.principal = principal
        self.lines = lines
        self.wake = asyncio.Event()
        self.ended = False
        self.others: list[dict[str, Any]] = []
        """The views of other nodes as these listed them last."""
        self.waited = 0.0
        """Seconds since the last heartbeat."""
        self._kinds = {"approvals", "grants", "problems", "views"}

    def mark(self, what: str) -> None:
        self._kinds.add(what)
        self.wake.set()

    def take(self) -> list[str]:
        kinds, self._kinds = sorted(self._kinds), set()
        self.wake.clear()
        return kinds

    def end(self) -> None:
        self.ended = True
        self.wake.set()


async def _tell_lines(stream: web.StreamResponse, lines: Follower, changes: _Changes) -> None:
    async for line in lines:
        await asyncio.sleep(MOMENT)
        read = (line, *lines.waiting())
        notice_json = b"".join(_event("record", each.text) for each in read if changes.lines.sees(each))
        if notice_json:
            await stream.write(notice_json)
    changes.end()


def _event(name: str, text: str) -> bytes:
    return f"event: {name}\ndata: {text}\n\n".encode()


def problems(notices: Notices, principal: Principal, admits: Admits = admit_all) -> list[Json]:
    """Return the configuration's problems; they name files, so all but those of report mode are for administrators.

    Report mode of an app is for those who may use it.
    """

    def concerns(notice: Notice) -> bool:
        return notice.kind is NoticeKind.REPORT and admits(principal, notice.app)

    return [notice_json(notice) for notice in notices.now() if principal.may("admin") or concerns(notice)]


def notice_json(notice: Notice) -> dict[str, Json]:
    """Return a notice in the form for the console."""
    problem = notice.problem
    place: dict[str, Json] = {"file": problem.file, "line": problem.line, "column": problem.column}
    return {"kind": notice.kind, **place, "message": problem.message}
