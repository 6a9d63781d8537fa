"""Takes the answers to questions from every source, and asks whether a loosened policy may take effect."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gateway.callers.entitlements import OWN, Admits, admit_all
from gateway.errors import Reason, Refusal
from gateway.exchange.record import Recorder
from gateway.model import Caller, Door, Initiator, Json, Principal, Question
from gateway.policy.diff import Change, Turn
from gateway.ports.approvals import (
    Approvals,
    ApprovalState,
    ApprovedVersions,
    Ask,
    Grant,
    Grants,
    OpenQuestion,
    ParkedCall,
)

if TYPE_CHECKING:
    from gateway.exchange.presence import Presence  # loaded only where it is configured

log = logging.getLogger(__name__)

NOBODY = "This question was answered, has expired, or its caller is gone."


class NotAllowed(Exception):
    """The caller may see the question but not answer it."""


class ApprovalAnswers:
    """The single entry point for answers to questions. With `presence`, a yes requires a touch of a security key.

    Questions about an app exist only for those whom it admits, by `admits`.
    """

    def __init__(
        self,
        approvals: Approvals,
        grants: Grants,
        recorder: Recorder,
        presence: Presence | None = None,
        admits: Admits = admit_all,
    ) -> None:
        self._admits = admits
        self._presence = presence
        self._approvals = approvals
        self._grants = grants
        self._recorder = recorder

    def questions(self, by: Principal) -> list[Question]:
        """The open questions that `by` is shown, oldest first."""
        return [one.question for one in self._approvals.open() if self._sees(by, one)]

    def grants(self, by: Principal) -> list[Grant]:
        """The grants that `by` may revoke."""
        return [
            grant
            for grant in self._grants.now()
            if may_decide(by, grant.principal, grant.app) and self._admits(by, grant.app)
        ]

    async def question(self, id: str, by: Principal) -> Question:
        """Return the open question `id`. Raises `Refusal` (`approval-expired`) if `by` may not see it."""
        return (await self._open(id, by)).question

    async def give(
        self, id: str, approve: bool, by: Principal, way: str, *, grant: bool = False, assertion: Json = None
    ) -> ApprovalState:
        """Take a person's answer. `grant` allows the same for as long as the policy permits.

        `assertion` is of a touched key. Raises `NotAllowed`, and `Refusal`: `approval-expired` for a question that is
        not open, or not this person's; `approval-unavailable` if a touch is needed, or the policy permits no grant;
        `audit-unavailable` for a yes that cannot be recorded, after which the question is still open.
        """
        waiting = await self._open(id, by)
        if not may_decide(by, waiting.principal, waiting.question.app):
            raise NotAllowed(
                "The person must answer this, logged in to the console, or someone with the capability `approve`."
            )
        present = approve and self._presence is not None and assertion is not None
        if present and self._presence is not None:
            await self._presence.verify_touch(by, waiting.question, assertion, lasting=grant)
        return await self._take(waiting, approve, by, Door.CONSOLE, way, grant=grant, present=present)

    async def touch(self, id: str, by: Principal, *, grant: bool) -> Json:
        """Return what a security key must sign for a yes of `by`, None if no touch is needed. Raises `Refusal`."""
        waiting = await self._open(id, by)
        return None if self._presence is None else await self._presence.challenge(by, waiting.question, lasting=grant)

    async def answer_trusted(
        self, id: str, approve: bool, door: Door, way: str, name: str = "", *, digest: str | None = None
    ) -> ApprovalState:
        """Take the answer of a trusted source, such as a plugin; `digest` is of the call that it was shown.

        Raises `Refusal` like `give`.
        """
        waiting = await self._open(id, None)
        if digest not in (None, waiting.question.digest):
            raise Refusal(Reason.APPROVAL_EXPIRED, "The question is about another call than the one that was shown.")
        by = Principal("gateway", "approvals", f"{way}:{name[:200]}" if name else way)
        return await self._take(waiting, approve, by, door, way, grant=False, present=False)

    async def answer_typed(self, id: str, approve: bool, by: Principal) -> None:
        """Take a yes or no from a trusted client of `by` whose person typed the code of this question."""
        waiting = await self._open(id, None)
        if waiting.principal.id != by.id:
            raise Refusal(Reason.APPROVAL_EXPIRED, NOBODY)
        await self._take(waiting, approve, by, Door.MCP, "elicitation", grant=False, present=False)

    async def revoke(self, id: str, by: Principal) -> Grant:
        """End a grant. Raises `KeyError` if there is no such grant, or `by` may not end it."""
        grant = next(grant for grant in (*self.grants(by), None) if grant is None or grant.id == id)
        if grant is None:
            raise KeyError(id)
        caller = Caller(by, grant.app, Door.CONSOLE, Initiator.PERSON, "console", cause=id)
        record = self._recorder.start("grant", caller, safe=False)
        record.note(grant=id, rule=grant.rule, decision="revoked", message=grant.message)
        await record.open(binding=False)
        try:
            await self._grants.revoke(id)
        except KeyError:  # a plugin was notified, and the grant ended meanwhile
            await record.close(status=404)
            raise
        await record.close(status=200)
        return grant

    def _sees(self, by: Principal, waiting: OpenQuestion) -> bool:
        """Return whether `by` is shown a question. One of the gateway, about a policy, does not depend on `access`."""
        app = waiting.question.app
        return sees(by, waiting.principal, app) and (waiting.principal.issuer == OWN or self._admits(by, app))

    async def _open(self, id: str, by: Principal | None) -> OpenQuestion:
        """Return the open question; a missing question and another person's give the same refusal."""
        waiting = await self._approvals.question(id)
        if waiting is None or (by is not None and not self._sees(by, waiting)):
            raise Refusal(Reason.APPROVAL_EXPIRED, NOBODY)
        return waiting

    async def _take(
        self, waiting: OpenQuestion, approve: bool, by: Principal, door: Door, way: str, *, grant: bool, present: bool
    ) -> ApprovalState:
        question = waiting.question
        if approve and self._presence is not None and not present:
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, "An approval takes the touch of a key, on the approval page.")
        if grant and (not approve or question.grant is None):
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, "The policy does not permit a grant for this.")
        if await self._approvals.question(question.id) is None:  # another answer arrived while the key was verified
            raise Refusal(Reason.APPROVAL_EXPIRED, NOBODY)
        caller = Caller(by, question.app, door, Initiator.PERSON, way, question.view, cause=question.id)
        record = self._recorder.start("approval", caller, safe=not approve)
        record.note(
            approval=question.id,
            method=question.method,
            url=question.target,
            message=question.message,
            policy_version=question.policy_version,
            present=present,
        )
        if approve:  # a yes that cannot be recorded is void, like a call; a no always counts
            await record.open()
        try:
            state = await self._approvals.answer(question.id, approve, by.id)
        except Refusal as refusal:  # it may count nevertheless, if its store was lost in the middle
            await record.refuse(refusal)
            raise
        if state is None:  # another answer arrived while plugins were notified
            await record.close(status=409, reason=Reason.APPROVAL_EXPIRED, detail=NOBODY)
            raise Refusal(Reason.APPROVAL_EXPIRED, NOBODY)
        grant_given = await self._give(waiting, by) if grant else None
        record.note(decision=state.value)
        if grant_given is not None:
            record.note(grant=grant_given.id, until=grant_given.expires)
        await record.close(status=200)
        return state

    async def _give(self, waiting: OpenQuestion, by: Principal) -> Grant | None:
        """Give the grant; None if it cannot be stored, so that the answer counts for this call alone."""
        try:
            return await self._grants.give(waiting.question, waiting.principal, by.id)
        except OSError as error:
            log.warning("a grant was not stored, and its person will be asked again: %s", error)
            return None


def sees(by: Principal, owner: Principal, app: str) -> bool:
    """Return whether `by` is shown what waits for `owner`: their own, and anyone's if they may answer for others."""
    return by.may("approve", app) or _is_own(by, owner)


def may_decide(by: Principal, owner: Principal, app: str) -> bool:
    """Return whether `by` may decide for `owner`: with permission for others, or for oneself in a browser session.

    A program's token answers for its owner only if it was issued with that permission.
    """
    return by.may("approve", app) or (by.session and _is_own(by, owner))


def _is_own(by: Principal, owner: Principal) -> bool:
    if by.shared or owner.shared:
        return False
    return by.person == owner.person if by.session else by.id == owner.id  # one client does not see another's


WAITS = "waits for a person's approval, on the console: until then the previous policy holds"
DECLINED = "a person declined the loosened policy: the previous one stays in force until the file changes"


class Loosening:
    """Asks persons about loosened policies. Callers poll `verdict`; `on_change` is called when one is approved.

    `versions` are the approved ones: what a person has approved in one process takes effect in all.
    """

    def __init__(self, approvals: Approvals, versions: ApprovedVersions, on_change: Callable[[], None]) -> None:
        self._approvals = approvals
        self._versions = versions
        self._on_change = on_change
        self._questions: dict[tuple[str, str], ParkedCall] = {}
        self._stop = approvals.watch(self._look)

    async def verdict(
        self, caller: Caller, old: str, new: str, file: str, changes: Sequence[Change], state: str
    ) -> str | None:
        """Return None if the version `new` of `file` may take effect now, else why not.

        `state` identifies all that takes effect with it, in every process. Raises `Refusal` if no question can be
        asked, or the approved versions cannot be read.
        """
        changes_opened = [change for change in changes if change.turn is Turn.OPENED]
        if not changes_opened:
            return None
        ask = _ask(old, new, file, changes_opened)
        key = (caller.app, ask.digest)
        try:
            if await self._versions.is_approved(caller.app, state):
                return None
            known = self._questions.get(key)
            if known is not None and known.state is ApprovalState.DECLINED:
                return DECLINED
            if known is not None and known.state is ApprovalState.APPROVED:
                del self._questions[key]
                await self._approvals.dispatch(known, ask.digest, ask.policy_version)
                await self._versions.approve(caller.app, state)
                return None
        except OSError as error:
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, f"the approved versions cannot be read: {error}") from error
        if not self._waits_elsewhere(ask):
            pending = await self._approvals.park(ask, caller)
            self._questions[key] = self._approvals.find(pending.question.id, caller)
        return WAITS

    async def take_effect(self, states: Mapping[str, str]) -> None:
        """Note what is in effect now, by app: another version that was approved before takes another approval."""
        try:
            for app, state in states.items():
                await self._versions.supersede(app, state)
        except OSError as error:
            log.warning("an approved version that is not in effect is not forgotten yet: %s", error)

    def _waits_elsewhere(self, ask: Ask) -> bool:
        """Return whether another process asks the very same question."""
        own = {one.question.id for one in self._approvals.own()}
        return any(one.question.digest == ask.digest for one in self._approvals.open() if one.question.id not in own)

    def _look(self) -> None:
        if any(parked_call.state is ApprovalState.APPROVED for parked_call in self._questions.values()):
            self._on_change()


def _ask(old: str, new: str, file: str, changes: Sequence[Change]) -> Ask:
    lines = [f"{change.kind} {' '.join(change.subjects)}: {change.detail}" for change in changes]
    body = "\n".join(lines).encode()
    digest = hashlib.sha256(b"\n".join((b"policy", old.encode(), new.encode(), body))).hexdigest()
    things = "1 thing" if len(changes) == 1 else f"{len(changes)} things"
    return Ask(
        message=f"Let the changed policy take effect? It opens {things}.",
        method="policy",
        target=file,
        digest=digest,
        policy_version=old,
        body=body,
    )
