"""The access tokens that the shop of the cart app accepts and refuses."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from examples.cart_app import auth_server, refusals, shop, tokens
from tests.examples.house import SECRET, House, claims, forge_token, running, serving, signing_key, unsigned_token


async def test_good_token_is_accepted(house: House) -> None:
    """With a token of the authorization server the products are returned."""
    status, answer, _ = await house.ask("GET", "/api/products", await house.token())

    assert status == 200
    assert len(answer["products"]) == 8


async def test_without_token_the_shop_only_challenges(house: House) -> None:
    """401 with a bare challenge, also for paths that do not exist (RFC 6750, 3)."""
    for path in ("/api/products", "/api/nothing"):
        status, _, headers = await house.ask("GET", path, None)
        assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="shop"')


BAD_CLAIMS: list[dict[str, Any]] = [
    {"exp": 1},
    {"exp": None},
    {"exp": "tomorrow"},
    {"exp": float("nan")},
    {"exp": True},
    {"nbf": 4_102_444_800},
    {"aud": "https://another.example/api"},
    {"aud": None},
    {"aud": [1]},
    {"iss": "http://127.0.0.1:1"},
    {"iss": None},
    {"sub": None},
    {"sub": ["storefront"]},
]


@pytest.mark.parametrize("changes", BAD_CLAIMS, ids=repr)
async def test_token_with_wrong_claims_is_refused(house: House, changes: dict[str, Any]) -> None:
    """Expired, with another audience, of another issuer, or without a required claim: 401 `invalid_token`."""
    status, answer, headers = await house.ask("GET", "/api/cart", forge_token(house, **changes))

    assert (status, answer["error"]) == (401, "invalid_token")
    assert 'error="invalid_token"' in headers["WWW-Authenticate"]


async def test_token_is_refused_from_the_second_in_which_it_ends(house: House) -> None:
    """There is no leeway, at either end of its lifetime."""
    now = int(time.time())
    changes: list[dict[str, Any]] = [{"exp": now - 1}, {"nbf": now + 60}]
    for change in changes:
        assert (await house.ask("GET", "/api/cart", forge_token(house, **change)))[0] == 401


async def test_token_signed_by_another_key_is_refused(house: House) -> None:
    """Under its own key id and under that of the right key."""
    right = signing_key(house).keys[0].kid
    for kid in ("another", right):
        token = jwt.encode({"alg": "ES256", "typ": "at+jwt", "kid": kid}, claims(house), ECKey.generate_key("P-256"))
        assert (await house.ask("GET", "/api/cart", token))[0] == 401


async def test_token_of_another_algorithm_is_refused(house: House) -> None:
    """`none`, and HMAC with the public key as its secret, are refused."""
    (key,) = signing_key(house).keys
    assert isinstance(key, ECKey)
    secret = OctKey.import_key(base64.b64encode(key.as_pem(private=False)))
    hmac = jwt.encode({"alg": "HS256", "typ": "at+jwt", "kid": str(key.kid)}, claims(house), secret)

    for token in (unsigned_token(house), hmac):
        status, answer, _ = await house.ask("GET", "/api/cart", token)
        assert (status, answer["error"]) == (401, "invalid_token")


async def test_token_of_another_type_is_refused(house: House) -> None:
    """A JWT of another type is refused (RFC 9068, 4)."""
    assert (await house.ask("GET", "/api/cart", forge_token(house, {"typ": "JWT"})))[0] == 401


async def test_changed_token_is_refused(house: House) -> None:
    """One changed character in the claims breaks the signature."""
    head, body, signature = (await house.token()).split(".")
    body = body[:10] + ("A" if body[10] != "A" else "B") + body[11:]

    assert (await house.ask("GET", "/api/cart", f"{head}.{body}.{signature}"))[0] == 401


@pytest.mark.parametrize(
    "token", ["x", "a.b.c", "e30.e30.e30", "..", "W10.W10.W10", "eyJhbGciOlsxXX0.e30.e30", "A" * 7000]
)
async def test_garbage_as_token_is_refused(house: House, token: str) -> None:
    """Malformed JWTs are refused in the same way, never with a 500."""
    assert (await house.ask("GET", "/api/cart", token))[0] == 401


@pytest.mark.parametrize("value", ["Bearer", "Bearer a b", "Bearer ä"])
async def test_malformed_authorization_is_a_bad_request(house: House, value: str) -> None:
    """A header without a bearer token is `invalid_request` (RFC 6750, 3.1)."""
    status, answer, _ = await house.ask("GET", "/api/cart", None, headers={"Authorization": value})

    assert (status, answer["error"]) == (400, "invalid_request")


async def test_token_without_the_scope_is_refused(house: House) -> None:
    """403 `insufficient_scope`, and the scope that is needed."""
    for scope in ("products", None, "cartoon"):
        status, _, headers = await house.ask("GET", "/api/cart", forge_token(house, scope=scope))
        assert status == 403
        assert 'scope="cart"' in headers["WWW-Authenticate"]


async def test_short_lived_token_expires(tmp_path: Path) -> None:
    """A token of two seconds is refused after them; times are whole seconds, so it is valid for at least one."""
    async with running(tmp_path, lifetime=2) as house:
        token = await house.token()
        assert (await house.ask("GET", "/api/cart", token))[0] == 200
        await asyncio.sleep(2.1)
        assert (await house.ask("GET", "/api/cart", token))[0] == 401


async def test_new_key_of_the_issuer_is_found(tmp_path: Path) -> None:
    """After the authorization server changed its key, the shop accepts the new key, and no longer the old one."""
    sock = socket.create_server(("127.0.0.1", 0))
    issuer = f"http://127.0.0.1:{sock.getsockname()[1]}"
    auth = auth_server.Settings(issuer, "storefront", SECRET, keys=tmp_path / "first.json")
    renewed = replace(auth, keys=tmp_path / "second.json")
    settings = shop.Settings(tmp_path / "shop.db", issuer, refetch_pause=0)
    shop_socket = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{shop_socket.getsockname()[1]}"

    async with serving(shop.build_app(settings), shop_socket), aiohttp.ClientSession() as client:
        old, new = House(auth, settings, url, client), House(renewed, settings, url, client)
        async with serving(auth_server.build_app(auth), sock.dup()):
            assert (await old.ask("GET", "/api/cart", await old.token()))[0] == 200
            old_token = await old.token()
        sock.close()
        sock = socket.create_server(("127.0.0.1", int(issuer.rsplit(":", 1)[1])))
        async with serving(auth_server.build_app(renewed), sock):
            assert (await new.ask("GET", "/api/cart", await new.token()))[0] == 200
            assert (await new.ask("GET", "/api/cart", old_token))[0] == 401


async def test_keys_are_asked_for_once(house: House) -> None:
    """Known keys are cached; an unknown key id causes another fetch, but at a limited rate."""
    patient = tokens.Issuer(house.auth.issuer, 60, house.client)
    eager = tokens.Issuer(house.auth.issuer, 0, house.client)

    first, second = await patient.keys(), await eager.keys()

    assert await patient.keys() is first
    assert await patient.newer_keys(first) is first
    assert await eager.newer_keys(second) is not second


@pytest.mark.parametrize(
    "document", [{"issuer": "http://another", "jwks_uri": "KEYS"}, {}, [], {"issuer": "ISSUER", "jwks_uri": "/x"}]
)
async def test_wrong_metadata_of_the_issuer_is_not_believed(house: House, document: object) -> None:
    """Metadata that names another issuer, or no keys, counts as missing."""
    sock = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"

    async def answer(request: web.Request) -> web.Response:
        keys = f"{house.auth.issuer}/jwks.json"
        return web.Response(text=json.dumps(document).replace("ISSUER", url).replace("KEYS", keys))

    app = web.Application()
    app.router.add_get("/.well-known/oauth-authorization-server", answer)
    async with serving(app, sock):
        with pytest.raises(refusals.ShopError, match="cannot check"):
            await tokens.Issuer(url, 0, house.client).keys()


async def test_shop_says_when_its_issuer_is_away(tmp_path: Path) -> None:
    """Without keys the shop answers 503, and works once the issuer is up."""
    free = socket.create_server(("127.0.0.1", 0))
    issuer = f"http://127.0.0.1:{free.getsockname()[1]}"
    free.close()
    auth = auth_server.Settings(issuer, "storefront", SECRET)
    settings = shop.Settings(tmp_path / "shop.db", issuer, refetch_pause=0)
    shop_socket = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{shop_socket.getsockname()[1]}"

    async with serving(shop.build_app(settings), shop_socket), aiohttp.ClientSession() as client:
        house = House(auth, settings, url, client)
        status, answer, headers = await house.ask("GET", "/api/cart", "a.b.c")
        assert (status, answer["error"], headers["Retry-After"]) == (503, "issuer_unavailable", "1")
        again = socket.create_server(("127.0.0.1", int(issuer.rsplit(":", 1)[1])))
        async with serving(auth_server.build_app(auth), again):
            assert (await house.ask("GET", "/api/cart", await house.token()))[0] == 200
