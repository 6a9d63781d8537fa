"""A running gateway takes changed files: what is open stays open, what was approved under an older policy is void."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client
from mcp.client import advertise

from gateway import mux
from gateway.app import build_app
from gateway.config import load_config, read_config
from gateway.model import Channel, Json
from tests.doors.test_bridge import Host, connected, console
from tests.world import Server, World, bound, running

UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
CLIENT = {"webmcp-gateway-client": "1"}
PRODUCTS = "  - {path: /api/products, methods: [GET]}\n"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at more often than once a second."""
    monkeypatch.setattr("gateway.reload.LOOK", 0.05)


def policy(world: World) -> str:
    """What the cart's policy says."""
    return (world.folder / "policy.yaml").read_text("utf-8")


def put(file: Path, text: str) -> None:
    """Replace a file as editors and deployments do."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(text, "utf-8")
    os.replace(new, file)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(10):
        while not await holds():
            await asyncio.sleep(0.05)


async def problems(client: aiohttp.ClientSession, world: World) -> list[dict[str, Any]]:
    """What the console is told of the configuration."""
    async with client.get(f"{world.console}/api/state") as answer:
        listed: list[dict[str, Any]] = (await answer.json())["problems"]
        return listed


async def asked(client: Client, **arguments: Any) -> dict[str, Any]:
    """One `http_request` over MCP."""
    result = await client.call_tool("http_request", arguments)
    assert result.structured_content is not None, result
    return dict(result.structured_content)


async def test_a_changed_policy_takes_effect_without_dropping_a_connection(world: World) -> None:
    """The same WebSocket, the same view and the same MCP session go on, under the new policy."""
    async with (
        console(world) as page,
        connected(world, page) as host,
        Client(f"{world.url}/mcp/cart", mode="legacy", extensions=UI) as model,
    ):
        view = (await host.open()).view
        assert (await host.call(view, url="/api/products"))["status"] == 200
        assert (await asked(model, url="/api/products"))["status"] == 200
        put(world.folder / "policy.yaml", policy(world).replace(PRODUCTS, ""))

        async def denied() -> bool:
            return bool((await host.call(view, url="/api/products"))["status"] == 403)

        await until(denied)
        assert (await asked(model, url="/api/products"))["status"] == 403
        assert (await host.call(view, url="/api/cart"))["status"] == 200


async def test_a_change_of_a_policy_is_recorded_with_what_it_opens(world: World) -> None:
    """Intent and outcome of kind `policy`, with both versions."""
    put(world.folder / "policy.yaml", policy(world).replace(PRODUCTS, PRODUCTS.replace("GET", "GET, POST")))

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
    """With file, line and column, in the state and in the events; a repaired one ends it."""
    good = policy(world)
    async with console(world) as page, page.get(f"{world.console}/api/events") as stream:
        told = events(stream, "problems")
        assert await anext(told) == []
        put(world.folder / "policy.yaml", good.replace("version: 1", "version: 1\nroute: []"))
        async with asyncio.timeout(10):
            (problem,) = await anext(told)
        assert (problem["kind"], problem["line"], problem["column"]) == ("broken", 3, 1)
        assert problem["file"].endswith("policy.yaml")
        assert 'unknown key "route"' in problem["message"]
        assert await problems(page, world) == [problem]
        async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
            assert (await asked(client, url="/api/products"))["status"] == 200
        put(world.folder / "policy.yaml", good)
        async with asyncio.timeout(10):
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
    """The policy of before stays."""
    text = policy(world)
    (world.folder / "policy.yaml").unlink()
    async with console(world) as page:

        async def said() -> bool:
            return any("cannot be read" in problem["message"] for problem in await problems(page, world))

        async def quiet() -> bool:
            return not await problems(page, world)

        await until(said)
        async with page.get(f"{world.console}/api/state") as state:
            assert state.status == 200
        async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
            assert (await asked(client, url="/api/products"))["status"] == 200
        put(world.folder / "policy.yaml", text)
        await until(quiet)


async def test_a_symlink_that_is_swapped_is_a_change(world: World) -> None:
    """As a ConfigMap of Kubernetes changes: the folder behind the link is another one."""
    policy_file, text = world.folder / "policy.yaml", policy(world)
    for name, content in (("one", text), ("two", text.replace(PRODUCTS, ""))):
        (world.folder / name).mkdir()
        (world.folder / name / "policy.yaml").write_text(content, "utf-8")
    (world.folder / "data").symlink_to("one")
    policy_file.unlink()
    policy_file.symlink_to("data/policy.yaml")
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        assert (await asked(client, url="/api/products"))["status"] == 200
        (world.folder / "next").symlink_to("two")
        os.replace(world.folder / "next", world.folder / "data")

        async def denied() -> bool:
            return bool((await asked(client, url="/api/products"))["status"] == 403)

        await until(denied)


async def test_a_question_of_the_old_policy_is_void(world: World) -> None:
    """The person is no longer asked, and the call that waited is not sent."""
    async with (
        console(world) as page,
        Client(f"{world.url}/mcp/cart", extensions=UI) as model,
        page.get(f"{world.console}/api/events") as stream,
        asyncio.TaskGroup() as tasks,
    ):
        asking = tasks.create_task(asked(model, url="/api/cart/tea", method="DELETE"))
        told = events(stream, "approvals")
        async with asyncio.timeout(10):
            while not await anext(told):
                pass
        put(world.folder / "policy.yaml", policy(world) + "# looked at again\n")
        async with asyncio.timeout(10):
            while await anext(told):
                pass
    assert asking.result()["headers"]["gateway-reason"] == "approval-expired"
    assert [line for line in world.arrived() if line["method"] == "DELETE"] == []


async def test_settings_of_an_app_change_and_others_wait_for_a_restart(world: World) -> None:
    """`unproven` takes effect at once; `approvals` says on which line what waits."""
    file = world.folder / "gateway.yaml"
    put(
        file,
        file.read_text("utf-8").replace("    source:", "    unproven: deny\n    source:")
        + "approvals: {timeout: 9s}\n",
    )
    async with console(world) as page, Client(f"{world.url}/mcp/cart", extensions=UI) as client:

        async def said() -> bool:
            return bool(await problems(page, world))

        await until(said)
        (problem,) = await problems(page, world)
        lines = file.read_text("utf-8").splitlines()
        assert problem["kind"] == "restart"
        assert lines[problem["line"] - 1].startswith("approvals")
        assert problem["message"] == "approvals: was changed; it takes effect at the next start"
        answer = await asked(client, url="/api/products")
        assert answer["headers"]["gateway-reason"] == "view-unproven"


async def test_a_policy_with_a_new_credential_waits_for_a_restart(world: World) -> None:
    """Its token could not be fetched: the policy of before stays."""
    file = world.folder / "gateway.yaml"
    text = file.read_text("utf-8")
    put(file, text + text[text.index("  shop-service:") :].replace("shop-service", "other"))
    put(world.folder / "policy.yaml", policy(world).replace("shop-service", "other").replace(PRODUCTS, ""))
    async with console(world) as page, Client(f"{world.url}/mcp/cart", extensions=UI) as client:

        async def said() -> bool:
            return len(await problems(page, world)) == 2

        await until(said)
        messages = [problem["message"] for problem in await problems(page, world)]
        assert messages[0] == "credentials: was changed; it takes effect at the next start"
        assert messages[1].startswith('the credential "other" is new')
        assert (await asked(client, url="/api/products"))["status"] == 200


async def titles(client: aiohttp.ClientSession, port: int) -> list[str]:
    """The apps that the console shows."""
    async with client.get(f"http://127.0.0.1:{port}/api/state", headers={"host": f"gateway.localhost:{port}"}) as state:
        return [app["title"] for app in (await state.json())["apps"]]


async def page(client: aiohttp.ClientSession, port: int, app: str) -> tuple[int, str]:
    """Status and text of an app's own page."""
    async with client.get(f"http://127.0.0.1:{port}/", headers={"host": f"{app}.localhost:{port}"}) as answer:
        return answer.status, await answer.text()


async def test_apps_come_and_go_while_others_go_on(tmp_path: Path) -> None:
    """A new one has its site, its mount and its place in the list; of one that is gone nothing is left."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers=CLIENT) as client:
        one, both = f"http://127.0.0.1:{port}/mcp/one", f"http://127.0.0.1:{port}/mcp"
        async with (
            Client(one, extensions=UI, mode="legacy") as of_one,
            Client(both, extensions=UI, mode="legacy") as of_all,
        ):
            assert {"open_one", "open_two"} <= {tool.name for tool in (await of_all.list_tools()).tools}
            text = (tmp_path / "gateway.yaml").read_text("utf-8")
            put(tmp_path / "gateway.yaml", text.replace("two: {", "three: {title: Third, "))

            async def changed() -> bool:
                return await titles(client, port) == ["One", "Third"]

            await until(changed)
            assert (await page(client, port, "one"))[0] == 200
            assert (await page(client, port, "two"))[0] == 421
            status, html = await page(client, port, "three")
            assert (status, "<title>page</title>" in html) == (200, True)
            names = {tool.name for tool in (await of_all.list_tools()).tools}
            assert {"open_one", "open_three"} <= names
            assert "open_two" not in names
            assert "open_one" in {tool.name for tool in (await of_one.list_tools()).tools}
        async with Client(f"http://127.0.0.1:{port}/mcp/three", extensions=UI) as of_three:
            assert "open_three" in {tool.name for tool in (await of_three.list_tools()).tools}
        async with client.post(f"http://127.0.0.1:{port}/mcp/two", json={}) as answer:
            assert answer.status == 404


async def test_another_source_and_title_take_effect(tmp_path: Path) -> None:
    """On the app's site, in its packed page, and in the words for models."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers=CLIENT) as client:
        (tmp_path / "other.html").write_text("<!doctype html><title>other</title>")
        async with Client(f"http://127.0.0.1:{port}/mcp/one", extensions=UI, mode="legacy") as model:
            text = (tmp_path / "gateway.yaml").read_text("utf-8")
            put(tmp_path / "gateway.yaml", text.replace("source: index.html", "source: other.html, title: Other", 1))

            async def changed() -> bool:
                return await titles(client, port) == ["Other", "Two"]

            await until(changed)
            assert "<title>other</title>" in (await page(client, port, "one"))[1]
            (resource,) = (await model.list_resources()).resources
            assert "<title>other</title>" in str((await model.read_resource(resource.uri)).contents)


async def test_an_app_that_cannot_be_packed_is_not_taken(tmp_path: Path) -> None:
    """What is wrong in its files is said with its place, and all stays as it was."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers=CLIENT) as client:
        (tmp_path / "empty").mkdir()
        text = (tmp_path / "gateway.yaml").read_text("utf-8")
        put(tmp_path / "gateway.yaml", text.replace("two: {source: index.html", "three: {source: empty"))
        headers = {"host": f"gateway.localhost:{port}"}

        async def told() -> bool:
            async with client.get(f"http://127.0.0.1:{port}/api/state", headers=headers) as state:
                listed = (await state.json())["problems"]
            return any("an app is a folder with an index.html" in problem["message"] for problem in listed)

        await until(told)
        assert await titles(client, port) == ["One", "Two"]
        assert (await page(client, port, "two"))[0] == 200


async def test_a_view_of_an_app_that_is_gone_is_closed(world: World) -> None:
    """Its socket stays open; what it asks for is refused, and so is its launch value."""
    file = world.folder / "gateway.yaml"
    async with console(world) as person, connected(world, person) as host:
        view = (await host.open()).view
        async with Client(f"{world.url}/mcp", extensions=UI) as model:
            opened = await model.call_tool("open_cart", {})
            put(file, file.read_text("utf-8").replace("  cart:", "  till:"))

            async def refused() -> bool:
                answer = await host.call(view, url="/api/products")
                return bool(answer.get("headers", {}).get("gateway-reason") == "view-unproven" or "error" in answer)

            await until(refused)
            launch = (opened.meta or {})["webmcp-gateway/launch"]
            attached = await model.call_tool("webmcp_attach", {"launch": launch})
            assert attached.is_error
            assert "view-unproven" in str(attached.content)
        records = [line["fields"] for line in world.records() if line["fields"].get("kind") == "policy"]
        assert {fields["app"] for fields in records} == {"cart", "till"}


@asynccontextmanager
async def two_apps(folder: Path) -> AsyncIterator[int]:
    """A gateway of two apps whose policies allow nothing, `one` and `two`; its port."""
    server = Server(bound())
    (folder / "index.html").write_text("<!doctype html><title>page</title>")
    for name in ("one", "two"):
        (folder / f"{name}.yaml").write_text(f"version: 1\n# {name}\n")
    apps = ", ".join(f"{name}: {{source: index.html, policy: {name}.yaml}}" for name in ("one", "two"))
    (folder / "gateway.yaml").write_text(f"server: {{listen: 127.0.0.1:{server.port}}}\napps: {{{apps}}}\n")
    file = folder / "gateway.yaml"
    try:
        await server.start(build_app(load_config(file, {}), lambda: read_config(file, {})))
        yield server.port
    finally:
        await server.stop()


async def test_a_broken_policy_does_not_hold_up_that_of_another_app(tmp_path: Path) -> None:
    """Each app has the newest policy that can be used."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers={"webmcp-gateway-client": "1"}) as client:
        put(tmp_path / "one.yaml", "version: 2\n")
        put(tmp_path / "two.yaml", 'version: 1\nroutes: [{path: "/**", deny: "not today"}]\n')

        async def denied() -> bool:
            async with client.get(
                f"http://127.0.0.1:{port}/api/x", headers={"host": f"two.localhost:{port}"}
            ) as answer:
                return "not today" in await answer.text()

        await until(denied)
        async with client.get(
            f"http://127.0.0.1:{port}/api/state", headers={"host": f"gateway.localhost:{port}"}
        ) as state:
            (problem,) = (await state.json())["problems"]
        assert (Path(problem["file"]).name, problem["line"]) == ("one.yaml", 1)


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
    """Also where its backend has another name since."""
    (tmp_path / "slow.py").write_text(SLOW)
    async with running(tmp_path, extra="plugins: [slow.py]") as world, world.client(headers=CLIENT) as client:
        carried = asyncio.ensure_future(client.get(f"{world.site}/api/products"))

        async def asked() -> bool:
            return (tmp_path / "asked").exists()

        async def taken() -> bool:
            return any(line["fields"].get("kind") == "policy" for line in world.records())

        await until(asked)
        put(tmp_path / "policy.yaml", policy(world).replace("  shop:", "  store:"))
        await until(taken)
        (tmp_path / "go").touch()
        async with await carried as answer:
            assert answer.status == 200


async def test_the_tools_of_a_view_follow_the_policy(world: World) -> None:
    """A tool that is no longer listed is no longer offered, while its page lists it still."""
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
            async with asyncio.timeout(10):
                while offered(await anext(told)) != ["checkout", "get_cart"]:
                    pass
                put(world.folder / "policy.yaml", text.replace("  get_cart: {}\n", ""))
                while offered(await anext(told)) != ["checkout"]:
                    pass
        finally:
            serving.cancel()


def offered(views: list[dict[str, Any]]) -> list[str]:
    """The names of all tools."""
    return sorted(tool["page_name"] for view in views for tool in view["tools"])


async def serve_tools(host: Host, view: str, names: list[str]) -> None:
    """The page's end of the webmcp channel: it lists tools."""
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


async def test_changed_files_of_an_app_take_effect(tmp_path: Path) -> None:
    """The packed page is another one for whoever reads it from now on, and the console's page hears of it."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers=CLIENT) as client:
        headers = {"host": f"gateway.localhost:{port}"}
        async with (
            Client(f"http://127.0.0.1:{port}/mcp/one", extensions=UI) as model,
            client.get(f"http://127.0.0.1:{port}/api/events", headers=headers) as events,
        ):
            (before,) = (await model.list_resources()).resources
            put(tmp_path / "index.html", "<!doctype html><title>changed</title>")

            async def changed() -> bool:
                return (await model.list_resources()).resources[0].uri != before.uri

            await until(changed)
            (resource,) = (await model.list_resources()).resources
            assert "<title>changed</title>" in str((await model.read_resource(resource.uri)).contents)
            async for line in events.content:
                if line == b"event: apps\n":
                    break
            assert resource.uri in (await events.content.readline()).decode()
