"""People at a real authorization server, who log in to a gateway and authorize clients."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp

from tests.leaks.marks import MARK
from tests.oidc.provider import OidcProvider, oidc_provider
from tests.oidc.sign_in import sign_in
from tests.world import World, running

NAVIGATION = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
CROSSING = {**NAVIGATION, "sec-fetch-site": "cross-site"}
OWN = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
DESKTOP_BACK = "http://127.0.0.1:1/desktop"
ACCOUNTS = {name: {"roles": [role]} for name, role in (("alice", "staff"), ("bob", "staff"), ("olga", "ops"))}

AUTH = """
auth:
  - type: oauth
    issuer: {issuer}
    client_id: console
    client_secret: console-secret-k4naRieZq9
    login_scope: [openid, roles, profile]
    introspection: true
    network: private
roles: {{user: [staff, ops], approver: [ops]}}
"""


@dataclass(slots=True)
class Town:
    """A gateway and its issuer."""

    world: World
    provider: OidcProvider

    async def log_in(self, browser: aiohttp.ClientSession, account: str, more: str = "") -> None:
        """Log `browser` in to the console through the issuer's pages; `more` is appended to the query."""
        start = f"{self.world.console}/login?to=/{more}"
        async with browser.get(start, headers=NAVIGATION, allow_redirects=False) as got:
            assert got.status == 302, await got.text()
            url = got.headers["location"]
        async with aiohttp.ClientSession() as pages:
            back = await sign_in(pages, url, account, f"{self.world.console}/login/back")
        async with browser.get(back, headers=CROSSING) as got:
            assert got.status == 200, await got.text()

    async def token(self, account: str, resource: str | None = None) -> dict[str, str]:
        """The headers with an access token of this person for the client `desktop`; opaque without a resource."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(b"v" * 43).digest()).decode().rstrip("=")
        query = {
            "client_id": "desktop",
            "response_type": "code",
            "redirect_uri": DESKTOP_BACK,
            "scope": "openid roles",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **({"resource": resource} if resource else {}),
        }
        form = {
            "grant_type": "authorization_code",
            "client_id": "desktop",
            "redirect_uri": DESKTOP_BACK,
            "code_verifier": "v" * 43,
            **({"resource": resource} if resource else {}),
        }
        async with aiohttp.ClientSession() as pages:
            back = await sign_in(pages, f"{self.provider.issuer}/auth?{urlencode(query)}", account, DESKTOP_BACK)
            form["code"] = parse_qs(urlsplit(back).query)["code"][0]
            async with pages.post(f"{self.provider.issuer}/token", data=form) as got:
                told = await got.json()
                assert got.status == 200, told
        return {"authorization": f"Bearer {told['access_token']}"}

    async def revoke(self, client: str, shown: Mapping[str, str]) -> None:
        """Revoke a token of `client` at the issuer (RFC 7009)."""
        form = {"token": shown["authorization"].removeprefix("Bearer "), "client_id": client}
        url = f"{self.provider.issuer}/token/revocation"
        async with aiohttp.ClientSession() as http, http.post(url, data=form) as got:
            assert got.status == 200, await got.text()

    async def service(self, resource: str) -> dict[str, str]:
        """The headers with an access token that belongs to no person."""
        form = {"grant_type": "client_credentials", "resource": resource}
        headers = {"authorization": aiohttp.encode_basic_auth("service", f"service-secret-{MARK}")}
        url = f"{self.provider.issuer}/token"
        async with aiohttp.ClientSession() as http, http.post(url, data=form, headers=headers) as got:
            told = await got.json()
            assert got.status == 200, told
        return {"authorization": f"Bearer {told['access_token']}"}


def clients(console: str) -> list[dict[str, Any]]:
    """The gateway's console, a person's MCP client, a service."""
    return [
        {
            "client_id": "console",
            "client_secret": f"console-secret-{MARK}",
            "redirect_uris": [f"{console}/login/back"],
            "post_logout_redirect_uris": [f"{console}/login/out"],
            "grant_types": ["authorization_code"],
        },
        {
            "client_id": "desktop",
            "token_endpoint_auth_method": "none",
            "application_type": "native",
            "redirect_uris": [DESKTOP_BACK],
            "grant_types": ["authorization_code"],
        },
        {
            "client_id": "service",
            "client_secret": f"service-secret-{MARK}",
            "grant_types": ["client_credentials"],
            "redirect_uris": [],
            "response_types": [],
        },
    ]


@asynccontextmanager
async def town(
    folder: Path, *, policy: str | None = None, extra: str = "", fast_path: bool = True
) -> AsyncIterator[Town]:
    """The cart behind a gateway whose callers authenticate at a real authorization server."""
    async with running(folder, policy=policy, extra=f"auth: [token]\n{extra}", fast_path=fast_path) as world:
        resources: Mapping[str, Any] = {f"{world.url}/mcp": {}, f"{world.url}/mcp/cart": {}, "https://other.test": {}}
        resources = {**resources, world.url: {"format": "opaque"}}
        async with oidc_provider(clients(world.console), accounts=ACCOUNTS, resources=resources) as provider:
            file = folder / "gateway.yaml"
            text = file.read_text("utf-8").replace("auth: [token]\n", AUTH.format(issuer=provider.issuer))
            file.write_text(text, "utf-8")
            await world.gateway.stop()
            await world.start_gateway()
            yield Town(world, provider)


async def get(browser: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, Any]:
    """Send a request of the console's page; return status and JSON."""
    async with browser.get(url, headers={**OWN, **headers}) as got:
        return got.status, await got.json()
