"""Lets persons connect their accounts at authorization servers, list them, and disconnect them."""

from __future__ import annotations

import hmac
import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gateway.bounds import Area, Bound
from gateway.credentials import (
    Account,
    AuthorizationCode,
    ConnectAttempt,
    OAuth,
    Spec,
    authorization_url,
    redeem,
    revoke,
    start_attempt,
)
from gateway.credentials.flow_steps import failure
from gateway.crypto import digest
from gateway.errors import Reason, Refusal, StartError
from gateway.exchange.authenticate import MissingAccounts
from gateway.exchange.oauth_tokens import OAuthTokens, run_flow
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Backend, Principal, Secret
from gateway.policy import Rate
from gateway.ports.cookies import CookieJars
from gateway.stores.sealing import SealBroken
from gateway.stores.tokens import ListedToken, TokenStore
from gateway.token_buckets import Buckets

LIFE: Final = 600.0
"""Seconds that a person has to complete the login."""

BEGINNING: Final = Rate(30, LIFE)
"""Logins that one person may begin: each is stored in the database until it ends or expires."""

BOUNDS: Final = (
    Bound(
        Area.CREDENTIALS,
        "logins that connect an account",
        f"{BEGINNING.count} in {BEGINNING.period:g} s per person; kept for {LIFE:g} s",
        "`rate-limited` with a retry time",
    ),
)

(_BEGUN,) = BOUNDS

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AccountConnection:
    """One credential as a person sees it; `since` is in seconds since the epoch, None if it is not connected."""

    credential: str
    title: str
    scope: tuple[str, ...]
    since: float | None
    account: Account | None


@dataclass(frozen=True, slots=True)
class StartedLogin:
    """The URL to send the browser to, and the secret that the browser keeps: it is required to finish the login."""

    location: str
    secret: str


class Connecting:
    """The connections of all persons. `callback` is the redirect URI of authorization servers.

    `specs`, `servers` and `sources` are those of all credentials by name, and may change.
    """

    def __init__(
        self,
        specs: Mapping[str, Spec],
        servers: Mapping[str, Backend],
        sources: Mapping[str, OAuthTokens],
        store: TokenStore,
        jars: CookieJars,
        callback: str,
        absences: MissingAccounts,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._all = specs
        self._servers = servers
        self._sources = sources
        self._store = store
        self._jars = jars
        self._callback = callback
        self._absences = absences
        self._now = now
        self._attempts: Buckets[str] = Buckets()

    @property
    def _specs(self) -> dict[str, OAuth]:
        """The credentials that persons connect."""
        return {
            name: spec
            for name, spec in self._all.items()
            if isinstance(spec, OAuth) and isinstance(spec.grant, AuthorizationCode)
        }

    @property
    def _several(self) -> bool:
        """True if several servers share the redirect URI."""
        return len({spec.server.issuer for spec in self._specs.values() if not _has_own_callback(spec)}) > 1

    @property
    def offered(self) -> bool:
        """True if a credential is configured that persons connect."""
        return bool(self._specs)

    async def list(self, principal: Principal) -> list[AccountConnection]:
        """Every credential that a person can connect. Raises OSError while the database is down."""
        tokens = await self._store.list(principal.person)
        tokens_by_credential = {one.credential: one for one in tokens if self._is_ours(one)}
        return [_connection(spec, tokens_by_credential.get(name)) for name, spec in self._specs.items()]

    async def begin(self, credential: str, principal: Principal) -> StartedLogin:
        """Start a login. Raises `Refusal`; OSError while the database is down."""
        spec = self._spec(credential, principal)
        self._refuse_the_hasty(principal.person)
        attempt = start_attempt(spec, self._place(credential if _has_own_callback(spec) else None))
        location = await run_flow(authorization_url(spec, attempt), self._servers[credential])
        secret = secrets.token_urlsafe(24)
        text = plain_json(_serialize(credential, self._source(credential), principal, attempt, secret))
        await self._store.remember(attempt.state, text, self._now(), self._now() + LIFE)
        return StartedLogin(location, secret)

    def _refuse_the_hasty(self, person: str) -> None:
        now = time.monotonic()
        result = self._attempts.take(person, now, BEGINNING)
        if not result.allowed:
            _BEGUN.report(person)
            wait = math.ceil(result.retry_after)
            detail = f"More than {BEGINNING.count} logins begun in {BEGINNING.period:g} s. Try again in {wait} s."
            raise Refusal(Reason.RATE_LIMITED, detail, headers=(("retry-after", str(wait)),))

    async def finish(self, principal: Principal, secret: str, answer: Mapping[str, str]) -> AccountConnection:
        """Finish a login with the parameters of the redirect, in the window that began it.

        `answer` contains `callback`, the name of a credential, if it arrived at that credential's own redirect URI.
        Raises `Refusal`, OSError.
        """
        state = answer.get("state", "")
        try:
            text = await self._store.recall(state, self._now())
        except SealBroken:
            text = None
        if text is None:
            raise Refusal(Reason.BAD_REQUEST, "This login has expired, or has ended already: begin it again.")
        values = parse_json(text)
        mine = hmac.compare_digest(values["principal"].encode(), principal.person.encode())
        if not mine or not hmac.compare_digest(values["secret"], digest(secret).hex()):
            raise Refusal(
                Reason.BAD_REQUEST,
                "This login was started by another person or in another window: start it again.",
                status=403,
            )
        if values["redirect_uri"] != self._place(answer.get("callback")):
            raise failure(values["credential"], "the response arrived at the redirect URI of another server (callback)")
        spec = self._spec(values["credential"], principal)
        source = self._source(spec.name)
        if values.get("source", source) != source:  # its code is another server's, or another client's
            raise Refusal(Reason.BAD_REQUEST, "This account is now connected elsewhere: begin the login again.")
        several = self._several and not _has_own_callback(spec)
        flow = redeem(spec, _attempt(values, state), answer, self._now(), several=several)
        token = replace(await run_flow(flow, self._servers[spec.name]), source=source)
        before = await self._connection_id(spec.name, principal)
        stored_token = await self._store.put(spec.name, principal.person, token, secrets.token_urlsafe(9), self._now())
        await self._drop_derived(spec.name, principal, before)
        self._absences.note_connection(spec.name, principal.person)
        return AccountConnection(spec.name, spec.title, spec.scope, stored_token.changed_at, token.account)

    async def disconnect(self, credential: str, principal: Principal) -> bool:
        """Delete the account and revoke its token; return whether that succeeded. Raises `Refusal`, OSError."""
        spec = self._spec(credential, principal)
        try:
            stored_token = await self._store.load(credential, principal.person)
        except SealBroken:
            stored_token = None
        await self._store.delete(credential, principal.person)
        await self._drop_derived(credential, principal, stored_token.connection if stored_token is not None else None)
        if stored_token is None or not self._sources[credential].ownership.owns(stored_token.token):
            return False  # another server has issued it, to which this one's settings do not lead
        try:
            return await run_flow(revoke(spec, stored_token.token, self._now()), self._servers[credential])
        except Refusal as refusal:
            log.warning("the server of a disconnected account could not be notified: %s", refusal.detail)
            return False

    def _source(self, credential: str) -> str:
        return self._sources[credential].ownership.source

    def _is_ours(self, listed_token: ListedToken) -> bool:
        """Return whether a token was issued for the current settings of its credential."""
        source = self._sources.get(listed_token.credential)
        return source is None or listed_token.token is None or source.ownership.owns(listed_token.token.token)

    def _place(self, name: str | None) -> str:
        """Return the redirect URI: that of the credential `name`, or the shared one."""
        return f"{self._callback}/{name}" if name is not None else self._callback

    def _spec(self, credential: str, principal: Principal) -> OAuth:
        if principal.shared:
            raise Refusal(
                Reason.BAD_REQUEST, "This caller is not a single person, and accounts belong to persons.", status=403
            )
        if credential not in self._specs:
            raise Refusal(Reason.BAD_REQUEST, "There is no such account to connect here.", status=404)
        return self._specs[credential]

    async def _connection_id(self, credential: str, principal: Principal) -> str | None:
        try:
            stored_token = await self._store.load(credential, principal.person)
        except (SealBroken, StartError):
            return None
        return stored_token.connection if stored_token is not None else None

    async def _drop_derived(self, credential: str, principal: Principal, connection: str | None) -> None:
        derived = [
            name
            for name, spec in self._all.items()
            if isinstance(spec, OAuth) and spec.per_person and not isinstance(spec.grant, AuthorizationCode)
        ]
        for name in derived:  # tokens derived from a person's token must not outlive it
            await self._store.delete(name, principal.person)
        for name in (credential, *derived):
            if name in self._sources:  # otherwise the configuration has changed meanwhile
                self._sources[name].forget(principal.person)
        if connection is not None:
            await self._jars.empty_person(principal.person, f"{credential}\n{connection}")


def _has_own_callback(spec: OAuth) -> bool:
    return isinstance(spec.grant, AuthorizationCode) and spec.grant.own_callback


def _connection(spec: OAuth, listed_token: ListedToken | None) -> AccountConnection:
    stored_token = listed_token.token if listed_token is not None else None
    since = stored_token.changed_at if stored_token is not None else None
    return AccountConnection(
        spec.name, spec.title, spec.scope, since, stored_token.token.account if stored_token is not None else None
    )


def _serialize(
    credential: str, source: str, principal: Principal, attempt: ConnectAttempt, secret: str
) -> dict[str, str | None]:
    return {
        "credential": credential,
        "source": source,
        "principal": principal.person,
        "secret": digest(secret).hex(),
        "verifier": attempt.verifier.reveal(),
        "nonce": attempt.nonce,
        "redirect_uri": attempt.redirect_uri,
        "key": attempt.key.reveal() if attempt.key is not None else None,
    }


def _attempt(values: Mapping[str, str], state: str) -> ConnectAttempt:
    key = values["key"]
    return ConnectAttempt(
        state=state,
        verifier=Secret(values["verifier"]),
        nonce=values["nonce"],
        redirect_uri=values["redirect_uri"],
        key=Secret(key) if key else None,
    )
