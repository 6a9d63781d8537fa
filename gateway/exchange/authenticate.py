"""Credentials for backends, by name: what each adds to a request, and what a refusal of it means."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Struct

from gateway.credentials import Basic, Fixed, Tokens
from gateway.errors import Reason, Refusal
from gateway.hooks import foreign
from gateway.model import Headers, Principal
from gateway.policy.headers import is_field

TIMEOUT: Final = 10.0
"""Seconds that the plugin of a credential may take, as an authorization server may."""

log = logging.getLogger(__name__)


class Injected(Struct, frozen=True):
    """Header fields of a credential, the texts in them that must not come back, and which token they carry.

    `account` tells one account behind the credential from another. `bound` says that its token is bound to a key.
    """

    headers: Headers = ()
    secrets: tuple[str, ...] = ()
    token: str = ""
    account: str = ""
    bound: bool = False


NOTHING: Final = Injected()
"""What is added where there is no credential."""


class Source(Protocol):
    """One credential. `Refusal` (`credential-needed`, `credential-failed`) says why there is none."""

    async def ready(self, principal: Principal) -> None:
        """Whether there is something to inject: `Refusal` where there is not."""
        ...

    async def inject(self, principal: Principal, method: str, url: str) -> Injected:
        """What it adds to one request."""
        ...

    async def answered(self, principal: Principal, injected: Injected, url: str, status: int, headers: Headers) -> bool:
        """The backend answered: whether another attempt, which makes sense after 401 alone, carries something else."""
        ...


class Authenticator:
    """The credentials of a gateway by name."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources

    async def inject(self, name: str | None, principal: Principal, method: str, url: str) -> Injected:
        """What credential `name` adds. Raises `Refusal` (`credential-needed`, `credential-failed`)."""
        return await self._sources[name].inject(principal, method, url) if name is not None else NOTHING

    async def ready(self, name: str, principal: Principal) -> None:
        """Whether credential `name` has something to inject. Raises `Refusal` as `inject` does."""
        await self._sources[name].ready(principal)

    async def answered(
        self, name: str | None, principal: Principal, injected: Injected, url: str, status: int, headers: Headers
    ) -> bool:
        """The backend answered: whether it refused the credential, and another attempt carries something else."""
        return name is not None and await self._sources[name].answered(principal, injected, url, status, headers)


class Unchanging:
    """A credential that is the same for everyone and for ever: header fields, or a user name with its password."""

    def __init__(self, spec: Fixed | Basic) -> None:
        self._spec = spec

    async def ready(self, principal: Principal) -> None:
        """Always."""

    async def inject(self, principal: Principal, method: str, url: str) -> Injected:
        """The same for every request."""
        match self._spec:
            case Fixed(field=field, prefix=prefix, value=value):
                secret = value.reveal()
                return Injected(
                    ((field, f"{prefix} {secret}" if prefix else secret),), (secret, secret.split(" ", 1)[-1])
                )
            case Basic(username=username, password=password):
                pair = base64.b64encode(f"{username}:{password.reveal()}".encode()).decode()
                return Injected((("authorization", f"Basic {pair}"),), (pair, password.reveal()))

    async def answered(self, principal: Principal, injected: Injected, url: str, status: int, headers: Headers) -> bool:
        """There is nothing else."""
        return False


class OfPlugin:
    """A credential that a plugin makes: asked for each request, and refused where it fails."""

    def __init__(self, name: str, tokens: Tokens) -> None:
        self._name = name
        self._tokens = tokens

    async def ready(self, principal: Principal) -> None:
        """The plugin is asked when there is a request."""

    async def inject(self, principal: Principal, method: str, url: str) -> Injected:
        """What the plugin says now."""
        try:
            with foreign():
                async with asyncio.timeout(TIMEOUT):
                    fields = await self._tokens.headers(principal, method, url)
            given = tuple((name.lower(), value) for name, value in fields)
            if not all(is_field(name, value) for name, value in given):
                raise ValueError
        except Refusal:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  foreign code: whatever it raises refuses, and may hold a secret
            log.error("the plugin of credential %s failed: %s", self._name, type(error).__name__)
            raise Refusal(Reason.CREDENTIAL_FAILED, f"credential {self._name!r}: its plugin failed") from None
        secrets = tuple(text for _, value in given for text in {value, value.split(" ", 1)[-1]})
        return Injected(given, secrets, account=principal.person)  # a plugin may give each person another

    async def answered(self, principal: Principal, injected: Injected, url: str, status: int, headers: Headers) -> bool:
        """Whether the plugin has something else now is for the next request."""
        return False
