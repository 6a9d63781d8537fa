"""Questions to people over HTTP: the list, an answer, the grants, and the signed answers of a webhook."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from aiohttp import web

from gateway.config import Way, Webhook
from gateway.doors.access import SIGNED
from gateway.doors.answers import fresh, refused
from gateway.doors.guard import CLIENT_HEADER, PRINCIPAL
from gateway.doors.sight import is_own, name_in
from gateway.errors import Reason, Refusal
from gateway.exchange.answers import Answers, NotAllowed
from gateway.exchange.grants import Grant
from gateway.exchange.webhook import SIGNATURE, TIMESTAMP, signed_answer
from gateway.model import Json, Principal, Question

ANSWERS = ("approve", "decline")

Handler = Callable[[web.Request], Awaitable[web.Response]]


class ApprovalDoor:
    """`ways` are those by which the configuration lets people be asked; `webhook` what signs its answers."""

    def __init__(self, answers: Answers, ways: tuple[Way, ...], webhook: Webhook | None) -> None:
        self._answers = answers
        self._ways = ways
        self._webhook = webhook

    @property
    def asks(self) -> bool:
        """Whether the console asks people by itself; the page of a question answers in any case."""
        return Way.CONSOLE in self._ways

    def routes(self, changing: Callable[[Handler], Handler]) -> list[web.RouteDef]:
        """The routes of the console's REST; `changing` lets only the console's own page and clients change things."""
        return [
            web.get("/api/approvals", self._list),
            web.post("/api/approvals/{id}", changing(self._answer)),
            web.post("/api/approvals/{id}/touch", changing(self._touch)),
            web.get("/api/grants", self._grants),
            web.post("/api/grants/{id}/revoke", changing(self._revoke)),
        ]

    def signed(self) -> list[web.RouteDef]:
        """The route of the webhook's answers, where these count."""
        if self._webhook is None or not self._webhook.answers:
            return []
        return [web.post(SIGNED, self._signed)]

    def asked(self, by: Principal) -> list[Json]:
        """The open questions that `by` may answer."""
        return [shown(question, by) for question in self._answers.questions(by)]

    def granted(self, by: Principal) -> list[Json]:
        """The grants that `by` may revoke."""
        return [_granted(grant) for grant in self._answers.grants(by)]

    async def _list(self, request: web.Request) -> web.Response:
        return fresh({"approvals": self.asked(request[PRINCIPAL])})

    async def _grants(self, request: web.Request) -> web.Response:
        return fresh({"grants": self.granted(request[PRINCIPAL])})

    async def _answer(self, request: web.Request) -> web.Response:
        given = json.loads(await request.read())
        if not isinstance(given, dict) or given.get("answer") not in ANSWERS:
            return refused(400, "bad-request", "answer: approve or decline.")
        lasting = given.get("grant", False)
        if not isinstance(lasting, bool):
            return refused(400, "bad-request", "grant: true or false.")
        from_cli = CLIENT_HEADER in request.headers or not request[PRINCIPAL].session
        if from_cli and Way.CLI not in self._ways:
            return refused(403, "not-allowed", "approvals.ask of gateway.yaml does not name `cli`.")
        way = Way.CLI if from_cli else Way.CONSOLE
        id, approve = request.match_info["id"], given["answer"] == "approve"
        known = self._digest(id, request[PRINCIPAL])
        if known is not None and given.get("digest") not in (None, known):
            return refused(409, "approval-expired", "The question is about another call than the one that was shown.")
        try:
            state = await self._answers.give(
                id, approve, request[PRINCIPAL], way, grant=lasting, assertion=given.get("assertion")
            )
        except NotAllowed as error:
            return refused(403, "not-allowed", str(error))
        except Refusal as refusal:
            return _refused(refusal)
        return fresh({"status": state.value})

    async def _touch(self, request: web.Request) -> web.Response:
        """What a key has to sign before this question is approved; null where none is needed."""
        given = json.loads(await request.read())
        lasting = isinstance(given, dict) and given.get("grant") is True
        try:
            return fresh(
                {"touch": await self._answers.touch(request.match_info["id"], request[PRINCIPAL], grant=lasting)}
            )
        except Refusal as refusal:
            return _refused(refusal)

    def _digest(self, id: str, by: Principal) -> str | None:
        try:
            return self._answers.question(id, by).digest
        except Refusal:
            return None

    async def _revoke(self, request: web.Request) -> web.Response:
        try:
            grant = await self._answers.revoke(request.match_info["id"], request[PRINCIPAL])
        except KeyError:
            return refused(404, "unknown-grant", "There is no such grant, or it has ended.")
        return fresh({"revoked": grant.id})

    async def _signed(self, request: web.Request) -> web.Response:
        if self._webhook is None:
            return refused(404, "not-found", "No webhook is configured.")
        timestamp, given = request.headers.get(TIMESTAMP, ""), request.headers.get(SIGNATURE, "")
        try:
            answer = signed_answer(self._webhook.secret, timestamp, given, await request.read(), time.time())
        except ValueError as error:
            return refused(403, "bad-signature", str(error))
        try:
            state = await self._answers.trusted(answer.id, answer.approve, Way.WEBHOOK, answer.by, digest=answer.digest)
        except Refusal as refusal:
            return _refused(refusal)
        return fresh({"status": state.value})


def shown(question: Question, by: Principal) -> dict[str, Json]:
    """A question as a person is shown it; `whose` names who asks, where that is somebody else."""
    values = asdict(question)
    for hidden in ("principal", "policy_version", "rule"):
        del values[hidden]
    whose = None if is_own(by, question.principal) else name_in(question.principal)
    return {**values, "whose": whose, "headers": [list(pair) for pair in question.headers]}


def _granted(grant: Grant) -> dict[str, Json]:
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


def _refused(refusal: Refusal) -> web.Response:
    status = 410 if refusal.reason is Reason.APPROVAL_EXPIRED else refusal.status
    return refused(status, refusal.reason, refusal.detail)
