"""Approvals and grants: the protocols of open questions and of what persons allowed for a while.

The process that parks a call owns it: only that process dispatches or cancels it. Any process may list and answer it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gateway.model import Caller, Headers, Principal, Question, Request, Response


class ApprovalState(StrEnum):
    """The state of a parked call. Only `open` can be answered, only `approved` can be dispatched."""

    OPEN = "open"
    APPROVED = "approved"
    DECLINED = "declined"
    EXPIRED = "expired"
    VOID = "void"
    DISPATCHED = "dispatched"


@dataclass(frozen=True, slots=True)
class Ask:
    """A call for which an approval is needed: the words for the person, and the raw call, bound by its digest.

    `question_timeout`: the seconds for which the question stays open; None for the configured time.
    """

    message: str
    method: str
    target: str
    digest: str
    policy_version: str
    headers: Headers = ()
    body: bytes = b""
    grant: float | None = None
    question_timeout: float | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that waits for a person, with the question."""

    question: Question


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that can be answered now, and the principal whose call waits, in whichever process."""

    question: Question
    principal: Principal


@dataclass(slots=True, eq=False)
class ParkedCall:
    """One waiting call, in the process that owns it. `request` is None for a tool call, which its caller repeats.

    `asked_at`, `ended` and `expires` are on the steady clock: setting the wall clock back extends no question.
    """

    question: Question
    caller: Caller
    request: Request | None
    expires: float
    state: ApprovalState = ApprovalState.OPEN
    answered_by: str | None = None
    asked_at: float = 0.0
    holding: int = 0
    ended: float | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    result: asyncio.Future[Response] | None = None


class Approvals(Protocol):
    """The open questions of a gateway.

    Each change of state is one compare-and-set: of concurrent answers one counts, and an approved call is dispatched
    once. What reads without `await` may lag behind other processes by a second; what decides is awaited. An
    implementation that cannot reach its store raises `Refusal` (`approval-unavailable`, status 503) from `park`,
    `answer`, `question` and `dispatch`: nothing is sent then.
    """

    async def park(self, ask: Ask, caller: Caller, request: Request | None = None) -> Pending:
        """Ask a person, or join the open question of the same view about the same call.

        Its bounds count over all processes. Raises `Refusal`: `approval-declined` after three refusals in five minutes,
        `approval-unavailable` when too many wait already, or were asked recently.
        """
        ...

    async def question(self, id: str) -> OpenQuestion | None:
        """Return the question `id` if it can be answered now."""
        ...

    async def answer(self, id: str, approve: bool, by: str) -> ApprovalState | None:
        """Take a person's answer, and return the new state; None if the question is unknown, or not open any more."""
        ...

    def find(self, id: str, caller: Caller) -> ParkedCall:
        """Return the parked call `id` of this caller, in this process.

        Raises `Refusal` (`approval-expired`) if it is unknown or another caller's.
        """
        ...

    async def wait(self, id: str, caller: Caller, seconds: float) -> ParkedCall:
        """Return the parked call once it is answered or `seconds` have passed; waiting counts as polling.

        Raises `Refusal` like `find`.
        """
        ...

    async def dispatch(self, parked: ParkedCall, digest: str, policy_version: str) -> None:
        """Use the approval, once, for exactly the call that was shown, after a new look-up of its caller's credential.

        Raises `Refusal` (`approval-declined`, `approval-expired`) if the approval is not valid.
        """
        ...

    def cancel(self, parked: ParkedCall) -> None:
        """Void a call of this process, which its caller no longer wants: at once, whatever other processes answer."""
        ...

    def cancel_view(self, view: str) -> None:
        """Void the calls of a view that has closed."""
        ...

    def cancel_excluded(self, admits: Callable[[Principal, str], bool]) -> None:
        """Void the calls of principals that may not use their app any more, by `admits`."""
        ...

    def cancel_caused(self, cause: str) -> None:
        """Void the calls caused by the model's call `cause`, which was cancelled."""
        ...

    def cancel_outdated(self, app: str, policy_version: str) -> None:
        """Void what was asked or approved in this process under an older policy of the app."""
        ...

    def open(self) -> list[OpenQuestion]:
        """Return the questions of all processes that can be answered now, oldest first."""
        ...

    def own(self) -> list[OpenQuestion]:
        """Return those of them whose calls wait in this process."""
        ...

    def state(self, id: str) -> ApprovalState | None:
        """Return the state of the question `id`, None if it is unknown."""
        ...

    def asks_about(self, view: str) -> bool:
        """Return whether a question of this view, whose calls are in this process, is open."""
        ...

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a question comes, is answered or ends; the returned function unregisters it."""
        ...

    def stop(self) -> None:
        """Void the open questions of this process, and refuse new ones: it stops, and no person can answer them."""
        ...

    def sweep(self) -> None:
        """End calls of this process that have expired or lost their caller."""
        ...

    async def keep(self) -> None:
        """Sweep regularly, so that watchers are notified; runs until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Grant:
    """Calls of `principal` under one rule of one version of an app's policy run without a question until `expires`.

    `rule` is a method and a route, or a tool with the digest of its definition; times are in seconds since the epoch.
    """

    id: str
    principal: Principal
    app: str
    rule: str
    policy_version: str
    message: str
    by: str
    created: float
    expires: float


class Grants(Protocol):
    """The grants of a gateway.

    `covering` sees a revocation by any process that returned before it began, and grants nothing while its store cannot
    be reached. `now` may lag behind other processes by a second.
    """

    async def give(self, question: Question, principal: Principal, by: str) -> Grant:
        """Store a grant for the rule of `question`; beyond a number per principal its oldest ends.

        Raises ValueError if the policy allows no grant.
        """
        ...

    async def covering(self, caller: Caller, rule: str, policy_version: str) -> Grant | None:
        """Return the grant under which a call may run without a question, if any."""
        ...

    def now(self) -> list[Grant]:
        """Return the valid grants, oldest first."""
        ...

    async def revoke(self, id: str) -> Grant:
        """End a grant now. Raises `KeyError` if there is none: of concurrent revocations one succeeds."""
        ...

    def cancel_outdated(self, app: str, policy_version: str) -> None:
        """End the grants under an older policy of the app, which cover nothing under the new one in any case."""
        ...

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a grant comes or goes; the returned function unregisters it."""
        ...


class ApprovedVersions(Protocol):
    """The version of each app's policy and access that a person has approved last; the app "" stands for settings.

    Methods raise OSError while the store is down.
    """

    async def is_approved(self, app: str, version: str) -> bool:
        """Return whether this is the approved version."""
        ...

    async def approve(self, app: str, version: str) -> None:
        """Make this the approved version: it may take effect in every process."""
        ...

    async def supersede(self, app: str, version: str) -> None:
        """Forget the approved version unless it is this one, which is in effect now."""
        ...
