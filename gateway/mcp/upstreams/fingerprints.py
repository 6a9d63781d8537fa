"""What each tool of an upstream looked like when it was accepted, so that a change does not go by unnoticed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.mcp.upstreams.decode import THINGS
from gateway.mcp.upstreams.listing import pin_of
from gateway.mcp.upstreams.turns import by_turns
from gateway.stores.upstream_tools import Known, UpstreamTools, key_of

MAX_TOOLS = THINGS
"""Tools of one upstream that are remembered, of each person's where they have accounts; a new one beyond is held back,
unless its policy pins it."""

log = logging.getLogger(__name__)


class Fingerprints:
    """The tools of one upstream. `changed` is told the name of one that changed, what it was, and what it is.

    The first form of a tool is accepted, and every form to which `pinned` says that the policy pins it. `held_back` is
    the last tool for which there was no room.
    """

    def __init__(
        self,
        upstream: str,
        *,
        store: UpstreamTools,
        pinned: Callable[[str], str | None],
        changed: Callable[[str, str, str], None],
    ) -> None:
        self._upstream = upstream
        self._store = store
        self._pinned = pinned
        self._changed = changed
        self._loaded = False
        self._known: dict[str, Known] = {}
        self.flagged: dict[str, tuple[str, str]] = {}
        self.held_back: str | None = None

    async def look(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Compare `tools` with what they were; `flagged` are those that differ, with both forms."""
        await self.load()
        news: dict[str, Known] = {}
        async for tool in by_turns(tools):
            name, now = str(tool["name"]), pin_of(tool)
            key = key_of(name)
            known = self._known.get(key)
            if known is None and len(self._known) >= MAX_TOOLS:
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
                self._known[key] = news[key] = found
        await self._keep(news)

    def knew(self, name: str) -> bool:
        """Whether there was a tool of this name."""
        return key_of(name) in self._known

    def holds_back(self, name: str) -> bool:
        """Whether nobody would notice that the tool changed, for want of room to remember it."""
        full = len(self._known) >= MAX_TOOLS
        return full and not self.knew(name) and self._pinned(name) is None

    async def load(self) -> None:
        """Read what the tools were before the gateway was started."""
        if self._loaded:
            return
        try:
            before = await self._store.of(self._upstream)
        except OSError as error:
            log.warning("what the tools of %s were before cannot be read: %s", self._upstream, error)
            return
        met = {key: known for key, known in self._known.items() if key not in before}
        self._known |= before
        self._loaded = True
        await self._keep(met)

    async def _keep(self, news: Mapping[str, Known]) -> None:
        if not news or not self._loaded:  # what is not read yet must not be taken for new, and written over
            return
        try:
            await self._store.keep(self._upstream, news)
        except OSError as error:
            log.warning("what the tools of %s are cannot be kept: %s", self._upstream, error)
