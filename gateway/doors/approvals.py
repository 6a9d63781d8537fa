"""Approvals over HTTP: open questions, answers, grants, signed answers of a webhook, and people's security keys."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from aiohttp import web

from gateway.arriving import whole
from gateway.bounds import Area, Bound, Shares, size
from gateway.config import ApprovalSettings, ApprovalWay
from gateway.doors.access import SIGNED
from gateway.doors.authorization import is_own, name_in
from gateway.doors.guard import CLIENT_HEADER, PRINCIPAL
from gateway.doors.responses import fresh, json_of, object_of, refusal_response
from gateway.errors import LoginTooOld, Reason, Refusal
from gateway.exchange.approval_answers import ApprovalAnswers, NotAllowed
from gateway.exchange.approvers import SIGNATURE, TIMESTAMP, check_signed_fields, signed_answer
from gateway.exchange.record import Record, Recorder
from gateway.model import Caller, Door, Initiator, Json, Principal, Question
from gateway.ports.approvals import Grant
from gateway.stores.security_keys import NAME

if TYPE_CHECKING:
    from gateway.exchange.presence import Presence  # loaded only where it is configured

ANSWERS = ("approve", "decline")

SIGNED_BYTES: Final = 8 * 1024
"""Bytes of the largest signed answer: an id, a digest, a word and a name."""

SIGNED_WITHIN: Final = 5.0
"""Seconds in which its body must arrive."""

SIGNED_EACH: Final = 16
"""Signed answers of one address that are read at a time."""

SIGNED_AT_ONCE: Final = 128
"""Signed answers of all addresses that are read at a time."""

BOUNDS: Final = (
    Bound(
        Area.APPROVALS,
        "signed webhook answers (unauthenticated until verified)",
        f"{size(SIGNED_BYTES)} in {SIGNED_WITHIN:g} s, {SIGNED_EACH} at a time per address, {SIGNED_AT_ONCE} in all; "
        "not read unless the signature header is well-formed and recent",
        "413, 408, 503, 403",
    ),
)

(_SIGNED_ANSWERS,) = BOUNDS

Handler = Callable[[web.Request], Awaitable[web.Response]]


class ApprovalDoor:
    """The endpoints of approvals. `settings` returns the current ways to ask people, and the webhook."""

    def __init__(self, answers: ApprovalAnswers, settings: Callable[[], ApprovalSettings]) -> None:
        self._answers = answers
        self._settings = settings
        self._signing = Shares(SIGNED_EACH, SIGNED_AT_ONCE)

    @property
    def asks(self) -> bool:
        """True if the console asks people by itself; the page of a question always accepts an answer."""
        return ApprovalWay.CONSOLE in self._settings().ask

    def routes(self, changing: Callable[[Handler], Handler]) -> list[web.RouteDef]:
        """Return the routes of the console's REST API; only its own page and clients pass `changing`."""
        return [
            web.get("/api/approvals", self._list),
            web.post("/api/approvals/{id}", changing(self._answer)),
            web.post("/api/approvals/{id}/touch", changing(self._touch)),
            web.get("/api/grants", self._grants),
            web.post("/api/grants/{id}/revoke", changing(self._revoke)),
        ]

    def webhook_routes(self) -> list[web.RouteDef]:
        """Return the route for the webhook's answers."""
        return [web.post(SIGNED, self._take_signed)]

    def open_questions(self, by: Principal) -> list[Json]:
        """Return the open questions that `by` may answer."""
        return [question_json(question, by) for question in self._answers.questions(by)]

    def revocable_grants(self, by: Principal) -> list[Json]:
        """Return the grants that `by` may revoke."""
        return [_describe_grant(grant) for grant in self._answers.grants(by)]

    async def _list(self, request: web.Request) -> web.Response:
        return fresh({"approvals": self.open_questions(request[PRINCIPAL])})

    async def _grants(self, request: web.Request) -> web.Response:
        return fresh({"grants": self.revocable_grants(request[PRINCIPAL])})

    async def _answer(self, request: web.Request) -> web.Response:
        body = await json_of(request)
        if not isinstance(body, dict) or body.get("answer") not in ANSWERS:
            return refusal_response(400, "bad-request", "answer: approve or decline.")
        lasting = body.get("grant", False)
        if not isinstance(lasting, bool):
            return refusal_response(400, "bad-request", "grant: true or false.")
        from_cli = CLIENT_HEADER in request.headers or not request[PRINCIPAL].session
        if from_cli and ApprovalWay.CLI not in self._settings().ask:
            return refusal_response(403, "not-allowed", "approvals.ask of gateway.yaml does not name `cli`.")
        way = ApprovalWay.CLI if from_cli else ApprovalWay.CONSOLE
        id, approve = request.match_info["id"], body["answer"] == "approve"
        known = await self._digest(id, request[PRINCIPAL])
        if known is not None and body.get("digest") not in (None, known):
            return refusal_response(
                409, "approval-expired", "The question is about another call than the one that was shown."
            )
        try:
            state = await self._answers.give(
                id, approve, request[PRINCIPAL], way, grant=lasting, assertion=body.get("assertion")
            )
        except NotAllowed as error:
            return refusal_response(403, "not-allowed", str(error))
        except Refusal as refusal:
            return _refusal_response(refusal)
        return fresh({"status": state.value})

    async def _touch(self, request: web.Request) -> web.Response:
        """Return the challenge that a security key must sign to approve this question; null if none is needed."""
        body = await json_of(request)
        lasting = isinstance(body, dict) and body.get("grant") is True
        try:
            return fresh(
                {"touch": await self._answers.touch(request.match_info["id"], request[PRINCIPAL], grant=lasting)}
            )
        except Refusal as refusal:
            return _refusal_response(refusal)

    async def _digest(self, id: str, by: Principal) -> str | None:
        try:
            return (await self._answers.question(id, by)).digest
        except Refusal:
            return None

    async def _revoke(self, request: web.Request) -> web.Response:
        try:
            grant = await self._answers.revoke(request.match_info["id"], request[PRINCIPAL])
        except KeyError:
            return refusal_response(404, "unknown-grant", "There is no such grant, or it has ended.")
        except OSError:
            detail = "The database does not answer: the grant covers nothing until it does."
            return refusal_response(503, "database-unavailable", detail)
        return fresh({"revoked": grant.id})

    async def _take_signed(self, request: web.Request) -> web.Response:
        webhook = self._settings().webhook
        if webhook is None or not webhook.answers:
            return refusal_response(404, "not-found", "No webhook is configured whose answers count.")
        timestamp, signature = request.headers.get(TIMESTAMP, ""), request.headers.get(SIGNATURE, "")
        with self._signing.place(request.remote or "") as free:
            if not free:
                _SIGNED_ANSWERS.report()
                return _read_error(503, "busy", "Too many signed answers are being read. Send it again.")
            try:
                check_signed_fields(timestamp, signature, time.time())  # before any of the body is read
                body = await whole(request, SIGNED_BYTES, within=SIGNED_WITHIN, bound=_SIGNED_ANSWERS)
                answer = signed_answer(webhook.secret, timestamp, signature, body, time.time())
            except web.HTTPRequestEntityTooLarge:
                _SIGNED_ANSWERS.report()
                return _read_error(413, "request-too-large", f"A signed answer has {SIGNED_BYTES} bytes at most.")
            except ValueError as error:
                return _read_error(403, "bad-signature", str(error))
        try:
            state = await self._answers.answer_trusted(
                answer.id, answer.approve, Door.WEBHOOK, ApprovalWay.WEBHOOK, answer.by, digest=answer.digest
            )
        except Refusal as refusal:
            return _refusal_response(refusal)
        return fresh({"status": state.value})


def question_json(question: Question, by: Principal) -> dict[str, Json]:
    """Return a question in the form for a person; `whose` names the asking principal if it is another one."""
    values = asdict(question)
    for field in ("principal", "policy_version", "rule"):
        del values[field]
    whose = None if is_own(by, question.principal) else name_in(question.principal)
    return {**values, "whose": whose, "headers": [list(pair) for pair in question.headers]}


def _describe_grant(grant: Grant) -> dict[str, Json]:
    return {
        "id": grant.id,
        "principal": grant.principal.subject,
        "app": grant.app,
        "rule": grant.rule.rpartition(" ")[0] if grant.rule.startswith("tool ") else grant.rule,
        "message": grant.message,
        "by": grant.by,
        "created": grant.created,
        "expires": grant.expires,
    }


def _read_error(status: int, code: str, detail: str) -> web.Response:
    """Return a refusal that closes the connection, since the rest of the request is not read."""
    answer = refusal_response(status, code, detail, {"retry-after": "1"} if status == 503 else None)
    answer.force_close()
    return answer


def _refusal_response(refusal: Refusal) -> web.Response:
    status = 410 if refusal.reason is Reason.APPROVAL_EXPIRED else refusal.status
    return refusal_response(status, refusal.reason, refusal.detail)


class SecurityKeyDoor:
    """The endpoints of security keys; with `presence` None no keys are used."""

    def __init__(self, presence: Presence | None, recorder: Recorder) -> None:
        self._presence = presence
        self._recorder = recorder

    def routes(self, changing: Callable[[Handler], Handler]) -> list[web.RouteDef]:
        """Return the routes; `changing` restricts changes to the console's own page."""
        return [
            web.get("/api/keys", self._list),
            web.post("/api/keys/begin", changing(self._with_presence(self._begin))),
            web.post("/api/keys", changing(self._with_presence(self._add))),
            web.post("/api/keys/{id}/begin", changing(self._with_presence(self._begin_removal))),
            web.post("/api/keys/{id}/remove", changing(self._with_presence(self._remove))),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        keys = await self._presence.keys(request[PRINCIPAL]) if self._presence is not None else []
        rows: list[Json] = [{"id": key.id, "name": key.name, "created": key.created} for key in keys]
        return fresh({"presence": self._presence is not None, "keys": rows})

    def _with_presence(self, handler: Callable[[Presence, web.Request], Awaitable[web.Response]]) -> Handler:
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
                    401, "login-too-old", "Your first security key requires a new login: log in again."
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
        body = await object_of(request)
        name = body.get("name")
        if not isinstance(name, str) or not 0 < len(name.strip()) <= NAME or not name.isprintable():
            return refusal_response(400, "bad-request", f"name: a text of at most {NAME} characters.")
        by = request[PRINCIPAL]
        record = self._record(by, "added", name.strip())
        await record.open()  # without a record no key is added
        async with _closing(record):
            key = await presence.add(by, name.strip(), body.get("credential"), body.get("assertion"))
            record.note(key=key.id)
        return fresh({"id": key.id})

    async def _begin_removal(self, presence: Presence, request: web.Request) -> web.Response:
        return fresh(await presence.begin_removing(request[PRINCIPAL], request.match_info["id"]))

    async def _remove(self, presence: Presence, request: web.Request) -> web.Response:
        body = await json_of(request)
        id = request.match_info["id"]
        record = self._record(request[PRINCIPAL], "removed", "")
        record.note(key=id[:200])
        await record.open(binding=False)
        async with _closing(record):
            await presence.remove(request[PRINCIPAL], id, body.get("assertion") if isinstance(body, dict) else None)
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
