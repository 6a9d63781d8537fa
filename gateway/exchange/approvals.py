"""Approvals and grants in the memory of one process: calls that wait for a person, and standing permissions.

A parked call ends with its caller: one that has not polled for ten seconds, or has cancelled, is void. A grant means
"this, for ten minutes", if the policy allows that; a restart ends all of them, a new version of the policy those under
the older one.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from gateway.bounds import Area, Bound, size
from gateway.errors import Reason, Refusal
from gateway.model import Caller, Principal, Question, Request
from gateway.policy import Rate
from gateway.ports.approvals import ApprovalState, Ask, Grant, OpenQuestion, ParkedCall, Pending
from gateway.token_buckets import Buckets
from gateway.watchers import Watchers

SILENCE = 10.0
"""Seconds without a poll after which a caller is considered gone."""

KEPT = 30.0
"""Seconds that the answer of a finished call is kept for a caller that polls again."""

SHOWN = 64 * 1024
"""Bytes of the largest body that is shown; a body that a person cannot see cannot be approved."""

PER_VIEW = 2
PER_PRINCIPAL = 10
REFUSALS = 3
REFUSAL_WINDOW = 300.0

ASKING = Rate(60, 60.0)
"""New questions of one principal, whatever their outcome: each notifies everyone who may answer."""

MOST = 100
"""Grants of one principal; the oldest is evicted first."""

BOUNDS: Final = (
    Bound(
        Area.APPROVALS,
        "open questions",
        f"{PER_VIEW} per view, {PER_PRINCIPAL} per principal; {size(SHOWN)} of a body; {SILENCE:g} s without caller",
        "`approval-unavailable`",
    ),
    Bound(
        Area.APPROVALS,
        "new questions",
        f"{ASKING.count} in {ASKING.period:g} s per principal",
        "`approval-unavailable` with a retry time",
    ),
    Bound(
        Area.APPROVALS,
        "refusals before questions are suppressed",
        f"{REFUSALS} in {REFUSAL_WINDOW:g} s per view",
        "`approval-declined` without a question",
    ),
    Bound(
        Area.APPROVALS,
        "grants",
        f"{MOST} per principal",
        "the oldest of that principal ends",
    ),
)

_OPEN, _ASKED, _DECLINED, _GRANTS = BOUNDS


Still: TypeAlias = Callable[[Principal], Awaitable[bool]]
"""Checks anew whether a principal's credential is still valid; false if that cannot be determined."""

UNANSWERED: Final = "The gateway stopped before a person could answer; nothing was sent. Repeat the call."

ENDED: Final = "The login or token of the caller ended while a person was asked."


class MemoryApprovals:
    """The port `Approvals` of one process, in memory: a restart voids every question.

    `timeout` is in seconds; `clock` gives seconds since the epoch, `steady` any.

    `still` is called for each caller right before its call is dispatched.
    """

    def __init__(
        self,
        timeout: float,
        clock: Callable[[], float] = time.time,
        still: Still | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout = timeout
        self._clock = clock
        self._steady = steady
        self._still = still
        self._parked: dict[str, ParkedCall] = {}
        self._declined: dict[tuple[str, str, str | None], deque[float]] = {}
        self._rates: Buckets[str] = Buckets()
        self._watchers = Watchers[[]]()
        self._stopped = False

    async def park(self, ask: Ask, caller: Caller, request: Request | None = None) -> Pending:
        """Ask a person, or join the open question of the same view about the same call.

        Raises `Refusal`: `approval-declined` after three refusals in five minutes, `approval-unavailable` when too
        many wait already.
        """
        joined = self._join(ask, caller)
        if joined is not None:
            return joined
        steady = self._steady()
        mine = [one for one in self._parked.values() if one.caller.principal == caller.principal and one.ended is None]
        declined = self._declined.get(_who(caller))
        if declined is not None and len(declined) == REFUSALS and steady - declined[0] < REFUSAL_WINDOW:
            raise insistent(caller)
        check_shown(ask, caller)
        check_room(caller, len(mine), sum(one.caller.view == caller.view for one in mine))
        draw = self._rates.take(caller.principal.id, steady, ASKING)
        if not draw.allowed:
            raise hasty(caller, draw.retry_after)
        return self._add(self._question(ask, caller), caller, request)

    def _join(self, ask: Ask, caller: Caller) -> Pending | None:
        """Return the open question of this process about the same call. Raises `Refusal` while the process stops."""
        self.sweep()
        if self._stopped:
            raise _stop_refusal()
        for parked in self._parked.values():
            if parked.ended is None and _same(parked, ask, caller):
                parked.asked_at = self._steady()
                return Pending(parked.question)
        return None

    def _question(self, ask: Ask, caller: Caller) -> Question:
        now, seconds = self._clock(), self._lasting(ask)
        return Question(
            id=secrets.token_hex(16),  # typed at a command line, where a leading dash would be an option
            principal=caller.principal.id,
            app=caller.app,
            view=caller.view,
            message=ask.message,
            method=ask.method,
            target=ask.target,
            headers=ask.headers,
            body=ask.body.decode("utf-8", "backslashreplace"),
            size=len(ask.body),
            digest=ask.digest,
            policy_version=ask.policy_version,
            initiator=caller.initiator,
            evidence=caller.evidence,
            created=now,
            expires=now + seconds,
            cause=caller.cause,
            grant=ask.grant,
            rule=ask.rule,
        )

    def _lasting(self, ask: Ask) -> float:
        """Return the seconds for which a question stays open."""
        return self.timeout if ask.question_timeout is None else ask.question_timeout

    def _add(self, question: Question, caller: Caller, request: Request | None) -> Pending:
        now = self._steady()
        expires = now + question.expires - question.created
        self._parked[question.id] = ParkedCall(question, caller, request, expires, asked_at=now)
        self._watchers.notify()
        return Pending(question)

    async def question(self, id: str) -> OpenQuestion | None:
        """Return the question `id` if it can be answered now."""
        self.sweep()
        parked = self._parked.get(id)
        return _open_question(parked) if parked is not None and parked.state is ApprovalState.OPEN else None

    async def answer(self, id: str, approve: bool, by: str) -> ApprovalState | None:
        """Take a person's answer, once, and return the new state; None if the question is not open."""
        self.sweep()
        parked = self._parked.get(id)
        if parked is None or parked.state is not ApprovalState.OPEN:
            return None
        parked.answered_by = by
        if approve:
            self._move(parked, ApprovalState.APPROVED)
        else:
            self._note_refusal(parked.caller)
            self._move(parked, ApprovalState.DECLINED)
        return parked.state

    async def wait(self, id: str, caller: Caller, seconds: float) -> ParkedCall:
        """Return the parked call once it is answered or `seconds` have passed; waiting counts as polling.

        Raises `Refusal` (`approval-expired`) if it is not this caller's.
        """
        parked = self.find(id, caller)
        parked.holding += 1
        try:
            if parked.state is ApprovalState.OPEN:
                left = min(parked.question.expires - self._clock(), parked.expires - self._steady())
                try:
                    async with asyncio.timeout(min(seconds, left)):
                        await parked.changed.wait()
                except TimeoutError:
                    if seconds >= left and parked.state is ApprovalState.OPEN:  # timers may fire a little early
                        self._move(parked, ApprovalState.EXPIRED)
        finally:
            parked.holding -= 1
            parked.asked_at = self._steady()
        self.sweep()
        return parked

    def find(self, id: str, caller: Caller) -> ParkedCall:
        """The parked call `id` of this caller. Raises `Refusal` (`approval-expired`) if there is none."""
        self.sweep()
        parked = self._parked.get(id)
        if parked is None or not _belongs(parked, caller):
            raise Refusal(Reason.APPROVAL_EXPIRED, "This approval is not known any more.")
        return parked

    async def dispatch(self, parked: ParkedCall, digest: str, policy_version: str) -> None:
        """Check the caller's credential anew, since it may have been revoked meanwhile, then use the approval, once."""
        await self._check_credential(parked)
        self._check(parked, digest, policy_version)
        self._move(parked, ApprovalState.DISPATCHED)

    async def _check_credential(self, parked: ParkedCall) -> None:
        """Void an approval whose caller's credential was revoked meanwhile. Raises `Refusal` then."""
        approved = parked.state is ApprovalState.APPROVED
        if approved and self._still is not None and not await self._still(parked.caller.principal):
            self.cancel(parked)
            raise Refusal(Reason.APPROVAL_EXPIRED, ENDED)

    def _check(self, parked: ParkedCall, digest: str, policy_version: str) -> None:
        """Check that the approval is for exactly this call, and not used. Raises `Refusal` if it is not valid."""
        match parked.state:
            case ApprovalState.APPROVED:
                pass
            case ApprovalState.DECLINED:
                raise Refusal(Reason.APPROVAL_DECLINED, "A person declined this call.")
            case ApprovalState.DISPATCHED:
                raise Refusal(Reason.APPROVAL_EXPIRED, "The approval was for one call: another just like it took it.")
            case ApprovalState.VOID if self._stopped:
                raise _stop_refusal()
            case ApprovalState.VOID:
                raise Refusal(
                    Reason.APPROVAL_EXPIRED,
                    "The question ended: the call, or its policy, is another.",
                )
            case ApprovalState.OPEN | ApprovalState.EXPIRED:
                raise Refusal(Reason.APPROVAL_EXPIRED, "No person approved this call in time.")
        expires = parked.caller.principal.expires
        if expires is not None and self._clock() >= expires:
            self._move(parked, ApprovalState.VOID)
            raise Refusal(Reason.APPROVAL_EXPIRED, ENDED)
        if (parked.question.digest, parked.question.policy_version) != (digest, policy_version):
            self._move(parked, ApprovalState.VOID)
            raise Refusal(Reason.APPROVAL_EXPIRED, "The call or its policy changed after it was approved.")

    def cancel(self, parked: ParkedCall) -> None:
        """Void the call, which its caller no longer wants."""
        if parked.state in (ApprovalState.OPEN, ApprovalState.APPROVED):
            self._move(parked, ApprovalState.VOID)

    def cancel_view(self, view: str) -> None:
        """Void all calls of a view that has closed."""
        for parked in list(self._parked.values()):
            if parked.caller.view == view:
                self.cancel(parked)

    def cancel_excluded(self, admits: Callable[[Principal, str], bool]) -> None:
        """Void the calls of principals that may not use their app any more, by `admits`."""
        for parked in list(self._parked.values()):
            if not admits(parked.caller.principal, parked.caller.app):
                self.cancel(parked)

    def cancel_caused(self, cause: str) -> None:
        """Void all calls caused by the model's call `cause`, which was cancelled."""
        for parked in list(self._parked.values()):
            if parked.question.cause == cause:
                self.cancel(parked)

    def cancel_outdated(self, app: str, policy_version: str) -> None:
        """Void what was asked or approved under an older policy of the app."""
        for parked in list(self._parked.values()):
            if parked.question.app == app and parked.question.policy_version != policy_version:
                self.cancel(parked)

    def stop(self) -> None:
        """Void the open questions, and refuse new ones: the gateway stops, and no person can answer them."""
        self._stopped = True
        for parked in list(self._parked.values()):
            if parked.state is ApprovalState.OPEN:
                self.cancel(parked)

    def open(self) -> list[OpenQuestion]:
        """Return the questions that can be answered now, oldest first."""
        return self.own()

    def own(self) -> list[OpenQuestion]:
        """Return those whose calls wait in this process: all of them."""
        self.sweep()
        return [_open_question(parked) for parked in self._parked.values() if parked.state is ApprovalState.OPEN]

    def state(self, id: str) -> ApprovalState | None:
        """Return the state of the call `id`, None if it is unknown."""
        parked = self._parked.get(id)
        return parked.state if parked is not None else None

    def asks_about(self, view: str) -> bool:
        """Return whether a question of this view is open."""
        return any(
            parked.state is ApprovalState.OPEN and parked.caller.view == view for parked in self._parked.values()
        )

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a question comes, is answered or ends; the returned function unregisters it."""
        return self._watchers.add(callback)

    def sweep(self) -> None:
        """End calls that have expired or lost their caller, and delete those that ended long ago."""
        now = self._steady()
        for parked in list(self._parked.values()):
            if parked.state is ApprovalState.OPEN and (
                now >= parked.expires or self._clock() >= parked.question.expires
            ):
                self._move(parked, ApprovalState.EXPIRED)
            elif (
                parked.state in (ApprovalState.OPEN, ApprovalState.APPROVED)
                and not parked.holding
                and now - parked.asked_at > SILENCE
            ):
                self._move(parked, ApprovalState.VOID)
            elif parked.ended is not None and not parked.holding and now - parked.ended > KEPT:
                del self._parked[parked.question.id]

    async def keep(self) -> None:
        """Sweep once a second, so that watchers are notified; runs until cancelled."""
        while True:
            await asyncio.sleep(1)
            self.sweep()

    def _note_refusal(self, caller: Caller) -> None:
        now = self._steady()
        self._declined = {who: times for who, times in self._declined.items() if now - times[-1] < REFUSAL_WINDOW}
        self._declined.setdefault(_who(caller), deque(maxlen=REFUSALS)).append(now)

    def _move(self, parked: ParkedCall, state: ApprovalState) -> None:
        """Change the state by a decision of this process."""
        self._note(parked.question.id, state)
        self._set(parked, state)

    def _note(self, id: str, state: ApprovalState) -> None:
        """Note a state that is to be stored: none, since all of them end with the process."""

    def _set(self, parked: ParkedCall, state: ApprovalState) -> None:
        parked.state = state
        if state is not ApprovalState.APPROVED:
            parked.ended = self._steady()
        parked.changed.set()
        self._watchers.notify()


def _open_question(parked: ParkedCall) -> OpenQuestion:
    return OpenQuestion(parked.question, parked.caller.principal)


def _who(caller: Caller) -> tuple[str, str, str | None]:
    return (caller.principal.id, caller.app, caller.view)


def _belongs(parked: ParkedCall, caller: Caller) -> bool:
    return _who(parked.caller) == _who(caller)


def insistent(caller: Caller) -> Refusal:
    """Return the refusal of a view of which a person declined three calls recently."""
    _DECLINED.report(caller.principal.id)
    return Refusal(Reason.APPROVAL_DECLINED, "A person declined three calls of this view within five minutes.")


def check_shown(ask: Ask, caller: Caller) -> None:
    """Refuse a call of which a person cannot be shown all."""
    if len(ask.body) > SHOWN:
        _OPEN.report(caller.principal.id)
        raise Refusal(Reason.APPROVAL_UNAVAILABLE, f"A body of more than {SHOWN} bytes cannot be shown to a person.")


def check_room(caller: Caller, of_principal: int, of_view: int) -> None:
    """Refuse a further question of a principal and view that have this many unfinished ones."""
    if of_principal >= PER_PRINCIPAL or (caller.view is not None and of_view >= PER_VIEW):
        _OPEN.report(caller.principal.id)
        raise Refusal(Reason.APPROVAL_UNAVAILABLE, "Too many calls wait for an approval already. Answer those first.")


def hasty(caller: Caller, retry_after: float) -> Refusal:
    """Return the refusal of a principal whose calls asked too many questions recently."""
    _ASKED.report(caller.principal.id)
    wait = math.ceil(retry_after)
    detail = f"More than {ASKING.count} questions in {ASKING.period:g} seconds. Try again in {wait} s."
    return Refusal(Reason.APPROVAL_UNAVAILABLE, detail, headers=(("retry-after", str(wait)),))


def _stop_refusal() -> Refusal:
    return Refusal(Reason.STOPPING, UNANSWERED, headers=[("retry-after", "5")])


def _same(parked: ParkedCall, ask: Ask, caller: Caller) -> bool:
    parked_call = (parked.question.digest, parked.question.policy_version)
    return _belongs(parked, caller) and parked_call == (ask.digest, ask.policy_version)


class MemoryGrants:
    """The port `Grants` of one process, in memory. `clock` gives seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._watchers = Watchers[[]]()

    async def give(self, question: Question, principal: Principal, by: str) -> Grant:
        """Store a grant for the rule of `question`. Raises ValueError if the policy allows no grant."""
        grant = new_grant(question, principal, by, self._clock())
        mine = [one for one in self.now() if one.principal.id == principal.id]
        for one in mine[: max(0, len(mine) - MOST + 1)]:
            report_evicted(principal)
            del self._grants[one.id]
        self._grants[grant.id] = grant
        self._watchers.notify()
        return grant

    async def covering(self, caller: Caller, rule: str, policy_version: str) -> Grant | None:
        """Return the grant under which a call may run without a question, if any."""
        scope = (caller.principal.id, caller.app, rule, policy_version)
        held = (
            grant
            for grant in self._grants.values()
            if (grant.principal.id, grant.app, grant.rule, grant.policy_version) == scope
        )
        now = self._clock()
        return next((grant for grant in held if grant.created <= now < grant.expires), None)

    def now(self) -> list[Grant]:
        """Return the valid grants, oldest first."""
        now = self._clock()
        self._grants = {id: grant for id, grant in self._grants.items() if grant.created <= now < grant.expires}
        return list(self._grants.values())

    async def revoke(self, id: str) -> Grant:
        """End a grant now. Raises `KeyError` if there is none."""
        grant = self._grants.pop(id)
        self._watchers.notify()
        return grant

    def cancel_outdated(self, app: str, policy_version: str) -> None:
        """End the grants under an older policy of the app."""
        live = {
            id: grant
            for id, grant in self._grants.items()
            if grant.app != app or grant.policy_version == policy_version
        }
        if len(live) < len(self._grants):
            self._grants = live
            self._watchers.notify()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a grant comes or goes; the returned function unregisters it."""
        return self._watchers.add(callback)


def new_grant(question: Question, principal: Principal, by: str, now: float) -> Grant:
    """Return a grant for the rule of `question`, from `now` on. Raises ValueError if the policy allows none."""
    if question.grant is None or not question.rule:
        raise ValueError("The policy allows no grant here.")
    return Grant(
        id=secrets.token_hex(16),  # typed at a command line, like that of a question
        principal=principal,
        app=question.app,
        rule=question.rule,
        policy_version=question.policy_version,
        message=question.message,
        by=by,
        created=now,
        expires=now + question.grant,
    )


def report_evicted(principal: Principal) -> None:
    """Count that an old grant of this principal made room for another one."""
    _GRANTS.report(principal.id)


class MemoryApprovedVersions:
    """The port `ApprovedVersions` of one process, in memory."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    async def is_approved(self, app: str, version: str) -> bool:
        """Return whether this is the approved version."""
        return self._versions.get(app) == version

    async def approve(self, app: str, version: str) -> None:
        """Make this the approved version."""
        self._versions[app] = version

    async def supersede(self, app: str, version: str) -> None:
        """Forget the approved version unless it is this one."""
        if not await self.is_approved(app, version):
            self._versions.pop(app, None)
