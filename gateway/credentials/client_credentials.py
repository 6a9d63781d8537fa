"""The client credentials grant (RFC 6749 4.4), from the issuer's name to an access token."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote, urlencode

from gateway.credentials.answers import ANSWER_BYTES, Flow, ask, failed, is_secure, json_object, origin_of
from gateway.credentials.metadata import ClientAuthentication, TokenEndpoint, discover
from gateway.credentials.nouns import ClientCredentials, Token
from gateway.model import Json, Outbound, Response, Secret

TIMEOUT = 10.0
TOKEN_CHARACTERS = 16 * 1024
LIFE_SECONDS = 10 * 365 * 24 * 3600
"""The longest life of a token that is taken at its word."""

_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*\Z")  # RFC 6750 2.1, b64token
_ERRORS = frozenset(  # RFC 6749 5.2 and RFC 8707 2; other words of the server could repeat what was sent to it
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "invalid_scope",
        "invalid_target",
        "unauthorized_client",
        "unsupported_grant_type",
        "server_error",
        "temporarily_unavailable",
    }
)


def client_credentials(spec: ClientCredentials, now: float) -> Flow[Token]:
    """Get a token; `now` is in seconds since the epoch, taken before the first request.

    Send each response in; throw the `Refusal` in where there is none. Raises `Refusal` (`credential-failed`), whose
    detail names the credential and holds no secret and none of the server's own words.
    """
    endpoint = yield from _endpoint(spec)
    answer = yield from ask(spec.name, _token_request(spec, endpoint))
    place = f"the token endpoint at {origin_of(endpoint.url)}"
    if answer.status != 200:
        raise failed(spec.name, f"{place} answered {answer.status}{_error_code(answer)}")
    try:
        return _token(json_object(answer), now)
    except ValueError as error:
        raise failed(spec.name, f"the answer of {place} {error}") from None


def _endpoint(spec: ClientCredentials) -> Flow[TokenEndpoint]:
    if spec.token_endpoint is None:
        return (yield from discover(spec))
    if not is_secure(spec.token_endpoint):
        raise failed(spec.name, "token_endpoint is not an https URL with a path")
    return TokenEndpoint(spec.token_endpoint)


def _token_request(spec: ClientCredentials, endpoint: TokenEndpoint) -> Outbound:
    form = {"grant_type": "client_credentials"}
    if spec.scope:
        form["scope"] = " ".join(spec.scope)
    headers = [("accept", "application/json"), ("content-type", "application/x-www-form-urlencoded")]
    match endpoint.authentication:
        case ClientAuthentication.BASIC:
            headers.append(("authorization", _basic(spec)))
        case ClientAuthentication.POST:
            form |= {"client_id": spec.client_id, "client_secret": spec.client_secret.reveal()}
    body = urlencode(form).encode()
    return Outbound("POST", endpoint.url, tuple(headers), body, timeout=TIMEOUT, response_limit=ANSWER_BYTES)


def _basic(spec: ClientCredentials) -> str:
    """RFC 6749 2.3.1: both are form-urlencoded before they are joined."""
    # RFC 6749 2.3.1 asks for form encoding; a space as %20 is read alike by servers that do not know "+"
    pair = f"{quote(spec.client_id, safe='')}:{quote(spec.client_secret.reveal(), safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _error_code(answer: Response) -> str:
    try:
        code = json_object(answer).get("error")
    except ValueError:
        return ""
    return f" {code}" if isinstance(code, str) and code in _ERRORS else ""


def _token(answer: dict[str, Json], now: float) -> Token:
    value, kind = answer.get("access_token"), answer.get("token_type")
    if not isinstance(value, str) or len(value) > TOKEN_CHARACTERS or not _BEARER.match(value):
        raise ValueError("holds no access_token that can be sent")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise ValueError("holds a token whose token_type is not Bearer")
    return Token(Secret(value), "Bearer", _expiry(answer.get("expires_in"), now))


def _expiry(seconds: Json, now: float) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise ValueError("holds an expires_in that is not a positive number")
    return now + min(seconds, LIFE_SECONDS)
