"""Requests to an issuer as flows: metadata, keys, introspection, and the tokens of a login."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from gateway.callers.issuer_tokens import PublicKey, public_keys, texts
from gateway.callers.login import LoginAttempt
from gateway.callers.methods import OAuthIssuer
from gateway.credentials.metadata import well_known
from gateway.credentials.server_answers import ANSWER_BYTES, Flow, is_secure, number, parsed
from gateway.errors import Refusal, Unidentified
from gateway.model import Json, Outbound, Response, with_path

TIMEOUT = 5.0
"""Seconds for each answer of an issuer."""

_TIMES = ("exp", "iat", "nbf")
_JSON = ("application/json", "application/jwk-set+json", "application/token-introspection+json")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The endpoints of an issuer (RFC 8414 2, OpenID Connect Discovery 3); a missing one is None."""

    jwks: str | None
    introspection: str | None
    authorization: str | None
    token: str | None
    userinfo: str | None
    end_session: str | None
    post_only: bool
    names_itself: bool


@dataclass(frozen=True, slots=True)
class LoginTokens:
    """The tokens of a login."""

    id_token: str
    access_token: str | None


def unavailable(why: str) -> Unidentified:
    """Return an error for an issuer that is down or answers wrongly: no caller can be authenticated (503)."""
    return Unidentified(f"The authorization server {why}.", "temporarily_unavailable", status=503)


def metadata(spec: OAuthIssuer) -> Flow[Metadata]:
    """Get the issuer's metadata, which must name this exact issuer (RFC 8414 3.3). Raises `Unidentified`."""
    issuer = spec.issuer if "/" in spec.issuer.partition("//")[2] else f"{spec.issuer}/"
    if not is_secure(issuer) or "?" in issuer:
        raise unavailable("is not at an https URL without query")
    for url in well_known(issuer):
        answer = yield from _ask(Outbound("GET", url, _ACCEPT, timeout=TIMEOUT, response_limit=ANSWER_BYTES))
        if answer.status == 200:
            return _metadata(spec, _object(answer))
        if not 400 <= answer.status <= 499:
            break
    raise unavailable("has no metadata")


def keys(url: str) -> Flow[tuple[PublicKey, ...]]:
    """Get the keys at `jwks_uri`. Raises `Unidentified`."""
    answer = yield from _ask(Outbound("GET", with_path(url), _ACCEPT, timeout=TIMEOUT, response_limit=ANSWER_BYTES))
    if answer.status != 200:
        raise unavailable("does not give its keys")
    try:
        return public_keys(_object(answer))
    except ValueError:
        raise unavailable("does not give its keys") from None


def introspection(spec: OAuthIssuer, found: Metadata, token: str) -> Flow[dict[str, Json] | None]:
    """Return the claims of an active token (RFC 7662 2); None for any other. Raises `Unidentified`."""
    if found.introspection is None:
        raise unavailable("does not introspect tokens")
    form = {"token": token, "token_type_hint": "access_token"}
    answer = yield from _ask(_form(spec, found, found.introspection, form))
    if answer.status != 200:
        raise unavailable("refuses to introspect tokens for this gateway")
    claims = _object(answer)
    if claims.get("active") is not True or str(claims.get("token_type") or "Bearer").lower() != "bearer":
        return None
    told = {name: value for name, value in claims.items() if name != "active"}
    # They should be numbers (RFC 7662 2.2); some servers write them as strings.
    times = {name: time for name in _TIMES if isinstance(told.get(name), str) and (time := number(told[name]))}
    return {"iss": spec.issuer, **told, **times}


def authorization_url(spec: OAuthIssuer, found: Metadata, attempt: LoginAttempt, back: str) -> str:
    """Return the URL of the login (RFC 6749 4.1.1, RFC 7636, OpenID Connect Core 3.1.2.1). Raises `Unidentified`."""
    if found.authorization is None or found.token is None:
        raise unavailable("has no login for people")
    query = {
        "response_type": "code",
        "client_id": spec.client_id or "",
        "redirect_uri": back,
        "scope": " ".join(dict.fromkeys(("openid", *spec.login_scope))),
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": attempt.challenge,
        "code_challenge_method": "S256",
        **({"prompt": "login", "max_age": "0"} if attempt.fresh else {}),
    }
    return f"{found.authorization}{'&' if '?' in found.authorization else '?'}{urlencode(query)}"


def logout_url(spec: OAuthIssuer, found: Metadata, id_token: str | None, back: str) -> str | None:
    """Return the URL of the issuer's logout (OpenID Connect RP-Initiated Logout 1.0, 2), or None."""
    if found.end_session is None or not spec.logout_there:
        return None
    query = {"client_id": spec.client_id or "", "post_logout_redirect_uri": back}
    hint = {"id_token_hint": id_token} if id_token is not None else {}
    return f"{found.end_session}{'&' if '?' in found.end_session else '?'}{urlencode({**hint, **query})}"


def code_of(spec: OAuthIssuer, query: Mapping[str, str], *, named: bool) -> str:
    """Return the code of a callback (RFC 6749 4.1.2, RFC 9207 2.4); with `named` it must have `iss`.

    Raises `Unidentified`.
    """
    if query.get("iss", None if named else spec.issuer) != spec.issuer:
        raise Unidentified("The answer is of another authorization server.")
    if "error" in query:
        denied = query["error"] == "access_denied"
        raise Unidentified("The login was declined." if denied else "The authorization server refused the login.")
    code = query.get("code", "")
    if not code or len(code) > 4096:
        raise Unidentified("The authorization server gave no code.")
    return code


def redeemed(spec: OAuthIssuer, found: Metadata, code: str, attempt: LoginAttempt, back: str) -> Flow[LoginTokens]:
    """Exchange a code for tokens (RFC 6749 4.1.3). Raises `Unidentified`."""
    if found.token is None:
        raise unavailable("has no token endpoint")
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": back,
        "code_verifier": attempt.verifier,
    }
    answer = yield from _ask(_form(spec, found, found.token, form))
    if answer.status != 200:
        raise Unidentified("The authorization server does not take the code of this login.")
    told = _object(answer)
    id_token, access_token = told.get("id_token"), told.get("access_token")
    if not isinstance(id_token, str):
        raise Unidentified("The authorization server does not say who logged in: is `openid` allowed to this client?")
    return LoginTokens(id_token, access_token if isinstance(access_token, str) and access_token else None)


def userinfo(url: str, access_token: str, subject: str) -> Flow[dict[str, Json]]:
    """Get the claims of the logged-in person (OpenID Connect Core 5.3). Raises `Unidentified`."""
    headers = (("accept", "application/json"), ("authorization", f"Bearer {access_token}"))
    answer = yield from _ask(Outbound("GET", with_path(url), headers, timeout=TIMEOUT, response_limit=ANSWER_BYTES))
    if answer.status != 200:
        raise unavailable("does not say more of the person")
    found = _object(answer)
    if found.get("sub") != subject:
        raise Unidentified("The authorization server tells of somebody else.")
    return found


_ACCEPT = (("accept", "application/json"),)


def _ask(request: Outbound) -> Flow[Response]:
    try:
        return (yield request)
    except Refusal:
        raise unavailable("does not answer") from None


def _object(answer: Response) -> dict[str, Json]:
    media_type = (answer.header("content-type") or "").partition(";")[0].strip().lower()
    try:
        if media_type not in _JSON:
            raise ValueError("is not JSON")
        return parsed(answer.body)
    except ValueError:
        raise unavailable("answers with something that is not JSON") from None


def _metadata(spec: OAuthIssuer, told: dict[str, Json]) -> Metadata:
    if told.get("issuer") != spec.issuer:
        raise unavailable("calls itself otherwise than `issuer` in gateway.yaml")
    methods = texts(told.get("token_endpoint_auth_methods_supported"))
    return Metadata(
        jwks=_url(told, "jwks_uri"),
        introspection=_url(told, "introspection_endpoint"),
        authorization=_url(told, "authorization_endpoint"),
        token=_url(told, "token_endpoint"),
        userinfo=_url(told, "userinfo_endpoint"),
        end_session=_url(told, "end_session_endpoint"),
        post_only="client_secret_post" in methods and "client_secret_basic" not in methods,
        names_itself=told.get("authorization_response_iss_parameter_supported") is True,
    )


def _url(told: dict[str, Json], name: str) -> str | None:
    value = told.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not is_secure(value):
        raise unavailable(f"names a {name} that is no https URL")
    return value


def _form(spec: OAuthIssuer, found: Metadata, url: str, form: dict[str, str]) -> Outbound:
    """Return a form of the gateway as the issuer's client (RFC 6749 2.3.1)."""
    headers = [("accept", "application/json"), ("content-type", "application/x-www-form-urlencoded")]
    client, secret = spec.client_id or "", spec.client_secret
    if secret is None:
        form = {**form, "client_id": client}
    elif found.post_only:
        form = {**form, "client_id": client, "client_secret": secret.reveal()}
    else:
        pair = f"{quote(client, safe='')}:{quote(secret.reveal(), safe='')}"
        headers.append(("authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    body = urlencode(form).encode()
    return Outbound("POST", with_path(url), tuple(headers), body, timeout=TIMEOUT, response_limit=ANSWER_BYTES)
