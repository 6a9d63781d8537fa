"""The authorization server and the shop of the cart app without the gateway, and handmade tokens."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import KeySet

from examples.cart_app import auth_server, shop
from tests.leaks.marks import MARK

FOLDER = Path(shop.__file__).parent
SECRET = f"a secret of these tests: 100%+ {MARK}"


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
        """Return the answer of the token endpoint."""
        async with self.client.post(f"{self.auth.issuer}/token", data=form, **options) as response:
            return response.status, await response.json()

    async def token(self) -> str:
        """Return a valid access token."""
        basic = aiohttp.encode_basic_auth("storefront", quote(SECRET, safe=""))  # RFC 6749, 2.3.1
        status, answer = await self.token_response(
            {"grant_type": "client_credentials"}, headers={"Authorization": basic}
        )
        assert status == 200, answer
        return str(answer["access_token"])

    async def ask(
        self, method: str, path: str, token: str | None, **options: Any
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Return the shop's answer: status, JSON, headers."""
        headers = {**({"Authorization": f"Bearer {token}"} if token is not None else {}), **options.pop("headers", {})}
        async with self.client.request(method, self.url + path, headers=headers, **options) as response:
            return response.status, await response.json(), response.headers


@asynccontextmanager
async def running(folder: Path, lifetime: int = 300) -> AsyncIterator[House]:
    """Run both servers on free ports, with their files in `folder`."""
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


def signing_key(house: House) -> KeySet:
    """Return the authorization server's private key."""
    assert house.auth.keys is not None
    return KeySet.import_key_set(json.loads(house.auth.keys.read_text()))


def claims(house: House, **changes: Any) -> dict[str, Any]:
    """Return claims that the shop accepts, with `changes`; a change to None leaves the claim out."""
    now = int(time.time())
    good = {
        "iss": house.auth.issuer, "aud": house.shop.audience, "sub": "storefront", "client_id": "storefront",
        "scope": "cart", "iat": now, "exp": now + 60, "jti": "1",
    }  # fmt: skip
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def forge_token(house: House, header: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """Return a token with changed claims or header, signed with the right key."""
    return jwt.encode({"alg": "ES256", "typ": "at+jwt", **(header or {})}, claims(house, **changes), signing_key(house))


def unsigned_token(house: House) -> str:
    """Return a token of `alg: none`."""
    parts = [{"alg": "none", "typ": "at+jwt"}, claims(house)]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."
