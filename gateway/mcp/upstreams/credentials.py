"""What the credential of one connection adds to each request, and hides in whatever comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final

from gateway.exchange.authenticate import Injected
from gateway.exchange.echo import Echo
from gateway.model import Headers

KEPT: Final = 2
"""Values of a credential that are looked for: an answer may still hold the one before the last."""


class Credentials:
    """`inject` gives it by method and URL, `answered` says whether to try once more, `echoed` hears what was hidden."""

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
        """What one request carries."""
        injected = await self._inject(method, url)
        if injected.secrets and injected.secrets not in self._known:
            self._known = (injected.secrets, *self._known[: KEPT - 1])
        return injected

    async def headers(self, method: str, url: str) -> dict[str, str]:
        """The header fields for one request."""
        return dict((await self.inject(method, url)).headers)

    def hide_text(self, text: str) -> str:
        """A text of the upstream with every value of the credential masked."""
        with self.hiding() as echo:
            return echo.text(text)

    @contextmanager
    def hiding(self) -> Iterator[Echo]:
        """What masks every value of the credential in one message."""
        echo = Echo(chain.from_iterable(self._known))
        try:
            yield echo
        finally:
            if echo.heard:
                self._echoed()
