"""A page of another origin that embeds an app: its back end, a real authorization server, and the person's browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from aiohttp import web
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from playwright.async_api import Page, expect

from gateway.callers.token_exchange import ACCESS_TOKEN, GRANT
from gateway.doors import issuers
from tests.browser.element_host import app_in, plain_host
from tests.oidc.provider import OidcProvider, oidc_provider
from tests.oidc.sign_in import sign_in
from tests.world import Server, World, running

GATEWAY = "https://gateway.example"
RESOURCES = {GATEWAY: {"scope": "use", "format": "opaque"}}
SECRET = "the secret of the chat's back end"
BACK = "http://localhost:9/back"
CLIENTS = [
    {"client_id": "chat", "client_secret": "chat-secret", "redirect_uris": [BACK]},
    {"client_id": "gateway", "client_secret": "gateway-secret", "redirect_uris": ["http://localhost:9/login/back"]},
]
SETTINGS = """
hosts:
  - {{origin: '{chat}', apps: [cart], issuer: '{issuer}', client_id: chat, client_secret: "{secret}"}}
auth:
  - {{type: oauth, issuer: '{issuer}', audience: {audience}, network: private, introspection: true,
     client_id: gateway, client_secret: gateway-secret}}
"""
PAGE = """<!doctype html><html lang=en><meta charset=utf-8><title>Company chat</title>
<script type="module" src="{gateway}/host/mcp-app.js"></script>
<mcp-app gateway="{gateway}" app="cart" title="Fennel"></mcp-app>
<script>const app = document.querySelector("mcp-app");
app.getToken = () => fetch("/token", {{ method: "POST" }}).then((answer) => answer.text());</script>
"""


class Chat:
    """A company's chat: its page, and its back end, which knows the access token of its person."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.origin = f"http://chat.localhost:{server.port}"
        self.token = ""
        self.gateway = ""
        self.answers: list[int] = []

    def application(self) -> web.Application:
        """The chat's server."""
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_post("/token", self._exchange)
        return app

    async def _page(self, _: web.Request) -> web.Response:
        console = self.gateway.replace("//localhost", "//gateway.localhost")
        return web.Response(text=PAGE.format(gateway=console), content_type="text/html")

    async def _exchange(self, _: web.Request) -> web.Response:
        form = {"grant_type": GRANT, "subject_token": self.token, "subject_token_type": ACCESS_TOKEN}
        who = {**form, "client_id": "chat", "client_secret": SECRET}
        async with aiohttp.ClientSession() as http, http.post(f"{self.gateway}/oauth/token", data=who) as answer:
            self.answers.append(answer.status)
            return web.Response(text=(await answer.json()).get("access_token", ""), status=answer.status)


async def login(provider: OidcProvider) -> str:
    """The access token of Alice at the chat."""
    query = {"client_id": "chat", "response_type": "code", "redirect_uri": BACK, "scope": "openid use"}
    verifier = "v" * 43
    more = {
        "code_challenge": create_s256_code_challenge(verifier),
        "code_challenge_method": "S256",
        "resource": GATEWAY,
        "state": "s",
    }
    async with aiohttp.ClientSession() as http:
        back = await sign_in(http, f"{provider.issuer}/auth?{urlencode({**query, **more})}", "alice", BACK)
        code = parse_qs(urlsplit(back).query)["code"][0]
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, "code_verifier": verifier}
        headers = {"authorization": aiohttp.encode_basic_auth("chat", "chat-secret")}
        async with http.post(f"{provider.issuer}/token", data={**form, "resource": GATEWAY}, headers=headers) as answer:
            told = await answer.json()
            assert answer.status == 200, told
            return str(told["access_token"])


async def revoke(provider: OidcProvider, token: str) -> None:
    """End the token at its issuer (RFC 7009)."""
    headers = {"authorization": aiohttp.encode_basic_auth("chat", "chat-secret")}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{provider.issuer}/token/revocation", data={"token": token}, headers=headers) as answer,
    ):
        assert answer.status == 200


@asynccontextmanager
async def company(folder: Path) -> AsyncIterator[tuple[World, OidcProvider, Chat]]:
    """The gateway with the cart, the chat, and the authorization server of its people."""
    chat = Chat(Server())
    async with oidc_provider(CLIENTS, resources=RESOURCES) as provider:
        told = {"chat": chat.origin, "issuer": provider.issuer, "secret": SECRET, "audience": GATEWAY}
        async with running(folder, extra=SETTINGS.format(**told)) as world:
            chat.gateway = world.url
            await chat.server.start(chat.application())
            try:
                yield world, provider, chat
            finally:
                await chat.server.stop()


async def test_a_page_of_another_origin_embeds_an_app_in_three_lines(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person's clicks reach the backend as theirs at the chat, until their token is revoked at its issuer."""
    monkeypatch.setattr(issuers, "REMEMBERED", 1.0)  # instead of half a minute
    async with company(tmp_path) as (world, provider, chat), asyncio.timeout(240):
        chat.token = await login(provider)
        await page.goto(chat.origin)
        item = app_in(page).locator("[data-item-id]").first
        await expect(item).to_be_visible(timeout=60_000)
        await item.get_by_role("button").first.click()
        while not any(one["method"] == "POST" for one in world.arrived()):
            await asyncio.sleep(0.1)
        lines = [line["fields"] for line in world.records()]
        sent = [one for one in lines if one.get("method") == "POST" and one.get("url") == "/api/cart"]
        assert {one["act"] for one in sent} == {"chat"}
        assert {one["principal"].rpartition("|")[2] for one in sent} == {"alice"}
        assert {one["initiator"] for one in sent} == {"page"}  # this page does not attest the click
        assert not any(f"Bearer {chat.token}" in str(one) for one in world.arrived())
        before = len(chat.answers)
        await revoke(provider, chat.token)
        while chat.answers[before:].count(400) == 0:  # the bridge was cut, and there is no token any more
            await asyncio.sleep(0.1)
        assert set(chat.answers[:before]) == {200}


async def test_a_page_whose_entry_is_gone_after_a_restart_says_so(page: Page, tmp_path: Path) -> None:
    """The gateway is back without `hosts`: the app ends with the remedy, and "Try again" shows it once it is named."""
    async with plain_host() as host, asyncio.timeout(240):
        entry = f"hosts: [{{origin: '{host.origin}', apps: [cart]}}]"
        async with running(tmp_path, extra=entry) as world:
            host.pages["/"] = PAGE.format(gateway=world.console).partition("<script>const")[0]
            await page.goto(host.origin)
            await expect(app_in(page).locator("[data-item-id]").first).to_be_visible()
            settings = tmp_path / "gateway.yaml"
            named = settings.read_text("utf-8")
            await world.gateway.stop()
            settings.write_text(named.replace(entry, ""), "utf-8")
            await world.start_gateway()
            alert = page.get_by_role("alert")
            await expect(alert).to_contain_text(f"`hosts` in its gateway.yaml does not name {host.origin}")
            await world.gateway.stop()
            settings.write_text(named, "utf-8")
            await world.start_gateway()
            await page.get_by_role("button", name="Try again").click()
            await expect(app_in(page).locator("[data-item-id]").first).to_be_visible()
