"""The cart app by itself: its authorization server, its shop, and the files of its web app."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import socket
import stat
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata  # type: ignore[import-untyped, unused-ignore]
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey

from examples.cart_app import auth_server, shop

FOLDER = Path(shop.__file__).parent
SECRET = "a secret of these tests: 100%+"


@asynccontextmanager
async def serving(app: web.Application, sock: socket.socket) -> AsyncIterator[None]:
    """Serve `app` on a bound socket."""
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.SockSite(runner, sock).start()
        yield
    finally:
        await runner.cleanup()


@dataclass(frozen=True, slots=True)
class House:
    """A running authorization server and shop, and a client to talk to them."""

    auth: auth_server.Settings
    shop: shop.Settings
    url: str
    client: aiohttp.ClientSession

    async def token_response(self, form: Mapping[str, str], **options: Any) -> tuple[int, dict[str, Any]]:
        """What the token endpoint says."""
        async with self.client.post(f"{self.auth.issuer}/token", data=form, **options) as response:
            return response.status, await response.json()

    async def token(self) -> str:
        """A good access token."""
        basic = aiohttp.encode_basic_auth("storefront", "a%20secret%20of%20these%20tests%3A%20100%25%2B")
        status, answer = await self.token_response(
            {"grant_type": "client_credentials"}, headers={"Authorization": basic}
        )
        assert status == 200, answer
        return str(answer["access_token"])

    async def ask(
        self, method: str, path: str, token: str | None, **options: Any
    ) -> tuple[int, Any, Mapping[str, str]]:
        """What the shop says: status, JSON, headers."""
        headers = {**({"Authorization": f"Bearer {token}"} if token is not None else {}), **options.pop("headers", {})}
        async with self.client.request(method, self.url + path, headers=headers, **options) as response:
            return response.status, await response.json(), response.headers


@asynccontextmanager
async def running(folder: Path, lifetime: int = 300) -> AsyncIterator[House]:
    """Both servers on free ports, with their files in `folder`."""
    async with AsyncExitStack() as stack:
        auth_socket, shop_socket = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
        auth = auth_server.Settings(
            f"http://127.0.0.1:{auth_socket.getsockname()[1]}", "storefront", SECRET, token_lifetime=lifetime,
            keys=folder / "keys.json",
        )  # fmt: skip
        settings = shop.Settings(folder / "shop.db", auth.issuer, log=folder / "shop.log", refetch_pause=0)
        await stack.enter_async_context(serving(auth_server.build_app(auth), auth_socket))
        await stack.enter_async_context(serving(shop.build_app(settings), shop_socket))
        client = await stack.enter_async_context(aiohttp.ClientSession())
        yield House(auth, settings, f"http://127.0.0.1:{shop_socket.getsockname()[1]}", client)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A fresh house."""
    async with running(tmp_path) as built:
        yield built


def signing_key(house: House) -> KeySet:
    """The authorization server's own private key."""
    assert house.auth.keys is not None
    return KeySet.import_key_set(json.loads(house.auth.keys.read_text()))


def claims(house: House, **changes: Any) -> dict[str, Any]:
    """Claims that the shop takes, but for `changes`; a change to None leaves the claim out."""
    now = int(time.time())
    good = {
        "iss": house.auth.issuer, "aud": house.shop.audience, "sub": "storefront", "client_id": "storefront",
        "scope": "cart", "iat": now, "exp": now + 60, "jti": "1",
    }  # fmt: skip
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def forged(house: House, header: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """A token with changed claims or header, signed with the right key."""
    return jwt.encode({"alg": "ES256", "typ": "at+jwt", **(header or {})}, claims(house, **changes), signing_key(house))


def unsigned(house: House) -> str:
    """A token of `alg: none`."""
    parts = [{"alg": "none", "typ": "at+jwt"}, claims(house)]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


# ── authorization server ──────────────────────────────────────────────────────────────────────────────────────────────


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
    """`client_secret_post` gets a token that is not to be stored."""
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
    """What is wrong with a token request is said with the error codes of RFC 6749."""
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
    """Requests that are no proper form get an OAuth error, never a 500."""
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
    """A key file that holds no keys is named."""
    file = tmp_path / "keys.json"
    file.write_text("[]")

    with pytest.raises(SystemExit, match=r"keys\.json holds no JSON Web Key Set"):
        auth_server.load_keys(file)


@pytest.mark.parametrize(
    "arguments", [[], ["--issuer", "localhost"], ["--client-secret", "s", "--token-lifetime", "0"]]
)
def test_wrong_arguments_stop_the_start(arguments: list[str]) -> None:
    """Exit code 2 for a missing secret, an issuer that is no URL, a lifetime of nothing."""
    with pytest.raises(SystemExit) as stopped:
        auth_server.read_arguments(arguments, {"SHOP_SECRET": "s"} if "--issuer" in arguments else {})

    assert stopped.value.code == 2


# ── access tokens at the shop ─────────────────────────────────────────────────────────────────────────────────────────


async def test_good_token_is_accepted(house: House) -> None:
    """With a token of the authorization server the products are there."""
    status, answer, _ = await house.ask("GET", "/api/products", await house.token())

    assert status == 200
    assert len(answer["products"]) == 8


async def test_without_token_the_shop_only_challenges(house: House) -> None:
    """401 with a bare challenge, also for paths that do not exist (RFC 6750, 3)."""
    for path in ("/api/products", "/api/nothing"):
        status, _, headers = await house.ask("GET", path, None)
        assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="shop"')


BAD_CLAIMS: list[dict[str, Any]] = [
    {"exp": int(time.time()) - 1},
    {"exp": None},
    {"exp": "tomorrow"},
    {"exp": float("nan")},
    {"exp": True},
    {"nbf": int(time.time()) + 3600},
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
    """Expired, for somebody else, of somebody else, or without what must be there: 401 `invalid_token`."""
    status, answer, headers = await house.ask("GET", "/api/cart", forged(house, **changes))

    assert (status, answer["error"]) == (401, "invalid_token")
    assert 'error="invalid_token"' in headers["WWW-Authenticate"]


async def test_token_signed_by_another_key_is_refused(house: House) -> None:
    """Another key is refused under its own name and under the name of the right one."""
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

    for token in (unsigned(house), hmac):
        status, answer, _ = await house.ask("GET", "/api/cart", token)
        assert (status, answer["error"]) == (401, "invalid_token")


async def test_token_of_another_type_is_refused(house: House) -> None:
    """A JWT that says it is no access token is refused (RFC 9068, 4)."""
    assert (await house.ask("GET", "/api/cart", forged(house, {"typ": "JWT"})))[0] == 401


async def test_changed_token_is_refused(house: House) -> None:
    """One other character in the claims breaks the signature."""
    head, body, signature = (await house.token()).split(".")
    body = body[:10] + ("A" if body[10] != "A" else "B") + body[11:]

    assert (await house.ask("GET", "/api/cart", f"{head}.{body}.{signature}"))[0] == 401


@pytest.mark.parametrize(
    "token", ["x", "a.b.c", "e30.e30.e30", "..", "W10.W10.W10", "eyJhbGciOlsxXX0.e30.e30", "A" * 7000]
)
async def test_garbage_as_token_is_refused(house: House, token: str) -> None:
    """What is no JWT at all is refused in the same way, never a 500."""
    assert (await house.ask("GET", "/api/cart", token))[0] == 401


@pytest.mark.parametrize("value", ["Bearer", "Bearer a b", "Bearer ä"])
async def test_malformed_authorization_is_a_bad_request(house: House, value: str) -> None:
    """A header that holds no bearer token is `invalid_request` (RFC 6750, 3.1)."""
    status, answer, _ = await house.ask("GET", "/api/cart", None, headers={"Authorization": value})

    assert (status, answer["error"]) == (400, "invalid_request")


async def test_token_without_the_scope_is_refused(house: House) -> None:
    """403 `insufficient_scope`, and the scope that is needed."""
    for scope in ("products", None, "cartoon"):
        status, _, headers = await house.ask("GET", "/api/cart", forged(house, scope=scope))
        assert status == 403
        assert 'scope="cart"' in headers["WWW-Authenticate"]


async def test_short_lived_token_expires(tmp_path: Path) -> None:
    """A token of one second is refused after two."""
    async with running(tmp_path, lifetime=1) as house:
        token = await house.token()
        assert (await house.ask("GET", "/api/cart", token))[0] == 200
        await asyncio.sleep(1.1)
        assert (await house.ask("GET", "/api/cart", token))[0] == 401


async def test_new_key_of_the_issuer_is_found(tmp_path: Path) -> None:
    """After the authorization server changed its key the shop takes the new one, and no longer the old one."""
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
    """Known keys are kept; a name of a key that does not exist brings another look, but not at each request."""
    patient = shop.Issuer(house.auth.issuer, 60, house.client)
    eager = shop.Issuer(house.auth.issuer, 0, house.client)

    first, second = await patient.keys(), await eager.keys()

    assert await patient.keys() is first
    assert await patient.newer_keys(first) is first
    assert await eager.newer_keys(second) is not second


@pytest.mark.parametrize(
    "document", [{"issuer": "http://another", "jwks_uri": "KEYS"}, {}, [], {"issuer": "ISSUER", "jwks_uri": "/x"}]
)
async def test_wrong_metadata_of_the_issuer_is_not_believed(house: House, document: object) -> None:
    """Metadata that names another issuer, or no keys, is as bad as none."""
    sock = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"

    async def answer(request: web.Request) -> web.Response:
        keys = f"{house.auth.issuer}/jwks.json"
        return web.Response(text=json.dumps(document).replace("ISSUER", url).replace("KEYS", keys))

    app = web.Application()
    app.router.add_get("/.well-known/oauth-authorization-server", answer)
    async with serving(app, sock):
        with pytest.raises(shop.ShopError, match="cannot check"):
            await shop.Issuer(url, 0, house.client).keys()


async def test_shop_says_when_its_issuer_is_away(tmp_path: Path) -> None:
    """Without keys nobody can be let in: 503, and the shop works once the issuer is there."""
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


# ── the cart ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_from_empty_cart_to_order(house: House) -> None:
    """Add, add again, change, remove, check out: the total is right at each step, and the cart empty at the end."""
    token = await house.token()

    empty = (await house.ask("GET", "/api/cart", token))[1]
    added = (await house.ask("POST", "/api/cart", token, json={"item_id": "mug"}))[1]
    more = (await house.ask("POST", "/api/cart", token, json={"item_id": "mug", "quantity": 2}))[1]
    both = (await house.ask("POST", "/api/cart", token, json={"item_id": "honey"}))[1]
    changed = (await house.ask("PUT", "/api/cart/honey", token, json={"quantity": 4}))[1]
    removed = (await house.ask("DELETE", "/api/cart/mug", token))[1]
    status, order, _ = await house.ask("POST", "/api/checkout", token)
    after = (await house.ask("GET", "/api/cart", token))[1]

    assert empty == after == {"items": [], "total": 0}
    assert added["items"] == [{"item_id": "mug", "name": "Stoneware mug", "price": 1800, "quantity": 1}]
    assert [cart["total"] for cart in (added, more, both, changed, removed)] == [1800, 5400, 6380, 9320, 3920]
    assert (status, order["order_number"], order["total"]) == (201, 1001, 3920)


async def test_orders_count_up(house: House) -> None:
    """Each order has the next number."""
    token, numbers = await house.token(), []
    for _ in range(2):
        await house.ask("POST", "/api/cart", token, json={"item_id": "oil"})
        numbers.append((await house.ask("POST", "/api/checkout", token))[1]["order_number"])

    assert numbers == [1001, 1002]


async def test_each_customer_has_a_cart(house: House) -> None:
    """The cart belongs to the token's subject."""
    await house.ask("POST", "/api/cart", forged(house, sub="ann"), json={"item_id": "mug"})

    assert (await house.ask("GET", "/api/cart", forged(house, sub="bob")))[1]["items"] == []


async def test_concurrent_adding_loses_nothing(house: House) -> None:
    """Twenty requests at once make twenty pieces."""
    token = await house.token()

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(house.ask("POST", "/api/cart", token, json={"item_id": "bowl"}))

    assert (await house.ask("GET", "/api/cart", token))[1]["items"][0]["quantity"] == 20


async def test_cart_survives_a_restart(tmp_path: Path) -> None:
    """With the same files a new pair of servers shows the same cart, and counts orders on."""
    async with running(tmp_path) as house:
        await house.ask("POST", "/api/cart", await house.token(), json={"item_id": "teapot", "quantity": 2})
        before = (await house.ask("GET", "/api/cart", await house.token()))[1]
    async with running(tmp_path) as house:
        after = (await house.ask("GET", "/api/cart", await house.token()))[1]

    assert before["items"]
    assert after == before


def test_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """A start with a wrong file ends with its name."""
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but quite long enough to be looked at" * 20)

    with pytest.raises(SystemExit, match=r"notes\.txt cannot be used"):
        web.run_app(shop.build_app(shop.Settings(file, "http://127.0.0.1:1")), host="127.0.0.1", port=0, print=None,
                    loop=asyncio.new_event_loop())  # fmt: skip


BAD_INPUT: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("POST", "/api/cart", {"json": {"item_id": "unicorn"}}, 422, "unknown_item"),
    ("POST", "/api/cart", {"json": {}}, 422, "invalid_item"),
    ("POST", "/api/cart", {"json": {"item_id": 7}}, 422, "invalid_item"),
    ("POST", "/api/cart", {"json": {"item_id": "mug'--"}}, 422, "invalid_item"),
    ("POST", "/api/cart", {"json": {"item_id": "\ud800"}}, 422, "invalid_item"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": 0}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": -1}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": 1.5}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": True}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": 100}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "amount": 1}}, 422, "unknown_field"),
    ("POST", "/api/cart", {"json": ["mug"]}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": b"{", "headers": {"Content-Type": "application/json"}}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": b"[" * 9000, "headers": {"Content-Type": "application/json"}}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": b"9" * 9000, "headers": {"Content-Type": "application/json"}}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": b"\xff", "headers": {"Content-Type": "application/json"}}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": {"item_id": "mug"}}, 415, "json_needed"),
    ("POST", "/api/cart", {"data": b" " * 20000, "headers": {"Content-Type": "application/json"}}, 413,
     "request_entity_too_large"),
    ("PUT", "/api/cart/mug", {"json": {"quantity": 1}}, 404, "not_in_cart"),
    ("PUT", "/api/cart/mug", {"json": {}}, 422, "invalid_quantity"),
    ("PUT", "/api/cart/mug", {"json": {"quantity": 0}}, 422, "invalid_quantity"),
    ("DELETE", "/api/cart/mug", {}, 404, "not_in_cart"),
    ("DELETE", "/api/cart/..%2Fproducts", {}, 422, "invalid_item"),
    ("POST", "/api/checkout", {}, 409, "cart_empty"),
    ("PATCH", "/api/cart", {}, 405, "method_not_allowed"),
    ("GET", "/api/nothing", {}, 404, "not_found"),
]  # fmt: skip


@pytest.mark.parametrize("method, path, options, status, error", BAD_INPUT)
async def test_wrong_input_is_answered_in_words(
    house: House, method: str, path: str, options: dict[str, Any], status: int, error: str
) -> None:
    """Each wrong request gets its status, a code and a sentence, and changes nothing."""
    token = await house.token()

    answered, answer, _ = await house.ask(method, path, token, **options)

    assert (answered, answer["error"]) == (status, error)
    assert answer["message"].endswith(".")
    assert (await house.ask("GET", "/api/cart", token))[1] == {"items": [], "total": 0}


async def test_too_many_of_one_product_leave_the_cart_as_it_was(house: House) -> None:
    """The sum over several requests is limited too, and the transaction rolled back."""
    token = await house.token()
    await house.ask("POST", "/api/cart", token, json={"item_id": "mug", "quantity": 99})

    status, answer, _ = await house.ask("POST", "/api/cart", token, json={"item_id": "mug"})

    assert (status, answer["error"]) == (422, "too_many")
    assert (await house.ask("GET", "/api/cart", token))[1]["items"][0]["quantity"] == 99


async def test_log_tells_what_arrived(house: House) -> None:
    """One line per request with method, path, and whether a token came along; never the token."""
    token = await house.token()
    await house.ask("GET", "/api/products?page=1", None)
    await house.ask("POST", "/api/cart", token, json={"item_id": "mug"})

    assert house.shop.log is not None
    text = house.shop.log.read_text()
    assert [json.loads(line) for line in text.splitlines()] == [
        {"method": "GET", "path": "/api/products?page=1", "has_token": False},
        {"method": "POST", "path": "/api/cart", "has_token": True},
    ]
    assert token not in text


# ── the web app ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Page(HTMLParser):
    """The files, ids and pictures that a page names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.files: list[str] = []
        self.ids: list[str] = []
        self.pictures: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tests ask for."""
        fields = dict(attrs)
        self.files += [value for name in ("src", "href") if (value := fields.get(name))]
        self.ids += [value for value in [fields.get("id")] if value]
        self.pictures += [value for value in [fields.get("data-picture")] if value]


def test_every_file_of_the_page_is_there() -> None:
    """The page names only files beside it, and each exists."""
    page = Page((FOLDER / "web/index.html").read_text(encoding="utf-8"))

    assert {"style.css", "app.js"} <= set(page.files)
    assert [name for name in page.files if not (FOLDER / "web" / name).is_file()] == []


def test_every_product_has_a_picture() -> None:
    """The pictures of the page are those of the products."""
    page = Page((FOLDER / "web/index.html").read_text(encoding="utf-8"))

    assert sorted(page.pictures) == sorted(item_id for item_id, *_ in shop.PRODUCTS)


def test_script_finds_the_elements_that_it_names() -> None:
    """Every id that the script looks up is in the page."""
    page = Page((FOLDER / "web/index.html").read_text(encoding="utf-8"))
    named = re.findall(r'element\("([\w-]+)"\)', (FOLDER / "web/app.js").read_text(encoding="utf-8"))

    assert named
    assert set(named) <= set(page.ids)


def test_web_app_knows_of_no_gateway() -> None:
    """Neither the page nor the servers name what may stand before them."""
    files = [*(FOLDER / "web").rglob("*.*"), FOLDER / "shop.py", FOLDER / "auth_server.py"]
    words = re.compile(r"gateway|sandbox|iframe|postmessage|mcp[-_ ]", re.IGNORECASE)

    assert [file.name for file in files if words.search(file.read_text(encoding="utf-8"))] == []
