"""Credentials for backends, by name, and the requests that wait until their person has connected an account."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from gateway.credentials import Basic, FixedHeader, Tokens
from gateway.crypto import digest
from gateway.errors import Reason, Refusal
from gateway.hooks import foreign
from gateway.model import Caller, Headers, Principal, Tell, Visit
from gateway.policy.headers import is_field
from gateway.watchers import Watchers

TIMEOUT: Final = 10.0
"""Seconds that the plugin of a credential may take; the same as for an authorization server."""

log = logging.getLogger(__name__)


class InjectedFields(Struct, frozen=True):
    """Header fields of a credential, the texts in them that must not reach the app, and the version of their token.

    `account` identifies the account behind the credential. `bound`: the token is bound to a key (DPoP). `dropped`: the
    page set an `Authorization` field itself, which its backend does not get.
    """

    headers: Headers = ()
    secrets: tuple[str, ...] = ()
    token: str = ""
    account: str = ""
    bound: bool = False
    dropped: bool = False


NOTHING: Final = InjectedFields()
"""The result for requests without a credential."""


class CredentialSource(Protocol):
    """One credential. Its methods raise `Refusal` (`credential-needed`, `credential-failed`) if it is unavailable."""

    async def ready(self, principal: Principal) -> None:
        """Check that the credential is available. Raises `Refusal`."""
        ...

    async def inject(self, principal: Principal, method: str, url: str) -> InjectedFields:
        """Return the fields to add to one request."""
        ...

    async def take_response(
        self, principal: Principal, credential_fields: InjectedFields, url: str, status: int, headers: Headers
    ) -> bool:
        """Process the backend's response; return whether a retry, useful after 401 only, would carry another token."""
        ...


class Authenticator:
    """The credentials of a gateway by name."""

    def __init__(self, sources: Mapping[str, CredentialSource]) -> None:
        self._sources = sources

    async def inject(self, name: str | None, principal: Principal, method: str, url: str) -> InjectedFields:
        """Return the fields of credential `name`. Raises `Refusal` (`credential-needed`, `credential-failed`)."""
        return await self._sources[name].inject(principal, method, url) if name is not None else NOTHING

    async def ready(self, name: str, principal: Principal) -> None:
        """Check that credential `name` is available. Raises `Refusal` as `inject` does."""
        await self._sources[name].ready(principal)

    async def take_response(
        self,
        name: str | None,
        principal: Principal,
        credential_fields: InjectedFields,
        url: str,
        status: int,
        headers: Headers,
    ) -> bool:
        """Process the backend's response; return whether a retry, useful after 401 only, would carry another token."""
        return name is not None and await self._sources[name].take_response(
            principal, credential_fields, url, status, headers
        )


class FixedCredential:
    """A fixed credential, the same for every caller: header fields, or a user name with its password."""

    def __init__(self, spec: FixedHeader | Basic) -> None:
        self._spec = spec

    @cached_property
    def _account(self) -> str:
        secret = self._spec.value if isinstance(self._spec, FixedHeader) else self._spec.password
        return digest(secret.reveal()).hex()[:16]

    async def ready(self, principal: Principal) -> None:
        """Do nothing: a fixed credential is always available."""

    async def inject(self, principal: Principal, method: str, url: str) -> InjectedFields:
        """Return the same fields for every request."""
        match self._spec:
            case FixedHeader(field=field, prefix=prefix, value=value):
                secret = value.reveal()
                fields = ((field, f"{prefix} {secret}" if prefix else secret),)
                return InjectedFields(fields, (secret, secret.split(" ", 1)[-1]), account=self._account)
            case Basic(username=username, password=password):
                pair = base64.b64encode(f"{username}:{password.reveal()}".encode()).decode()
                secrets = (pair, password.reveal())
                return InjectedFields((("authorization", f"Basic {pair}"),), secrets, account=self._account)

    async def take_response(
        self, principal: Principal, credential_fields: InjectedFields, url: str, status: int, headers: Headers
    ) -> bool:
        """Return False: there is no other credential to try."""
        return False


class PluginCredential:
    """A credential made by a plugin, which is called for each request; its failure refuses the request."""

    def __init__(self, name: str, tokens: Tokens) -> None:
        self._name = name
        self._tokens = tokens

    async def ready(self, principal: Principal) -> None:
        """Do nothing: the plugin is called when there is a request."""

    async def inject(self, principal: Principal, method: str, url: str) -> InjectedFields:
        """Return the plugin's header fields for this request."""
        try:
            with foreign():
                async with asyncio.timeout(TIMEOUT):
                    fields = await self._tokens.headers(principal, method, url)
            pairs = tuple((name.lower(), value) for name, value in fields)
            if not all(is_field(name, value) for name, value in pairs):
                raise ValueError
        except Refusal:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  foreign code: any error refuses, and may hold a secret
            log.error("the plugin of credential %s failed: %s", self._name, type(error).__name__)
            raise Refusal(Reason.CREDENTIAL_FAILED, f"credential {self._name!r}: its plugin failed") from None
        secrets = tuple(text for _, value in pairs for text in {value, value.split(" ", 1)[-1]})
        return InjectedFields(
            pairs, secrets, account=principal.person
        )  # a plugin may use another account for each person

    async def take_response(
        self, principal: Principal, credential_fields: InjectedFields, url: str, status: int, headers: Headers
    ) -> bool:
        """Return False: the next request calls the plugin anew."""
        return False


CONNECT_WAIT: Final = 50.0
"""Seconds for which a request waits; after these its caller gets the refusal."""

LOOK: Final = 2.0
"""Seconds between two checks whether the account was connected in another process."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class AccountWait:
    """One waiting request; `again` waits until the account should be checked."""

    view: str | None
    credential: str
    person: str
    end: float
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Wait no longer."""
        self.end = 0.0
        self.news.set()

    async def again(self) -> bool:
        """Wait until the account may be connected; False once the time is over."""
        left = self.end - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(min(LOOK, left)):
                await self.news.wait()
        self.news.clear()
        return True


class MissingAccounts:
    """The requests of this process that wait for an account."""

    def __init__(self) -> None:
        self._tells: dict[str, Tell] = {}
        self._needs: set[AccountWait] = set()
        self._watchers = Watchers[[]]()
        self._stopped = False

    def stop(self) -> None:
        """End the waits for accounts: the gateway stops, and no person can connect one here."""
        self._stopped = True
        for need in self._needs:
            need.stop()

    @contextmanager
    def telling(self, cause: str, tell: Tell | None) -> Iterator[None]:
        """Let requests that the model's call `cause` leads to wait: `tell` notifies its client of the page to open."""
        if tell is None:
            yield
            return
        self._tells[cause] = tell
        try:
            yield
        finally:
            del self._tells[cause]

    @contextmanager
    def register(
        self, caller: Caller, credential: str, url: str, tell: Tell | None = None
    ) -> Iterator[AccountWait | None]:
        """Register a request that waits for an account, which `url` connects; None if no client can be notified.

        `tell` notifies the client that made the request; by default, the client whose call caused it.
        """
        if tell is None and caller.cause is not None:
            tell = self._tells.get(caller.cause)
        if tell is None or self._stopped:
            yield None
            return
        need = AccountWait(
            caller.view, credential, caller.principal.person, asyncio.get_running_loop().time() + CONNECT_WAIT
        )
        visit = Visit(secrets.token_urlsafe(16), url, f"Connect an account for {credential}: the call waits for it.")
        self._needs.add(need)
        self._watchers.notify()
        tell(visit)
        try:
            yield need
        finally:
            self._needs.discard(need)
            tell(replace(visit, over=True))
            self._watchers.notify()

    async def wait_for(
        self, ask: Callable[[], Awaitable[T]], caller: Caller, credential: str, tell: Tell | None = None
    ) -> T:
        """Return the result of `ask`, which needs the account, once the person has connected a missing one.

        Raises the `Refusal` of `ask` if no account can be connected, or none was in time.
        """
        try:
            return await ask()
        except Refusal as refusal:
            missing = refusal
        if missing.connect_url is not None:
            with self.register(caller, credential, missing.connect_url, tell) as need:
                while need is not None and await need.again():
                    with suppress(Refusal):  # not there yet
                        return await ask()
        raise missing

    def note_connection(self, credential: str, person: str) -> None:
        """An account was connected: wake the requests that wait for it."""
        for need in self._needs:
            if (need.credential, need.person) == (credential, person):
                need.news.set()

    def asks_about(self, view: str) -> bool:
        """Return whether a request of this view waits."""
        return any(need.view == view for need in self._needs)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a request begins or ends to wait; the returned function unregisters it."""
        return self._watchers.add(callback)
