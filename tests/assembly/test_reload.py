"""A running gateway reloads changed files: connections stay open, approvals of an older policy are void."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from mcp import Client
from mcp.client import advertise

from gateway import mux
from gateway.model import Channel, Json
from tests.assembly.files import replace_file, until
from tests.doors.bridge.test_bridge import Host, connected, console
from tests.world import World, running

UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
CLIENT = {"webmcp-gateway-client": "1"}
PRODUCTS = "  - {path: /api/products, methods: [GET]}\n"


def policy(world: World) -> str:
    """The text of the cart's policy."""
    return (world.folder / "policy.yaml").read_text("utf-8")


async def problems(client: aiohttp.ClientSession, world: World) -> list[dict[str, Any]]:
    """The problems of the configuration that the console shows."""
    async with client.get(f"{world.console}/api/state") as answer:
        listed: list[dict[str, Any]] = (await answer.json())["problems"]
        return listed


async def send_request(client: Client, **arguments: Any) -> dict[str, Any]:
    """Send one `http_request` over MCP."""
    result = await client.call_tool("http_request", arguments)
    assert result.structured_content is not None, result
    return dict(result.structured_content)


async def test_a_changed_policy_takes_effect_without_dropping_a_connection(world: World) -> None:
    """The same WebSocket, view and MCP session continue, under the new policy."""
    async with (
        console(world) as page,
        connected(world, page) as host,
        Client(f"{world.url}/mcp/cart", mode="legacy", extensions=UI) as model,
    ):
        view = (await host.open()).view
        assert (await host.call(view, url="/api/products"))["status"] == 200
        assert (await send_request(model, url="/api/products"))["status"] == 200
        replace_file(world.folder / "policy.yaml", policy(world).replace(PRODUCTS, ""))

        async def denied() -> bool:
            return bool((await host.call(view, url="/api/products"))["status"] == 403)

        await until(denied)
        assert (await send_request(model, url="/api/products"))["status"] == 403
        assert (await host.call(view, url="/api/cart"))["status"] == 200


async def test_a_page_names_the_tools_that_are_free_now(world: World) -> None:
    """For hosts that carry no calls, the page lists the tools that the current policy leaves free."""
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        (resource,) = (await client.list_resources()).resources

        async def named() -> bool:
            (content,) = (await client.read_resource(resource.uri)).contents
            return '"tools":["get_cart","add_to_cart","remove_from_cart","checkout"]' in content.model_dump()["text"]

        assert await named()
        replace_file(
            world.folder / "policy.yaml", policy(world).replace("add_to_cart: {}", 'add_to_cart: {deny: "not now"}')
        )

        async def closed() -> bool:
            return not await named()

        await until(closed)
        (content,) = (await client.read_resource(resource.uri)).contents
    assert '"tools":["get_cart","remove_from_cart","checkout"]' in content.model_dump()["text"]


async def test_a_change_of_a_policy_is_recorded_with_what_it_opens(world: World) -> None:
    """Intent and outcome of kind `policy` are recorded, with both versions."""
    replace_file(world.folder / "policy.yaml", policy(world).replace(PRODUCTS, PRODUCTS.replace("GET", "GET, POST")))

    async def recorded() -> bool:
        return len([line for line in world.records() if line["fields"].get("kind") == "policy"]) == 2

    await until(recorded)
    intent, outcome = (line for line in world.records() if line["fields"].get("kind") == "policy")
    assert (intent["phase"], outcome["phase"], outcome["fields"]["status"]) == ("intent", "outcome", 200)
    fields = outcome["fields"]
    assert fields["policy_before"] == world.config.apps["cart"].policy.version != fields["policy_version"]
    assert fields["changes"] == [
        {"turn": "opened", "kind": "route", "subjects": ["POST /api/products"], "detail": "allowed"}
    ]


async def test_a_broken_policy_keeps_the_old_one_and_says_so(world: World) -> None:
    """The problem has file, line and column, in the state and in the events; a repaired file clears it."""
    good = policy(world)
    async with console(world) as page, page.get(f"{world.console}/api/events") as stream:
        told = events(stream, "problems")
        assert await anext(told) == []
        replace_file(world.folder / "policy.yaml", good.replace("version: 1", "version: 1\nroute: []"))
        async with asyncio.timeout(60):
            (problem,) = await anext(told)
        assert (problem["kind"], problem["line"], problem["column"]) == ("broken", 3, 1)
        assert problem["file"].endswith("policy.yaml")
        assert 'unknown key "route"' in problem["message"]
        assert await problems(page, world) == [problem]
        async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
            assert (await send_request(client, url="/api/products"))["status"] == 200
        replace_file(world.folder / "policy.yaml", good)
        async with asyncio.timeout(60):
            assert await anext(told) == []


async def events(stream: aiohttp.ClientResponse, wanted: str) -> AsyncIterator[Any]:
    """The data of the events of one name."""
    name = ""
    async for line in stream.content:
        text = line.decode().rstrip()
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: ") and name == wanted:
            yield json.loads(text.removeprefix("data: "))


async def test_a_file_that_is_gone_changes_nothing_until_it_is_back(world: World) -> None:
    """The previous policy stays in effect."""
    text = policy(world)
    (world.folder / "policy.yaml").unlink()
    async with console(world) as page:

        async def said() -> bool:
            return any("policy: there is no file" in problem["message"] for problem in await problems(page, world))

        async def quiet() -> bool:
            return not await problems(page, world)

        await until(said)
        async with page.get(f"{world.console}/api/state") as state:
            assert state.status == 200
        async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
            assert (await send_request(client, url="/api/products"))["status"] == 200
        replace_file(world.folder / "policy.yaml", text)
        await until(quiet)


async def test_a_symlink_that_is_swapped_is_a_change(world: World) -> None:
    """A ConfigMap of Kubernetes changes in this way: the link to the folder is replaced."""
    policy_file, text = world.folder / "policy.yaml", policy(world)
    for name, content in (("one", text), ("two", text.replace(PRODUCTS, ""))):
        (world.folder / name).mkdir()
        (world.folder / name / "policy.yaml").write_text(content, "utf-8")
    (world.folder / "data").symlink_to("one")
    policy_file.unlink()
    policy_file.symlink_to("data/policy.yaml")
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        assert (await send_request(client, url="/api/products"))["status"] == 200
        (world.folder / "next").symlink_to("two")
        os.replace(world.folder / "next", world.folder / "data")

        async def denied() -> bool:
            return bool((await send_request(client, url="/api/products"))["status"] == 403)

        await until(denied)


async def test_a_question_of_the_old_policy_is_void(world: World) -> None:
    """The question is withdrawn, and the request that waited is not sent."""
    async with (
        console(world) as page,
        Client(f"{world.url}/mcp/cart", extensions=UI) as model,
        page.get(f"{world.console}/api/events") as stream,
        asyncio.TaskGroup() as tasks,
    ):
        asking = tasks.create_task(send_request(model, url="/api/cart/tea", method="DELETE"))
        told = events(stream, "approvals")
        async with asyncio.timeout(60):
            while not await anext(told):
                pass
        replace_file(world.folder / "policy.yaml", policy(world) + "# looked at again\n")
        async with asyncio.timeout(60):
            while await anext(told):
                pass
    assert asking.result()["headers"]["gateway-reason"] == "approval-expired"
    assert [line for line in world.arrived() if line["method"] == "DELETE"] == []


async def test_settings_of_an_app_change_and_others_wait_for_a_restart(world: World) -> None:
    """`unproven` takes effect at once; for `audit` the problem names the line that waits, as does `/readyz`."""
    file = world.folder / "gateway.yaml"
    replace_file(
        file,
        file.read_text("utf-8").replace("    source:", "    unproven: deny\n    source:")
        + "audit:\n  redact: [$.pin]\n",
    )
    async with console(world) as page, Client(f"{world.url}/mcp/cart", extensions=UI) as client:

        async def said() -> bool:
            return bool(await problems(page, world))

        await until(said)
        (problem,) = await problems(page, world)
        lines = file.read_text("utf-8").splitlines()
        assert problem["kind"] == "restart"
        assert lines[problem["line"] - 1] == "  redact: [$.pin]"
        assert problem["message"] == "audit.redact: was changed; it takes effect at the next start"
        async with page.get(f"{world.url}/readyz") as ready:
            health = await ready.json()
        assert (ready.status, health["needs_restart"], health["configuration"]) == (
            200,
            ["audit.redact"],
            {"restart": 1},
        )
        answer = await send_request(client, url="/api/products")
        assert answer["headers"]["gateway-reason"] == "view-unproven"


async def test_a_policy_takes_effect_with_its_new_credential(world: World) -> None:
    """The first request under it carries a token that was obtained with the new credential."""
    file = world.folder / "gateway.yaml"
    text = file.read_text("utf-8")
    replace_file(file, text + text[text.index("  shop-service:") :].replace("shop-service", "other"))
    replace_file(world.folder / "policy.yaml", policy(world).replace("shop-service", "other").replace(PRODUCTS, ""))
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:

        async def denied() -> bool:
            return bool((await send_request(client, url="/api/products"))["status"] == 403)

        await until(denied)
        assert (await send_request(client, url="/api/cart"))["status"] == 200
    assert world.records()[-1]["fields"]["credential"] == "other"


SLOW = """\
import asyncio
from pathlib import Path
from gateway.hookspecs import hookimpl

@hookimpl
async def check_request(request):
    Path(__file__).with_name("asked").touch()
    while not Path(__file__).with_name("go").exists():
        await asyncio.sleep(0.02)
"""


async def test_a_request_ends_under_the_policy_under_which_it_began(tmp_path: Path) -> None:
    """The request succeeds although the new policy has another name for its backend."""
    (tmp_path / "slow.py").write_text(SLOW)
    async with running(tmp_path, extra="plugins: [slow.py]") as world, world.client(headers=CLIENT) as client:
        carried = asyncio.ensure_future(client.get(f"{world.site}/api/products"))

        async def asked() -> bool:
            return (tmp_path / "asked").exists()

        async def taken() -> bool:
            return any(line["fields"].get("kind") == "policy" for line in world.records())

        await until(asked)
        replace_file(tmp_path / "policy.yaml", policy(world).replace("  shop:", "  store:"))
        await until(taken)
        (tmp_path / "go").touch()
        async with await carried as answer:
            assert answer.status == 200


async def test_the_tools_of_a_view_follow_the_policy(world: World) -> None:
    """A tool that the policy drops is no longer offered, while its page still lists it."""
    text = policy(world)
    async with (
        console(world) as page,
        connected(world, page) as host,
        page.get(f"{world.console}/api/events") as stream,
    ):
        view = (await host.open()).view
        serving = asyncio.ensure_future(serve_tools(host, view, ["get_cart", "checkout"]))
        told = events(stream, "views")
        try:
            async with asyncio.timeout(60):
                while tool_names(await anext(told)) != ["checkout", "get_cart"]:
                    pass
                replace_file(world.folder / "policy.yaml", text.replace("  get_cart: {}\n", ""))
                while tool_names(await anext(told)) != ["checkout"]:
                    pass
        finally:
            serving.cancel()


def tool_names(views: list[dict[str, Any]]) -> list[str]:
    """The names of all tools of these views."""
    return sorted(tool["page_name"] for view in views for tool in view["tools"])


async def serve_tools(host: Host, view: str, names: list[str]) -> None:
    """Serve the page's end of the webmcp channel: list tools."""
    results: dict[str, Json] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "page", "version": "1"},
        },
        "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]},
    }
    while True:
        frame = await host.hear()
        if isinstance(frame, mux.Message) and frame.channel is Channel.WEBMCP and "id" in frame.message:
            result = results[str(frame.message["method"])]
            await host.say(
                mux.Message(view, Channel.WEBMCP, {"jsonrpc": "2.0", "id": frame.message["id"], "result": result})
            )


async def test_a_policy_that_becomes_a_pipe_holds_no_reload_up(world: World) -> None:
    """The pipe is reported as a problem, which a regular file clears."""
    before, place = policy(world), world.folder / "policy.yaml"
    async with console(world) as page:
        place.unlink()
        os.mkfifo(place)

        async def told() -> bool:
            return any("it is a pipe" in one["message"] for one in await problems(page, world))

        await until(told)
        replace_file(place, before)

        async def over() -> bool:
            return not await problems(page, world)

        await until(over)
