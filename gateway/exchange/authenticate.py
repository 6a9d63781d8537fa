"""Credentials for backends: fetched when first needed, kept until shortly before they expire, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.credentials import Flow, Token
from gateway.errors import Refusal
from gateway.model import Backend, Headers

MARGIN = 30.0
"""Seconds before its expiry at which a token is no longer used; a tenth of its life where that is less."""


@dataclass(slots=True)
class Credential:
    """A named credential: its auth flow, the way to its issuer, and the token it has now.

    `version` is another one when it stands for another account; cookies that were had with it are not used then.
    """

    flow: Callable[[float], Flow[Token]]
    issuer: Backend
    version: str = ""
    token: Token | None = None
    margin: float = MARGIN
    refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Authenticator:
    """The credentials of a gateway by name."""

    def __init__(self, credentials: Mapping[str, Credential]) -> None:
        self._credentials = credentials

    async def headers(self, name: str | None) -> Headers:
        """The header fields that credential `name` adds. Raises `Refusal` (`credential-failed`)."""
        if name is None:
            return ()
        token = await self._token(self._credentials[name])
        return (token.header(),)

    def version(self, name: str | None) -> str:
        """What tells one account behind credential `name` from another; empty without a credential."""
        return f"{name}\n{self._credentials[name].version}" if name is not None else ""

    def forget(self, name: str, used: Headers) -> None:
        """The backend refused the token in `used`: fetch a new one next time, unless that has happened meanwhile."""
        credential = self._credentials[name]
        token = credential.token
        if token is not None and token.header() in used:
            credential.token = None

    async def _token(self, credential: Credential) -> Token:
        token = credential.token
        if token is not None and token.fresh(time.time(), credential.margin):
            return token
        async with credential.refreshing:
            token = credential.token
            if token is None or not token.fresh(time.time(), credential.margin):
                token = await _fetch(credential)
            return token


async def _fetch(credential: Credential) -> Token:
    now = time.time()
    token = await _drive(credential.flow(now), credential.issuer)
    if token.expires_at is not None:
        credential.margin = min(MARGIN, (token.expires_at - now) / 10)
    credential.token = token
    return token


async def _drive(flow: Flow[Token], issuer: Backend) -> Token:
    try:
        request = next(flow)
        while True:
            try:
                response = await issuer.send(request)
            except Refusal as refusal:
                request = flow.throw(refusal)
            else:
                request = flow.send(response)
    except StopIteration as end:
        token: Token = end.value
        return token
