"""Grants: "this, for ten minutes", if the policy allows a person to permit so; listed, scoped, revocable.

They are kept in memory: a restart ends all, a new version of the policy ends those under the older one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from gateway.bounds import Area, Bound
from gateway.model import Caller, Principal, Question
from gateway.ports.approvals import Grant

MOST = 100
"""Grants of one principal; the oldest is evicted first."""

BOUNDS: Final = (
    Bound(
        Area.APPROVALS,
        "grants",
        f"{MOST} per principal",
        "the oldest of that principal ends",
    ),
)

(_GRANTS,) = BOUNDS


class MemoryGrants:
    """The port `Grants` of one process, in memory. `clock` gives seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._watchers: set[Callable[[], None]] = set()

    async def give(self, question: Question, principal: Principal, by: str) -> Grant:
        """Store a grant for the rule of `question`. Raises ValueError if the policy allows no grant."""
        if question.grant is None or not question.rule:
            raise ValueError("The policy allows no grant here.")
        now = self._clock()
        mine = [grant for grant in self.now() if grant.principal.id == principal.id]
        for grant in mine[: max(0, len(mine) - MOST + 1)]:
            _GRANTS.exceeded(principal.id)
            del self._grants[grant.id]
        grant = Grant(
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
        self._grants[grant.id] = grant
        self._notify()
        return grant

    async def covering(self, caller: Caller, rule: str, policy_version: str) -> Grant | None:
        """Return the grant under which a call may run without a question, if any."""
        wanted = (caller.principal.id, caller.app, rule, policy_version)
        held = (
            grant
            for grant in self._grants.values()
            if (grant.principal.id, grant.app, grant.rule, grant.policy_version) == wanted
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
        self._notify()
        return grant

    def cancel_outdated(self, app: str, policy_version: str) -> None:
        """End the grants under an older policy of the app."""
        kept = {
            id: grant
            for id, grant in self._grants.items()
            if grant.app != app or grant.policy_version == policy_version
        }
        if len(kept) < len(self._grants):
            self._grants = kept
            self._notify()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a grant comes or goes; the returned function unregisters it."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)

    def _notify(self) -> None:
        for watcher in list(self._watchers):
            watcher()
