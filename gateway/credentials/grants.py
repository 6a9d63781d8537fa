"""The grants as flows: from a login, a credential or another token to a token (RFC 6749, 7523, 7636, 8693, 9207)."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from gateway.base64url import base64url
from gateway.credentials.metadata import Endpoints, discover, endpoints
from gateway.credentials.server_answers import Flow, ask, failed, parsed
from gateway.credentials.signing import assertion, new_key
from gateway.credentials.specs import Account, JwtBearer, OAuth, Token, TokenExchange
from gateway.credentials.token_requests import client_request, request_token, wanted
from gateway.errors import GrantEnded, Reason, Refusal
from gateway.model import Json, Secret

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


def attempt(spec: OAuth, redirect_uri: str) -> ConnectAttempt:
    """Return a new attempt with random values."""
    return ConnectAttempt(
        state=secrets.token_urlsafe(24),
        verifier=Secret(secrets.token_urlsafe(48)),
        nonce=secrets.token_urlsafe(16),
        redirect_uri=redirect_uri,
        key=new_key() if spec.dpop else None,
    )


def authorization_url(spec: OAuth, tried: ConnectAttempt) -> Flow[str]:
    """Return the URL for the person's browser (RFC 6749 4.1.1)."""
    places = yield from _places(spec)
    if places.authorization is None:
        raise failed(spec.name, "its server names no authorization_endpoint: set it")
    if places.challenges is not None and "S256" not in places.challenges:
        raise failed(spec.name, "its server does not know PKCE with S256, which is needed")
    challenge = hashlib.sha256(tried.verifier.reveal().encode()).digest()
    query = {
        "response_type": "code",
        "client_id": spec.client.id,
        "redirect_uri": tried.redirect_uri,
        "state": tried.state,
        "code_challenge": base64url(challenge),
        "code_challenge_method": "S256",
        **wanted(spec),
    }
    if "openid" in spec.scope:
        query["nonce"] = tried.nonce
    if "offline_access" in spec.scope:
        query["prompt"] = "consent"  # OpenID Connect Core 11: required for a refresh token
    joint = "&" if "?" in places.authorization else "?"
    return f"{places.authorization}{joint}{urlencode(query)}"


def redeem(
    spec: OAuth, tried: ConnectAttempt, answer: Mapping[str, str], now: float, *, several: bool = False
) -> Flow[Token]:
    """Exchange the server's callback query for a token; the caller has already compared `state`.

    With `several` servers on the same callback address, the answer must name its issuer. Raises `Refusal`:
    `credential-failed`, or `credential-needed` if the server answered with an error.
    """
    places = yield from _places(spec)
    issuer = answer.get("iss")
    if (issuer is None and places.sends_issuer) or issuer not in (None, spec.server.issuer):
        raise failed(spec.name, "the answer comes from another server than the one that was asked (iss)")
    if issuer is None and several:
        why = "the answer does not name its server (iss), and others lead people back to the same address"
        raise failed(spec.name, f"{why}: give it one of its own with `callback: own`")
    if "error" in answer:
        code = answer["error"] if _OAUTH_ERROR.match(answer["error"]) else "an error"
        raise Refusal(Reason.CREDENTIAL_NEEDED, f"credential {spec.name!r}: the server answered {code}")
    if not _CODE.match(answer.get("code", "")):
        raise failed(spec.name, "the answer holds no code")
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "redirect_uri": tried.redirect_uri,
        "code_verifier": tried.verifier.reveal(),
    }
    if spec.resource is not None:
        form["resource"] = spec.resource
    try:
        granted = yield from request_token(spec, places, form, now, key=tried.key)
    except GrantEnded as ended:
        raise failed(spec.name, ended.detail.partition(": ")[2]) from None
    try:
        account = _account(spec, tried, granted.answer.get("id_token"), now)
        return replace(granted.token, account=account, id_token=granted.id_token)
    except ValueError as error:
        raise failed(spec.name, f"the ID token {error}") from None


def _places(spec: OAuth) -> Flow[Endpoints]:
    if spec.server.token_endpoint is not None and spec.server.authorization_endpoint is None:
        return (yield from discover(spec))
    return (yield from endpoints(spec))


def _account(spec: OAuth, tried: ConnectAttempt, id_token: Json, now: float) -> Account | None:
    """Return the account of an ID token.

    The token came over TLS from the server itself, which replaces a signature check (OpenID Connect Core 3.1.3.7, 6).
    """
    if id_token is None:
        return None
    claims = _claims(id_token)
    audience = claims.get("aud")
    if claims.get("iss") != spec.server.issuer:
        raise ValueError("is of another issuer")
    if spec.client.id not in (audience if isinstance(audience, list) else [audience]):
        raise ValueError("is for another client")
    if claims.get("nonce") != tried.nonce:
        raise ValueError("is of another login")
    expiry = claims.get("exp")
    if isinstance(expiry, bool) or not isinstance(expiry, (int, float)) or not expiry + SKEW >= now:
        raise ValueError("has expired")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise ValueError("names no subject")
    named = (claims.get(key) for key in ("email", "preferred_username", "name"))
    label = next((name for name in named if isinstance(name, str) and name), subject)
    return Account(subject[:LABEL], label[:LABEL])


def _claims(id_token: Json) -> dict[str, Json]:
    parts = id_token.split(".") if isinstance(id_token, str) else []
    if len(parts) != 3:
        raise ValueError("is no JWT")
    try:
        return parsed(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        raise ValueError("is no JWT") from None


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
