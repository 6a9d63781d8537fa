"""Holds a model's request while its person connects an account that the request needs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from gateway.errors import Refusal
from gateway.model import Caller, Tell, Visit

PATIENCE: Final = 50.0
"""Seconds for which a request waits; after these its caller gets the refusal."""

LOOK: Final = 2.0
"""Seconds between two checks whether the account was connected in another process."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Need:
    """One waiting request; `again` waits until the account should be checked."""

    view: str | None
    credential: str
    person: str
    end: float
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def again(self) -> bool:
        """Wait until the account may be connected; False once the time is over."""
        left = self.end - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(min(LOOK, left)):
                await self.news.wait()
        self.news.clear()
        return True


class Absences:
    """The requests of this process that wait for an account."""

    def __init__(self) -> None:
        self._tells: dict[str, Tell] = {}
        self._needs: set[Need] = set()
        self._watchers: set[Callable[[], None]] = set()

    @contextmanager
    def telling(self, cause: str, tell: Tell | None) -> Iterator[None]:
        """Let requests that the model's call `cause` leads to wait: `tell` notifies its client of the page to open."""
        if tell is None:
            yield
            return
        self._tells[cause] = tell
        try:
            yield
        finally:
            del self._tells[cause]

    @contextmanager
    def needed(self, caller: Caller, credential: str, url: str, tell: Tell | None = None) -> Iterator[Need | None]:
        """Register a request that waits for an account, which `url` connects; None if no client can be notified.

        `tell` notifies the client that made the request; by default, the client whose call caused it.
        """
        if tell is None and caller.cause is not None:
            tell = self._tells.get(caller.cause)
        if tell is None:
            yield None
            return
        need = Need(caller.view, credential, caller.principal.person, asyncio.get_running_loop().time() + PATIENCE)
        visit = Visit(secrets.token_urlsafe(16), url, f"Connect an account for {credential}: the call waits for it.")
        self._needs.add(need)
        self._changed()
        tell(visit)
        try:
            yield need
        finally:
            self._needs.discard(need)
            tell(replace(visit, over=True))
            self._changed()

    async def wait_for(
        self, ask: Callable[[], Awaitable[T]], caller: Caller, credential: str, tell: Tell | None = None
    ) -> T:
        """Return the result of `ask`, which needs the account, once the person has connected a missing one.

        Raises the `Refusal` of `ask` if no account can be connected, or none was in time.
        """
        try:
            return await ask()
        except Refusal as refusal:
            missing = refusal
        if missing.connect_url is not None:
            with self.needed(caller, credential, missing.connect_url, tell) as need:
                while need is not None and await need.again():
                    with suppress(Refusal):  # not there yet
                        return await ask()
        raise missing

    def connected(self, credential: str, person: str) -> None:
        """An account was connected: wake the requests that wait for it."""
        for need in self._needs:
            if (need.credential, need.person) == (credential, person):
                need.news.set()

    def asks_about(self, view: str) -> bool:
        """Whether a request of this view waits."""
        return any(need.view == view for need in self._needs)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a request begins or ends to wait; the returned function unregisters it."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)

    def _changed(self) -> None:
        for callback in list(self._watchers):
            callback()
