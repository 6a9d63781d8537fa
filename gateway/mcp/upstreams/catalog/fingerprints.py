"""The lists of an upstream, stored across restarts, with fingerprints of its tools, by which changes are noticed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.eventloop.fair_share import by_turns
from gateway.jsontext.messages import THINGS
from gateway.mcp.upstreams.catalog.listing import KEYS, pin_of
from gateway.stores.upstream_tools import Known, UpstreamTools, key_of

MOST_THINGS = THINGS
"""Things of one kind that are remembered, per person where persons have accounts."""

log = logging.getLogger(__name__)


class Remembered:
    """Stored in `store` under the name of `upstream`; `known` has them by `key_of` their names."""

    def __init__(self, upstream: str, store: UpstreamTools) -> None:
        self._upstream = upstream
        self._store = store
        self._loaded = False
        self._reading: asyncio.Task[None] | None = None
        self.known: dict[str, Known] = {}

    @property
    def full(self) -> bool:
        """True if there is no room for another one."""
        return len(self.known) >= MOST_THINGS

    def knew(self, name: str) -> bool:
        """Return whether one of this name was listed before."""
        return key_of(name) in self.known

    async def meet(self, names: Iterable[str]) -> None:
        """Remember names that are listed now, without a fingerprint."""
        await self.load()
        news: dict[str, Known] = {}
        async for name in by_turns(names):
            key = key_of(name)
            if key not in self.known and not self.full:
                self.known[key] = news[key] = Known("", "")
        await self.keep(news)

    async def load(self) -> None:
        """Load what was listed before the gateway started: once for all that wait for it."""
        if self._loaded:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        try:
            before = await self._store.of(self._upstream)
        except OSError as error:
            log.warning("what %s listed before cannot be read: %s", self._upstream, error)
            return
        met = {key: known for key, known in self.known.items() if key not in before}
        self.known |= before
        self._loaded = True
        await self.keep(met)

    async def keep(self, news: Mapping[str, Known]) -> None:
        """Store these."""
        if not news or not self._loaded:  # entries not loaded yet must not be overwritten as new ones
            return
        try:
            await self._store.keep(self._upstream, news)
        except OSError as error:
            log.warning("the lists of %s cannot be stored: %s", self._upstream, error)


class Fingerprints:
    """The tools of one upstream, and the names of its other things.
    `changed` is called with a changed tool's name, its former and its present form. The first form of a tool is
    accepted, and every form that the policy pins, by `pinned`. `held_back` is the last tool beyond the limit.
    """

    def __init__(
        self,
        upstream: str,
        *,
        store: UpstreamTools,
        pinned: Callable[[str], str | None],
        changed: Callable[[str, str, str], None],
    ) -> None:
        self._tools = Remembered(upstream, store)
        self._others = {method: Remembered(f"{upstream} {method}", store) for method in KEYS.keys() - {"tools/list"}}
        self._pinned = pinned
        self._changed = changed
        self.flagged: dict[str, tuple[str, str]] = {}
        self.held_back: str | None = None

    async def look(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Compare `tools` with their former forms; `flagged` are those that differ, with both forms."""
        await self._tools.load()
        news: dict[str, Known] = {}
        async for tool in by_turns(tools):
            name, now = str(tool["name"]), pin_of(tool)
            key = key_of(name)
            known = self._tools.known.get(key)
            if known is None and self._tools.full:
                self.held_back = name if self.holds_back(name) else self.held_back
                continue
            accepted = now if known is None or self._pinned(name) == now else known.accepted
            if known is not None and now not in (known.latest, accepted):
                self._changed(name, known.latest, now)
            if accepted != now:
                self.flagged[name] = (accepted, now)
            else:
                self.flagged.pop(name, None)
            if known != (found := Known(accepted, now)):
                self._tools.known[key] = news[key] = found
        await self._tools.keep(news)

    async def meet(self, method: str, names: Iterable[str]) -> None:
        """Remember the names, or addresses, of listed things other than tools."""
        await self._others[method].meet(names)

    def had(self, method: str, name: str) -> bool:
        """Return whether a thing of this name, or address, was listed before."""
        return self._of(method).knew(name)

    def may_have(self, method: str, name: str) -> bool:
        """Return whether an unknown list may have such a thing: it had, or nothing of it is remembered."""
        return self._of(method).knew(name) or not self._of(method).known

    def holds_back(self, name: str) -> bool:
        """Return whether a change of the tool would go unnoticed, for lack of room to remember it."""
        return self._tools.full and not self._tools.knew(name) and self._pinned(name) is None

    async def load(self, method: str) -> None:
        """Load what was listed before the gateway started."""
        await self._of(method).load()

    def _of(self, method: str) -> Remembered:
        return self._others.get(method, self._tools)
