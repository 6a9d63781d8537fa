"""An app's own login in a view: what is dropped is said, and no password is reported to a model."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp import Client
from playwright.async_api import Frame, Page, expect

from gateway.model import Json
from tests.browser.runtime_host import Host, host_server, pack_html
from tests.browser.test_tiers import SYNCED, fetch, show_html, tier, wait_report
from tests.world import Server, running

LOGIN = """<!doctype html>
<form id=form method=post action=/api/login><input name=user value=ann><input name=pass type=password id=pass></form>
<form id=shown method=post action=/api/login><input name=pass type=password id=toggled></form>
<div id=root></div>
<script>root.attachShadow({mode: "open"}).innerHTML = "<input type=password id=deep>";</script>"""
SECRET: list[Json] = [[["POST"], "/api/pin"], [None, "/api/keys(?:/.*)?"]]


@pytest.fixture
async def login(page: Page, tmp_path: Path) -> Any:
    """A login in a host that only takes reports."""
    async with host_server() as url:
        await page.goto(url)
        host = Host(page)
        frame = await show_html(host, pack_html(tmp_path, LOGIN, secret=SECRET), SYNCED)
        await tier(frame, "context-synced")
        yield host, frame


SENT: dict[str, dict[str, Any]] = {
    "json": {"body": json.dumps({"user": "ann", "password": "hunter2!"})},
    "nested json": {"body": json.dumps({"user": {"credentials": ["ann", "hunter2!"]}})},
    "urlencoded": {
        "body": "user=ann&pass=hunter2%21",
        "headers": {"content-type": "application/x-www-form-urlencoded"},
    },
    "text": {"body": "<login>ann:hunter2!</login>"},
}


@pytest.mark.parametrize("sent", SENT)
async def test_a_password_is_not_reported(login: tuple[Host, Frame], sent: str) -> None:
    """In whatever form the page writes it; the person's other actions are."""
    host, frame = login
    await frame.locator("#pass").fill("hunter2!")
    status, reason, _ = await fetch(frame, "/api/login", method="POST", **SENT[sent])
    assert (status, reason) == (503, "no-host")
    assert (await fetch(frame, "/api/buy", method="POST", body="bowl"))[0] == 202
    assert [action["path"] for action in await wait_report(host)] == ["/api/buy"]


async def test_a_form_with_a_password_is_not_reported(login: tuple[Host, Frame]) -> None:
    """Nor what a field held that is shown as text, cleared, removed, or in a shadow root."""
    host, frame = login
    await frame.locator("#pass").fill("hunter2!")
    await frame.evaluate("form.requestSubmit()")
    await frame.locator("#toggled").fill("swordfish")
    await frame.evaluate("toggled.type = 'text'")
    await frame.evaluate("shown.requestSubmit()")
    await frame.locator("#deep").fill("opensesame")
    await frame.evaluate("""() => { pass.value = ''; toggled.remove(); root.remove(); }""")
    for word in ("hunter2!", "swordfish", "opensesame"):
        assert (await fetch(frame, "/api/login", method="POST", body=word))[0] == 503
    assert (await fetch(frame, "/api/buy", method="POST", body="bowl"))[0] == 202
    assert [action["path"] for action in await wait_report(host)] == ["/api/buy"]


async def test_a_short_password_hides_no_other_text(login: tuple[Host, Frame]) -> None:
    """Only a value that is the password itself."""
    host, frame = login
    await frame.locator("#pass").fill("b")
    assert (await fetch(frame, "/api/buy", method="POST", body="bowl"))[0] == 202
    assert (await fetch(frame, "/api/login", method="POST", body='{"p": "b"}'))[0] == 503
    assert len(await wait_report(host)) == 1


@pytest.mark.parametrize(
    ("method", "path", "is_secret"),
    [
        ("POST", "/api/pin", True),
        ("POST", "/api/pin?x=1", True),
        ("PUT", "/api/pin", False),
        ("POST", "/api/pin/x", False),
        ("DELETE", "/api/keys", True),
        ("PUT", "/api/keys/1/x", True),
        ("PUT", "/api/keysx", False),
    ],
)
async def test_a_secret_route_is_not_reported(
    login: tuple[Host, Frame], method: str, path: str, is_secret: bool
) -> None:
    """By its methods and its path."""
    _, frame = login
    status, *_ = await fetch(frame, path, method=method, body="1")
    assert status == (503 if is_secret else 202)


async def test_what_is_dropped_is_said_once(page: Page, tmp_path: Path) -> None:
    """On the page's console, with the remedy."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    async with host_server() as url:
        await page.goto(url)
        host = Host(page)
        await host.answers("return { status: 401, headers: { 'gateway-dropped': 'authorization' } };")
        await host.in_our_host()
        frame = await host.show(pack_html(tmp_path, "<script>const headers = {Authorization: 'Bearer x'}</script>"))
        for _ in range(2):
            assert await frame.evaluate("fetch('/api/me', {headers}).then(r => r.status)") == 401
        async with page.expect_console_message(lambda message: message.text == "the end"):
            await frame.evaluate("() => console.log('the end')")
    assert len([text for text in said if "Authorization header" in text and "authorization: pass" in text]) == 1


APP = """<!doctype html><title>Own login</title>
<form id=login>
<input id=user value=ann><input id=password type=password value="correct horse"><button>Log in</button></form>
<p id=name></p>
<script>
  let token = localStorage.getItem("token");
  async function show() {
    const answer = await fetch("/api/me", { headers: token ? { Authorization: `Bearer ${token}` } : {} });
    document.querySelector("#name").textContent = answer.ok ? (await answer.json()).name : `status ${answer.status}`;
  }
  document.querySelector("#login").addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = JSON.stringify({ user: user.value, password: password.value });
    const answer = await fetch("/api/login", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    ({ token } = await answer.json());
    localStorage.setItem("token", token);
    await show();
  });
  const execute = () => `it is ${token}`;
  document.modelContext?.registerTool({ name: "secret", description: "Says the token.", execute });
  show();
</script>"""
RULES = """version: 1
backends: {{api: {{url: "http://127.0.0.1:{port}", network: private, authorization: {authorization}}}}}
routes:
  - {{path: /api/login, methods: [POST], secret: true{vault}}}
  - {{path: "/api/**", methods: [GET]}}
tools: {{secret: {{}}}}
"""
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJlLW9mLWFubg"


class Accounts:
    """A backend with a login; keeps the `authorization` of each request for the person's name."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []

    async def login(self, request: web.Request) -> web.Response:
        right = await request.json() == {"user": "ann", "password": "correct horse"}
        return web.json_response({"token": TOKEN} if right else {}, status=200 if right else 401)

    async def me(self, request: web.Request) -> web.Response:
        self.seen.append(request.headers.get("authorization"))
        if self.seen[-1] != f"Bearer {TOKEN}":
            return web.json_response({}, status=401)
        return web.json_response({"name": "Ann", "seen": TOKEN})


@pytest.mark.parametrize("place", ["view", "site"])
@pytest.mark.parametrize("authorization", ["pass", "vault", "drop"])
async def test_a_person_logs_in_to_the_app(page: Page, tmp_path: Path, authorization: str, place: str) -> None:
    """With its own form; the token is in no record, and no model reads it."""
    accounts, server = Accounts(), Server()
    app = web.Application()
    app.router.add_post("/api/login", accounts.login)
    app.router.add_get("/api/me", accounts.me)
    await server.start(app)
    source = tmp_path / "app"
    source.mkdir()
    (source / "index.html").write_text(APP, "utf-8")
    vault = ", vault: [$.token]" if authorization == "vault" else ""
    rules = RULES.format(port=server.port, authorization=authorization, vault=vault)
    try:
        storage = "gateway" if place == "view" else "page"
        async with running(tmp_path, policy=rules, source=source, storage=storage) as world:
            await page.goto(world.url if place == "view" else world.site)
            frame: Any = page
            if place == "view":
                frame = page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
            await expect(frame.locator("#name")).to_have_text("status 401", timeout=60_000)
            await frame.locator("button").click()
            ends = "status 401" if authorization == "drop" else "Ann"
            async with asyncio.timeout(60):
                while len(accounts.seen) < 2:
                    await asyncio.sleep(0.02)
            await expect(frame.locator("#name")).to_have_text(ends, timeout=60_000)
            held = await frame.locator("body").evaluate("() => localStorage.getItem('token')")
            assert (held == TOKEN) is (authorization != "vault")
            if place == "view":
                await expect(page.get_by_test_id("record")).to_have_count(3, timeout=60_000)
                asked = page.get_by_test_id("record").filter(has_text="/api/me")
                for entry in await asked.all():
                    await entry.locator("summary").click()
                told = {"drop": "dropped", "pass": "passed to the backend", "vault": "from the vault"}
                await expect(asked.filter(has_text=told[authorization])).to_have_count(1, timeout=60_000)
                async with Client(f"{world.url}/mcp/cart", mode="2026-07-28") as client:
                    result = await client.call_tool("cart_secret", {})
                    text = "".join(block.text for block in result.content if block.type == "text")
                    assert text.startswith("it is ")
                    assert TOKEN not in text
                await page.reload()  # another view: its token is what the gateway keeps of `localStorage`
                await expect(frame.locator("#name")).to_have_text(ends, timeout=60_000)
                assert await frame.locator("body").evaluate("() => localStorage.getItem('token')") == held
            record = (world.folder / "gateway.journal").read_text("utf-8")
            assert TOKEN not in record
            assert "correct horse" not in record
            expected = {"drop": "dropped"}.get(authorization, authorization)
            lines = [json.loads(line) for line in record.splitlines()]
            assert {line.get("fields", {}).get("authorization") for line in lines} == {None, expected}
    finally:
        await server.stop()
