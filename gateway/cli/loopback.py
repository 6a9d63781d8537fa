"""Addresses for commands that connect to a gateway: its URL, and loopback names."""

from __future__ import annotations

from socket import AddressFamily

from aiohttp import ThreadedResolver
from aiohttp.abc import ResolveResult
from yarl import URL

from gateway.cli.group import Unusable


class Loopback(ThreadedResolver):
    """Resolves every `*.localhost` to loopback (RFC 6761, 6.3), which not every system does."""

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AddressFamily.AF_UNSPEC
    ) -> list[ResolveResult]:
        return await super().resolve("localhost" if host.endswith(".localhost") else host, port, family)


def gateway_address(text: str) -> str:
    """Return scheme, host and port. Raises `Unusable`."""
    try:
        url = URL(text)
    except ValueError as error:
        raise Unusable(f"{text!r} is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host or url.user is not None:
        raise Unusable(f"{text!r} is not the address of a gateway: write one such as http://localhost:8080")
    return str(url.origin())
