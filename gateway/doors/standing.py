"""Revocation: streams, sockets and waiting calls end when the credential of their caller ends.

Each source of credentials (the logins, the gateway's own tokens, each issuer) is asked on its own, so that one that is
down delays nobody whose credential another one knows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.doors.issuers import INTROSPECTED
from gateway.errors import Unidentified
from gateway.model import Principal
from gateway.stores.issued import IssuedTokens
from gateway.stores.sessions import Sessions

LOOK = 2.0
"""Seconds between two looks: so long something may go on after its token was revoked, or its login ended elsewhere."""

UNCHECKED = 300.0
"""Seconds for which something may go on while nobody can say whether its credential still holds."""

AT_ONCE = 8
"""Credentials about which one source is asked at the same time."""

ANSWER = 6.0
"""Seconds that a source has to answer about one credential."""

ROUND = 10.0
"""Seconds of one look at a source; the credentials that it did not come to are the first of the next look."""

LONGEST_PAUSE = 16.0
"""Seconds between two looks at a source that has not answered for a while."""

LOGIN: Final = "session"
"""The kind of proof of a login."""

OWN: Final = "token"
"""The kind of proof of a token of the gateway's own."""

_NOTHING: Final = nullcontext()

log = logging.getLogger(__name__)


class TokenIssuer(Protocol):
    """Knows the tokens that it was asked about: `gateway.doors.issuers.Issuer`."""

    async def active(self, id: str, *, anew: bool) -> bool | None:
        """Whether a token is still good, None for one that it does not know. Raises `Unidentified` while it is down."""
        ...


@dataclass(slots=True, eq=False)
class _Credential:
    """One proof on whose strength something is open, and how to end that.

    `looked` is when the last look began, `unknown` since when no look has found it good; on the steady clock.
    """

    proof: str
    ends: dict[object, Callable[[], None]] = field(default_factory=dict)
    looked: float = float("-inf")
    unknown: float | None = None

    @property
    def kind(self) -> str:
        """Which sources know it."""
        return self.proof.partition(":")[0]

    @property
    def id(self) -> str:
        """Under what they know it."""
        return self.proof.partition(":")[2]


class _Source:
    """One source of credentials. `ask` gives True, False, or None for a credential of another source."""

    def __init__(self, name: str, kind: str, ask: Callable[[str], Awaitable[bool | None]]) -> None:
        self.name = name
        self.kind = kind
        self.ask = ask
        self._pause = 0.0
        self._next = float("-inf")

    def due(self, now: float) -> bool:
        """Whether to ask it now."""
        return now >= self._next

    def answered(self) -> None:
        """It is there: it is asked at each look."""
        if self._pause:
            log.info("%s can be asked again whether credentials hold", self.name)
        self._pause, self._next = 0.0, float("-inf")

    def failed(self, now: float, why: BaseException) -> None:
        """It did not answer at all in a whole look: the next one waits for longer."""
        if not self._pause:
            log.warning(
                "%s cannot be asked whether credentials still hold: %s. What is open on the strength of those ends "
                "after %g seconds without an answer",
                self.name,
                why,
                UNCHECKED,
            )
        self._pause = min(max(2 * self._pause, LOOK), LONGEST_PAUSE)
        self._next = now + self._pause


class Standing:
    """Everything that is open on behalf of callers whose credential may end. `issuers` are those of access tokens."""

    def __init__(
        self,
        tokens: IssuedTokens,
        sessions: Sessions,
        issuers: Collection[TokenIssuer] = (),
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
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

    def held(self, principal: Principal, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `end` when the credential of `principal` is revoked or expires while the block runs."""
        return _NOTHING if principal.expires is None and not principal.proof else self._hold(principal, end)

    @contextmanager
    def _hold(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        key, proof = object(), principal.proof
        if principal.expires is not None:
            self._timed[key] = (principal.expires, end)
        if proof:
            credential = self._credentials.setdefault(proof, _Credential(proof))
            credential.ends[key] = end
        try:
            yield
        finally:
            self._timed.pop(key, None)
            if proof:
                del credential.ends[key]
                if not credential.ends:
                    del self._credentials[proof]

    async def still(self, principal: Principal) -> bool:
        """Whether the credential of the principal still holds: looked up anew, false where that cannot be."""
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
        """Look at each source every two seconds, until cancelled."""
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
        """End everything whose credential has ended: one look at the clock and at every source that is due."""
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
                log.warning("a stream or call ends: nobody could say for %g s whether its credential holds", UNCHECKED)
                self._lost(credential)

    async def _look_at(self, source: _Source) -> None:
        """Ask about its credentials, those first that were not asked about for longest."""
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
                except Exception as error:  # noqa: BLE001  whatever fails about one credential is nothing to the others
                    failures.append(error)

        try:
            async with asyncio.timeout(ROUND), asyncio.TaskGroup() as tasks:
                for _ in range(min(AT_ONCE, len(mine))):
                    tasks.create_task(work())
        except TimeoutError as error:
            failures.append(error)
        if any(answers):
            source.answered()
        elif failures:
            source.failed(self._steady(), failures[-1])

    async def _ask(self, source: _Source, credential: _Credential) -> bool:
        """Whether the source knew it. Raises what `ask` raises, and TimeoutError."""
        credential.looked = self._steady()
        if credential.unknown is None:
            credential.unknown = credential.looked
        async with asyncio.timeout(ANSWER):
            good = await source.ask(credential.id)
        if good is None:
            return False
        credential.unknown = None
        if not good:
            self._lost(credential)
        return True

    def _lost(self, credential: _Credential) -> None:
        for end in list(credential.ends.values()):
            _end(end)

    async def _login(self, id: str) -> bool:
        return await self._sessions.lives(id, self._clock())

    async def _token(self, id: str) -> bool:
        grant = await self._tokens.find(id)
        return grant is not None and grant.good(self._clock())


def _asking(issuer: TokenIssuer) -> Callable[[str], Awaitable[bool | None]]:
    return lambda id: issuer.active(id, anew=False)


def _end(end: Callable[[], None]) -> None:
    """End one thing; an error of it is nothing to the others."""
    try:
        end()
    except Exception:
        log.exception("something that was open for a caller whose credential ended could not be ended")
