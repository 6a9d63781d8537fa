"""Flows without a person at a browser: from a credential to a token (RFC 6749 4.4 and 6, RFC 7523, RFC 8693)."""

from __future__ import annotations

from dataclasses import replace

from gateway.credentials.assertions import assertion
from gateway.credentials.dpop import new_key
from gateway.credentials.metadata import endpoints
from gateway.credentials.nouns import JwtBearer, OAuth, Token, TokenExchange
from gateway.credentials.server_answers import Flow, ask, failed
from gateway.credentials.token_requests import client_request, request_token, wanted
from gateway.errors import GrantEnded
from gateway.model import Secret

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105  the name of a type, no secret
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def client_credentials(spec: OAuth, now: float) -> Flow[Token]:
    """Get a token; `now` is in seconds since the epoch, taken before the first request.

    The driver sends each response in, or throws a `Refusal` in. Raises `Refusal` (`credential-failed`).
    """
    return (yield from _granted(spec, {"grant_type": "client_credentials", **wanted(spec)}, now))


def token_exchange(spec: OAuth, grant: TokenExchange, subject: Token, actor: Token | None, now: float) -> Flow[Token]:
    """Exchange another credential's token for one of this server (RFC 8693 2.1)."""
    shown, kind = subject.value, subject.type
    if grant.by_id_token:
        if subject.id_token is None:
            detail = f"credential {grant.subject!r} has no ID token: give it the scope openid, and connect it anew"
            raise failed(spec.name, detail)
        shown, kind = subject.id_token, ID_TOKEN
    form = {"grant_type": EXCHANGE, "subject_token": shown.reveal(), "subject_token_type": kind}
    if actor is not None:
        form |= {"actor_token": actor.value.reveal(), "actor_token_type": actor.type}
    if grant.audience is not None:
        form["audience"] = grant.audience
    if grant.requested is not None:
        form["requested_token_type"] = grant.requested
    return (yield from _granted(spec, form | wanted(spec), now))


def jwt_bearer(spec: OAuth, grant: JwtBearer, subject: str, given: Token | None, now: float) -> Flow[Token]:
    """Get a token for an assertion about `subject` (RFC 7523 2.1); `given` is another credential's token for it."""
    if given is not None:
        shown = given.value.reveal()
    elif grant.key is None:
        raise failed(spec.name, "jwt_bearer needs private_key")
    else:
        shown = assertion(grant.key, spec.client.id, subject, grant.audience or spec.server.issuer, now)
    return (yield from _granted(spec, {"grant_type": JWT_BEARER, "assertion": shown, **wanted(spec)}, now))


def refresh(spec: OAuth, token: Token, now: float) -> Flow[Token]:
    """Refresh a token. If the server rotates the refresh token, the old one is used up.

    Raises `GrantEnded` if it is no longer valid: already used, or revoked by the account's owner.
    """
    if token.refresh is None:
        raise GrantEnded(f"credential {spec.name!r}: its token has expired, and there is none to refresh it with")
    places = yield from endpoints(spec)
    form = {"grant_type": "refresh_token", "refresh_token": token.refresh.reveal()}
    if spec.resource is not None:
        form["resource"] = spec.resource
    granted = yield from request_token(spec, places, form, now, key=token.key)
    renewed = granted.token
    return replace(
        renewed,
        refresh=renewed.refresh or token.refresh,
        scope=renewed.scope or token.scope,
        account=token.account,
        id_token=granted.id_token or token.id_token,
    )


def revoke(spec: OAuth, token: Token, now: float) -> Flow[bool]:
    """Revoke a token at the server (RFC 7009); return whether that succeeded."""
    places = yield from endpoints(spec)
    if places.revocation is None:
        return False
    told: Secret = token.refresh or token.value
    hint = "refresh_token" if token.refresh is not None else "access_token"
    form = {"token": told.reveal(), "token_type_hint": hint}
    answer = yield from ask(spec.name, client_request(spec, places, places.revocation, form, now))
    return answer.status == 200


def _granted(spec: OAuth, form: dict[str, str], now: float) -> Flow[Token]:
    places = yield from endpoints(spec)
    key = new_key() if spec.dpop else None
    try:
        return (yield from request_token(spec, places, form, now, key=key)).token
    except GrantEnded as ended:  # no person can renew the input of these flows
        raise failed(spec.name, ended.detail.partition(": ")[2]) from None
