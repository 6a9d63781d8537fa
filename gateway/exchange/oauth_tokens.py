"""OAuth tokens of a credential: obtained on demand, renewed before expiry under a lease shared by all processes."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

from gateway.bounds import Area, Bound
from gateway.credentials import (
    AuthorizationCode,
    ClientCredentials,
    Flow,
    JwtBearer,
    OAuth,
    Token,
    TokenExchange,
    client_credentials,
    jwt_bearer,
    offered_nonce,
    proof,
    refresh,
    token_exchange,
    wants_nonce,
)
from gateway.errors import GrantEnded, Reason, Refusal, StartError
from gateway.exchange.authenticate import InjectedFields
from gateway.model import Backend, Headers, Principal
from gateway.stores.sealing import SealBroken
from gateway.stores.sql import whole
from gateway.stores.tokens import StoredToken
from gateway.telemetry import Metrics

T = TypeVar("T")


async def run_flow(flow: Flow[T], server: Backend) -> T:
    """Send the flow's requests to `server` until it returns its result. Raises the `Refusal` that ends it."""
    try:
        request = next(flow)
        while True:
            try:
                response = await server.send(request)
            except Refusal as refusal:
                request = flow.throw(refusal)
            else:
                request = flow.send(response)
    except StopIteration as end:
        result: T = end.value
        return result


class TokenSource(Protocol):
    """The tokens of another credential: `gateway.exchange.oauth_tokens.OAuthTokens`."""

    async def token(self, principal: Principal) -> Token:
        """Return a valid token. Raises `Refusal`."""
        ...


Obtain = Callable[[Principal, Token | None, float], Awaitable[Token]]
"""Returns the next token of a principal, from the previous one if there is one. Raises `Refusal`, `GrantEnded`."""


class TokenRequests:
    """Obtains the tokens of one credential; `others` are the credentials from which they may be derived."""

    def __init__(self, spec: OAuth, server: Backend, others: Mapping[str, TokenSource]) -> None:
        self._spec = spec
        self._server = server
        self._others = others

    async def __call__(self, principal: Principal, before: Token | None, now: float) -> Token:
        """Return the next token; `now` is in seconds since the epoch."""
        spec = self._spec
        match spec.grant:
            case ClientCredentials():
                flow = client_credentials(spec, now)
            case AuthorizationCode():
                if before is None:
                    raise GrantEnded(f"credential {spec.name!r}: not connected yet")
                flow = refresh(spec, before, now)
            case TokenExchange() as grant:
                subject = await self._others[grant.subject].token(principal)
                actor = await self._others[grant.actor].token(principal) if grant.actor is not None else None
                flow = token_exchange(spec, grant, subject, actor, now)
            case JwtBearer() as grant:
                assertion = (
                    await self._others[grant.assertion].token(principal) if grant.assertion is not None else None
                )
                flow = jwt_bearer(spec, grant, _subject(spec, grant, principal), assertion, now)
        return await run_flow(flow, self._server)


def count_requests(obtain: Obtain, credential: str, metrics: Metrics) -> Obtain:
    """Count the calls of `obtain` by outcome: `ok`, `refused`, or `ended` if a person must connect anew."""

    async def call(principal: Principal, before: Token | None, now: float) -> Token:
        outcome = "refused"
        try:
            token = await obtain(principal, before, now)
            outcome = "ok"
        except GrantEnded:
            outcome = "ended"
            raise
        finally:
            metrics.token_requests.labels(credential, outcome).inc()
        return token

    return call


def _subject(spec: OAuth, grant: JwtBearer, principal: Principal) -> str:
    if grant.claim is None:
        return grant.subject or spec.client.id
    value = principal.subject if grant.claim == "sub" else principal.claims.get(grant.claim)
    if not isinstance(value, str) or not value:
        detail = f"credential {spec.name!r}: the caller has no claim {grant.claim!r} to speak for"
        raise Refusal(Reason.CREDENTIAL_FAILED, detail)
    return value


MARGIN: Final = 30.0
"""Seconds before its expiry at which a token is no longer used; at most a tenth of its lifetime."""

LOOK: Final = 5.0
"""Seconds for which a token is used without checking whether another process changed or revoked it."""

AHEAD: Final = 2.5
"""Seconds after which one call checks, while the others still use the cached token."""

LEASE: Final = 60.0
"""Seconds of the lease under which one process renews a token: longer than the requests of any flow take."""

PAUSE: Final = 0.1
AGAIN: Final = 5.0
"""Seconds in which a token that a backend refused is renewed at most once."""

CACHED: Final = 10_000

BOUNDS: Final = (
    Bound(
        Area.CREDENTIALS,
        "cached tokens of accounts",
        f"one per person, {CACHED:,} in all, of each credential",
        "the oldest is evicted, and read from the database when needed",
        uncounted="a cache",
    ),
)


log = logging.getLogger(__name__)


class TokenStorage(Protocol):
    """The storage of tokens: `gateway.stores.tokens.TokenStore`. Raises OSError, StartError, `Unreadable`."""

    async def load(self, credential: str, principal: str) -> StoredToken | None: ...

    async def version(self, credential: str, principal: str) -> str | None: ...

    async def save(
        self, credential: str, principal: str, token: Token, connection: str, *, before: str | None, now: float
    ) -> StoredToken | None: ...

    async def delete(self, credential: str, principal: str, version: str | None = None) -> bool: ...

    async def claim(self, credential: str, principal: str, holder: str, now: float, seconds: float) -> bool: ...

    async def release(self, credential: str, principal: str, holder: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a credential's tokens. `connect_url` gives the page where a person connects an account, if any can.

    `account` identifies the account behind tokens that need no person's consent. `source` are the settings that they
    are issued for, as `token_source` returns them: stored tokens of other ones are left alone.
    """

    per_person: bool = False
    connect_url: Callable[[Principal], str] | None = None
    account: str = ""
    source: str = ""

    def owns(self, token: Token) -> bool:
        """Return whether a stored token was issued for these settings."""
        return not token.source or not self.source or token.source == self.source


@dataclass(slots=True)
class _CachedToken:
    """A cached token, used without a check up to `until`.

    After `look`, the next call checks the store; the others use the cached token up to `until`.
    """

    token: StoredToken
    until: float
    look: float


class OAuthTokens:
    """The tokens of the credential `name`. `now` is the time of day, in seconds since the epoch."""

    def __init__(
        self,
        name: str,
        obtain: Obtain,
        store: TokenStorage,
        ownership: Ownership = Ownership(),
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._obtain = obtain
        self._store = store
        self.ownership = ownership
        self._now = now
        self._sleep = sleep
        self._cache: OrderedDict[str, _CachedToken] = OrderedDict()
        self._looking: dict[str, asyncio.Task[StoredToken]] = {}
        self._refusals: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._nonces: OrderedDict[str, str] = OrderedDict()

    def take_over(self, before: OAuthTokens) -> None:
        """Take over what the credential has cached under its earlier settings, if these are the same tokens."""
        if before.ownership.source == self.ownership.source:
            self._cache.update(before._cache)
            self._refusals.update(before._refusals)

    async def token(self, principal: Principal) -> Token:
        """Return a valid token. Raises `Refusal` (`credential-needed`, `credential-failed`)."""
        return (await self._load_token(principal)).token

    async def ready(self, principal: Principal) -> None:
        """Check that a valid token exists or can be obtained. Raises `Refusal`."""
        await self._load_token(principal)

    async def inject(self, principal: Principal, method: str, url: str) -> InjectedFields:
        """Return the token, with a DPoP proof for this request if it is bound to a key."""
        stored_token = await self._load_token(principal)
        token = stored_token.token
        headers: Headers = (token.header(),)
        if token.key is not None:
            nonce = self._nonces.get(_origin(url))
            headers += (proof(token.key, method, url, self._now(), nonce=nonce, token=token.value),)
        ours = self.ownership
        account = ours.account if ours.connect_url is None else stored_token.connection
        return InjectedFields(headers, (token.value.reveal(),), stored_token.version, account, token.key is not None)

    async def take_response(
        self, principal: Principal, credential_fields: InjectedFields, url: str, status: int, headers: Headers
    ) -> bool:
        """Store the nonce for the next request (RFC 9449 8.2); renew a token that was refused, once per `AGAIN`."""
        if status != 401 and not credential_fields.bound:
            return False
        nonce = offered_nonce(headers)
        if nonce is None and status != 401:
            return False
        origin = _origin(url)
        known = self._nonces.get(origin)
        if nonce is not None:
            _remember(self._nonces, origin, nonce)
        if status != 401:
            return False
        if wants_nonce(headers):
            return nonce is not None and nonce != known
        key = self._key(principal)
        entry = self._cache.get(key)
        if entry is None or entry.token.version != credential_fields.token:
            return True  # it was renewed meanwhile
        last = self._refusals.get(key)
        if not self._renewable(entry.token) or (last is not None and self._now() - last[1] < AGAIN):
            return False
        _remember(self._refusals, key, (entry.token.version, self._now()))
        entry.until = entry.look = 0.0
        return True

    def forget(self, person: str) -> None:
        """Drop the cached token: the stored one has changed."""
        self._cache.pop(person, None)
        self._looking.pop(person, None)

    def _key(self, principal: Principal) -> str:
        return principal.person if self.ownership.per_person else ""

    def _renewable(self, stored_token: StoredToken) -> bool:
        return self.ownership.connect_url is None or stored_token.token.refresh is not None

    async def _load_token(self, principal: Principal) -> StoredToken:
        if self.ownership.per_person and principal.shared:
            detail = f"credential {self._name!r} belongs to persons, and this caller represents several"
            raise Refusal(Reason.CREDENTIAL_FAILED, detail)
        key = self._key(principal)
        entry = self._cache.get(key)
        if entry is not None and self._now() < entry.look:
            return entry.token
        looking = self._looking.get(key)
        if looking is not None:
            await asyncio.wait({looking})
            return looking.result()
        if entry is not None:
            entry.look = entry.until
        # Single-flight: the caller that starts it waits until it is over.
        looking = self._looking[key] = asyncio.ensure_future(self._look(principal, key))
        return await whole(looking)

    async def _look(self, principal: Principal, key: str) -> StoredToken:
        """Return the stored token or its successor, and cache it unless `forget` was called meanwhile."""
        began, looking = self._now(), asyncio.current_task()
        stored_token: StoredToken | None = None
        try:
            stored_token = await self._current(principal, key)
            return stored_token
        finally:
            if self._looking.get(key) is looking:
                del self._looking[key]
                self._cache.pop(key, None)
                if stored_token is not None:
                    self._hold(key, stored_token, began)

    async def _current(self, principal: Principal, key: str) -> StoredToken:
        try:
            stored_token = await self._store.load(self._name, key)
            if stored_token is not None and self._good(key, stored_token):
                return stored_token
            return await self._renew(principal, key, stored_token)
        except SealBroken as error:
            log.error("the token of credential %s cannot be opened: %s", self._name, error)
            if self.ownership.connect_url is not None:
                raise self._connect_refusal(principal, "the stored token cannot be decrypted any more") from None
            await self._store.delete(self._name, key)
            return await self._renew(principal, key, None)
        except (OSError, StartError) as error:
            log.error("the tokens of credential %s are out of reach: %s", self._name, error)
            entry = self._cache.get(key)
            if entry is not None and self._good(key, entry.token):
                return entry.token
            if self.ownership.connect_url is not None:
                detail = f"credential {self._name!r}: the stored tokens are out of reach at present"
                raise Refusal(Reason.CREDENTIAL_FAILED, detail) from error
            token = await self._obtain(principal, None, self._now())
            return StoredToken(self._name, key, token, "", secrets.token_urlsafe(9), self._now())

    async def _renew(self, principal: Principal, key: str, stored_token: StoredToken | None) -> StoredToken:
        if self._is_absent(stored_token):
            raise self._connect_refusal(principal, "not connected yet")
        holder = secrets.token_urlsafe(9)
        end = self._now() + LEASE
        while not await self._store.claim(self._name, key, holder, self._now(), LEASE):
            if self._now() >= end:
                detail = f"credential {self._name!r}: another process has been renewing it for {LEASE:g} s"
                raise Refusal(Reason.CREDENTIAL_FAILED, detail)
            await self._sleep(PAUSE)
        try:
            stored = await self._store.load(self._name, key)
            if stored is not None and self._good(key, stored):
                return stored  # another process was faster
            if self._is_absent(stored):
                raise self._connect_refusal(principal, "not connected any more")
            return await self._replace_token(principal, key, stored)
        finally:
            await self._store.release(self._name, key, holder)

    async def _replace_token(self, principal: Principal, key: str, stored_token: StoredToken | None) -> StoredToken:
        now = self._now()
        mine = stored_token is not None and self.ownership.owns(stored_token.token)
        try:
            token = await self._obtain(
                principal, stored_token.token if stored_token is not None and mine else None, now
            )
        except GrantEnded as refusal:
            if stored_token is not None:
                await self._store.delete(self._name, key, stored_token.version)
            raise self._connect_refusal(principal, refusal.detail.partition(": ")[2] or refusal.detail) from None
        before = stored_token.version if stored_token is not None else None
        connection = stored_token.connection if stored_token is not None and mine else ""
        token = replace(token, source=self.ownership.source)
        stored_now = await self._store.save(self._name, key, token, connection, before=before, now=now)
        if stored_now is None:  # it was disconnected, or connected anew, while it was renewed
            stored_now = await self._store.load(self._name, key)
            if stored_now is None:
                raise self._connect_refusal(principal, "not connected any more")
        return stored_now

    def _hold(self, key: str, stored_token: StoredToken, seen: float) -> None:
        ends = _ends(stored_token)
        _remember(self._cache, key, _CachedToken(stored_token, min(seen + LOOK, ends), min(seen + AHEAD, ends)))

    def _is_absent(self, stored_token: StoredToken | None) -> bool:
        """Return whether a person must connect an account: a token of another server or client is not theirs."""
        return self.ownership.connect_url is not None and (
            stored_token is None or not self.ownership.owns(stored_token.token)
        )

    def _good(self, key: str, stored_token: StoredToken) -> bool:
        """Return whether the token can be used: it is of these settings and lasts, and no backend refused it."""
        if not self.ownership.owns(stored_token.token):
            return False
        refusal = self._refusals.get(key)
        if refusal is not None and refusal[0] == stored_token.version:
            return False
        return self._now() < _ends(stored_token)

    def _connect_refusal(self, principal: Principal, why: str) -> Refusal:
        if self.ownership.connect_url is None:
            return Refusal(Reason.CREDENTIAL_FAILED, f"credential {self._name!r}: {why}")
        url = self.ownership.connect_url(principal)
        detail = f"credential {self._name!r}: {why}. Connect it at {url}"
        return Refusal(Reason.CREDENTIAL_NEEDED, detail, connect_url=url)


def _ends(stored_token: StoredToken) -> float:
    """Return when a token is no longer used: a little before it expires."""
    expires = stored_token.token.expires_at
    return (
        expires - max(0.0, min(MARGIN, (expires - stored_token.changed_at) / 10)) if expires is not None else math.inf
    )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _remember(entries: OrderedDict[str, T], key: str, value: T) -> None:
    entries[key] = value
    entries.move_to_end(key)
    while len(entries) > CACHED:
        entries.popitem(last=False)
