"""The steps that the OAuth flows share: send a request, parse the answer, check an ID token, raise a failure."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Collection, Generator, Mapping
from typing import Final, TypeAlias, TypeVar

from authlib.oidc.core import CodeIDToken
from joserfc.errors import ClaimError

from gateway.errors import Reason, Refusal
from gateway.jsontext.reading import LONG_NUMBERS, Keys, Reader
from gateway.model import Json, Outbound, Response

T = TypeVar("T")
Flow: TypeAlias = Generator[Outbound, Response, T]
"""Yields requests, receives responses, returns a result; a `Refusal` thrown in means that there is no response."""

_READER = Reader(LONG_NUMBERS, Keys.UNIQUE)

ANSWER_BYTES = 256 * 1024

_NUMBER = re.compile(r"\s*[0-9]{1,400}(?:\.[0-9]{1,400})?\s*", re.ASCII)
_WRONG_CLAIM: Final = {
    "iss": "is of another issuer",
    "sub": "names no subject",
    "aud": "is for another client",
    "azp": "is for another client",
    "nonce": "is of another login",
    "exp": "has expired",
    "nbf": "is not valid yet",
    "iat": "is not valid yet",
}
"""The checked claims of an ID token, and the meaning of a wrong one."""

_URL = re.compile(r"(?P<origin>(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?)/[!-~]*\Z")
_LOOPBACK = re.compile(r"(.+\.)?localhost|127(\.\d{1,3}){3}|\[::1\]")


def ask(credential: str, request: Outbound) -> Flow[Response]:
    """Send one request. Raises `Refusal` (`credential-failed`) that names the credential if it cannot be sent."""
    try:
        return (yield request)
    except Refusal as refusal:
        raise failure(credential, refusal.detail) from refusal


def failure(credential: str, why: str) -> Refusal:
    """Return the refusal that ends a flow; `why` must contain nothing that was sent, and no free text of the server."""
    return Refusal(Reason.CREDENTIAL_FAILED, f"credential {credential!r}: {why}")


def json_object(answer: Response, types: Collection[str] = ("application/json",)) -> dict[str, Json]:
    """Parse the body as a JSON object. Raises ValueError for another media type, duplicate names, NaN, and the like."""
    media_type = (answer.header("content-type") or "").partition(";")[0].strip().lower()
    if media_type not in types:
        raise ValueError("is not application/json")
    return parse_object(answer.body)


def parse_object(text: bytes | str) -> dict[str, Json]:
    """Parse an unambiguous JSON object. Raises ValueError: no object, duplicate names, NaN, not UTF-8, too deep."""
    try:
        plain = text.decode() if isinstance(text, bytes) else text
        value: Json = _READER.read(plain)
    except ValueError:
        raise ValueError("is not JSON") from None  # the cause would quote the text
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    return value


def parse_jwt_part(part: str) -> dict[str, Json]:
    """Parse the header or the claims of a JWT, without its signature. Raises ValueError."""
    return parse_object(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def number(value: Json) -> float | None:
    """Return a number, also from a string, as some servers write `expires_in`; None for anything else."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)


def check_id_token(
    claims: Mapping[str, Json], issuer: str, client_id: str, nonce: str, now: float, leeway: float
) -> None:
    """Check the claims of an ID token (OpenID Connect Core 3.1.3.7). Raises ValueError.

    Authlib gets the claims that this needs: it would also refuse a null claim, and an `amr` or `auth_time` of another
    type than specified, as some servers send them. Some leave `iat` out, which counts as now.
    """
    wrong_claims = {name: value for name in _WRONG_CLAIM if (value := claims.get(name)) is not None}
    options = {
        "iss": {"value": issuer},
        "sub": {"essential": True},
        "aud": {"value": client_id},
        "azp": {"value": client_id},
    }
    try:
        token = CodeIDToken({"iat": now, **wrong_claims}, {}, options, {"nonce": nonce, "client_id": client_id})
        token.validate(now, leeway)
    except ClaimError as error:
        raise ValueError(_WRONG_CLAIM[error.claim]) from None


def is_secure(url: str) -> bool:
    """Return whether secrets may be sent to a URL: https, or http to loopback; a path, no userinfo and no fragment.

    Authlib 1.9's `is_secure_transport` allows userinfo, fragments, and any URL if AUTHLIB_INSECURE_TRANSPORT is set.
    """
    parts = _URL.match(url)
    if parts is None or "#" in url:
        return False
    return parts["scheme"] == "https" or _LOOPBACK.fullmatch(parts["host"].lower()) is not None


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL for which `is_secure` holds."""
    parts = _URL.match(url)
    return parts["origin"] if parts else ""
