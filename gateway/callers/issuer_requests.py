"""Requests to an issuer as flows: metadata, keys, introspection, and the tokens of a login."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7009 import prepare_revoke_token_request

from gateway.callers.issuer_tokens import PublicKey, public_keys, texts
from gateway.callers.methods import OAuthIssuer
from gateway.callers.people import LoginAttempt
from gateway.credentials.flow_steps import ANSWER_BYTES, Flow, json_object, number
from gateway.credentials.metadata import ACCEPT_JSON, endpoint_url, fetch_metadata, sends_issuer
from gateway.credentials.specs import Client, ClientAuthentication
from gateway.credentials.token_requests import form_request
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


def read_metadata(spec: OAuthIssuer) -> Flow[Metadata]:
    """Get the issuer's metadata, which must name this exact issuer (RFC 8414 3.3). Raises `Unidentified`."""
    try:
        return _metadata((yield from fetch_metadata(spec.issuer)))
    except (LookupError, ValueError) as error:
        raise unavailable(str(error)) from None
    except Refusal as refusal:
        raise unavailable("does not answer") from refusal


def fetch_keys(url: str) -> Flow[tuple[PublicKey, ...]]:
    """Get the keys at `jwks_uri`. Raises `Unidentified`."""
    answer = yield from _ask(Outbound("GET", with_path(url), ACCEPT_JSON, timeout=TIMEOUT, response_limit=ANSWER_BYTES))
    if answer.status != 200:
        raise unavailable("does not give its keys")
    try:
        return public_keys(_object(answer))
    except ValueError:
        raise unavailable("does not give its keys") from None


def introspect(spec: OAuthIssuer, server: Metadata, token: str) -> Flow[dict[str, Json] | None]:
    """Return the claims of an active token (RFC 7662 2); None for any other. Raises `Unidentified`.

    An answer without a boolean `active` says nothing about the token, as no answer does (503): with 401, clients would
    throw good tokens away, and open streams would end.

    Authlib 1.9's `IntrospectTokenValidator` takes any `active` that is not empty for true, such as the text "false".
    """
    if server.introspection is None:
        raise unavailable("does not introspect tokens")
    form, _ = prepare_revoke_token_request(token, "access_token")  # the two requests have the same parameters
    answer = yield from _ask(_form(spec, server, server.introspection, form))
    if answer.status != 200:
        raise unavailable("refuses to introspect tokens for this gateway")
    claims = _object(answer)
    if not isinstance(claims.get("active"), bool):  # required, and a boolean (RFC 7662 2.2)
        raise unavailable("does not state whether a token is active")
    if not claims["active"] or str(claims.get("token_type") or "Bearer").lower() != "bearer":
        return None
    del claims["active"]
    # They should be numbers (RFC 7662 2.2); some servers write them as strings.
    times = {name: time for name in _TIMES if isinstance(claims.get(name), str) and (time := number(claims[name]))}
    return {"iss": spec.issuer, **claims, **times}


def authorization_url(spec: OAuthIssuer, server: Metadata, attempt: LoginAttempt, back: str) -> str:
    """Return the URL of the login (RFC 6749 4.1.1, RFC 7636, OpenID Connect Core 3.1.2.1). Raises `Unidentified`."""
    if server.authorization is None or server.token is None:
        raise unavailable("has no login for people")
    url: str = prepare_grant_uri(
        server.authorization,
        spec.client_id or "",
        "code",
        back,
        tuple(dict.fromkeys(("openid", *spec.login_scope))),
        attempt.state,
        nonce=attempt.nonce,
        code_challenge=attempt.challenge,
        code_challenge_method="S256",
        prompt="login" if attempt.fresh else None,
        max_age="0" if attempt.fresh else None,
    )
    return url


def logout_url(spec: OAuthIssuer, server: Metadata, id_token: str | None, back: str) -> str | None:
    """Return the URL of the issuer's logout (OpenID Connect RP-Initiated Logout 1.0, 2), or None."""
    if server.end_session is None or not spec.logout_there:
        return None
    query = {"client_id": spec.client_id or "", "post_logout_redirect_uri": back}
    hint = {"id_token_hint": id_token} if id_token is not None else {}
    url: str = add_params_to_uri(server.end_session, {**hint, **query})
    return url


def code_of(spec: OAuthIssuer, query: Mapping[str, str], *, named: bool) -> str:
    """Return the code of a callback (RFC 6749 4.1.2, RFC 9207 2.4); with `named` it must have `iss`.

    Authlib 1.9's `parse_authorization_code_response` checks neither `iss` nor `error`. Raises `Unidentified`.
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


def redeem_code(spec: OAuthIssuer, server: Metadata, code: str, attempt: LoginAttempt, back: str) -> Flow[LoginTokens]:
    """Exchange a code for tokens (RFC 6749 4.1.3). Raises `Unidentified`."""
    if server.token is None:
        raise unavailable("has no token endpoint")
    form = prepare_token_request("authorization_code", redirect_uri=back, code=code, code_verifier=attempt.verifier)
    answer = yield from _ask(_form(spec, server, server.token, form))
    if answer.status != 200:
        raise Unidentified("The authorization server does not take the code of this login.")
    tokens = _object(answer)
    id_token, access_token = tokens.get("id_token"), tokens.get("access_token")
    if not isinstance(id_token, str):
        raise Unidentified("The authorization server sent no ID token: is the scope `openid` allowed for this client?")
    return LoginTokens(id_token, access_token if isinstance(access_token, str) and access_token else None)


def fetch_userinfo(url: str, access_token: str, subject: str) -> Flow[dict[str, Json]]:
    """Get the claims of the logged-in person (OpenID Connect Core 5.3). Raises `Unidentified`."""
    headers = (("accept", "application/json"), ("authorization", f"Bearer {access_token}"))
    answer = yield from _ask(Outbound("GET", with_path(url), headers, timeout=TIMEOUT, response_limit=ANSWER_BYTES))
    if answer.status != 200:
        raise unavailable("does not say more of the person")
    claims = _object(answer)
    if claims.get("sub") != subject:
        raise Unidentified("The authorization server described a different person.")
    return claims


def _ask(request: Outbound) -> Flow[Response]:
    try:
        return (yield request)
    except Refusal as refusal:
        raise unavailable("does not answer") from refusal


def _object(answer: Response) -> dict[str, Json]:
    try:
        return json_object(answer, _JSON)
    except ValueError:
        raise unavailable("answers with something that is not JSON") from None


def _metadata(document: dict[str, Json]) -> Metadata:
    methods = texts(document.get("token_endpoint_auth_methods_supported"))
    return Metadata(
        jwks=endpoint_url(document, "jwks_uri"),
        introspection=endpoint_url(document, "introspection_endpoint"),
        authorization=endpoint_url(document, "authorization_endpoint"),
        token=endpoint_url(document, "token_endpoint"),
        userinfo=endpoint_url(document, "userinfo_endpoint"),
        end_session=endpoint_url(document, "end_session_endpoint"),
        post_only="client_secret_post" in methods and "client_secret_basic" not in methods,
        names_itself=sends_issuer(document),
    )


def _form(spec: OAuthIssuer, server: Metadata, url: str, form: str) -> Outbound:
    """Return a form of the gateway as the issuer's client (RFC 6749 2.3.1)."""
    method = ClientAuthentication.POST if server.post_only else ClientAuthentication.BASIC
    if spec.client_secret is None:
        method = ClientAuthentication.NONE
    return form_request(Client(spec.client_id or "", spec.client_secret), method, url, form, TIMEOUT)
