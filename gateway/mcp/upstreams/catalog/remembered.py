"""The things of one kind that an upstream listed, remembered across restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from gateway.eventloop.slices import by_turns
from gateway.jsontext.messages import THINGS
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
        """Whether there is no room for another one."""
        return len(self.known) >= MOST_THINGS

    def knew(self, name: str) -> bool:
        """Whether one of this name was listed before."""
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
            log.warning("what %s lists cannot be kept: %s", self._upstream, error)
