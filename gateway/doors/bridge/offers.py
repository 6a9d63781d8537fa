"""Links and files that an app offers to its person: decided by its policy, confirmed if required, recorded."""

from __future__ import annotations

import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from aiohttp import web

from gateway.bounds import Area, Bound
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import fresh, json_of, refusal_response
from gateway.errors import STATUS, Reason, Refusal
from gateway.exchange.record import Record, Recorder
from gateway.jsontext.writing import plain_json
from gateway.model import Door, Effect, Json, Principal
from gateway.policy import decide_link
from gateway.ports.approvals import ApprovalState
from gateway.token_buckets import Buckets, Rate
from gateway.views.registry import Views
from gateway.views.view import View

WAITING = 1024
"""Open questions about links, one per view."""

EACH = 32
"""Open questions of one principal; the oldest is evicted first."""

OFFERS: Final = Rate(60, 60.0)
"""Rate limit of what the pages of one app offer one person, who answers each; each is written to the record."""

BOUNDS: Final = (
    Bound(
        Area.APPROVALS,
        "questions about links",
        f"1 per view, {EACH} per principal, {WAITING:,} in all",
        "the oldest of that principal, or of the largest holder, ends unanswered",
    ),
    Bound(
        Area.APPROVALS,
        "links and downloads that the pages of an app offer",
        f"{OFFERS.count} in {OFFERS.period:g} s per person and app",
        "`rate-limited`",
    ),
)

(_LINKS, _OFFERS) = BOUNDS

_NO_QUESTION = "There is no open question about this link: it was answered or replaced."


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """A host page's request that `view` opens `url`; `answered` is the person's answer."""

    view: str
    url: str
    answered: bool | None


@dataclass(frozen=True, slots=True)
class _OpenOffer:
    url: str
    version: str
    record: Record
    principal: str

    async def end(self, state: ApprovalState, reason: Reason | None = None) -> None:
        self.record.note(decision=state.value)
        await self.record.close(status=200 if reason is None else STATUS[reason], reason=reason)


class OfferRates:
    """Counts what the pages of an app offer to a person, of all doors for offers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets = Buckets[tuple[str, str]]()

    def take(self, view: View) -> None:
        """Count one offer. Raises `Refusal` (`rate-limited`), which the record sums up."""
        person = view.principal.person
        draw = self._buckets.take((person, view.app), self._clock(), OFFERS)
        if not draw.allowed:
            _OFFERS.report(view.principal.id)
            detail = f"The pages of an app may offer {OFFERS.count} links and downloads in {OFFERS.period:g} seconds."
            raise Refusal(Reason.RATE_LIMITED, detail)


class OffersElsewhere(Protocol):
    """The offers of views at other nodes: `gateway.cluster.views`."""

    async def offer(self, kind: str, view: str, body: bytes, principal: Principal) -> tuple[int, bytes] | None:
        """Return status and JSON of the node that has a view; None if that is this one, or none. Raises `Refusal`."""
        ...


async def _answer_elsewhere(
    elsewhere: OffersElsewhere | None, kind: str, view: str, body: object, principal: Principal
) -> web.Response | None:
    """Return the answer of the node that has a view; None if that is this one, or none."""
    if elsewhere is None:
        return None
    try:
        answer = await elsewhere.offer(kind, view, plain_json(body).encode("utf-8", "surrogatepass"), principal)
    except Refusal as refusal:
        return refusal_response(refusal.status, refusal.reason, refusal.detail)
    if answer is None:
        return None
    headers = {"cache-control": "no-store"}
    return web.Response(status=answer[0], body=answer[1], content_type="application/json", headers=headers)


class LinkDoor:
    """Decides on links. A view has one question at a time, which is stored here until its answer.

    `elsewhere` is None for a gateway of one process.
    """

    def __init__(
        self, views: Views, recorder: Recorder, rates: OfferRates, elsewhere: OffersElsewhere | None = None
    ) -> None:
        self._views = views
        self._recorder = recorder
        self._rates = rates
        self._elsewhere = elsewhere
        self._open: dict[str, _OpenOffer] = {}

    async def handle(self, request: web.Request) -> web.Response:
        """Handle `{view, url}`, then `{view, url, answered}` if the first decision was `ask`. Raises ValueError."""
        body = await json_of(request)
        if (wish := _wish(body)) is not None:
            answer = await _answer_elsewhere(self._elsewhere, "links", wish.view, body, request[PRINCIPAL])
            if answer is not None:
                return answer
        return await self.respond(body, request[PRINCIPAL])

    async def respond(self, body: object, principal: Principal) -> web.Response:
        """Return the answer to a request about a view of this node."""
        wish = _wish(body)
        if wish is None:
            return refusal_response(
                400, "bad-request", "view: a text; url: in ASCII; answered: true, false or left out."
            )
        try:
            answer = await self.decide(wish, principal)
        except Refusal as refusal:
            return refusal_response(STATUS[refusal.reason], refusal.reason, refusal.detail)
        return fresh(answer)

    async def decide(self, wish: LinkRequest, principal: Principal) -> dict[str, Json]:
        """Return the decision for a host page. Raises `Refusal`."""
        view = self._views.find(wish.view, principal)
        if view is None or not principal.may("bridge", view.app):
            raise Refusal(Reason.VIEW_UNPROVEN, "This view is not open here. Open the app again.")
        if wish.answered is None:
            self._rates.take(view)
            return await self._ask(view, wish.url)
        return await self._answer(view, wish.url, wish.answered)

    async def _ask(self, view: View, url: str) -> dict[str, Json]:
        policy = self._views.rules(view.app).policy
        caller = self._views.caller_of(view, Door.BRIDGE)
        decision = decide_link(policy, url, caller)
        record = self._recorder.start("link", caller, safe=True)
        record.note(url=url[:2048], decision=decision.effect, reasons=[*decision.reasons], route=decision.route)
        record.note(policy_version=policy.version)
        if decision.effect is Effect.DENY:
            detail = f"The policy of {view.app} does not open this link: {'; '.join(decision.reasons)}."
            await record.close(status=STATUS[decision.reason], reason=decision.reason, detail=detail)
            raise Refusal(decision.reason, detail)
        message = decision.obligations.confirm
        if message is None:
            await record.open()
            await record.close(status=200)
            return {"decision": "open"}
        record.note(decision="ask", message=message)
        await record.open()
        await self._wait(view.id, _OpenOffer(url, policy.version, record, view.principal.id))
        return {"decision": "ask", "message": message, "url": url}

    async def _answer(self, view: View, url: str, answered: bool) -> dict[str, Json]:
        offer = self._open.get(view.id)
        if offer is None or offer.url != url:
            raise Refusal(Reason.APPROVAL_EXPIRED, _NO_QUESTION)
        del self._open[view.id]
        if offer.version != self._views.rules(view.app).policy.version:
            await offer.end(ApprovalState.VOID, Reason.APPROVAL_EXPIRED)
            raise Refusal(Reason.APPROVAL_EXPIRED, "The policy of the app changed while the question was open.")
        if not answered:
            await offer.end(ApprovalState.DECLINED, Reason.APPROVAL_DECLINED)
            return {"decision": "declined"}
        await offer.end(ApprovalState.APPROVED)
        return {"decision": "open"}

    async def _wait(self, view: str, offer: _OpenOffer) -> None:
        """Store the question; the view's earlier one, and the oldest beyond the limits, end unanswered."""
        older = [self._open.pop(view)] if view in self._open else []
        count = Counter(one.principal for one in self._open.values())
        if count[offer.principal] >= EACH:
            older.append(self._drop_oldest(offer.principal))
        elif len(self._open) >= WAITING:
            older.append(self._drop_oldest(count.most_common(1)[0][0]))
        self._open[view] = offer
        for one in older:
            _LINKS.report(one.principal)
            await one.end(ApprovalState.EXPIRED, Reason.APPROVAL_EXPIRED)

    def _drop_oldest(self, principal: str) -> _OpenOffer:
        return self._open.pop(next(view for view, one in self._open.items() if one.principal == principal))


def _wish(body: object) -> LinkRequest | None:
    """Return the request in a body; None if it is invalid."""
    if not isinstance(body, dict):
        return None
    view, url, answered = body.get("view"), body.get("url"), body.get("answered")
    if not isinstance(view, str) or not isinstance(url, str) or not url.isascii():
        return None
    return LinkRequest(view, url, answered) if answered is None or isinstance(answered, bool) else None


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
    """Records the offer and the answer, before the console saves anything.

    `elsewhere` is None for a gateway of one process.
    """

    def __init__(
        self, views: Views, recorder: Recorder, rates: OfferRates, elsewhere: OffersElsewhere | None = None
    ) -> None:
        self._views = views
        self._recorder = recorder
        self._rates = rates
        self._elsewhere = elsewhere

    async def handle(self, request: web.Request) -> web.Response:
        """Handle `{view, files: [{name, size}], answered}`. Raises ValueError."""
        body = await json_of(request)
        if (offer := _offer(body)) is not None:
            answer = await _answer_elsewhere(self._elsewhere, "downloads", offer.view, body, request[PRINCIPAL])
            if answer is not None:
                return answer
        return await self.respond(body, request[PRINCIPAL])

    async def respond(self, body: object, principal: Principal) -> web.Response:
        """Return the answer to a request about a view of this node."""
        offer = _offer(body)
        if offer is None:
            expected = f"view: a text; files: 1 to {_MOST} of name and size; answered: true or false."
            return refusal_response(400, "bad-request", expected)
        try:
            await self._record(offer, principal)
        except Refusal as refusal:
            return refusal_response(STATUS[refusal.reason], refusal.reason, refusal.detail)
        return web.json_response({"recorded": True}, headers={"cache-control": "no-store"})

    async def _record(self, offer: DownloadOffer, principal: Principal) -> None:
        view = self._views.find(offer.view, principal)
        if view is None or not principal.may("bridge", view.app):
            raise Refusal(Reason.VIEW_UNPROVEN, "This view is not open here. Open the app again.")
        self._rates.take(view)
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
    read = tuple(file for one in files[: _MOST + 1] if (file := _file(one)) is not None)
    return DownloadOffer(view, read, answered) if len(read) == len(files) and 1 <= len(read) <= _MOST else None


def _unfit(name: str) -> bool:
    return any(unicodedata.category(char) in ("Cc", "Cs") for char in name)


def _file(value: object) -> tuple[str, int] | None:
    if not isinstance(value, dict):
        return None
    name, size = value.get("name"), value.get("size")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or _unfit(name):
        return None
    return (name, size) if type(size) is int and 0 <= size < _LARGEST else None
