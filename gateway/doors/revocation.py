"""Revocation: streams, sockets and waiting calls end when the credential of their caller ends.
Each source of credentials (the logins, the gateway's own tokens, each issuer) is queried separately, so that an
unavailable one does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager, nullcontext
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

_NOTHING: Final = nullcontext()

log = logging.getLogger(__name__)


class IntrospectingIssuer(Protocol):
    """Knows the tokens that it introspected: `gateway.doors.issuers.Issuer`."""

    async def active(self, id: str, *, anew: bool) -> bool | None:
        """Return whether a token is active, None for an unknown one. Raises `Unidentified` while the issuer is down."""
        ...


@dataclass(slots=True, eq=False)
class _Credential:
    """One proof that something open depends on, and the callbacks that end it.
    `looked` is the time of the last check, `unknown` that since which none has succeeded; on the monotonic clock.
    """

    proof: str
    ends: dict[object, Callable[[], None]] = field(default_factory=dict)
    looked: float = float("-inf")
    unknown: float | None = None

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


class _Held:
    """A block that depends on a caller's credential and access; a generator would cost each request more."""

    __slots__ = ("_app", "_end", "_principal", "_revocations")

    def __init__(self, revocations: Revocations, principal: Principal, end: Callable[[], None], app: str) -> None:
        self._revocations = revocations
        self._principal = principal
        self._end = end
        self._app = app

    def __enter__(self) -> None:
        self._revocations.begin(self, self._principal, self._end, self._app)

    def __exit__(self, *_: object) -> None:
        self._revocations.finish(self, self._principal)


class Revocations:
    """Ends what is open on behalf of callers once their credential, or their access to an app, ends.

    `issuers` are those of access tokens, `entitlements` the access rules.
    """

    def __init__(
        self,
        tokens: ApiTokens,
        sessions: Sessions,
        issuers: Collection[IntrospectingIssuer] = (),
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        entitlements: Entitlements | None = None,
    ) -> None:
        self._entitlements = entitlements
        self._of_apps: dict[object, tuple[Principal, str, Callable[[], None]]] = {}
        if entitlements is not None:
            entitlements.watch(self._access_changed)
        self._tokens = tokens
        self._sessions = sessions
        self._issuers = issuers
        self._clock = clock
        self._steady = steady
        self._timed: dict[object, tuple[float, Callable[[], None]]] = {}
        self._credentials: dict[str, _Credential] = {}
        self._sources = [
            _Source("the database of logins", LOGIN, self._login),
            _Source("the database of tokens", OWN, self._token),
            *(_Source(f"the issuer {issuer}", INTROSPECTED, _asking(issuer)) for issuer in issuers),
        ]

    def hold(self, principal: Principal, end: Callable[[], None], app: str = "") -> AbstractContextManager[None]:
        """Call `end` when the credential of `principal` is revoked or expires while the block runs.

        So is it when the principal may no longer use `app`, an app or an upstream.
        """
        lasting = principal.expires is None and not principal.proof
        return _NOTHING if lasting and not app else _Held(self, principal, end, app)

    def begin(self, key: object, principal: Principal, end: Callable[[], None], app: str) -> None:
        """Call `end` from now on until `finish`; `key` identifies the block."""
        if app:
            self._of_apps[key] = (principal, app, end)
        if principal.expires is not None:
            self._timed[key] = (principal.expires, end)
        if proof := principal.proof:
            self._credentials.setdefault(proof, _Credential(proof)).ends[key] = end

    def finish(self, key: object, principal: Principal) -> None:
        """End what `begin` has begun."""
        self._of_apps.pop(key, None)
        self._timed.pop(key, None)
        if proof := principal.proof:
            credential = self._credentials[proof]
            del credential.ends[key]
            if not credential.ends:
                del self._credentials[proof]

    async def still(self, principal: Principal) -> bool:
        """Return whether the principal's credential is still valid, after a new lookup; False if that fails."""
        if principal.expires is not None and principal.expires <= self._clock():
            return False
        kind, _, id = principal.proof.partition(":")
        try:
            if not kind:
                return True
            if kind == LOGIN:
                return await self._login(id)
            if kind == OWN:
                return await self._token(id)
            for issuer in self._issuers:
                if (active := await issuer.active(id, anew=True)) is not None:
                    return active
        except (OSError, Unidentified) as error:
            log.warning("nothing is sent for a caller whose credential cannot be looked up: %s", error)
        return False

    async def run(self) -> None:
        """Check each source every two seconds, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for source in self._sources:
                tasks.create_task(self._repeat(source))
            while True:
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
        for expires, end in list(self._timed.values()):
            if expires <= now:
                _end(end)
        for credential in list(self._credentials.values()):
            if credential.unknown is not None and steady - credential.unknown >= UNCHECKED:
                log.warning("a stream or call is closed: its credential could not be checked for %g s", UNCHECKED)
                self._end_all(credential)

    async def _look_at(self, source: _Source) -> None:
        """Check a source's credentials, the least recently checked first."""
        if not source.due(self._steady()):
            return
        mine = [one for one in self._credentials.values() if one.kind == source.kind]
        waiting = iter(sorted(mine, key=lambda one: one.looked))
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
        credential.looked = self._steady()
        if credential.unknown is None:
            credential.unknown = credential.looked
        async with asyncio.timeout(ANSWER):
            good = await source.ask(credential.id)
        if good is None:
            return False
        credential.unknown = None
        if not good:
            self._end_all(credential)
        return True

    def _access_changed(self, principal: Principal | None) -> None:
        """End everything of `principal`, or of all, that is open for an app that they may no longer use."""
        for owner, app, end in list(self._of_apps.values()):
            concerned = principal is None or owner == principal
            if concerned and self._entitlements is not None and not self._entitlements.admits(owner, app):
                _end(end)

    def _end_all(self, credential: _Credential) -> None:
        for end in list(credential.ends.values()):
            _end(end)

    async def _login(self, id: str) -> bool:
        return await self._sessions.lives(id, self._clock())

    async def _token(self, id: str) -> bool:
        grant = await self._tokens.find(id)
        return grant is not None and grant.good(self._clock())


def _asking(issuer: IntrospectingIssuer) -> Callable[[str], Awaitable[bool | None]]:
    return lambda id: issuer.active(id, anew=False)


def _end(end: Callable[[], None]) -> None:
    """End one thing; its error must not affect the others."""
    try:
        end()
    except Exception:
        log.exception("something that was open for a caller whose credential ended could not be ended")
