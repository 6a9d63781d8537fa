"""The endpoints for a person's security keys: the list, adding one, removing one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import fresh, json_of, object_of, refusal_response
from gateway.errors import Refusal
from gateway.exchange.presence import NAME, LoginTooOld, Presence
from gateway.exchange.record import Record, Recorder
from gateway.model import Caller, Door, Initiator, Json, Principal

Handler = Callable[[web.Request], Awaitable[web.Response]]


class SecurityKeyDoor:
    """The endpoints of security keys; with `presence` None no keys are used."""

    def __init__(self, presence: Presence | None, recorder: Recorder) -> None:
        self._presence = presence
        self._recorder = recorder

    def routes(self, changing: Callable[[Handler], Handler]) -> list[web.RouteDef]:
        """Return the routes; `changing` restricts changes to the console's own page."""
        return [
            web.get("/api/keys", self._list),
            web.post("/api/keys/begin", changing(self._held(self._begin))),
            web.post("/api/keys", changing(self._held(self._add))),
            web.post("/api/keys/{id}/begin", changing(self._held(self._begin_removal))),
            web.post("/api/keys/{id}/remove", changing(self._held(self._remove))),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        keys = await self._presence.keys(request[PRINCIPAL]) if self._presence is not None else []
        listed: list[Json] = [{"id": key.id, "name": key.name, "created": key.created} for key in keys]
        return fresh({"presence": self._presence is not None, "keys": listed})

    def _held(self, handler: Callable[[Presence, web.Request], Awaitable[web.Response]]) -> Handler:
        """Wrap a handler for people in their own browser; refuse if no keys are used."""

        async def handle(request: web.Request) -> web.Response:
            if self._presence is None:
                return refusal_response(
                    404, "not-found", "Security keys are not used here: `approvals.presence` is not configured."
                )
            if not request[PRINCIPAL].session:
                return refusal_response(403, "not-allowed", "A person does this, logged in to the console.")
            try:
                return await handler(self._presence, request)
            except LoginTooOld:
                return refusal_response(
                    401, "login-too-old", "Your first security key takes a login of now: log in again."
                )
            except Refusal as refusal:
                return refusal_response(refusal.status, refusal.reason, refusal.detail)
            except OSError:
                return refusal_response(
                    503, "database-unavailable", "The database does not answer: nothing was changed."
                )

        return handle

    async def _begin(self, presence: Presence, request: web.Request) -> web.Response:
        return fresh(await presence.begin_adding(request[PRINCIPAL]))

    async def _add(self, presence: Presence, request: web.Request) -> web.Response:
        given = await object_of(request)
        name = given.get("name")
        if not isinstance(name, str) or not 0 < len(name.strip()) <= NAME or not name.isprintable():
            return refusal_response(400, "bad-request", f"name: a text of at most {NAME} characters.")
        by = request[PRINCIPAL]
        record = self._record(by, "added", name.strip())
        await record.open()  # without a record no key is added
        async with _closing(record):
            key = await presence.add(by, name.strip(), given.get("credential"), given.get("assertion"))
            record.note(key=key.id)
        return fresh({"id": key.id})

    async def _begin_removal(self, presence: Presence, request: web.Request) -> web.Response:
        return fresh(await presence.begin_removing(request[PRINCIPAL], request.match_info["id"]))

    async def _remove(self, presence: Presence, request: web.Request) -> web.Response:
        given = await json_of(request)
        id = request.match_info["id"]
        record = self._record(request[PRINCIPAL], "removed", "")
        record.note(key=id[:200])
        await record.open(binding=False)
        async with _closing(record):
            await presence.remove(request[PRINCIPAL], id, given.get("assertion") if isinstance(given, dict) else None)
        return fresh({"removed": id})

    def _record(self, by: Principal, what: str, name: str) -> Record:
        record = self._recorder.start("key", Caller(by, "", Door.CONSOLE, Initiator.PERSON, "console"), safe=False)
        record.note(decision=what, name=name)
        return record


@asynccontextmanager
async def _closing(record: Record) -> AsyncIterator[None]:
    """Record the outcome of the block."""
    try:
        yield
    except Refusal as refusal:
        await record.refuse(refusal)
        raise
    except LoginTooOld:
        await record.close(status=401, detail="the login is too old")
        raise
    except OSError:
        await record.close(status=503, detail="the database does not answer")
        raise
    await record.close(status=200)
