"""One issuer of tokens and logins, queried over vetted connections, with caches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from copy import copy
from dataclasses import replace
from typing import Final, Generic, TypeVar

from gateway.bounds import Area, Bound
from gateway.caches import EACH, IN_ALL, OwnerCache
from gateway.callers import issuer_requests
from gateway.callers.issuer_tokens import (
    TYPES,
    PublicKey,
    UnknownKey,
    UnverifiedToken,
    check_issuer,
    of_access_token,
    of_id_token,
    parse_token,
    person,
    roles_in,
    verify,
)
from gateway.callers.methods import OAuthIssuer, Roles
from gateway.callers.people import LoginAttempt
from gateway.crypto import digest
from gateway.errors import Refusal, Unidentified
from gateway.exchange.oauth_tokens import run_flow
from gateway.model import Backend, Json, Principal, Secret

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RecentLookups(Generic[K, V]):
    """The recently used values of each owner, each with a lifetime; `bound` as for `OwnerCache`."""

    def __init__(
        self,
        each: int = EACH,
        most: int = IN_ALL,
        clock: Callable[[], float] = time.monotonic,
        bound: Bound | None = None,
    ) -> None:
        self._clock = clock
        self._cache: OwnerCache[K, tuple[float, V]] = OwnerCache(each, most, bound)

    def get(self, key: K) -> V | None:
        """Return the value, unless it has expired."""
        entry = self._cache.get(key)
        if entry is None:
            return None
        if entry[0] <= self._clock():
            self._cache.pop(key)
            return None
        return entry[1]

    def put(self, key: K, value: V, seconds: float, owner: str) -> None:
        """Store `value` for `seconds`; beyond the owner's limit, another one of theirs is evicted."""
        self._cache.put(owner, key, (self._clock() + seconds, value))

    def drop(self, key: K) -> None:
        """Remove one value."""
        self._cache.pop(key)

    def clear(self) -> None:
        """Remove all values."""
        self._cache.clear()


FRESH = 600.0
"""Seconds for which the data are used without a refresh."""

STALE = 3600.0
"""Seconds for which the data are used while the issuer does not answer."""

PAUSE = 5.0
"""Seconds between two attempts while the issuer does not answer."""

EARLY_FETCHES = 3
EARLY_FETCH_SPACING = 5.0
"""Unscheduled refreshes, such as for an unknown key: a burst of `EARLY_FETCHES`, and one more per this many seconds.

A refresh serves all callers: even if strangers name many unknown keys, a new one is found within that time.
"""


class Freshness:
    """The refresh times of one kind of data, in seconds."""

    def __init__(self) -> None:
        self._fetched_at = float("-inf")
        self._failed_at = float("-inf")
        self._spent_at = float("-inf")

    def is_due(self, now: float) -> bool:
        """Return whether a scheduled refresh is due."""
        return now - self._fetched_at >= FRESH and now - self._failed_at >= PAUSE

    def take_early_fetch(self, now: float) -> bool:
        """Return whether an unscheduled refresh is allowed, and count it."""
        if now - self._failed_at < PAUSE or self._spent_at > now + (EARLY_FETCHES - 1) * EARLY_FETCH_SPACING:
            return False
        self._spent_at = max(self._spent_at, now) + EARLY_FETCH_SPACING
        return True

    def is_usable(self, now: float) -> bool:
        """Return whether the last data may still be used."""
        return now - self._fetched_at < STALE

    def record_answer(self, now: float) -> None:
        """Record an answer."""
        self._fetched_at = now

    def record_failure(self, now: float) -> None:
        """Record a failure."""
        self._failed_at = now


T = TypeVar("T")

REMEMBERED = 30.0
"""Seconds for which a valid token is cached."""

REMEMBERED_BAD = 5.0
"""Seconds for which a token unknown to the issuer is cached."""

INTROSPECTED: Final = "introspected"
"""The kind of proof of a token that only its issuer can read."""


NOBODY: Final = ""
"""The owner of unknown tokens in the cache; their rate is limited per address by `Guesses`."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "cached look-ups of tokens and logins",
        f"{EACH} per principal, {IN_ALL:,} in all, of each issuer, and of tokens and logins of the gateway",
        "the least recently used of that principal, or of the largest holder, is evicted",
        uncounted="a cache",
    ),
    Bound(
        Area.DOORS,
        "opaque tokens of open streams, introspected repeatedly",
        f"{EACH} per principal, {IN_ALL:,} in all, of each issuer",
        "the streams of the least recently introspected token of that principal, or of the largest holder, are closed",
    ),
)

_, _OPAQUE = BOUNDS

UNAVAILABLE: Final = 503
"""The status of an `Unidentified` that is not the caller's fault."""


class PublishedDocument(Generic[T]):
    """A document that an issuer publishes: fetched single-flight, and cached while it is fresh.

    The first failure of several is logged with its cause, which no caller learns; `name` says whose document it is.
    """

    def __init__(self, name: str, ask: Callable[[], Awaitable[T]], clock: Callable[[], float]) -> None:
        self._name = name
        self._ask = ask
        self._clock = clock
        self._freshness = Freshness()
        self._asking = asyncio.Lock()
        self._value: T | None = None
        self._error: Unidentified | None = None

    async def get(self) -> T:
        """Return the value. Raises `Unidentified` without a usable one."""
        if self._freshness.is_due(self._clock()):
            async with self._asking:
                if self._freshness.is_due(self._clock()):
                    await self._refetch()
        return self._usable_value()

    async def get_early(self, before: T) -> T:
        """Return the value after an early refetch, if one is allowed now; `before` is the insufficient value."""
        async with self._asking:
            if self._value is before and self._freshness.take_early_fetch(self._clock()):
                await self._refetch()
        return self._usable_value()

    async def _refetch(self) -> None:
        try:
            self._value = await self._ask()
        except Unidentified as error:
            if self._error is None:
                log.warning("%s: %s", self._name, _with_cause(error))
            self._error = error
            self._freshness.record_failure(self._clock())
        else:
            self._error = None
            self._freshness.record_answer(self._clock())

    def _usable_value(self) -> T:
        if self._value is not None and self._freshness.is_usable(self._clock()):
            return self._value
        raise self._error or issuer_requests.unavailable("does not answer")


class Issuer:
    """The issuer of `spec`, reached through `backend`.

    `on_arrival` is called with each caller whose token was verified, or introspected again: its claims may be others.
    """

    def __init__(
        self,
        spec: OAuthIssuer,
        roles: Roles,
        backend: Backend,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        arrived: Callable[[Principal], None] = lambda _: None,
    ) -> None:
        self._on_arrival = arrived
        self._spec = spec
        self._roles = roles
        self._backend = backend
        self._clock = clock
        self._steady = steady
        self._metadata = PublishedDocument(f"issuer {spec.issuer}: metadata", self._fetch_metadata, steady)
        self._keys = PublishedDocument(f"issuer {spec.issuer}: keys", self._fetch_keys, steady)
        self._good: RecentLookups[tuple[bytes, frozenset[str]], Principal] = RecentLookups(clock=steady)
        self._bad: RecentLookups[bytes, bool] = RecentLookups(each=IN_ALL, clock=steady)
        self._opaque: RecentLookups[str, tuple[Secret, frozenset[str]]] = RecentLookups(clock=steady, bound=_OPAQUE)

    def under(self, spec: OAuthIssuer, roles: Roles) -> Issuer:
        """Return the same issuer, reached in the same way, under other settings.

        What it has published is not fetched again, and the opaque tokens of open streams are known; accepted tokens
        are judged anew.
        """
        other = copy(self)
        other._spec, other._roles = spec, roles
        other._good, other._bad = RecentLookups(clock=self._steady), RecentLookups(each=IN_ALL, clock=self._steady)
        return other

    def __str__(self) -> str:
        """Return its identifier."""
        return self._spec.issuer

    async def principal(
        self, token: str, resources: frozenset[str], may_ask: Callable[[], Awaitable[bool]] | None = None
    ) -> Principal | None:
        """Return the caller with an access token at one of `resources`; None for one that is not this issuer's.
        An opaque token is introspected only if `may_ask` allows that. Raises `Unidentified`.
        """
        key = digest(token)
        known = self._good.get((key, resources))
        if known is None:
            claims = await self._claims(token, key, may_ask)
            if claims is None:
                return None
            known = of_access_token(self._spec, self._roles, claims, resources, self._clock())
            left = (known.expires or 0.0) - self._clock()
            if _read_signed(token) is None:
                known = replace(known, proof=f"{INTROSPECTED}:{key.hex()}")
                self._opaque.put(key.hex(), (Secret(token), resources), left + self._spec.skew, known.id)
            self._good.put((key, resources), known, min(REMEMBERED, left), known.id)
            self._on_arrival(known)
        return known

    async def active(self, id: str, *, anew: bool) -> bool | None:
        """Return whether the issuer still knows a token that was introspected here, None for another one.
        With `anew` the cache is bypassed. Raises `Unidentified` if the issuer does not answer.
        """
        result = self._opaque.get(id)
        if result is None:
            return None
        token, resources = result
        if anew:
            key = digest(token.reveal())
            self._good.drop((key, resources))
            self._bad.drop(key)
        try:
            return await self.principal(token.reveal(), resources) is not None
        except Unidentified as error:
            if error.status == UNAVAILABLE:
                raise
            return False

    async def login_url(self, attempt: LoginAttempt, back: str, own: str | None) -> str:
        """Return the authorization URL, which redirects to `back`, or to `own` if the issuer's answer does not name it.
        Raises `Unidentified`.
        """
        metadata = await self._metadata.get()
        place = back if own is None or metadata.names_itself else own
        return issuer_requests.authorization_url(self._spec, metadata, attempt, place)

    async def logout_url(self, id_token: str | None, back: str) -> str | None:
        """Return the URL that ends a person's login at the issuer; None if there is none, or it is unknown."""
        try:
            return issuer_requests.logout_url(self._spec, await self._metadata.get(), id_token, back)
        except Unidentified:
            return None

    async def finish_login(
        self, query: Mapping[str, str], attempt: LoginAttempt, back: str, *, named: bool
    ) -> tuple[Principal, Secret]:
        """Return the person that came back with `query`, and the ID token; `query` must name the issuer if `named`.
        Raises `Unidentified`.
        """
        metadata = await self._metadata.get()
        code = issuer_requests.code_of(self._spec, query, named=named or metadata.names_itself)
        tokens = await run_flow(issuer_requests.redeem_code(self._spec, metadata, code, attempt, back), self._backend)
        id_token = parse_token(tokens.id_token)
        if id_token is None:
            raise Unidentified("The authorization server's ID token is invalid.")
        claims = await self._verify(id_token)
        principal = of_id_token(self._spec, claims, attempt.nonce, self._clock())
        if roles_in(claims, self._spec.roles_claim) or metadata.userinfo is None or tokens.access_token is None:
            return principal, Secret(tokens.id_token)
        more = await run_flow(
            issuer_requests.fetch_userinfo(metadata.userinfo, tokens.access_token, principal.subject), self._backend
        )
        return person(self._spec, {**more, **claims}, principal.subject), Secret(tokens.id_token)

    async def _claims(
        self, token: str, key: bytes, may_ask: Callable[[], Awaitable[bool]] | None
    ) -> dict[str, Json] | None:
        unverified = _read_signed(token)
        if unverified is not None:
            if unverified.claims["iss"] != self._spec.issuer:
                return None
            if str(unverified.header.get("typ", "jwt")).lower() not in TYPES:
                raise Unidentified("This is a token for something else.")
            return await self._verify(unverified)
        if not self._spec.introspection or self._bad.get(key):
            return None
        metadata = await self._metadata.get()
        formerly_valid = self._opaque.get(key.hex()) is not None  # and so no guess
        if not formerly_valid and may_ask is not None and not await may_ask():
            return None
        claims = await run_flow(issuer_requests.introspect(self._spec, metadata, token), self._backend)
        if claims is None:
            self._bad.put(key, True, REMEMBERED_BAD, NOBODY)
        else:
            check_issuer(self._spec, claims)
        return claims

    async def _verify(self, token: UnverifiedToken) -> dict[str, Json]:
        """Return the verified claims; after an unknown key the keys are fetched again once."""
        keys = await self._keys.get()
        try:
            return verify(token, keys, self._spec.algorithms)
        except UnknownKey:
            keys_now = await self._keys.get_early(keys)
            return verify(token, keys_now, self._spec.algorithms)

    async def _fetch_metadata(self) -> issuer_requests.Metadata:
        return await run_flow(issuer_requests.read_metadata(self._spec), self._backend)

    async def _fetch_keys(self) -> tuple[PublicKey, ...]:
        metadata = await self._metadata.get()
        if metadata.jwks is None:
            raise issuer_requests.unavailable("publishes no keys")
        return await run_flow(issuer_requests.fetch_keys(metadata.jwks), self._backend)


def _with_cause(error: Unidentified) -> str:
    cause = error.__cause__
    return f"{error.detail} {cause.detail}" if isinstance(cause, Refusal) else error.detail


def _read_signed(token: str) -> UnverifiedToken | None:
    """Return a token that names its issuer, unverified; None for an opaque one."""
    token_parts = parse_token(token)
    return token_parts if token_parts is not None and "iss" in token_parts.claims else None
