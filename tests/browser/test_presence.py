"""`presence: webauthn` in Chromium: a key is added, and touched for each approval; grants; notifications."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, CDPSession, Page, Request, async_playwright, expect

from tests.browser.conftest import launch
from tests.browser.test_approval_page import call_for_approval, count_deletes
from tests.whole.test_main_job import answer_next, person
from tests.world import EXAMPLE, World, running

GRANTS = (
    (EXAMPLE / "policy.yaml").read_text("utf-8").replace("{when: model, message", "{when: model, grant: 10m, message")
)
SHOTS = os.environ.get("WEBMCP_GATEWAY_SHOTS")


async def shot(page: Page, name: str) -> None:
    """Take a screenshot of the page if `SHOTS` is set."""
    if SHOTS:
        await page.screenshot(path=f"{SHOTS}/{name}.png")


@asynccontextmanager
async def needing_touch(folder: Path, **options: Any) -> AsyncIterator[World]:
    """A gateway whose approvals require the touch of a key."""
    async with running(folder, extra="approvals: {presence: webauthn}", **options) as world:
        yield world


async def authenticator(context: BrowserContext, page: Page) -> tuple[CDPSession, str]:
    """A virtual security key in this page's browser."""
    devtools = await context.new_cdp_session(page)
    await devtools.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "usb", "hasUserVerification": False, "isUserVerified": False}
    made = await devtools.send(
        "WebAuthn.addVirtualAuthenticator",
        {"options": {**options, "automaticPresenceSimulation": True}},
    )
    return devtools, str(made["authenticatorId"])


async def so(page: Page, expression: str) -> None:
    """Wait for a condition on a page whose CSP forbids Playwright's own way of waiting."""
    async with asyncio.timeout(60):
        while not await page.evaluate(expression):
            await page.evaluate("new Promise((done) => setTimeout(done, 20))")


async def press_approve(page: Page) -> None:
    """Press "Approve" until the page sends it: a card that moves meanwhile waits to be in sight again."""
    button = page.get_by_test_id("approve")
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request) if request.url.endswith("/touch") else None)
    async with asyncio.timeout(60):
        while not sent:
            await expect(button).to_be_enabled()
            await button.click()
            await page.evaluate("new Promise((done) => setTimeout(done, 100))")


async def test_an_approval_takes_the_touch_of_a_key(tmp_path: Path, context: BrowserContext, page: Page) -> None:
    """Without a key nothing is approved; one is added on the page, and touched; the record contains that."""
    async with needing_touch(tmp_path) as world, call_for_approval(world) as question:
        await authenticator(context, page)
        await page.goto(question.link)
        await expect(page.get_by_test_id("add-key")).to_be_visible()
        await shot(page, "no-key")
        await press_approve(page)
        await expect(page.get_by_text("add yours on the console first")).to_be_visible()
        assert count_deletes(world) == 0
        await page.get_by_test_id("add-key").click()
        await expect(page.get_by_test_id("key")).to_have_count(1)
        await shot(page, "key")
        await press_approve(page)
        await expect(page.get_by_text("The call goes on")).to_be_visible()
        async with asyncio.timeout(60):
            assert "gateway-reason" not in (await question.answer)["headers"]
        assert count_deletes(world) == 1
        records = {line["fields"]["kind"]: line["fields"] for line in world.records() if "kind" in line["fields"]}
        assert (records["key"]["decision"], records["approval"]["present"]) == ("added", True)


def answer_to(request: Request) -> dict[str, Any]:
    """The answer to a question in a request's body; empty for another request."""
    body = json.loads(request.post_data or "null")
    return body if isinstance(body, dict) and "answer" in body else {}


async def test_a_click_alone_or_an_old_touch_approves_nothing(
    tmp_path: Path, context: BrowserContext, page: Page
) -> None:
    """The assertion belongs to one question: a missing, invalid or foreign one is refused."""
    async with needing_touch(tmp_path) as world, person(world) as ann:
        async with call_for_approval(world) as first:
            await authenticator(context, page)
            await page.goto(first.link)
            await page.get_by_test_id("add-key").click()
            await expect(page.get_by_test_id("key")).to_have_count(1)
            async with page.expect_request(lambda request: "assertion" in answer_to(request)) as approving:
                await press_approve(page)
            await first.answer
            stale = answer_to(await approving.value)
        async with call_for_approval(
            world, {"url": "/api/cart/bowl", "method": "DELETE", "_initiator": "model"}
        ) as second:
            id = second.link.rpartition("/")[2]
            forged = {**stale, "assertion": {**stale["assertion"], "id": "AAAA"}}
            for body in ({"answer": "approve"}, stale, forged, {**stale, "assertion": 7}, {**stale, "assertion": {}}):
                async with ann.post(f"{world.console}/api/approvals/{id}", json=body) as refused:
                    assert refused.status == 403, await refused.text()
            assert count_deletes(world) == 1
            await answer_next(ann, world, "decline")


async def test_a_second_key_takes_a_touch_of_the_first(tmp_path: Path, context: BrowserContext, page: Page) -> None:
    """The session alone can neither add nor remove a key."""
    async with needing_touch(tmp_path) as world, person(world) as ann:
        await authenticator(context, page)
        async with call_for_approval(world) as question:
            await page.goto(question.link)
            await page.get_by_test_id("add-key").click()
            await expect(page.get_by_test_id("key")).to_have_count(1)
            await page.get_by_test_id("keys").click()
            async with ann.get(f"{world.console}/api/keys") as listed:
                (key,) = (await listed.json())["keys"]
            for path, body in (("", {"name": "Mallory's"}), (f"/{key['id']}/remove", {})):
                async with ann.post(f"{world.console}/api/keys{path}", json=body) as refused:
                    assert refused.status == 403
            async with ann.post(f"{world.console}/api/keys/begin", json={}) as begun:
                assert (await begun.json())["touch"] is not None
            async with ann.post(f"{world.console}/api/keys", json={"name": "Mallory's", "credential": {}}) as refused:
                assert refused.status == 403
            await page.get_by_role("button", name="Remove").click()
            await expect(page.get_by_test_id("key")).to_have_count(0)
            await answer_next(ann, world, "decline")


async def test_a_loosened_policy_waits_for_a_touch(tmp_path: Path, context: BrowserContext, page: Page) -> None:
    """The changes are shown, and the previous policy holds until approval; a stricter policy requires none."""
    async with needing_touch(tmp_path) as world, person(world) as ann:
        file = world.folder / "policy.yaml"
        rules = file.read_text("utf-8")
        opened = rules.replace("/api/admin/**", "/api/secret/**").replace(
            "{request: GET /api/admin/users, expect: deny}", "{request: GET /api/secret/users, expect: deny}"
        )
        opened = opened.replace(
            "  - {path: /api/cart, methods: [GET]}",
            "  - {path: /api/cart, methods: [GET]}\n  - {path: /api/x, methods: [GET]}",
        )
        await authenticator(context, page)
        await page.goto(f"{world.console}/")
        file.write_text(opened, "utf-8")
        await expect(page.get_by_role("heading", name="Let the changed policy take effect?")).to_be_visible()
        await page.get_by_text("Raw request").click()
        await expect(page.get_by_text("/api/x").first).to_be_visible()
        await shot(page, "policy")
        await page.get_by_text("Raw request").click()
        assert await status(world, "/api/x") == 403
        await page.get_by_test_id("add-key").click()
        await expect(page.get_by_test_id("key")).to_have_count(1)
        await press_approve(page)
        async with asyncio.timeout(60):
            while await status(world, "/api/x") != 404:  # the shop itself answers that it does not exist
                await asyncio.sleep(0.1)
        file.write_text(rules, "utf-8")
        async with asyncio.timeout(60):
            while await status(world, "/api/x") != 403:
                await asyncio.sleep(0.1)
        async with ann.get(f"{world.console}/api/approvals") as listed:
            assert (await listed.json())["approvals"] == []


async def status(world: World, path: str) -> int:
    """The status of a request from the cart's own page."""
    headers = {"origin": world.site, "sec-fetch-site": "same-origin"}
    async with world.client(headers=headers) as client, client.get(f"{world.site}{path}") as answer:
        return answer.status


async def test_a_grant_is_given_listed_and_revoked(tmp_path: Path, page: Page) -> None:
    """The card offers a grant if the policy does; the console lists it until it is revoked there."""
    async with running(tmp_path, policy=GRANTS) as world:
        await page.goto(f"{world.console}/")
        async with call_for_approval(world) as question:
            lasting = page.get_by_test_id("grant").filter(has_text="10 minutes")
            await expect(lasting).to_be_enabled()
            await shot(page, "grant-offered")
            await lasting.click()
            async with asyncio.timeout(60):
                assert "gateway-reason" not in (await question.answer)["headers"]
        await expect(page.get_by_test_id("revoke")).to_be_visible()
        await expect(page.get_by_text("DELETE /api/cart/{item}")).to_be_visible()
        await shot(page, "grant-held")
        await page.get_by_test_id("revoke").click()
        await expect(page.get_by_test_id("revoke")).to_have_count(0)


@pytest.fixture
async def whole_context() -> AsyncIterator[BrowserContext]:
    """A context of the whole browser: the headless shell denies notifications."""
    async with (
        async_playwright() as playwright,
        await launch(playwright, whole=True) as chromium,
        await chromium.new_context() as fresh,
    ):
        yield fresh


async def test_a_notification_is_shown_only_after_a_click_allowed_it(
    world: World, whole_context: BrowserContext
) -> None:
    """The page requests no permission by itself; a notification shows the question, and closes when it is over."""
    context, page = whole_context, await whole_context.new_page()
    await page.add_init_script(
        """
        globalThis.notes = [];
        globalThis.Notification = class extends Notification {
          constructor(title, options) {
            super(title, options);
            this.seen = [];
            for (const event of ["show", "close", "error"]) this.addEventListener(event, () => this.seen.push(event));
            notes.push(this);
          }
        };
        """
    )
    await page.goto(f"{world.console}/")
    await expect(page.get_by_test_id("notify")).to_be_visible()
    assert await page.evaluate("Notification.permission") != "granted"
    await context.grant_permissions(["notifications"], origin=world.console)  # as by the person in the browser's prompt
    await page.get_by_test_id("notify").click()
    await expect(page.get_by_test_id("notify")).to_have_count(0)
    devtools = await context.new_cdp_session(page)
    await devtools.send("Emulation.setFocusEmulationEnabled", {"enabled": False})
    other = await context.new_page()
    await other.bring_to_front()
    await so(page, "!document.hasFocus()")
    async with person(world) as ann, call_for_approval(world):
        await so(page, "notes.length === 1 && notes[0].seen.includes('show')")
        shown = "[notes[0].title, notes[0].body, notes[0] instanceof Object.getPrototypeOf(Notification)]"
        assert await page.evaluate(shown) == ["Approval needed", "Remove mug from the cart?", True]
        await answer_next(ann, world, "decline")
        await so(page, "notes[0].seen.includes('close')")
