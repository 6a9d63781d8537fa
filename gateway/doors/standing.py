"""What outlives the look at a caller: streams, sockets and waiting calls end when what proved the caller ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.model import Principal
from gateway.stores.issued import IssuedTokens
from gateway.stores.sessions import Sessions

LOOK = 2.0
"""Seconds between two looks: so long something may go on after its token was revoked, or its login ended elsewhere."""


class Standing:
    """What is open now on behalf of callers who can come to be nobody."""

    def __init__(self, tokens: IssuedTokens, sessions: Sessions, clock: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._sessions = sessions
        self._clock = clock
        self._held: dict[object, tuple[Principal, Callable[[], None]]] = {}

    @contextmanager
    def held(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if the principal is nobody any more within the block."""
        if principal.expires is None and not principal.proof:
            yield
            return
        key = object()
        self._held[key] = (principal, end)
        try:
            yield
        finally:
            del self._held[key]

    async def run(self) -> None:
        """Look at them, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            await self.look()

    async def look(self) -> None:
        """End what has lost its caller. While the database is down only the time of a login counts."""
        now = self._clock()
        proofs = {principal.proof for principal, _ in self._held.values()}
        ended = {proof for proof in proofs if proof and not await self._good(proof, now)}
        for principal, end in list(self._held.values()):
            if principal.proof in ended or (principal.expires is not None and principal.expires <= now):
                end()

    async def _good(self, proof: str, now: float) -> bool:
        kind, _, id = proof.partition(":")
        try:
            if kind == "session":
                return await self._sessions.lives(id, now)
            grant = await self._tokens.find(id)
        except OSError:
            return True
        return grant is not None and grant.good(now)
