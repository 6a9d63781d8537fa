"""Credentials for backends, by name: what each adds to a request, and how it reacts to a 401."""

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
"""Seconds that the plugin of a credential may take; the same as for an authorization server."""

log = logging.getLogger(__name__)


class Injected(Struct, frozen=True):
    """Header fields of a credential, the texts in them that must not reach the app, and the version of their token.

    `account` identifies the account behind the credential. `bound`: the token is bound to a key (DPoP).
    """

    headers: Headers = ()
    secrets: tuple[str, ...] = ()
    token: str = ""
    account: str = ""
    bound: bool = False


NOTHING: Final = Injected()
"""The result for requests without a credential."""


class CredentialSource(Protocol):
    """One credential. Its methods raise `Refusal` (`credential-needed`, `credential-failed`) if it is unavailable."""

    async def ready(self, principal: Principal) -> None:
        """Check that the credential is available. Raises `Refusal`."""
        ...

    async def inject(self, principal: Principal, method: str, url: str) -> Injected:
        """Return the fields to add to one request."""
        ...

    async def answered(self, principal: Principal, injected: Injected, url: str, status: int, headers: Headers) -> bool:
        """Process the backend's response; return whether a retry, useful after 401 only, would carry another token."""
        ...


class Authenticator:
    """The credentials of a gateway by name."""

    def __init__(self, sources: Mapping[str, CredentialSource]) -> None:
        self._sources = sources

    async def inject(self, name: str | None, principal: Principal, method: str, url: str) -> Injected:
        """Return the fields of credential `name`. Raises `Refusal` (`credential-needed`, `credential-failed`)."""
        return await self._sources[name].inject(principal, method, url) if name is not None else NOTHING

    async def ready(self, name: str, principal: Principal) -> None:
        """Check that credential `name` is available. Raises `Refusal` as `inject` does."""
        await self._sources[name].ready(principal)

    async def answered(
        self, name: str | None, principal: Principal, injected: Injected, url: str, status: int, headers: Headers
    ) -> bool:
        """Process the backend's response; return whether a retry, useful after 401 only, would carry another token."""
        return name is not None and await self._sources[name].answered(principal, injected, url, status, headers)


class Unchanging:
    """A fixed credential, the same for every caller: header fields, or a user name with its password."""

    def __init__(self, spec: Fixed | Basic) -> None:
        self._spec = spec

    async def ready(self, principal: Principal) -> None:
        """Do nothing: a fixed credential is always available."""

    async def inject(self, principal: Principal, method: str, url: str) -> Injected:
        """Return the same fields for every request."""
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
        """Return False: there is no other credential to try."""
        return False


class OfPlugin:
    """A credential made by a plugin, which is called for each request; its failure refuses the request."""

    def __init__(self, name: str, tokens: Tokens) -> None:
        self._name = name
        self._tokens = tokens

    async def ready(self, principal: Principal) -> None:
        """Do nothing: the plugin is called when there is a request."""

    async def inject(self, principal: Principal, method: str, url: str) -> Injected:
        """Return the plugin's header fields for this request."""
        try:
            with foreign():
                async with asyncio.timeout(TIMEOUT):
                    fields = await self._tokens.headers(principal, method, url)
            given = tuple((name.lower(), value) for name, value in fields)
            if not all(is_field(name, value) for name, value in given):
                raise ValueError
        except Refusal:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  foreign code: any error refuses, and may hold a secret
            log.error("the plugin of credential %s failed: %s", self._name, type(error).__name__)
            raise Refusal(Reason.CREDENTIAL_FAILED, f"credential {self._name!r}: its plugin failed") from None
        secrets = tuple(text for _, value in given for text in {value, value.split(" ", 1)[-1]})
        return Injected(given, secrets, account=principal.person)  # a plugin may use another account for each person

    async def answered(self, principal: Principal, injected: Injected, url: str, status: int, headers: Headers) -> bool:
        """Return False: the next request calls the plugin anew."""
        return False
