"""The credential of one connection: injection into requests, and redaction in answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final

from gateway.exchange.authenticate import Injected
from gateway.exchange.filter import SecretRedactor
from gateway.model import Headers

KEPT: Final = 2
"""Credential values to redact: an answer may still contain the previous one."""


class Credentials:
    """`inject` returns the credential by method and URL, `answered` decides on a retry, `echoed` reports redactions."""

    def __init__(
        self,
        inject: Callable[[str, str], Awaitable[Injected]],
        answered: Callable[[Injected, str, int, Headers], Awaitable[bool]],
        echoed: Callable[[], None],
    ) -> None:
        self._inject = inject
        self._echoed = echoed
        self._known: tuple[tuple[str, ...], ...] = ()
        self.answered = answered

    async def inject(self, method: str, url: str) -> Injected:
        """Return the credential for one request."""
        injected = await self._inject(method, url)
        if injected.secrets and injected.secrets not in self._known:
            self._known = (injected.secrets, *self._known[: KEPT - 1])
        return injected

    async def headers(self, method: str, url: str) -> dict[str, str]:
        """Return the header fields for one request."""
        return dict((await self.inject(method, url)).headers)

    def hide_text(self, text: str) -> str:
        """Return a text of the upstream with every value of the credential masked."""
        with self.hiding() as echo:
            return echo.text(text)

    @contextmanager
    def hiding(self) -> Iterator[SecretRedactor]:
        """Yield a filter that masks every value of the credential in one message."""
        echo = SecretRedactor(chain.from_iterable(self._known))
        try:
            yield echo
        finally:
            if echo.heard:
                self._echoed()
