"""What each tool of an upstream looked like when it was first seen, so that a change does not go by unnoticed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.mcp.upstreams.listing import pin_of

MAX_TOOLS = 5000
"""Tools of one upstream that are remembered; those beyond are not offered."""

log = logging.getLogger(__name__)


class Fingerprints:
    """The tools of one upstream. `changed` is told the name of one that changed, what it was, and what it is."""

    def __init__(self, changed: Callable[[str, str, str], None]) -> None:
        self._changed = changed
        self._seen: dict[str, str] = {}

    def look(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Compare `tools` with what they were."""
        for tool in tools:
            name, now = str(tool["name"]), pin_of(tool)
            before = self._seen.get(name)
            if before is None and len(self._seen) >= MAX_TOOLS:
                continue
            self._seen[name] = now
            if before is not None and before != now:
                self._changed(name, before, now)
