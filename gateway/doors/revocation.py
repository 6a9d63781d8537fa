"""Revocation: streams, sockets and waiting calls end when the credential of their caller ends.
Each source of credentials (the logins, the gateway's own tokens, each issuer) is queried separately, so that an
unavailable one does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.callers.entitlements import Entitlements
from gateway.doors.issuers import INTROSPECTED
from gateway.errors import Unidentified
from gateway.model import Principal
from gateway.ports.sessions import ApiTokens, Sessions

LOOK = 2.0
"""Seconds between two checks; a revocation, or a logout elsewhere, takes effect at the next one."""

UNCHECKED = 300.0
"""Seconds for which a stream or call may continue while its credential cannot be checked."""

AT_ONCE = 8
"""Credentials checked concurrently at one source."""

ANSWER = 6.0
"""Seconds that a source has to answer about one credential."""

ROUND = 10.0
"""Seconds of one round of checks at a source; the credentials left over come first in the next round."""

LONGEST_PAUSE = 16.0
"""Seconds between two rounds at a source that has not answered for a while."""

LOGIN: Final = "session"
"""The kind of proof of a login."""

OWN: Final = "token"
"""The kind of proof of a token of the gateway's own."""

TOGETHER: Final = 256
"""Open things that are reconsidered before others get their turn."""

log = logging.getLogger(__name__)


class IntrospectingIssuer(Protocol):
    """Knows the tokens that it introspected: `gateway.doors.issuers.Issuer`."""

    async def active(self, id: str, *, anew: bool) -> bool | None:
        """Return whether a token is active, None for an unknown one. Raises `Unidentified` while the issuer is down."""
        ...


@dataclass(slots=True, eq=False)
class _Credential:
    """One proof that something open depends on, and the callbacks that end it.
    `checked_at` is the time of the last check, `unknown_since` that since which none has succeeded; on the monotonic
    clock.
    """

    proof: str
    ends: dict[object, Callable[[], None]] = field(default_factory=dict)
    checked_at: float = float("-inf")
    unknown_since: float | None = None

    @property
    def kind(self) -> str:
        """The kind of credential, which selects its sources."""
        return self.proof.partition(":")[0]

    @property
    def id(self) -> str:
        """The id of the credential at these sources."""
        return self.proof.partition(":")[2]


class _Source:
    """One source of credentials. `ask` returns True, False, or None for a credential of another source."""

    def __init__(self, name: str, kind: str, ask: Callable[[str], Awaitable[bool | None]]) -> None:
        self.name = name
        self.kind = kind
        self.ask = ask
        self._pause = 0.0
        self._next = float("-inf")

    def due(self, now: float) -> bool:
        """Return whether to query it now."""
        return now >= self._next

    def note_answer(self) -> None:
        """Query it in each round again."""
        if self._pause:
            log.info("%s can be asked again whether credentials hold", self.name)
        self._pause, self._next = 0.0, float("-inf")

    def note_failure(self, now: float, why: BaseException) -> None:
        """Increase the pause after a round without any answer."""
        if not self._pause:
            log.warning(
                "%s cannot be asked whether credentials are still valid: %s. Their streams and calls are closed after "
                "%g seconds without an answer",
                self.name,
                str(why).removesuffix(".") or f"no answer within {ANSWER:g} seconds",
                UNCHECKED,
            )
        self._pause = min(max(2 * self._pause, LOOK), LONGEST_PAUSE)
        self._next = now + self._pause


class _HeldBlock:
    """A block that depends on a caller's credential and access; a generator would cost each request more."""

    __slots__ = ("_revocations", "app", "end", "needs", "principal")

    def __init__(
        self, revocations: Revocations, principal: Principal, end: Callable[[], None], app: str, needs: str
    ) -> None:
        self._revocations = revocations
        self.principal = principal
        self.end = end
        self.app = app
        self.needs = needs

    def __enter__(self) -> None:
        self._revocations.begin(self)

    def __exit__(self, *_: object) -> None:
        self._revocations.finish(self)


class Revocations:
    """Ends what is open on behalf of callers once their credential, or their access to an app, ends.

    `issuers` returns those of access tokens, `entitlements` are the access rules. `keeps` returns whether a caller is
    still one under the current configuration, with what it had of a capability.
    """

    def __init__(
        self,
        tokens: ApiTokens,
        sessions: Sessions,
        issuers: Callable[[], Collection[IntrospectingIssuer]] = tuple,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        entitlements: Entitlements | None = None,
        keeps: Callable[[Principal, str, float], bool] = lambda _, __, ___: True,
    ) -> None:
        self._entitlements = entitlements
        self._keeps = keeps
        self._open: dict[_HeldBlock, None] = {}
        if entitlements is not None:
            entitlements.watch(self._access_changed)
        self._tokens = tokens
        self._sessions = sessions
        self._issuers = issuers
        self._clock = clock
        self._steady = steady
        self._blocks: dict[_HeldBlock, None] = {}
        self._credentials: dict[str, _Credential] = {}
        self._own = [
            _Source("the database of logins", LOGIN, self._login),
            _Source("the database of tokens", OWN, self._token),
        ]
        self._of_issuers: dict[str, _Source] = {}

    @property
    def _sources(self) -> list[_Source]:
        """All sources; that of an issuer is the same as long as the configuration has it."""
        known = self._of_issuers
        issuers = {str(issuer): issuer for issuer in self._issuers()}
        self._of_issuers = {name: known.get(name) or self._of_issuer(name) for name in issuers}
        return [*self._own, *self._of_issuers.values()]

    def _of_issuer(self, name: str) -> _Source:
        async def ask(id: str) -> bool | None:
            own_issuer = next((issuer for issuer in self._issuers() if str(issuer) == name), None)
            return await own_issuer.active(id, anew=False) if own_issuer is not None else None

        return _Source(f"the issuer {name}", INTROSPECTED, ask)

    def hold(
        self, principal: Principal, end: Callable[[], None], app: str = "", needs: str = ""
    ) -> AbstractContextManager[None]:
        """Call `end` when the credential of `principal` is revoked or expires while the block runs.

        So is it when the principal may no longer use `app`, an app or an upstream, or is no caller any more after a
        change of the configuration, or loses the capability `needs`; "" is any of those that it has.
        """
        return _HeldBlock(self, principal, end, app, needs)

    def begin(self, block: _HeldBlock) -> None:
        """Watch over a block until `finish`."""
        self._open[block] = None
        if block.principal.expires is not None:
            self._blocks[block] = None
        if proof := block.principal.proof:
            self._credentials.setdefault(proof, _Credential(proof)).ends[block] = block.end

    def finish(self, block: _HeldBlock) -> None:
        """End what `begin` has begun."""
        del self._open[block]
        self._blocks.pop(block, None)
        if proof := block.principal.proof:
            credential = self._credentials[proof]
            del credential.ends[block]
            if not credential.ends:
                del self._credentials[proof]

    def accepts(self, principal: Principal) -> bool:
        """Return whether a caller who was identified before is still one, and may use the doors that it could use."""
        now = self._clock()
        return all(self._keeps(principal, door, now) for door in ("mcp", "bridge", "app"))

    async def reconsider(self, keeps: Callable[[Principal, str, float], bool]) -> None:
        """End what is open for callers who lost it when the configuration changed, by `keeps`."""
        now = self._clock()
        answers: dict[tuple[int, str], bool] = {}  # the streams of one token share its principal
        for number, block in enumerate(list(self._open)):
            key = (id(block.principal), block.needs)
            if key not in answers:
                answers[key] = keeps(block.principal, block.needs, now)
            if not answers[key] and block in self._open:
                _end(block.end)
            if not number % TOGETHER:
                await asyncio.sleep(0)

    async def still(self, principal: Principal) -> bool:
        """Return whether the principal's credential is still valid, after a new lookup; False if that fails."""
        if (principal.expires is not None and principal.expires <= self._clock()) or not self.accepts(principal):
            return False
        kind, _, id = principal.proof.partition(":")
        try:
            if not kind:
                return True
            if kind == LOGIN:
                return await self._login(id)
            if kind == OWN:
                return await self._token(id)
            for issuer in self._issuers():
                if (active := await issuer.active(id, anew=True)) is not None:
                    return active
        except (OSError, Unidentified) as error:
            log.warning("nothing is sent for a caller whose credential cannot be looked up: %s", error)
        return False

    async def run(self) -> None:
        """Check each source every two seconds, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            checks: dict[_Source, asyncio.Task[None]] = {}
            while True:
                sources = self._sources
                for source in checks.keys() - sources:
                    checks.pop(source).cancel()
                for source in sources:
                    if source not in checks:
                        checks[source] = tasks.create_task(self._repeat(source))
                self._look_at_clock()
                await asyncio.sleep(LOOK)

    async def _repeat(self, source: _Source) -> None:
        while True:
            await asyncio.sleep(LOOK)
            await self._look_at(source)

    async def look(self) -> None:
        """End everything whose credential has ended: one check of expiry times and of every source that is due."""
        self._look_at_clock()
        async with asyncio.TaskGroup() as tasks:
            for source in self._sources:
                tasks.create_task(self._look_at(source))

    def _look_at_clock(self) -> None:
        now, steady = self._clock(), self._steady()
        for block in list(self._blocks):
            if block.principal.expires is not None and block.principal.expires <= now:
                _end(block.end)
        for credential in list(self._credentials.values()):
            if credential.unknown_since is not None and steady - credential.unknown_since >= UNCHECKED:
                log.warning("a stream or call is closed: its credential could not be checked for %g s", UNCHECKED)
                self._end_all(credential)

    async def _look_at(self, source: _Source) -> None:
        """Check a source's credentials, the least recently checked first."""
        if not source.due(self._steady()):
            return
        mine = [one for one in self._credentials.values() if one.kind == source.kind]
        waiting = iter(sorted(mine, key=lambda one: one.checked_at))
        answers: list[bool] = []
        failures: list[BaseException] = []

        async def work() -> None:
            for credential in waiting:
                try:
                    answers.append(await self._ask(source, credential))
                except Exception as error:  # noqa: BLE001  an error about one credential must not affect the others
                    failures.append(error)

        try:
            async with asyncio.timeout(ROUND), asyncio.TaskGroup() as tasks:
                for _ in range(min(AT_ONCE, len(mine))):
                    tasks.create_task(work())
        except TimeoutError as error:
            failures.append(error)
        if any(answers):
            source.note_answer()
        elif failures:
            source.note_failure(self._steady(), failures[-1])

    async def _ask(self, source: _Source, credential: _Credential) -> bool:
        """Return whether the source knew the credential. Raises the errors of `ask`, and TimeoutError."""
        credential.checked_at = self._steady()
        if credential.unknown_since is None:
            credential.unknown_since = credential.checked_at
        async with asyncio.timeout(ANSWER):
            good = await source.ask(credential.id)
        if good is None:
            return False
        credential.unknown_since = None
        if not good:
            self._end_all(credential)
        return True

    def _access_changed(self, principal: Principal | None) -> None:
        """End everything of `principal`, or of all, that is open for an app that they may no longer use."""
        for block in list(self._open):
            concerned = block.app and (principal is None or block.principal == principal)
            if (
                concerned
                and self._entitlements is not None
                and not self._entitlements.admits(block.principal, block.app)
            ):
                _end(block.end)

    def _end_all(self, credential: _Credential) -> None:
        for end in list(credential.ends.values()):
            _end(end)

    async def _login(self, id: str) -> bool:
        return await self._sessions.lives(id, self._clock())

    async def _token(self, id: str) -> bool:
        grant = await self._tokens.find(id)
        return grant is not None and grant.good(self._clock())


def _end(end: Callable[[], None]) -> None:
    """End one thing; its error must not affect the others."""
    try:
        end()
    except Exception:
        log.exception("something that was open for a caller whose credential ended could not be ended")
