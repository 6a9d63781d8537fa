"""A gateway between a real authorization server and a real resource server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc.jwk import ECKey

from gateway.app import build_app
from gateway.config import load_config, read_config
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sql import Database
from gateway.stores.tokens import TokenStore
from tests.leaks.marks import MARK
from tests.oidc.provider import OidcProvider, oidc_provider
from tests.oidc.sign_in import sign_in
from tests.resource import Resource, resource
from tests.world import Server, local_client

RESOURCE = "https://shop.example/api"
SECRET = f"client-secret-of-the-credentials-house-{MARK}"
KEY = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
PUBLIC = ECKey.import_key(KEY).as_dict(private=False)

CONFIG = """
server: {{listen: "127.0.0.1:{port}", drain: {{announce: 0s}}}}
apps:
  cart: {{source: web, policy: policy.yaml}}
credentials:
{credentials}

"""

KINDS = """
  secret: {{type: client_credentials, client_id: service, client_secret: "${{env:SECRET}}", {common}}}
  post: {{type: client_credentials, client_id: posting, client_secret: "${{env:SECRET}}", {post}, {common}}}
  key: {{type: client_credentials, client_id: signing, private_key: "${{env:KEY}}", {common}}}
  bound: {{type: client_credentials, client_id: service, client_secret: "${{env:SECRET}}", dpop: true, {common}}}
  person: {{type: authorization_code, title: The shop, client_id: console, client_secret: "${{env:SECRET}}", {person}}}
  header: {{type: header, header: x-api-key, value: "${{env:SECRET}}"}}
  basic: {{type: basic, username: gate, password: "${{env:SECRET}}"}}
"""


@dataclass
class House:
    """The running servers."""

    folder: Path
    port: int
    provider: OidcProvider
    resource: Resource
    gateway: Server
    http: aiohttp.ClientSession
    environ: Mapping[str, str]
    app: web.Application = field(default_factory=web.Application)

    @property
    def site(self) -> str:
        return f"http://cart.localhost:{self.port}"

    @property
    def console(self) -> str:
        return f"http://gateway.localhost:{self.port}"

    async def get(self, credential: str, path: str = "x", method: str = "GET") -> tuple[int, dict[str, Any]]:
        """Send a request of the app with `credential`; return status and answer."""
        headers = {"origin": self.site, "sec-fetch-site": "same-origin"}
        async with self.http.request(method, f"{self.site}/{credential}/{path}", headers=headers) as answer:
            return answer.status, await answer.json()

    async def api(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Send a request of the console's page."""
        headers = {"sec-fetch-site": "same-origin"}
        if body is not None:
            async with self.http.get(f"{self.console}/api/state", headers=headers) as state:
                headers |= {"webmcp-gateway-csrf": (await state.json())["csrf"], "origin": self.console}
        method = "GET" if body is None else "POST"
        async with self.http.request(method, f"{self.console}/api/{path}", json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def connect(self, account: str = "alice", credential: str = "person") -> tuple[int, dict[str, Any]]:
        """Connect an account of a person, through the provider's own pages."""
        return await self.api("connections/finish", await self.consented(account, credential))

    async def consented(self, account: str = "alice", credential: str = "person") -> dict[str, Any]:
        """Consent at the provider; return the body with which the console's page would finish the connection."""
        _, begun = await self.api(f"connections/{credential}", {})
        async with local_client() as browser:
            back = await sign_in(browser, begun["location"], account, f"{self.console}/oauth/callback")
            headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
            async with browser.get(back, headers=headers, allow_redirects=False) as answer:
                query = answer.headers["location"].partition("?")[2]
        return {"secret": begun["secret"], "answer": dict(parse_qsl(query))}

    async def restart(self) -> None:
        """Restart the gateway with its stored data."""
        await self.gateway.stop()
        await self.start()

    async def expire(self, credential: str) -> None:
        """Let the stored tokens of a credential expire, and restart the gateway."""
        await self.gateway.stop()
        config = await asyncio.to_thread(load_config, self.folder / "gateway.yaml", self.environ)
        async with Database(config.database.reveal()) as database:
            store = TokenStore(database, KeyRing(KeyFile(self.folder / "gateway.key")))
            for listed in await store.list():
                kept = listed.token
                if kept is not None and listed.credential == credential:
                    old = replace(kept.token, expires_at=time.time() - 1)
                    before, now = kept.version, kept.changed_at
                    await store.save(credential, listed.principal, old, kept.connection, before=before, now=now)
        await self.start()

    @asynccontextmanager
    async def twin(self) -> AsyncIterator[House]:
        """A second gateway on the same database."""
        server = Server()
        text = (self.folder / "gateway.yaml").read_text().replace(str(self.port), str(server.port))
        file = self.folder / "twin.yaml"
        file.write_text(f"{text}stores: {{journal: twin.journal}}\n")
        config = await asyncio.to_thread(load_config, file, self.environ)
        await server.start(build_app(config))
        try:
            yield replace(self, port=server.port, gateway=server)
        finally:
            await server.stop()

    async def start(self) -> None:
        """Start the gateway."""
        file = self.folder / "gateway.yaml"
        config = await asyncio.to_thread(load_config, file, self.environ)
        self.app = build_app(config, lambda: read_config(file, self.environ))
        await self.gateway.start(self.app)

    def written(self) -> dict[str, bytes]:
        """The bytes of every file in the gateway's folder, except its key."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.name != "gateway.key"]
        return {str(path): path.read_bytes() for path in files}


@asynccontextmanager
async def house(folder: Path, **settings: Any) -> AsyncIterator[House]:
    """Run all servers; `settings` are the provider's."""
    gateway = Server()
    port = gateway.port
    back = f"http://gateway.localhost:{port}/oauth/callback"
    service = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}
    clients: list[dict[str, Any]] = [
        {"client_id": "service", "client_secret": SECRET, **service},
        {
            "client_id": "posting",
            "client_secret": SECRET,
            "token_endpoint_auth_method": "client_secret_post",
            **service,
        },
        {
            "client_id": "signing",
            "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_signing_alg": "ES256",
            "jwks": {"keys": [PUBLIC]},
            **service,
        },
        {
            "client_id": "console",
            "client_secret": SECRET,
            "grant_types": ["authorization_code", "refresh_token"],
            "redirect_uris": [back, f"{back}/own"],
        },
    ]
    resources = {RESOURCE: {"scope": "cart", "format": "opaque"}}
    environ = {"SECRET": SECRET, "KEY": KEY}
    async with (
        oidc_provider(clients, resources=resources, **settings) as provider,
        resource() as behind,
        local_client(limit=0) as http,
    ):
        common = f'scope: [cart], resource: "{RESOURCE}", issuer: "{provider.issuer}", network: private'
        person = common.replace("[cart]", "[openid, email, cart]")
        kinds = KINDS.format(common=common, person=person, post="client_auth: client_secret_post")
        names = [line.split(":")[0].strip() for line in kinds.strip().splitlines()]
        (folder / "web").mkdir()
        (folder / "web" / "index.html").write_text("<!doctype html><title>cart</title>")
        (folder / "gateway.yaml").write_text(CONFIG.format(port=port, credentials=kinds.strip("\n")))
        backends = "".join(
            f'  {name}: {{url: "{behind.url}", network: private, credential: {name}}}\n' for name in names
        )
        paths = (f'path: "/{name}/{{rest}}", methods: [GET, POST], backend: {name}' for name in names)
        routes = "".join(f"  - {{{path}}}\n" for path in paths)
        (folder / "policy.yaml").write_text(f"version: 1\nbackends:\n{backends}routes:\n{routes}")
        house = House(folder, port, provider, behind, gateway, http, environ)
        await house.start()
        try:
            yield house
        finally:
            await house.gateway.stop()
