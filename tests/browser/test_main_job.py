"""The main job in Chromium: a person and a model use one page, under one policy, with one record."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp import Client
from playwright.async_api import FrameLocator, Page, expect

from tests.browser.probing import outcome, outcomes
from tests.world import EXAMPLE, World, running, serving

PROBE = Path(__file__).parent / "probe"


@pytest.fixture
async def probe(tmp_path: Path) -> AsyncIterator[World]:
    """A gateway for a page of experiments, instead of the cart."""
    policy = (PROBE / "policy.yaml").read_text("utf-8")
    async with running(tmp_path, policy=policy, source=PROBE) as world:
        yield world


async def show_app(page: Page, world: World, landmark: str = "[data-item-id]") -> FrameLocator:
    """Open the console as a person would; the app in its frames."""
    await page.goto(world.url)
    frame = app_of(page)
    await expect(frame.locator(landmark).first).to_be_visible()
    return frame


def app_of(page: Page) -> FrameLocator:
    """The app: the page inside the proxy inside the console."""
    return page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")


@asynccontextmanager
async def model(world: World) -> AsyncIterator[Client]:
    """A model's client at `/mcp`."""
    async with Client(f"{world.url}/mcp", mode="2026-07-28") as client:
        yield client


async def tool(client: Client, name: str) -> dict[str, Any]:
    """The tool once it is listed, as a dictionary; polled, as by clients without a stream."""
    async with asyncio.timeout(60):
        while True:
            for listed in (await client.list_tools()).tools:
                if listed.name == name:
                    return listed.model_dump()
            await asyncio.sleep(0.05)


async def wait_unlisted(client: Client, name: str) -> None:
    """Wait until the tool is no longer listed."""
    async with asyncio.timeout(60):
        while name in {listed.name for listed in (await client.list_tools()).tools}:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("title", ["", "Add"])
async def test_a_tool_says_its_description_once(page: Page, tmp_path: Path, title: str) -> None:
    """The description is shown on one line, and in full when opened, next to the title if there is one."""
    tool = {"name": "add", "title": title, "description": "Adds a thing."}
    script = f"document.modelContext.registerTool({{...{json.dumps(tool)}, execute: () => 'added'}});"
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "index.html").write_text(f"<!doctype html><body><script>{script}</script></body>", "utf-8")
    async with running(tmp_path, source=folder, policy="version: 1\ntools: {add: {}}\n") as world:
        await page.goto(world.console)
        card = page.get_by_test_id("tool-add")
        await card.get_by_test_id("toggle").click()
        await expect(card).to_contain_text("The model knows it as")
        assert (await card.inner_text()).count("Adds a thing.") == 1
        if title:
            await expect(card.get_by_test_id("toggle")).to_contain_text(title)


async def test_a_click_and_a_model_use_the_same_page(page: Page, world: World) -> None:
    """Both add to the cart in the browser; both reach the shop with a token; the record tells them apart."""
    frame = await show_app(page, world)
    cards = frame.locator("[data-item-id]")
    first, second = [str(await cards.nth(place).get_attribute("data-item-id")) for place in (0, 1)]
    await cards.nth(0).locator("[data-add]").click()
    await expect(frame.locator(f"[data-cart-item='{first}']")).to_be_visible()
    clicked = await outcome(world, method="POST", url="/api/cart")
    assert (clicked["initiator"], clicked["evidence"], clicked["status"]) == ("person", "attested-gesture", 200)
    async with model(world) as client:
        await tool(client, "cart_add_to_cart")
        result = await client.call_tool("cart_add_to_cart", {"item_id": second})
        assert not result.is_error, result
    await expect(frame.locator(f"[data-cart-item='{second}']")).to_be_visible()
    called = outcomes(world, kind="tool", tool="add_to_cart")[0]
    caused = outcomes(world, method="POST", url="/api/cart", initiator="model")
    assert [record["cause"] for record in caused] == [called["id"]]
    assert all(line["has_token"] for line in world.arrived())
    assert len([line for line in world.arrived() if line["method"] == "POST"]) == 2


async def test_a_models_calls_reach_the_page_past_all_that_it_says_itself(page: Page, world: World) -> None:
    """They use a separate message port, before and after a reload of the page, and not the proxy's window."""
    frame = await show_app(page, world)
    app = await (await frame.owner.element_handle()).content_frame()
    assert app is not None
    proxy = app.parent_frame
    assert proxy is not None
    await proxy.evaluate("heard = []; addEventListener('message', ({data}) => heard.push(data.channel ?? 'ui'))")
    async with model(world) as client:
        await tool(client, "cart_add_to_cart")
        for reload in (True, False):
            assert not (await client.call_tool("cart_get_cart", {})).is_error
            await frame.locator("[data-add]").first.click()
            assert "ui" in await proxy.evaluate("heard")
            assert "mcp-iframe" not in await proxy.evaluate("heard.splice(0)")
            if reload:
                await app.evaluate("location.reload()")
                async with asyncio.timeout(60):  # its tools are requested, over another port
                    while "mcp-iframe" not in await proxy.evaluate("heard"):
                        await asyncio.sleep(0.05)
                await expect(frame.locator("[data-add]").first).to_be_visible()
                async with asyncio.timeout(60):  # the list may be of before the reload, and the page without tools
                    while (await client.call_tool("cart_get_cart", {})).is_error:
                        await asyncio.sleep(0.05)
                await proxy.evaluate("heard = []")


async def test_a_models_delete_waits_for_a_person(page: Page, world: World) -> None:
    """The console asks; until a person approves, the shop receives nothing."""
    frame = await show_app(page, world)
    item = str(await frame.locator("[data-item-id]").first.get_attribute("data-item-id"))
    async with model(world) as client:
        await tool(client, "cart_add_to_cart")
        await client.call_tool("cart_add_to_cart", {"item_id": item})
        async with asyncio.TaskGroup() as tasks:
            removing = tasks.create_task(client.call_tool("cart_remove_from_cart", {"item_id": item}))
            card = page.get_by_test_id("approval").first
            await expect(card).to_be_visible()
            assert [line for line in world.arrived() if line["method"] == "DELETE"] == []
            await expect(card.get_by_test_id("approve")).to_be_enabled()
            await card.get_by_test_id("approve").click()
        assert not removing.result().is_error, removing.result()
    await expect(frame.locator(f"[data-cart-item='{item}']")).to_have_count(0)
    assert len([line for line in world.arrived() if line["method"] == "DELETE"]) == 1


async def test_a_persons_delete_does_not_wait(page: Page, world: World) -> None:
    """A real click counts as the person's decision."""
    frame = await show_app(page, world)
    card = frame.locator("[data-item-id]").first
    item = str(await card.get_attribute("data-item-id"))
    await card.locator("[data-add]").click()
    line = frame.locator(f"[data-cart-item='{item}']")
    await line.locator("[data-remove]").click()
    await expect(line).to_have_count(0)
    removed = await outcome(world, method="DELETE")
    assert (removed["initiator"], removed.get("approval")) == ("person", None)


async def test_the_pages_own_click_after_a_models_call_waits(page: Page, probe: World) -> None:
    """A page cannot pass a model's request off as a person's by a synthetic click."""
    await show_app(page, probe, "#remove")
    async with model(probe) as client:
        await tool(client, "cart_remove_later")
        await client.call_tool("cart_remove_later", {})
        await expect(page.get_by_test_id("approval").first).to_be_visible()
    assert [line for line in probe.arrived() if line["method"] == "DELETE"] == []


async def test_a_declined_call_is_told_to_the_page_and_the_model(page: Page, probe: World) -> None:
    """Both receive the reason of the refusal."""
    frame = await show_app(page, probe, "#remove")
    async with model(probe) as client:
        await tool(client, "cart_remove_now")
        async with asyncio.TaskGroup() as tasks:
            removing = tasks.create_task(client.call_tool("cart_remove_now", {}))
            decline = page.get_by_test_id("decline").first
            await expect(decline).to_be_enabled()
            await decline.click()
        assert "403" in str(removing.result().content)
    await expect(frame.locator("#said")).to_contain_text("approval-declined")
    assert [line for line in probe.arrived() if line["method"] == "DELETE"] == []


async def test_a_path_outside_the_policy_is_a_problem_for_the_page(page: Page, probe: World) -> None:
    """It is an ordinary 403 response with a reason."""
    frame = await show_app(page, probe, "#admin")
    await frame.locator("#admin").click()
    await expect(frame.locator("#said")).to_contain_text("403 application/problem+json policy-denied")
    assert probe.arrived() == []


async def test_the_page_holds_no_credential(page: Page, probe: World) -> None:
    """No variable, header, answer or markup of the page contains the token, the client's secret or a key."""
    await show_app(page, probe, "#remove")
    async with model(probe) as client:
        await tool(client, "cart_look_for_secrets")
        result = await client.call_tool("cart_look_for_secrets", {})
    seen = str(result.content)
    assert "products" in seen
    assert "eyJ" not in seen
    assert "a secret of these tests" not in seen
    assert "bearer" not in seen.lower()
    assert [line["has_token"] for line in probe.arrived()] == [True]


async def test_a_tool_that_the_policy_does_not_name_is_not_there(page: Page, probe: World) -> None:
    """Tools are denied by default, too."""
    await show_app(page, probe, "#remove")
    async with model(probe) as client:
        await tool(client, "cart_remove_now")
        assert "cart_unlisted" not in {listed.name for listed in (await client.list_tools()).tools}
        assert (await client.call_tool("cart_unlisted", {})).is_error


async def test_reloading_keeps_the_tools_fresh(page: Page, world: World) -> None:
    """The view is new, with the same tools, and the host keeps working."""
    await show_app(page, world)
    async with model(world) as client:
        await tool(client, "cart_get_cart")
        before = (await client.call_tool("list_view_tools", {})).structured_content
        await page.get_by_test_id("reload").click()
        async with asyncio.timeout(60):
            while True:
                after = (await client.call_tool("list_view_tools", {})).structured_content
                assert before is not None
                assert after is not None
                if after["views"] and after["views"][0]["view"] != before["views"][0]["view"]:
                    break
                await asyncio.sleep(0.05)
        await tool(client, "cart_get_cart")
        assert not (await client.call_tool("cart_get_cart", {})).is_error
    await expect(app_of(page).locator("[data-item-id]").first).to_be_visible()


async def test_closing_the_view_removes_its_tools(page: Page, world: World) -> None:
    """A call of one of its tools gets a remedy."""
    await show_app(page, world)
    async with model(world) as client:
        await tool(client, "cart_get_cart")
        await page.get_by_test_id("close").click()
        await wait_unlisted(client, "cart_get_cart")
        result = await client.call_tool("cart_get_cart", {})
        assert result.is_error
        assert "Open its app" in str(result.content)


async def test_leaving_the_console_removes_the_tools(page: Page, world: World) -> None:
    """A closed tab removes its view."""
    await show_app(page, world)
    async with model(world) as client:
        await tool(client, "cart_get_cart")
        await page.goto("about:blank")
        await wait_unlisted(client, "cart_get_cart")


async def test_two_views_do_not_hear_each_other(page: Page, world: World) -> None:
    """A call without a handle is refused, one with a handle reaches only that page."""
    frame = await show_app(page, world)
    other = await page.context.new_page()
    await show_app(other, world)
    item = str(await frame.locator("[data-item-id]").first.get_attribute("data-item-id"))
    async with model(world) as client:
        await tool(client, "cart_add_to_cart")
        async with asyncio.timeout(60):
            while True:
                listed = (await client.call_tool("list_view_tools", {})).structured_content
                assert listed is not None
                if [bool(view["tools"]) for view in listed["views"]] == [True, True]:
                    break
                await asyncio.sleep(0.05)
        ambiguous = await client.call_tool("cart_add_to_cart", {"item_id": item})
        assert ambiguous.is_error
        assert "view" in str(ambiguous.content)
        handle = listed["views"][0]["view"]
        arguments = {"view": handle, "tool": "add_to_cart", "arguments": {"item_id": item}}
        assert not (await client.call_tool("call_view_tool", arguments)).is_error
    await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
    await expect(app_of(other).locator(f"[data-cart-item='{item}']")).to_have_count(0)
    assert {record["view"] for record in outcomes(world, method="POST", url="/api/cart")} == {handle}


async def test_a_page_that_floods_and_spoofs_harms_only_itself(page: Page, probe: World) -> None:
    """The console keeps working, nothing is approved, and a new view works."""
    frame = await show_app(page, probe, "#remove")
    async with model(probe) as client:
        await tool(client, "cart_spoof")
        await client.call_tool("cart_spoof", {})
        await client.call_tool("cart_flood", {})
        await page.get_by_test_id("reload").click()
        await expect(frame.locator("#remove")).to_be_visible()
        await tool(client, "cart_remove_later")
        async with asyncio.timeout(60):
            while (await client.call_tool("cart_remove_later", {})).is_error:
                await asyncio.sleep(0.1)
        await expect(page.get_by_test_id("approval").first).to_be_visible()
    assert outcomes(probe, initiator="person") == []


EVIL = """<!doctype html><title>evil</title><script>
const at = (host, path, scheme = "http") => `${scheme}://${host}:PORT${path}`;
const hosts = ["localhost", "127.0.0.1", "gateway.localhost", "cart.localhost", "sandbox.localhost"];
const call = JSON.stringify({jsonrpc: "2.0", id: 1, method: "tools/list", params: {}});
async function attempt() {
  const read = [];
  for (const host of hosts) {
    for (const path of ["/mcp", "/mcp/cart", "/api/cart", "/api/state", "/bridge/tickets", "/api/approvals/x"]) {
      for (const mode of ["no-cors", "cors"]) {
        const plain = {"content-type": "text/plain"};
        for (const init of [{}, {method: "POST", body: call}, {method: "POST", body: call, headers: plain}]) {
          try {
            const response = await fetch(at(host, path), {mode, credentials: "include", ...init});
            if (response.type !== "opaque") read.push(`${mode} ${host}${path} ${response.status}`);
          } catch { /* refused */ }
        }
      }
    }
    await new Promise((done) => {
      const image = new Image();
      image.onload = image.onerror = done;
      image.src = at(host, "/api/products");
    });
    await new Promise((done) => {
      const socket = new WebSocket(at(host, "/bridge", "ws"), ["webmcp-gateway.v1"]);
      socket.onopen = () => { read.push(`socket ${host}`); done(); };
      socket.onerror = socket.onclose = done;
    });
  }
  return read;
}
attempt().then((read) => { document.title = "done"; document.body.textContent = JSON.stringify(read); });
</script><body>"""


@pytest.mark.parametrize("host", ["evil.localhost", "localhost", "127.0.0.1"])
async def test_another_web_site_cannot_use_the_gateway(page: Page, world: World, host: str) -> None:
    """Simple requests, images and sockets of a page on this machine read nothing, and the shop receives nothing."""

    async def evil(_: web.Request) -> web.Response:
        return web.Response(text=EVIL.replace("PORT", str(world.gateway.port)), content_type="text/html")

    app = web.Application()
    app.router.add_get("/", evil)
    async with serving(app) as port:
        await page.goto(f"http://{host}:{port}/")
        await expect(page).to_have_title("done", timeout=60_000)
        assert json.loads(await page.inner_text("body")) == []
    assert world.arrived() == []


async def test_the_apps_origin_cannot_reach_the_console(page: Page, world: World) -> None:
    """It can neither read the console's state or approvals, nor use the bridge, nor frame the console."""
    await page.goto(world.site)
    await expect(page.locator("[data-item-id]").first).to_be_visible()
    reached = await page.evaluate(
        """async (console) => {
          const reached = [];
          for (const path of ["/api/state", "/api/audit", "/api/events", "/bridge/tickets"]) {
            try { reached.push((await fetch(console + path)).status); } catch { /* refused */ }
          }
          await new Promise((done) => {
            const socket = new WebSocket(console.replace("http", "ws") + "/bridge", ["webmcp-gateway.v1"]);
            socket.onopen = () => { reached.push("socket"); done(); };
            socket.onerror = socket.onclose = done;
          });
          const frame = document.createElement("iframe");
          frame.src = console + "/";
          document.body.append(frame);
          await new Promise((done) => { frame.onload = done; setTimeout(done, 2000); });
          try { if (frame.contentDocument) reached.push("frame"); } catch { /* another origin */ }
          return reached;
        }""",
        world.console,
    )
    assert reached == []


async def test_the_cart_is_an_ordinary_web_site_too(page: Page, world: World) -> None:
    """On its own origin, without a host, its calls are handled alike."""
    await page.goto(world.site)
    card = page.locator("[data-item-id]").first
    item = str(await card.get_attribute("data-item-id"))
    await card.locator("[data-add]").click()
    await expect(page.locator(f"[data-cart-item='{item}']")).to_be_visible()
    posted = await outcome(world, method="POST", url="/api/cart")
    assert (posted["door"], posted["initiator"]) == ("site", "page")


async def test_the_story_is_told_without_a_key(page: Page, tmp_path: Path) -> None:
    """The console's scripted model adds an item, and waits for the person before it removes one."""
    async with running(tmp_path, story=True) as world:
        await show_app(page, world)
        await page.get_by_test_id("story").click()
        approve = page.get_by_test_id("approve").first
        await expect(approve).to_be_enabled(timeout=60_000)
        await approve.click()
        async with asyncio.timeout(60):
            while not outcomes(world, method="DELETE", status=200):
                await asyncio.sleep(0.1)
        assert outcomes(world, kind="tool", tool="add_to_cart", status=200)


async def test_an_app_has_no_story_unless_its_configuration_has(page: Page, world: World) -> None:
    """The tools of the demo's story do not make one; a story that is configured at run time is offered at once."""
    await show_app(page, world)
    for name in ("get_cart", "add_to_cart", "remove_from_cart"):
        await expect(page.get_by_test_id(f"tool-{name}")).to_be_visible()
    await expect(page.get_by_test_id("story-bar")).to_have_count(0)
    file = world.folder / "gateway.yaml"
    story = "story: {title: Mine, steps: [{caption: Lists, list: true}]}"
    file.write_text(file.read_text("utf-8").replace("    title: Fennel", f"    {story}\n    title: Fennel"), "utf-8")
    await expect(page.get_by_test_id("story-bar")).to_contain_text("Mine", timeout=60_000)


@pytest.mark.parametrize("asks", [True, False])
async def test_a_question_is_shown_once(page: Page, tmp_path: Path, asks: bool) -> None:
    """The app shows a notice of its own only if the console does not show its questions."""
    ask = "console, elicitation" if asks else "elicitation, cli"
    polls = asyncio.Event()  # the page polls once it knows that its request waits; a notice is shown before that

    def sent(frame: str | bytes) -> None:
        if "http_stream" in str(frame):
            polls.set()

    page.on("websocket", lambda wire: wire.on("framesent", sent))
    async with running(tmp_path, extra=f"approvals: {{ask: [{ask}]}}") as world:
        frame = await show_app(page, world)
        await frame.locator("[data-add]").first.click()
        await frame.locator("[data-cart-item]").first.wait_for()
        await frame.locator("body").evaluate("() => { fetch('/api/checkout', {method: 'POST'}); }")
        async with asyncio.timeout(60):
            await polls.wait()
        await expect(page.get_by_test_id("approve")).to_have_count(int(asks))
        await expect(frame.locator("webmcp-gateway-notice")).to_have_count(int(not asks))


def test_the_app_has_no_gateway_code() -> None:
    """The cart is a normal web app."""
    for file in (EXAMPLE / "web").rglob("*"):
        if file.suffix in (".html", ".js", ".css"):
            assert "gateway" not in file.read_text("utf-8").lower(), file
