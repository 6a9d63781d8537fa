"""The main use case without a browser: MCP clients of both eras, the app's own site, refusals, failures, the record."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client
from mcp.client import advertise
from mcp_types import TextResourceContents
from yarl import URL

from tests.world import World, running

MODES = ["legacy", "2026-07-28"]
UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]


def own(world: World) -> dict[str, str]:
    """The headers that a browser sends from the cart's own page."""
    return {"origin": world.site, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}


def console(world: World) -> dict[str, str]:
    """The headers that a browser sends from the console's page."""
    return {**own(world), "origin": world.console}


@asynccontextmanager
async def person(world: World) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a person at the console."""
    async with world.client(headers=console(world)) as client:
        async with client.get(f"{world.console}/api/state") as answer:
            client.headers["webmcp-gateway-csrf"] = (await answer.json())["csrf"]
        yield client


async def questions(client: aiohttp.ClientSession, world: World) -> list[dict[str, Any]]:
    """Return the open questions, from the console's stream of events."""
    async with client.get(f"{world.console}/api/events") as stream:
        name = ""
        async for line in stream.content:
            text = line.decode().rstrip()
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("data: ") and name == "approvals":
                listed: list[dict[str, Any]] = json.loads(text.removeprefix("data: "))
                if listed:
                    return listed
    raise AssertionError("the stream ended")


async def answer_next(client: aiohttp.ClientSession, world: World, answer: str) -> dict[str, Any]:
    """Answer the next question; return it."""
    async with asyncio.timeout(60):
        question = (await questions(client, world))[0]
    url = f"{world.console}/api/approvals/{question['id']}"
    async with client.post(url, json={"answer": answer}) as said:
        assert said.status == 200, await said.text()
    return question


async def request(client: Client, **arguments: Any) -> dict[str, Any]:
    """Return the structured result of one `http_request`."""
    result = await client.call_tool("http_request", arguments)
    assert not result.is_error, result
    assert result.structured_content is not None
    return dict(result.structured_content)


@pytest.mark.parametrize("mode", MODES)
async def test_a_request_reaches_the_shop_with_a_token(world: World, mode: Any) -> None:
    """The answer is the shop's, the token is the gateway's, and the caller sees nothing of it."""
    async with Client(f"{world.url}/mcp/cart", mode=mode, extensions=UI) as client:
        answer = await request(client, url="/api/products")
    assert answer["status"] == 200, answer
    assert answer["bodyType"] == "json"
    assert len(answer["body"]["products"] if isinstance(answer["body"], dict) else answer["body"]) > 3
    assert [line["has_token"] for line in world.arrived() if line["path"] == "/api/products"] == [True]
    assert "authorization" not in json.dumps(answer).lower()


@pytest.mark.parametrize("mode", MODES)
async def test_the_packed_app_is_a_resource(world: World, mode: Any) -> None:
    """`open_cart` names it, and its HTML has the runtime before the app's own content."""
    async with Client(f"{world.url}/mcp", mode=mode, extensions=UI) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"open_cart", "http_request", "webmcp_attach", "list_view_tools", "call_view_tool"} <= set(tools)
        assert tools["http_request"].meta == {"ui": {"visibility": ["app"]}}
        opened = await client.call_tool("open_cart", {})
        assert opened.meta is not None
        launch = opened.meta["webmcp-gateway/launch"]
        assert opened.structured_content is not None
        assert launch not in json.dumps(opened.structured_content) + str(opened.content)
        uri = (tools["open_cart"].meta or {})["ui"]["resourceUri"]
        content = (await client.read_resource(uri)).contents[0]
    assert isinstance(content, TextResourceContents)
    assert content.mime_type == "text/html;profile=mcp-app"
    html = content.text
    assert html.index("<script>") < html.index("<link") if "<link" in html else True
    assert "add_to_cart" in html


async def test_a_client_that_shows_no_apps_is_not_offered_http_request(world: World) -> None:
    """For that client it is neither listed nor callable."""
    async with Client(f"{world.url}/mcp/cart", mode="2026-07-28") as client:
        assert "http_request" not in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("http_request", {"url": "/api/products"})
    assert result.is_error
    assert "not-an-app" in str(result.content)
    assert world.arrived() == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_path_outside_the_policy_is_a_problem(world: World, mode: Any) -> None:
    """The page gets a 403 with a reason; the shop receives nothing; it is recorded."""
    async with Client(f"{world.url}/mcp/cart", mode=mode, extensions=UI) as client:
        answer = await request(client, url="/api/admin/users")
    assert answer["status"] == 403
    assert answer["headers"]["content-type"] == "application/problem+json"
    assert answer["headers"]["gateway-reason"] == "policy-denied"
    assert world.arrived() == []
    outcome = world.records()[-1]
    assert outcome["fields"]["reason"] == "policy-denied"


@pytest.mark.parametrize("mode", MODES)
async def test_without_view_proof_it_runs_as_the_models(world: World, mode: Any) -> None:
    """An unsafe method waits for a person, whose question names the model as initiator."""
    async with Client(f"{world.url}/mcp/cart", mode=mode, extensions=UI) as client, person(world) as ann:
        item = {"item_id": await product(client)}
        async with asyncio.TaskGroup() as tasks:
            adding = tasks.create_task(request(client, url="/api/cart", method="POST", body=item))
            question = await answer_next(ann, world, "approve")
    assert question["initiator"] == "model"
    assert question["method"] == "POST"
    assert (await adding)["status"] in (200, 201)
    sent = [line for line in world.records() if line["fields"].get("method") == "POST" and line["phase"] == "outcome"]
    assert sent[-1]["fields"]["initiator"] == "model"


async def test_a_declined_request_is_not_sent(world: World) -> None:
    """The caller gets the reason; the shop receives nothing."""
    async with (
        Client(f"{world.url}/mcp/cart", extensions=UI) as client,
        person(world) as ann,
        asyncio.TaskGroup() as tasks,
    ):
        removing = tasks.create_task(request(client, url="/api/cart/tea", method="DELETE"))
        await answer_next(ann, world, "decline")
    assert removing.result()["headers"]["gateway-reason"] == "approval-declined"
    assert [line for line in world.arrived() if line["method"] == "DELETE"] == []


async def records_of(client: aiohttp.ClientSession, world: World, url: str) -> list[dict[str, Any]]:
    """Return the records of requests to `url` in the database, which is filled in the background."""
    async with client.get(f"{world.console}/api/audit?limit=100") as answer:
        return [record for record in (await answer.json())["records"] if record["fields"].get("url") == url]


async def product(client: Client) -> str:
    """Return the id of some product."""
    body = (await request(client, url="/api/products"))["body"]
    listed = body["products"] if isinstance(body, dict) else body
    return str(listed[0].get("id") or listed[0].get("item_id"))


async def test_a_forged_proof_is_refused(world: World) -> None:
    """Something that looks like a proof does not make the caller the view."""
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        answer = await request(client, url="/api/products", _view="AAAAAAAAAAAAAAAAAAAAAA.1.AAAA")
    assert answer["headers"]["gateway-reason"] == "view-unproven"
    assert world.arrived() == []


async def test_the_apps_own_site_goes_the_same_way(world: World) -> None:
    """Its files unchanged, its calls with a token and under the policy."""
    async with world.client(headers=own(world)) as client:
        async with client.get(f"{world.site}/") as page:
            assert "text/html" in page.headers["content-type"]
        async with client.get(f"{world.site}/api/products") as products:
            assert products.status == 200
        async with client.post(f"{world.site}/api/cart", json={"nonsense": 1}) as refused:
            assert refused.status in (400, 422)
            assert "gateway-reason" not in refused.headers
        async with client.get(f"{world.site}/api/admin") as denied:
            assert denied.status == 403
            assert (await denied.json(content_type=None))["status"] == 403
        for hidden in ("/../gateway.yaml", "/..%2fgateway.yaml", "/.git/config", "/%2e%2e/policy.yaml"):
            async with client.get(URL(world.site + hidden, encoded=True)) as outside:
                assert outside.status in (400, 403, 404), hidden
    assert all(line["has_token"] for line in world.arrived())


async def test_the_shop_is_down_and_comes_back(world: World) -> None:
    """502 with a reason meanwhile, and the gateway recovers by itself."""
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        await world.shop.stop()
        down = await request(client, url="/api/products")
        assert (down["status"], down["headers"]["gateway-reason"]) == (502, "backend-unreachable")
        await world.start_shop()
        assert (await request(client, url="/api/products"))["status"] == 200


async def test_the_authorization_server_is_down_and_comes_back(world: World) -> None:
    """502 `credential-failed`, without a secret; then it works."""
    await world.auth.stop()
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        down = await request(client, url="/api/products")
        assert (down["status"], down["headers"]["gateway-reason"]) == (502, "credential-failed")
        await world.start_auth()
        assert (await request(client, url="/api/products"))["status"] == 200


async def test_a_restart_goes_on_with_the_same_files(world: World) -> None:
    """The record continues in one chain, the database has the earlier records, requests work."""
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        assert (await request(client, url="/api/products"))["status"] == 200
    before = len(world.records())
    await world.gateway.stop()
    await world.start_gateway()
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        assert (await request(client, url="/api/products"))["status"] == 200
    assert len(world.records()) > before
    async with person(world) as ann, asyncio.timeout(60):
        while len(await records_of(ann, world, "/api/products")) < 2:
            await asyncio.sleep(0.05)


async def test_a_refused_token_is_renewed_for_safe_methods(tmp_path: Path) -> None:
    """The issuer rotated its keys: the shop answers 401, and the page never sees it."""
    async with running(tmp_path) as world, Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        assert (await request(client, url="/api/products"))["status"] == 200
        await world.auth.stop()
        await world.start_auth()
        await world.shop.stop()
        await world.start_shop()
        assert (await request(client, url="/api/products"))["status"] == 200
        assert [line["status"] for line in world.arrived() if "status" in line] in ([], [200, 401, 200])


async def test_one_token_serves_many_requests(world: World) -> None:
    """A burst at the start fetches one token, and all requests are answered."""
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        answers = await asyncio.gather(*(request(client, url="/api/products") for _ in range(8)))
    assert [answer["status"] for answer in answers] == [200] * 8


async def test_no_secret_is_in_what_the_gateway_writes(world: World) -> None:
    """Neither the client secret nor a token is in the journal or the database."""
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        await request(client, url="/api/products")
    written = world.config.journal.read_bytes()
    for file in world.folder.glob("gateway.db*"):
        written += file.read_bytes()
    assert b"a secret of these tests" not in written
    assert b"eyJ" not in written


async def test_two_gateways_stand_in_one_process(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    """There is no global state."""
    async with running(tmp_path_factory.mktemp("second")) as second:
        for one in (world, second):
            async with Client(f"{one.url}/mcp/cart", extensions=UI) as client:
                assert (await request(client, url="/api/products"))["status"] == 200
