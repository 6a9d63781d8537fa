"""The cart app's authorization server: its tokens, its keys, and what it refuses."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import aiohttp
import pytest
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata  # type: ignore[import-untyped, unused-ignore]
from joserfc import jwt

from examples.cart_app import auth_server
from tests.examples.house import SECRET, House, signing_key


async def test_metadata_leads_to_token_endpoint_and_keys(house: House) -> None:
    """The metadata is valid by RFC 8414 and names the endpoints that answer."""
    async with house.client.get(f"{house.auth.issuer}/.well-known/oauth-authorization-server") as response:
        metadata = await response.json()
    async with house.client.get(f"{house.auth.issuer}/.well-known/openid-configuration") as response:
        assert await response.json() == metadata
    async with house.client.get(metadata["jwks_uri"]) as response:
        (key,) = (await response.json())["keys"]

    AuthorizationServerMetadata(metadata).validate_issuer()
    assert metadata["issuer"] == house.auth.issuer
    assert metadata["grant_types_supported"] == ["client_credentials"]
    assert key["alg"] == "ES256"
    assert "d" not in key


async def test_token_is_a_jwt_access_token(house: House) -> None:
    """Header and claims are those of RFC 9068."""
    token = jwt.decode(await house.token(), signing_key(house), algorithms=["ES256"])

    assert token.header["typ"] == "at+jwt"
    assert token.header["kid"] == signing_key(house).keys[0].kid
    assert token.claims["aud"] == house.shop.audience
    assert {"iss", "exp", "iat", "sub", "client_id", "scope", "jti"} <= token.claims.keys()
    assert token.claims["exp"] - token.claims["iat"] == house.auth.token_lifetime


async def test_client_may_send_its_secret_in_the_form(house: House) -> None:
    """`client_secret_post` gets a token with `Cache-Control: no-store`."""
    form = {"grant_type": "client_credentials", "client_id": "storefront", "client_secret": SECRET, "scope": "cart"}
    async with house.client.post(f"{house.auth.issuer}/token", data=form) as response:
        answer = await response.json()
        assert response.headers["Cache-Control"] == "no-store"

    assert answer["token_type"] == "Bearer"
    assert answer["expires_in"] == house.auth.token_lifetime
    assert answer["scope"] == "cart"


GOOD = {"grant_type": "client_credentials", "client_id": "storefront", "client_secret": SECRET}


@pytest.mark.parametrize(
    "form, status, error",
    [
        ({**GOOD, "client_secret": "wrong"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, 401, "invalid_client"),
        ({**GOOD, "client_id": "another"}, 400, "invalid_client"),
        ({**GOOD, "scope": "admin"}, 400, "invalid_scope"),
        ({**GOOD, "grant_type": "password"}, 400, "unsupported_grant_type"),
        ({}, 400, "unsupported_grant_type"),
    ],
)
async def test_token_endpoint_refuses(house: House, form: dict[str, str], status: int, error: str) -> None:
    """An invalid token request gets an error code of RFC 6749."""
    answered, answer = await house.token_response(form)

    assert (answered, answer["error"]) == (status, error)


@pytest.mark.parametrize(
    "body, headers, error",
    [
        (b"grant_type=client_credentials&grant_type=client_credentials", {}, "invalid_request"),
        (b"{}", {"Content-Type": "application/json"}, "invalid_request"),
        (b"grant_type=client_credentials&x=%ff", {}, "invalid_client"),
        (b"grant_type=client_credentials", {"Authorization": "Basic /////w=="}, "invalid_client"),
        (b"grant_type=client_credentials", {"Authorization": "Basic ?"}, "invalid_client"),
        (b"grant_type=client_credentials", {"Content-Type": "application/x-www-form-urlencoded; charset=no"},
         "invalid_request"),
        (b"grant_type=client_credentials", {"Host": "evil.example"}, "invalid_client"),
    ],
)  # fmt: skip
async def test_token_endpoint_survives_garbage(house: House, body: bytes, headers: dict[str, str], error: str) -> None:
    """Malformed forms get an OAuth error, never a 500."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    async with house.client.post(f"{house.auth.issuer}/token", data=body, headers=headers) as response:
        assert (await response.json())["error"] == error


async def test_failed_basic_authentication_is_challenged(house: House) -> None:
    """A wrong secret by Basic gets 401 with `WWW-Authenticate: Basic` (RFC 6749, 5.2)."""
    headers = {"Authorization": aiohttp.encode_basic_auth("storefront", "wrong")}
    form = {"grant_type": "client_credentials"}
    async with house.client.post(f"{house.auth.issuer}/token", data=form, headers=headers) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith("Basic")


def test_keys_are_kept_in_their_file(tmp_path: Path) -> None:
    """The same key after a restart, in a file that only its owner can read."""
    file = tmp_path / "keys.json"

    first, second = auth_server.load_keys(file), auth_server.load_keys(file)

    assert first.keys[0].kid == second.keys[0].kid
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_broken_key_file_stops_the_start(tmp_path: Path) -> None:
    """The error names a key file without keys."""
    file = tmp_path / "keys.json"
    file.write_text("[]")

    with pytest.raises(SystemExit, match=r"keys\.json holds no JSON Web Key Set"):
        auth_server.load_keys(file)


@pytest.mark.parametrize(
    "arguments", [[], ["--issuer", "localhost"], ["--client-secret", "s", "--token-lifetime", "0"]]
)
def test_wrong_arguments_stop_the_start(arguments: list[str]) -> None:
    """Exit code 2 for a missing secret, an invalid issuer URL, a lifetime of zero."""
    with pytest.raises(SystemExit) as stopped:
        auth_server.read_arguments(arguments, {"SHOP_SECRET": "s"} if "--issuer" in arguments else {})

    assert stopped.value.code == 2
