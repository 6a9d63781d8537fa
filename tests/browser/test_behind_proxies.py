"""The main job in Chromium through nginx and Caddy: TLS, logins, console, a model, and the app's own site."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
import yaml
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from playwright.async_api import Browser, BrowserContext, expect
from pydantic import AnyUrl

from tests.browser.probing import outcome
from tests.browser.test_login import sign_in
from tests.browser.test_main_job import app_of
from tests.callers.people import ACCOUNTS, AUTH, DESKTOP_BACK, clients
from tests.deploy.proxies import CLIENT, PROXIES, Backend, Deployed, deployed
from tests.oidc import sign_in as login_pages
from tests.oidc.provider import oidc_provider
from tests.world import EXAMPLE, serving

ROUTES = """
- {path: /api/events, methods: [GET], backend: files, stream: true}
- {path: /api/size, methods: [POST], backend: files, request: 16MiB}
- {path: /api/file, methods: [GET], backend: files, stream: true, response: 16MiB}
"""
BACK = AnyUrl(DESKTOP_BACK)
LARGE = 8 * 2**20


@pytest.fixture
async def secure(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A browser context that accepts the certificate of the tests."""
    async with await browser.new_context(ignore_https_errors=True) as context:
        yield context


class Desktop:
    """A person's MCP client, known to the issuer: its storage of tokens, and the person at its login."""

    def __init__(self, account: str) -> None:
        self._account = account
        self._tokens: OAuthToken | None = None
        self._back = ""

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull:
        return OAuthClientInformationFull(client_id="desktop", token_endpoint_auth_method="none", redirect_uris=[BACK])

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError(f"it registers anew: {client_info}")

    async def open(self, url: str) -> None:
        """Log in where the client is sent."""
        async with aiohttp.ClientSession() as pages:
            self._back = await login_pages.sign_in(pages, url, self._account, DESKTOP_BACK)

    async def code(self) -> AuthorizationCodeResult:
        """Return what the issuer sends back."""
        told = parse_qs(urlsplit(self._back).query)
        return AuthorizationCodeResult(code=told["code"][0], state=told["state"][0], iss=told["iss"][0])


@asynccontextmanager
async def model(place: Deployed, account: str) -> AsyncIterator[Client]:
    """A model's client, which finds the issuer and gets its token by the SDK's own means."""
    desktop, url = Desktop(account), f"{place.mcp}/mcp"
    metadata = OAuthClientMetadata(redirect_uris=[BACK], scope="openid roles")
    auth = OAuthClientProvider(url, metadata, desktop, desktop.open, desktop.code)
    async with place.http(auth=auth) as http, Client(streamable_http_client(url, http_client=http)) as client:
        yield client


async def call_in_view(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    """Call a tool of the only view that the client may use; return its client."""
    async with asyncio.timeout(60):
        while True:
            listed = (await client.call_tool("list_view_tools", {})).structured_content
            assert listed is not None
            if listed["views"] and tool in {one["tool"] for one in listed["views"][0]["tools"]}:
                break
            await asyncio.sleep(0.05)
    (view,) = listed["views"]
    result = await client.call_tool("call_view_tool", {"view": view["view"], "tool": tool, "arguments": arguments})
    assert not result.is_error, result
    return str(view["client"])


def policy(port: int) -> str:
    """The policy of the cart, with the API at this port beside the shop."""
    rules = yaml.safe_load((EXAMPLE / "policy.yaml").read_text("utf-8"))
    for route in rules["routes"]:
        route.setdefault("backend", "shop")
    rules["backends"]["files"] = {"url": f"http://127.0.0.1:{port}", "network": ["127.0.0.0/8"]}
    rules["routes"] = [*yaml.safe_load(ROUTES), *rules["routes"]]
    rules["limits"]["timeout"] = "60s"
    return yaml.safe_dump(rules, sort_keys=False)


@pytest.mark.parametrize("proxy", PROXIES)
async def test_the_main_job(secure: BrowserContext, tmp_path: Path, proxy: str) -> None:
    """A person logs in at an issuer and uses the app in the console, as does their model, and then at its own site."""
    api = Backend()
    async with (
        serving(api.build()) as port,
        deployed(tmp_path, proxy, policy=policy(port)) as place,
        oidc_provider(clients(place.console), accounts=ACCOUNTS, resources={f"{place.mcp}/mcp": {}}) as provider,
    ):
        auth = AUTH.format(issuer=provider.issuer)
        await place.restart(auth.replace("network: private", "network: private\n    view_clients: [desktop]"))
        page = await secure.new_page()
        await page.goto(f"{place.console}/#/apps/cart")
        await sign_in(page, "alice")
        await expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "open")
        cards = app_of(page).locator("[data-item-id]")
        await expect(cards.nth(1)).to_be_visible()
        item, other = [str(await cards.nth(number).get_attribute("data-item-id")) for number in (0, 1)]
        await cards.first.locator("[data-add]").click()
        in_cart = app_of(page).locator("[data-cart-item]")
        await expect(in_cart).to_have_count(1)

        view = page.frames[-1]
        sent = await view.evaluate(
            "async (size) => (await fetch('/api/size', {method: 'POST', body: new Uint8Array(size)})).json()", LARGE
        )
        assert sent == {"size": LARGE}
        received = "async (size) => (await (await fetch(`/api/file?size=${size}`)).arrayBuffer()).byteLength"
        assert await view.evaluate(received, LARGE) == LARGE
        await view.evaluate("async () => { reader = (await fetch('/api/events')).body.getReader(); }")
        following = "async () => new TextDecoder().decode((await reader.read()).value).trim()"
        assert await view.evaluate(following) == "data: first"
        api.more.set()
        assert await view.evaluate(following) == "data: second"

        async with model(place, "alice") as client:
            assert await call_in_view(client, "add_to_cart", {"item_id": other}) == "console"
            await expect(in_cart).to_have_count(2)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(call_in_view(client, "remove_from_cart", {"item_id": other}))
                await page.get_by_test_id("approval").first.get_by_test_id("approve").click()
            await expect(in_cart).to_have_count(1)
        async with model(place, "bob") as client:
            assert (await client.call_tool("list_view_tools", {})).structured_content == {"views": []}
        called = await outcome(place.world, kind="tool", tool="add_to_cart")
        assert (called["door"], called["client"], called["status"]) == ("mcp", CLIENT, 200)
        removed = await outcome(place.world, door="bridge", method="DELETE", initiator="model", status=200)
        assert removed["approval"]  # the id of the answered question

        await page.goto(f"{place.site}/")
        await expect(page.locator(f"[data-cart-item='{item}']")).to_be_visible()
        sessions = [cookie for cookie in await secure.cookies() if cookie["name"].startswith("__Host-")]
        sites = {"console.gw.localhost", "cart.apps.localhost"}
        assert {(cookie["domain"], cookie["secure"]) for cookie in sessions} == {(site, True) for site in sites}
