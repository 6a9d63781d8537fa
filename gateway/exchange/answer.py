"""A backend's answer as it comes back: whole, or its head with the parts that follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from msgspec import Struct

from gateway.model import Response


async def nothing() -> None:
    """Nothing is held."""


class Answer(Struct, frozen=True):
    """`response` is whole, or has no body where `parts` give it; `close` gives up what was not read.

    `credentialed` says that the gateway added a credential or cookies to the request, `secrets` which texts of these
    must not come back, each with the name of what it is of.
    """

    response: Response
    secrets: Mapping[str, str]
    parts: AsyncIterator[bytes] | None = None
    close: Callable[[], Awaitable[None]] = nothing
    credentialed: bool = False
