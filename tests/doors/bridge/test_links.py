"""Links that an app asks to open: the policy's decision, the person's answer, and the record of both."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway import mux
from gateway.app import RELOAD
from gateway.doors.bridge import offers
from gateway.doors.bridge.offers import LinkDoor, LinkRequest, OfferRates
from gateway.errors import Refusal
from gateway.exchange.record import OnFailure, Recorder
from gateway.hooks import Hooks
from gateway.model import LOCAL, Principal
from gateway.policy import parse_policy
from gateway.stores.journal import Journal
from gateway.views.view import AppRules, View
from tests.doors.bridge.test_bridge import Host, connected, console
from tests.views.memory import views_of
from tests.world import EXAMPLE, World, running

LINKS = """
links:
  allow: ["https://docs.example.com/**", "https://shop.example.com/products/{id}"]
  confirm: {when: model, message: "Leave for {link}?"}
"""
DOCS = "https://docs.example.com/tea?size=2#leaves"


@dataclass
class Asking:
    """The console with one live view of the cart."""

    world: World
    client: aiohttp.ClientSession
    host: Host
    view: str

    async def __call__(self, url: object, view: object = None, **more: object) -> tuple[int, dict[str, Any]]:
        """Return the gateway's decision on a link."""
        body = {"view": view or self.view, "url": url, **more}
        async with self.client.post(f"{self.world.console}/api/links", json=body) as answer:
            return answer.status, await answer.json()

    async def worked_by_a_model(self) -> None:
        """From now on the view's actions count as the model's."""
        assert (await self.host.call(self.view, url="/api/products", _initiator="model"))["status"] == 200

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines about links in the record."""
        lines = [line for line in self.world.records() if line["fields"]["kind"] == "link"]
        return [{"phase": line["phase"], "id": line["id"], **line["fields"]} for line in lines]


@asynccontextmanager
async def serving_links(folder: Path, links: str = LINKS) -> AsyncIterator[Asking]:
    """Yield the cart example with these links in its policy."""
    policy = (EXAMPLE / "policy.yaml").read_text("utf-8") + links
    async with running(folder, policy=policy) as world, console(world) as client, connected(world, client) as host:
        yield Asking(world, client, host, (await host.open()).view)


@pytest.mark.parametrize("url", [DOCS, "https://shop.example.com/products/7"])
async def test_allowed_links_open(tmp_path: Path, url: str) -> None:
    """The record names link, view, policy and who caused it."""
    async with serving_links(tmp_path) as ask:
        assert await ask(url) == (200, {"decision": "open"})
        intent, outcome = ask.lines()
    assert (intent["phase"], intent["id"]) == ("intent", outcome["id"])
    said = {name: outcome[name] for name in ("url", "view", "decision", "status", "initiator", "door")}
    told = {"url": url, "decision": "allow", "status": 200, "initiator": "page", "door": "bridge"}
    assert said == {**told, "view": ask.view}
    assert outcome["policy_version"].startswith("sha256:")


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/",
        "http://docs.example.com/tea",
        "https://docs.example.com.evil.example/",
        "https://docs.example.com@evil.example/",
        "https://shop.example.com/products/7/more",
        "https://shop.example.com/products/../admin",
        "javascript:alert(1)",
        "file:///etc/passwd",
    ],
)
async def test_other_links_are_refused(tmp_path: Path, url: str) -> None:
    """The refusal is recorded with its reason."""
    async with serving_links(tmp_path) as ask:
        status, problem = await ask(url)
        (outcome,) = ask.lines()
    assert (status, problem["type"]) == (403, "urn:webmcp-gateway:policy-denied")
    assert "The policy of cart does not open this link" in problem["detail"]
    said = [outcome[name] for name in ("url", "decision", "status", "reason")]
    assert said == [url, "deny", 403, "policy-denied"]


async def test_a_policy_without_links_opens_nothing(tmp_path: Path) -> None:
    """Without `links` in the policy no link opens."""
    async with serving_links(tmp_path, links="") as ask:
        assert (await ask(DOCS))[0] == 403


async def test_a_models_link_asks_and_waits_for_the_answer(tmp_path: Path) -> None:
    """Question and answer share one record; the answer is valid once."""
    async with serving_links(tmp_path) as ask:
        await ask.worked_by_a_model()
        assert await ask(DOCS) == (200, {"decision": "ask", "message": f"Leave for {DOCS}?", "url": DOCS})
        assert [(line["phase"], line["decision"]) for line in ask.lines()] == [("intent", "ask")]
        assert await ask(DOCS, answered=True) == (200, {"decision": "open"})
        assert (await ask(DOCS, answered=True))[1]["type"] == "urn:webmcp-gateway:approval-expired"
        intent, outcome = ask.lines()
    assert (outcome["id"], outcome["decision"], outcome["status"]) == (intent["id"], "approved", 200)
    assert (outcome["initiator"], outcome["message"]) == ("model", f"Leave for {DOCS}?")


async def test_a_no_is_recorded(tmp_path: Path) -> None:
    """As declined."""
    async with serving_links(tmp_path) as ask:
        await ask.worked_by_a_model()
        await ask(DOCS)
        assert await ask(DOCS, answered=False) == (200, {"decision": "declined"})
        outcome = ask.lines()[-1]
    assert [outcome[name] for name in ("decision", "status", "reason")] == ["declined", 403, "approval-declined"]


async def test_an_answer_is_for_the_link_that_was_asked_about(tmp_path: Path) -> None:
    """A yes opens no other link; a newer question ends the one before."""
    other = "https://docs.example.com/other"
    async with serving_links(tmp_path) as ask:
        await ask.worked_by_a_model()
        await ask(DOCS)
        assert (await ask(other, answered=True))[0] == 403
        await ask(other)
        assert (await ask(DOCS, answered=True))[0] == 403
        assert await ask(other, answered=True) == (200, {"decision": "open"})
        ends = [(line["url"], line["decision"]) for line in ask.lines() if line["phase"] == "outcome"]
    assert ends == [(DOCS, "expired"), (other, "approved")]


async def test_a_question_does_not_outlive_its_policy(tmp_path: Path) -> None:
    """The new policy may decide otherwise."""
    async with serving_links(tmp_path) as ask:
        await ask.worked_by_a_model()
        await ask(DOCS)
        text = (tmp_path / "policy.yaml").read_text("utf-8")
        (tmp_path / "policy.yaml").write_text(text.replace("Leave for", "Really leave for"), "utf-8")
        runner = ask.world.gateway._runner
        assert runner is not None
        runner.app[RELOAD]()
        while not [
            one for one in ask.world.records() if (one["fields"]["kind"], one["phase"]) == ("policy", "outcome")
        ]:
            await ask.host.call(ask.view, url="/api/products")
        assert (await ask(DOCS, answered=True))[1]["type"] == "urn:webmcp-gateway:approval-expired"
        assert ask.lines()[-1]["decision"] == "void"


async def test_only_a_live_view_asks(tmp_path: Path) -> None:
    """A view that never existed or is closed is refused."""
    async with serving_links(tmp_path) as ask:
        assert (await ask(DOCS, view="made-up"))[1]["type"] == "urn:webmcp-gateway:view-unproven"
        await ask.host.say(mux.Close(ask.view, "gone"))
        await ask.host.open()
        assert (await ask(DOCS))[0] == 403
        assert ask.lines() == []


@pytest.mark.parametrize("body", [{"url": 1}, {"url": "https://döcs.example"}, {"url": DOCS, "answered": "yes"}])
async def test_other_bodies_are_bad(tmp_path: Path, body: dict[str, Any]) -> None:
    """No text, no URL, or no answer."""
    async with serving_links(tmp_path) as ask:
        status, problem = await ask(**body)
    assert (status, problem["type"]) == (400, "urn:webmcp-gateway:bad-request")


async def test_links_need_the_consoles_own_token(tmp_path: Path) -> None:
    """The right origin alone is not enough."""
    async with serving_links(tmp_path) as ask:
        ask.client.headers["webmcp-gateway-csrf"] = "0" * 64
        status, problem = await ask(DOCS)
    assert (status, problem["type"]) == (403, "urn:webmcp-gateway:bad-csrf")


@pytest.mark.bound("questions about links")
async def test_nobody_pushes_out_the_questions_of_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At its bound a principal loses its oldest one; at the total, the one with most loses one; both are recorded."""
    monkeypatch.setattr(offers, "EACH", 2)
    monkeypatch.setattr(offers, "WAITING", 3)
    async with Journal(tmp_path / "journal") as journal:
        recorder = Recorder(journal, Hooks([], tmp_path), OnFailure.REFUSE)
        policy = parse_policy((EXAMPLE / "policy.yaml").read_text("utf-8") + LINKS, "policy.yaml")
        views = views_of({"cart": AppRules("Cart", policy, "as-model", trust_view_gestures=False)})
        door = LinkDoor(views, recorder, OfferRates())
        ada, bob, cy = (replace(LOCAL, subject=name) for name in ("ada", "bob", "cy"))

        async def asks(who: Principal) -> View:
            view = views.open_bridged(who, "cart")
            view.taint.model_reported(time.monotonic())
            assert (await door.decide(LinkRequest(view.id, DOCS, None), who))["decision"] == "ask"
            return view

        async def answers(view: View) -> bool:
            try:
                return (await door.decide(LinkRequest(view.id, DOCS, False), view.principal))["decision"] == "declined"
            except Refusal:
                return False

        first, mine = await asks(bob), [await asks(ada) for _ in range(4)]
        last = await asks(cy)
        assert [await answers(view) for view in (*mine, first, last)] == [False, False, False, True, True, True]
