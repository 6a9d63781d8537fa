"""What outlives the look at a caller: streams, sockets and waiting calls end when what proved the caller ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol

from gateway.doors.issuers import INTROSPECTED
from gateway.errors import Unidentified
from gateway.model import Principal
from gateway.stores.issued import IssuedTokens
from gateway.stores.sessions import Sessions

LOOK = 2.0
"""Seconds between two looks: so long something may go on after its token was revoked, or its login ended elsewhere."""

_NOTHING: Final = nullcontext()


class TokenIssuer(Protocol):
    """Knows the tokens that it was asked about: `gateway.doors.issuers.Issuer`."""

    async def active(self, id: str, *, anew: bool) -> bool | None:
        """Whether a token is still good, None for one that it does not know. Raises `Unidentified` while it is down."""
        ...


class Standing:
    """What is open now on behalf of callers who can come to be nobody. `issuers` are those of access tokens."""

    def __init__(
        self,
        tokens: IssuedTokens,
        sessions: Sessions,
        issuers: Collection[TokenIssuer] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tokens = tokens
        self._sessions = sessions
        self._issuers = issuers
        self._clock = clock
        self._held: dict[object, tuple[Principal, Callable[[], None]]] = {}

    def held(self, principal: Principal, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `end` if the principal is nobody any more within the block."""
        return _NOTHING if principal.expires is None and not principal.proof else self._hold(principal, end)

    @contextmanager
    def _hold(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        key = object()
        self._held[key] = (principal, end)
        try:
            yield
        finally:
            del self._held[key]

    async def still(self, principal: Principal) -> bool:
        """Whether what proved the principal still does: looked up anew, false where that cannot be."""
        if principal.expires is not None and principal.expires <= self._clock():
            return False
        try:
            return not principal.proof or await self._good(principal.proof, self._clock(), anew=True)
        except (OSError, Unidentified):
            return False

    async def run(self) -> None:
        """Look at them, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            await self.look()

    async def look(self) -> None:
        """End what has lost its caller. While the database or an issuer is down only the time of a login counts."""
        now = self._clock()
        proofs = {principal.proof for principal, _ in self._held.values()}
        ended = await self._ended(proofs - {""}, now)
        for principal, end in list(self._held.values()):
            if principal.proof in ended or (principal.expires is not None and principal.expires <= now):
                end()

    async def _ended(self, proofs: Collection[str], now: float) -> set[str]:
        found = set()
        for proof in proofs:
            try:
                if not await self._good(proof, now):
                    found.add(proof)
            except (OSError, Unidentified):  # one that is down would be waited for again with every other
                break
        return found

    async def _good(self, proof: str, now: float, *, anew: bool = False) -> bool:
        """Raises OSError, `Unidentified` where it cannot be told."""
        kind, _, id = proof.partition(":")
        if kind == "session":
            return await self._sessions.lives(id, now)
        if kind == INTROSPECTED:
            told = [await issuer.active(id, anew=anew) for issuer in self._issuers]
            return next((active for active in told if active is not None), not anew)
        grant = await self._tokens.find(id)
        return grant is not None and grant.good(now)
