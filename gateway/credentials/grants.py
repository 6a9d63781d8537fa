"""OAuth grants as flows: from a login, a credential or another token to a token (RFC 6749, 7523, 7636, 8693, 9207)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7009 import prepare_revoke_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from gateway.credentials.flow_steps import Flow, ask, check_id_token, failure, parse_jwt_part
from gateway.credentials.metadata import Endpoints, discover_endpoints, find_endpoints
from gateway.credentials.specs import Account, JwtBearer, OAuth, Token, TokenExchange
from gateway.credentials.token_requests import assertion, client_request, new_key, request_token
from gateway.errors import GrantEnded, Reason, Refusal
from gateway.model import Json, Secret

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105  the name of a type, no secret
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"

SKEW: Final = 120
"""Seconds by which the clock of an authorization server may differ."""

LABEL: Final = 120
_CODE = re.compile(r"[\x20-\x7e]{1,4096}\Z")
_OAUTH_ERROR = re.compile(r"[a-z_]{1,40}\Z")


@dataclass(frozen=True, slots=True)
class ConnectAttempt:
    """The state of one login between redirect and callback; `verifier` and `key` are secret."""

    state: str
    verifier: Secret
    nonce: str
    redirect_uri: str
    key: Secret | None


def start_attempt(spec: OAuth, redirect_uri: str) -> ConnectAttempt:
    """Return a new attempt with random values."""
    return ConnectAttempt(
        state=secrets.token_urlsafe(24),
        verifier=Secret(secrets.token_urlsafe(48)),
        nonce=secrets.token_urlsafe(16),
        redirect_uri=redirect_uri,
        key=new_key() if spec.dpop else None,
    )


def authorization_url(spec: OAuth, attempt: ConnectAttempt) -> Flow[str]:
    """Return the URL for the person's browser (RFC 6749 4.1.1)."""
    endpoints = yield from _login_endpoints(spec)
    if endpoints.authorization is None:
        raise failure(spec.name, "its server names no authorization_endpoint: set it")
    if endpoints.challenges is not None and "S256" not in endpoints.challenges:
        raise failure(spec.name, "its server does not know PKCE with S256, which is needed")
    url: str = prepare_grant_uri(
        endpoints.authorization,
        spec.client.id,
        "code",
        attempt.redirect_uri,
        spec.scope,
        attempt.state,
        resource=spec.resource,
        nonce=attempt.nonce if "openid" in spec.scope else None,
        prompt="consent" if "offline_access" in spec.scope else None,  # OpenID Connect Core 11: for a refresh token
        code_challenge=create_s256_code_challenge(attempt.verifier.reveal()),
        code_challenge_method="S256",
    )
    return url


def redeem(
    spec: OAuth, attempt: ConnectAttempt, answer: Mapping[str, str], now: float, *, several: bool = False
) -> Flow[Token]:
    """Exchange the server's callback query for a token; the caller has already compared `state`.

    With `several` servers on the same callback address, the answer must name its issuer (RFC 9207), which Authlib 1.9's
    `parse_authorization_code_response` does not check, nor an error in it. Raises `Refusal`: `credential-failed`, or
    `credential-needed` if the server answered with an error.
    """
    endpoints = yield from _login_endpoints(spec)
    issuer = answer.get("iss")
    if (issuer is None and endpoints.sends_issuer) or issuer not in (None, spec.server.issuer):
        raise failure(spec.name, "the response came from a different authorization server (iss)")
    if issuer is None and several:
        why = "the answer does not name its server (iss), and others lead people back to the same address"
        raise failure(spec.name, f"{why}: give it a separate one with `callback: own`")
    if "error" in answer:
        code = answer["error"] if _OAUTH_ERROR.match(answer["error"]) else "an error"
        raise Refusal(Reason.CREDENTIAL_NEEDED, f"credential {spec.name!r}: the server answered {code}")
    if not _CODE.match(answer.get("code", "")):
        raise failure(spec.name, "the answer holds no code")
    form = prepare_token_request(
        "authorization_code",
        redirect_uri=attempt.redirect_uri,
        code=answer["code"],
        code_verifier=attempt.verifier.reveal(),
        resource=spec.resource,
    )
    try:
        grant_result = yield from request_token(spec, endpoints, form, now, key=attempt.key)
    except GrantEnded as refusal:
        raise failure(spec.name, refusal.detail.partition(": ")[2]) from None
    try:
        account = _account(spec, attempt, grant_result.answer.get("id_token"), now)
        return replace(grant_result.token, account=account, id_token=grant_result.id_token)
    except ValueError as error:
        raise failure(spec.name, f"the ID token {error}") from None


def _login_endpoints(spec: OAuth) -> Flow[Endpoints]:
    if spec.server.token_endpoint is not None and spec.server.authorization_endpoint is None:
        return (yield from discover_endpoints(spec))
    return (yield from find_endpoints(spec))


def _account(spec: OAuth, attempt: ConnectAttempt, id_token: Json, now: float) -> Account | None:
    """Return the account of an ID token.

    The token came over TLS from the server itself, which replaces a signature check (OpenID Connect Core 3.1.3.7, 6).
    """
    if id_token is None:
        return None
    parts = id_token.split(".") if isinstance(id_token, str) else []
    if len(parts) != 3:
        raise ValueError("is not a JWT")
    claims = parse_jwt_part(parts[1])
    # `iat` and `nbf` are not checked: a server whose clock is ahead would connect no account
    checked = {name: value for name, value in claims.items() if name not in ("iat", "nbf")}
    check_id_token(checked, spec.server.issuer, spec.client.id, attempt.nonce, now, SKEW)
    subject = str(claims["sub"])
    names = (claims.get(key) for key in ("email", "preferred_username", "name"))
    label = next((name for name in names if isinstance(name, str) and name), subject)
    return Account(subject[:LABEL], label[:LABEL])


def client_credentials(spec: OAuth, now: float) -> Flow[Token]:
    """Get a token; `now` is in seconds since the epoch, taken before the first request.

    The driver sends each response in, or throws a `Refusal` in. Raises `Refusal` (`credential-failed`).
    """
    return (yield from _request_grant(spec, "client_credentials", now))


def token_exchange(spec: OAuth, grant: TokenExchange, subject: Token, actor: Token | None, now: float) -> Flow[Token]:
    """Exchange another credential's token for one of this server (RFC 8693 2.1)."""
    value, kind = subject.value, subject.type
    if grant.by_id_token:
        if subject.id_token is None:
            detail = f"credential {grant.subject!r} has no ID token: add the scope openid, and connect it again"
            raise failure(spec.name, detail)
        value, kind = subject.id_token, ID_TOKEN
    form = {
        "subject_token": value.reveal(),
        "subject_token_type": kind,
        "actor_token": actor.value.reveal() if actor is not None else None,
        "actor_token_type": actor.type if actor is not None else None,
        "audience": grant.audience,
        "requested_token_type": grant.requested,
    }
    return (yield from _request_grant(spec, EXCHANGE, now, **form))


def jwt_bearer(spec: OAuth, grant: JwtBearer, subject: str, subject_token: Token | None, now: float) -> Flow[Token]:
    """Get a token for an assertion about `subject` (RFC 7523 2.1), or with another credential's `subject_token`."""
    if subject_token is not None:
        text = subject_token.value.reveal()
    elif grant.key is None:
        raise failure(spec.name, "jwt_bearer needs private_key")
    else:
        text = assertion(grant.key, spec.client.id, subject, grant.audience or spec.server.issuer, now)
    return (yield from _request_grant(spec, JWT_BEARER, now, assertion=text))


def refresh(spec: OAuth, token: Token, now: float) -> Flow[Token]:
    """Refresh a token. If the server rotates the refresh token, the old one is used up.

    Raises `GrantEnded` if it is no longer valid: already used, or revoked by the account's owner.
    """
    if token.refresh is None:
        raise GrantEnded(f"credential {spec.name!r}: its token has expired, and it has no refresh token")
    endpoints = yield from find_endpoints(spec)
    form = prepare_token_request("refresh_token", refresh_token=token.refresh.reveal(), resource=spec.resource)
    grant_result = yield from request_token(spec, endpoints, form, now, key=token.key)
    renewed = grant_result.token
    return replace(
        renewed,
        refresh=renewed.refresh or token.refresh,
        scope=renewed.scope or token.scope,
        account=token.account,
        id_token=grant_result.id_token or token.id_token,
    )


def revoke(spec: OAuth, token: Token, now: float) -> Flow[bool]:
    """Revoke a token at the server (RFC 7009); return whether that succeeded."""
    endpoints = yield from find_endpoints(spec)
    if endpoints.revocation is None:
        return False
    hint = "refresh_token" if token.refresh is not None else "access_token"
    form, _ = prepare_revoke_token_request((token.refresh or token.value).reveal(), hint)
    answer = yield from ask(spec.name, client_request(spec, endpoints, endpoints.revocation, form, now))
    return answer.status == 200


def _request_grant(spec: OAuth, grant_type: str, now: float, **form: str | None) -> Flow[Token]:
    endpoints = yield from find_endpoints(spec)
    key = new_key() if spec.dpop else None
    body = prepare_token_request(grant_type, scope=spec.scope, resource=spec.resource, **form)
    try:
        return (yield from request_token(spec, endpoints, body, now, key=key)).token
    except GrantEnded as refusal:  # no person can renew the input of these flows
        raise failure(spec.name, refusal.detail.partition(": ")[2]) from None
