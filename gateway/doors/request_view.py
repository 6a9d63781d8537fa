"""The parts of a request that authentication and authorization examine."""

from __future__ import annotations

from typing import Protocol

from multidict import MultiMapping


class Asked(Protocol):
    """A request before its handler: aiohttp's, or the fast path's."""

    @property
    def method(self) -> str:
        """The method, in upper case."""
        ...

    @property
    def headers(self) -> MultiMapping[str]:
        """The header fields, by case-insensitive names."""
        ...

    @property
    def remote(self) -> str | None:
        """The address of the peer."""
        ...
