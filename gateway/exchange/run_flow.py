"""Runs OAuth flows: sends their requests, and obtains a new token for a credential."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

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
    refresh,
    token_exchange,
)
from gateway.errors import GrantEnded, Reason, Refusal
from gateway.model import Backend, Principal
from gateway.telemetry import Metrics

T = TypeVar("T")


async def drive(flow: Flow[T], server: Backend) -> T:
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


class Holder(Protocol):
    """The tokens of another credential: `gateway.exchange.fetched.Fetched`."""

    async def token(self, principal: Principal) -> Token:
        """Return a valid token. Raises `Refusal`."""
        ...


Obtain = Callable[[Principal, Token | None, float], Awaitable[Token]]
"""Returns the next token of a principal, from the previous one if there is one. Raises `Refusal`, `GrantEnded`."""


class Obtaining:
    """Obtains the tokens of one credential; `others` are the credentials from which they may be derived."""

    def __init__(self, spec: OAuth, server: Backend, others: Mapping[str, Holder]) -> None:
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
                given = await self._others[grant.assertion].token(principal) if grant.assertion is not None else None
                flow = jwt_bearer(spec, grant, _subject(spec, grant, principal), given, now)
        return await drive(flow, self._server)


def counted(obtain: Obtain, credential: str, metrics: Metrics) -> Obtain:
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
