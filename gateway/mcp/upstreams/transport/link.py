"""One connection to an upstream: made on first use, and restored after a break."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcp.shared.exceptions import MCPError

from gateway.errors import Reason, Refusal
from gateway.mcp.upstreams.transport.conversation import Carrier, Message, UpstreamConversation, UpstreamLost
from gateway.mcp.upstreams.transport.handshake import HandshakeResult, negotiate

log = logging.getLogger(__name__)

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
"""Seconds between two attempts to reach a failing upstream: the first, doubled each time, up to the longest."""

GONE_WAIT = 5.0
"""The longest wait if no server is at its address, as an attempt is cheap then."""

OPENING = 30.0
"""Seconds that a call waits for the connection; a slower one serves later calls."""

STEADY = 10.0
"""Seconds after which a connection counts as stable."""


class LinkState(StrEnum):
    """The state of a link."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _Over:
    """The reason why a connection accepts no more requests; `anew`: another may be made at once."""

    why: str
    refusal: Refusal | None = None
    flooded: bool = False
    anew: bool = False


@dataclass(frozen=True, slots=True)
class LinkSession:
    """An open connection, and its agreed terms."""

    conversation: UpstreamConversation
    terms: HandshakeResult


class Link:
    """Keeps one connection, while `run` is running. `dial` makes its carrier, `modern` is the preferred era.
    `start` limits the handshake, in seconds. `on_notification` receives notifications that belong to no call; `prepare`
    is awaited for each new connection before its first use, and `on_reconnect` is called after that. A broken
    connection is restored at once while `is_wanted` returns True, else when it is needed. `connected_at` is the time of
    the last connection, `lost_at` that at which no server was found at its address, by `time.monotonic`.
    """

    def __init__(
        self,
        name: str,
        dial: Callable[[], Carrier],
        capabilities: Mapping[str, Any],
        *,
        modern: bool,
        start: float,
        timeout: float,
        most: int,
        on_notification: Callable[[str, Message], None],
        prepare: Callable[[LinkSession], Awaitable[None]],
        on_reconnect: Callable[[LinkSession], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self.name = name
        self.state = LinkState.IDLE
        self.problem: str | None = None
        self.used_at = 0.0
        self.attempts = 0
        self.connected_at = -math.inf
        self.lost_at = -math.inf
        self._dial = dial
        self._capabilities = capabilities
        self._modern = modern
        self._start = start
        self._timeout = timeout
        self._most = most
        self._refusal: Refusal | None = None
        self._on_notification = on_notification
        self._prepare = prepare
        self._on_reconnect = on_reconnect
        self._is_wanted = is_wanted
        self._demand = asyncio.Event()
        self._session: LinkSession | None = None
        self._coming: asyncio.Future[LinkSession] | None = None
        self._again = 0.0
        self._renewing = False

    @property
    def trouble(self) -> str | None:
        """The problem, with the remedy in the configuration if there is one."""
        if self.problem is None or self._refusal is None:
            return self.problem
        return explain_failure(self.name, self.problem, self._refusal.reason)

    @property
    def now(self) -> LinkSession | None:
        """The connection, if it is open."""
        return self._session

    @property
    def busy(self) -> bool:
        """True if requests are in flight, or the connection is being made."""
        return self.state is LinkState.CONNECTING or (
            self._session is not None and self._session.conversation.in_flight > 0
        )

    async def session(self) -> LinkSession:
        """Return the connection, made if necessary. Raises `Refusal`, at once until the next attempt is due."""
        self.used_at = time.monotonic()
        if self._session is not None and not self._session.conversation.over.done():
            return self._session
        if self.state is LinkState.FAILED and self.used_at < self._again:
            wait = max(1, round(self._again - self.used_at))
            raise self._unavailable(f"{self.problem}; it is tried again in {wait} s")
        if self._coming is None or self._coming.done():
            self._coming = asyncio.get_running_loop().create_future()
        self._demand.set()
        try:
            async with asyncio.timeout(OPENING):
                return await asyncio.shield(self._coming)
        except TimeoutError as error:
            raise self._unavailable(f"it did not answer within {OPENING:g} seconds") from error

    def renew(self, why: str) -> None:
        """Let a new connection take the place of the open one, on which the calls in flight are still answered."""
        if self._session is not None:
            self._renewing = True
            self._session.conversation.supersede(why)

    async def run(self) -> None:
        """Make the connection whenever it is needed, until cancelled."""
        failures = 0
        async with asyncio.TaskGroup() as connections:  # superseded ones, too, while their last calls are answered
            while True:
                if not self._is_wanted() or self._waits_for_a_person:
                    await self._demand.wait()
                self._demand.clear()
                started_at = time.monotonic()
                self.state = LinkState.CONNECTING
                self.attempts += 1
                ending: asyncio.Future[_Over] = asyncio.get_running_loop().create_future()
                connections.create_task(self._live(ending))
                over = await ending
                self._session, self._refusal = None, over.refusal
                if over.anew:
                    log.info("upstream %s: %s; a new one begins", self.name, over.why)
                    self.state = LinkState.IDLE
                    continue
                lasted = self.state is LinkState.READY and time.monotonic() - started_at > STEADY
                failures = 0 if lasted and not over.flooded else failures + 1
                await asyncio.sleep(self._note_failure(over, failures))

    def _note_failure(self, over: _Over, failures: int) -> float:
        """Report the failure to all that wait, after so many in a row; return the seconds until the next attempt."""
        self.problem = over.why
        gone = over.refusal is not None and over.refusal.reason is Reason.BACKEND_UNREACHABLE
        longest = GONE_WAIT if gone else LONGEST_WAIT
        resting = failures and not self._waits_for_a_person
        wait = min(FIRST_WAIT * 2 ** min(failures - 1, 10), longest) if resting else 0.0
        self.lost_at = time.monotonic() if gone else -math.inf
        self.state, self._again = LinkState.FAILED, time.monotonic() + wait
        log.warning("upstream %s: %s", self.name, over.why)
        if self._coming is not None and not self._coming.done():
            self._coming.set_exception(self._unavailable(over.why))
            self._coming.exception()  # marks the exception as retrieved
        return wait

    async def _live(self, ending: asyncio.Future[_Over]) -> None:
        """Run one connection from handshake to end; `ending` resolves as soon as it accepts no more requests."""
        over = _Over("the gateway failed at the connection; its log says why")
        try:
            async with UpstreamConversation(
                self._dial(), timeout=self._timeout, most=self._most, on_notification=self._on_notification
            ) as conversation:
                async with asyncio.timeout(self._start):
                    terms = await negotiate(conversation, self._capabilities, modern=self._modern, timeout=self._start)
                session = LinkSession(conversation, terms)
                await self._prepare(session)
                self._session, answers = session, conversation.answers
                self.state, self.problem, self.connected_at, self.lost_at = (
                    LinkState.READY,
                    None,
                    time.monotonic(),
                    -math.inf,
                )
                if self._coming is not None and not self._coming.done():
                    self._coming.set_result(session)
                self._on_reconnect(session)
                why = await asyncio.shield(conversation.over)
                # A server that at once forgets a new session would otherwise cause endless new ones.
                anew = not conversation.end.done() and (
                    conversation.answers > answers or self._renewing or conversation.at_once
                )
                self._renewing = False
                ending.set_result(_Over(why, conversation.refusal, conversation.flooded, anew))
                await conversation.drain()
        except UpstreamLost as lost:
            over = _Over(one_line(str(lost)), lost.refusal)
        except Refusal as refusal:
            over = _Over(one_line(refusal.detail), refusal)
        except TimeoutError:
            over = _Over(f"it did not finish its handshake within {self._start:g} seconds")
        except MCPError as error:
            over = _Over(f"it refused the handshake: {one_line(error.error.message[:200])}")
        except Exception as error:  # an upstream's errors must end only its own link
            log.error("upstream %s: the connection failed: %s", self.name, one_line(repr(error)))
            log.debug("upstream %s: where it failed", self.name, exc_info=error)
        finally:
            if not ending.done():
                ending.set_result(over)

    @property
    def _waits_for_a_person(self) -> bool:
        """True if a person must first connect an account; the next call after that makes the connection."""
        return self._refusal is not None and self._refusal.reason is Reason.CREDENTIAL_NEEDED

    def _unavailable(self, why: str | None) -> Refusal:
        if self._refusal is None:
            return unreachable(self.name, str(why))
        return connection_refusal(self.name, self._refusal, why)


def connection_refusal(name: str, refusal: Refusal, why: str | None = None) -> Refusal:
    """Return the refusal of a connection to the upstream `name`; `why` replaces its text."""
    if refusal.reason is Reason.CREDENTIAL_NEEDED:
        return Refusal(refusal.reason, refusal.detail, connect_url=refusal.connect_url)
    return unreachable(name, why or refusal.detail, refusal.reason)


def unreachable(name: str, why: str, reason: Reason = Reason.BACKEND_UNAVAILABLE) -> Refusal:
    """Return the refusal of an unreachable upstream, with the remedy in the configuration if there is one."""
    return Refusal(reason, explain_failure(name, f"The upstream {name} cannot be reached: {why.rstrip('.')}.", reason))


def one_line(words: str) -> str:
    """Return a text of an upstream or error on one line."""
    return " ".join(words.split())


def explain_failure(name: str, why: str, reason: Reason) -> str:
    """Return `why` the upstream `name` cannot be reached, with the remedy if there is one."""
    if reason is not Reason.ADDRESS_DENIED:
        return why
    return f"{why.rstrip('.')}. If it may be there, write `network: private` at `upstreams.{name}`."
