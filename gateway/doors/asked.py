"""What is looked at of a request to find out whether it may pass, and who sends it."""

from __future__ import annotations

from typing import Protocol

from multidict import MultiMapping


class Asked(Protocol):
    """A request before its handler: of aiohttp, or of the short way."""

    @property
    def method(self) -> str:
        """The method, in upper case."""
        ...

    @property
    def headers(self) -> MultiMapping[str]:
        """The header fields, by names in any case."""
        ...

    @property
    def remote(self) -> str | None:
        """The address of the peer."""
        ...
