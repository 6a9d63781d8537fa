"""Large bodies of the bridge, handed over by HTTP beside its frames: each is put once and taken once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

LIFE = 60.0
"""Seconds that a body waits to be taken."""

LARGEST = 16 * 1024 * 1024
"""Bytes of one body."""

MOST = 1024
"""Bodies that may wait in all."""

TOTAL = 64 * 1024 * 1024
"""Bytes that may wait for one principal."""

_ID = re.compile(r"[A-Za-z0-9_-]{22,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Body:
    principal: str
    text: str
    expires: float


class Bodies:
    """The bodies that wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bodies: dict[str, _Body] = {}

    def put(self, id: str, principal: str, text: str) -> bool:
        """Keep `text` until it is taken. False if the id is none, or used, or too much waits."""
        now = self._clock()
        for old in [old for old, body in self._bodies.items() if body.expires < now]:
            del self._bodies[old]
        waiting = sum(len(body.text) for body in self._bodies.values() if body.principal == principal)
        if not _ID.fullmatch(id) or id in self._bodies or len(self._bodies) >= MOST:
            return False
        if len(text) > LARGEST or waiting + len(text) > TOTAL:
            return False
        self._bodies[id] = _Body(principal, text, now + LIFE)
        return True

    def take(self, id: str, principal: str) -> str | None:
        """The body, once, if it was put for this principal."""
        body = self._bodies.get(id)
        if body is None or body.principal != principal or body.expires < self._clock():
            return None
        del self._bodies[id]
        return body.text
