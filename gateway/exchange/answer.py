"""A backend's answer as it comes back: whole, or its head with the parts that follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from msgspec import Struct

from gateway.model import Response


async def nothing() -> None:
    """Do nothing: the default `close`."""


class BackendAnswer(Struct, frozen=True):
    """A backend's answer: `response` has its body, unless `parts` yield it; `close` discards what was not read.

    `credentialed` is true if the gateway added a credential or cookies to the request; `secrets` maps each text that
    must not reach the app to the name of its credential.
    """

    response: Response
    secrets: Mapping[str, str]
    parts: AsyncIterator[bytes] | None = None
    close: Callable[[], Awaitable[None]] = nothing
    credentialed: bool = False
