"""Resolves loopback names for commands that connect to a gateway."""

from __future__ import annotations

from socket import AddressFamily

from aiohttp import ThreadedResolver
from aiohttp.abc import ResolveResult


class Loopback(ThreadedResolver):
    """Resolves every `*.localhost` to loopback (RFC 6761, 6.3), which not every system does."""

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AddressFamily.AF_UNSPEC
    ) -> list[ResolveResult]:
        return await super().resolve("localhost" if host.endswith(".localhost") else host, port, family)
