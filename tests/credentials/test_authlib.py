"""The reasons why parts of OAuth are our own and not Authlib's; one that no longer holds fails here."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from authlib.common.security import is_secure_transport
from authlib.oauth2 import rfc8693
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749 import OAuth2Token
from authlib.oauth2.rfc6749.parameters import parse_authorization_code_response
from authlib.oauth2.rfc6750 import InvalidTokenError
from authlib.oauth2.rfc7662 import IntrospectTokenValidator
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oauth2.rfc9068.claims import JWTAccessTokenClaims
from authlib.oidc.core import CodeIDToken
from joserfc.errors import InvalidClaimError

ISSUER = "https://login.example"
TOKEN: dict[str, Any] = {"iss": ISSUER, "aud": "us", "sub": "a", "iat": 0, "exp": 100}


def test_basic_authentication_is_not_encoded() -> None:
    """`token_requests._basic` encodes id and secret, as RFC 6749 2.3.1 requires."""
    _, headers, _ = ClientAuth("gate:way", "a%20b").prepare("POST", ISSUER, {}, "")
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"gate:way:a%20b"
    with pytest.raises(UnicodeEncodeError):
        ClientAuth("gateway", "Ω").prepare("POST", ISSUER, {}, "")


def test_its_secure_urls_are_more_than_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """`flow_steps.is_secure` refuses them all."""
    assert is_secure_transport("https://login.example@evil.example/token#x")
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    assert is_secure_transport("http://evil.example/token")


def test_its_metadata_need_what_the_gateway_does_not_read() -> None:
    """`metadata.fetch_metadata` accepts them."""
    found = {"issuer": ISSUER, "token_endpoint": f"{ISSUER}/token", "grant_types_supported": ["client_credentials"]}
    with pytest.raises(ValueError, match="response_types_supported"):
        AuthorizationServerMetadata(found).validate()


def test_its_token_fails_at_an_unusual_life() -> None:
    """`token_requests._token` accepts such a token without an expiry, and checks the token."""
    with pytest.raises(ValueError, match="invalid literal"):
        OAuth2Token({"access_token": "a", "expires_in": "300.0"})
    assert OAuth2Token({"access_token": "a\r\nb", "token_type": "mac"})["access_token"] == "a\r\nb"


def test_its_callback_is_taken_from_any_server() -> None:
    """`grants.redeem` and `issuer_requests.code_of` compare `iss`, and read `error` first."""
    query = "code=c&state=s&iss=https%3A%2F%2Fevil.example&error=access_denied"
    assert parse_authorization_code_response(f"https://us.example/back?{query}", "s")["code"] == "c"


def test_its_access_tokens_are_stricter_and_looser() -> None:
    """`issuer_tokens.of_access_token` accepts the type `JWT` and null claims, but no token without an audience."""
    for header, claims in (({"typ": "JWT"}, TOKEN), ({}, {**TOKEN, "nbf": None})):
        with pytest.raises(InvalidClaimError):
            JWTAccessTokenClaims(claims, header, {}).validate(now=50, leeway=0)
    JWTAccessTokenClaims(TOKEN, {}, {"aud": {"essential": True, "values": []}}).validate(now=50, leeway=0)


@pytest.mark.parametrize("unusual", [{"amr": "pwd"}, {"auth_time": "900"}, {"nbf": None}])
def test_its_id_tokens_are_stricter(unusual: dict[str, Any]) -> None:
    """`flow_steps.check_id_token` leaves such claims out."""
    with pytest.raises(InvalidClaimError):
        CodeIDToken({**TOKEN, **unusual}, {}, {}, {}).validate(50, 0)


def test_its_introspection_takes_any_text_for_true() -> None:
    """`issuer_requests.introspect` needs the JSON value `true`."""
    IntrospectTokenValidator().validate_token({"active": "false"}, None, None)


def test_its_challenge_always_names_an_error() -> None:
    """`Challenges` names none to a caller without a token (RFC 6750 3.1), and replaces quotation marks."""
    assert 'error="invalid_token"' in dict(InvalidTokenError().get_headers())["WWW-Authenticate"]
    with pytest.raises(ValueError, match="forbidden characters"):
        InvalidTokenError('a "b"')


def test_it_has_no_token_exchange() -> None:
    """The request of `grants.token_exchange` is built with the general part."""
    assert not [name for name in vars(rfc8693) if not name.startswith("__")]
