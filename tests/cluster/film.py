"""The main job on three nodes, as a film strip: a view at one node, a model's call at another, the approval at a third.

`python -m tests.cluster.film` writes docs/cluster.jpg.
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from playwright.async_api import Browser, FrameLocator, Page, async_playwright, expect

from examples.cart_app import auth_server
from examples.cart_app import shop as goods
from tests.browser.conftest import PATIENCE, launch
from tests.cluster.cluster import Door, Node
from tests.cluster.deployment import Deployment, deployment
from tests.cluster.machines import Machines, machines, serve_machines
from tests.deploy.proxies import wait_listening
from tests.postgresql import postgresql
from tests.redis_server import RedisServer, redis_server
from tests.world import SECRET, Server, write_config

PICTURE: Final = Path(__file__).parents[2] / "docs" / "cluster.jpg"
SIZE: Final = {"width": 760, "height": 900}
STYLE: Final = """
body { margin: 0; padding: 28px; width: 1864px; background: #fff; color: #1d2733; font: 17px/1.45 sans-serif }
main { display: grid; grid-template-columns: repeat(4, 1fr); gap: 24px }
figure { margin: 0; display: flex; flex-direction: column }
figcaption { min-height: 78px; margin-bottom: 12px }
b { padding: 1px 12px; margin-right: 8px; border-radius: 12px; background: #1d4e89; color: #fff }
img, pre { width: 100%; height: 530px; box-sizing: border-box; border: 1px solid #c9d2dc; border-radius: 8px }
img { object-fit: cover; object-position: top }
pre { margin: 0; padding: 18px; background: #f6f8fa; font: 14px/1.5 monospace; white-space: pre-wrap; overflow: hidden }
"""


@dataclass(slots=True)
class Shop:
    """The cart's shop behind a deployment; `log` has a line for each request that arrives."""

    deployment: Deployment
    log: Path

    def arrived(self, method: str) -> int:
        """Return how many requests with this method the shop has seen."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sum(json.loads(line)["method"] == method for line in lines)


@asynccontextmanager
async def shop(folder: Path, places: Machines, database: str, redis: RedisServer) -> AsyncIterator[Shop]:
    """Yield the cart on three nodes."""
    auth, goods_server = Server(), Server()
    issuer, log = f"http://localhost:{auth.port}", folder / "shop.log"
    write_config(folder, issuer=issuer, shop_port=goods_server.port, port=1)
    written = yaml.safe_load((folder / "gateway.yaml").read_text())
    written["apps"]["cart"]["policy"] = "../policy.yaml"
    settings = {name: written[name] for name in ("apps", "credentials")} | {
        "access_log": True,
        "auth": [{"type": "token", "view_clients": ["load"]}],  # the model's client, which is another than the console
    }
    client = written["credentials"]["shop-service"]["client_id"]
    try:
        await auth.start(auth_server.build_app(auth_server.Settings(issuer, client, SECRET, token_lifetime=300)))
        await goods_server.start(goods.build_app(goods.Settings(folder / "shop.db", issuer, log=log)))
        async with (
            places.exposed(auth.port),
            places.exposed(goods_server.port),
            deployment(folder, places, database, redis, settings, environ={"SHOP_SECRET": SECRET}) as nodes,
        ):
            yield Shop(nodes, log)
    finally:
        for server in (goods_server, auth):
            await server.stop()


@asynccontextmanager
async def person(
    browser: Browser, nodes: Deployment, agent: str | None = None, *, at: str = "#/apps/cart"
) -> AsyncIterator[Page]:
    """Yield a page of somebody who has logged in at the console; `agent` is the name of their browser."""
    async with await browser.new_context(ignore_https_errors=True, user_agent=agent, viewport=SIZE) as context:  # type: ignore[arg-type]  # a TypedDict
        context.set_default_timeout(2 * PATIENCE)
        page = await context.new_page()
        await page.goto(await nodes.command("token", "link"))
        await expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "open")
        await page.evaluate("hash => location.hash = hash", at)
        yield page


def app_of(page: Page) -> FrameLocator:
    """Return the app in the console."""
    return page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")


async def find_view(door: Door, http: aiohttp.ClientSession, tool: str) -> str:
    """Return the view that offers a tool, once it is listed."""
    async with asyncio.timeout(120):
        while True:
            listed = await door.call(http, "list_view_tools", app=False)
            assert "structuredContent" in listed, listed
            for view in listed["structuredContent"]["views"]:
                if tool in {one["tool"] for one in view["tools"]}:
                    return str(view["view"])
            await asyncio.sleep(0.1)


async def film(browser: Browser, place: Shop) -> bytes:
    """Do the main job behind nginx, which sends each browser to the node in its name; return the picture."""
    nodes = place.deployment
    agents = {name: f"Mozilla/5.0 at-{name}" for name in "abc"}
    with nodes.proxied("nginx", by_agent=True):
        await wait_listening(nodes.ports.tls)
        async with (
            person(browser, nodes, agents["a"]) as one,
            person(browser, nodes, agents["c"], at="#/approvals") as other,
            nodes.client(headers={**nodes.headers, "user-agent": agents["b"]}) as http,
        ):
            app, model = app_of(one), Door(nodes.mcp, {}, "/mcp")
            first = app.locator("[data-item-id]").first
            item = str(await first.get_attribute("data-item-id"))
            await first.locator("[data-add]").click()
            line = app.locator(f"[data-cart-item='{item}']")
            await expect(line).to_be_visible()
            shots = [await one.screenshot(type="jpeg", quality=90)]
            listing = Door(nodes["a"].url, nodes["a"].headers, "/mcp")  # views of a person's other clients: of its own
            view = await find_view(listing, http, "remove_from_cart")
            request = {"view": view, "tool": "remove_from_cart", "arguments": {"item_id": item}}
            calling = asyncio.create_task(call(model, http, request))
            card = other.get_by_test_id("approval").first
            await expect(card).to_be_visible()
            await expect(card.get_by_test_id("approve")).to_be_enabled()
            assert place.arrived("DELETE") == 0
            shots.append(await other.screenshot(type="jpeg", quality=90))
            await card.get_by_test_id("approve").click()
            result = await calling
            await expect(line).to_have_count(0)
            shots.append(await one.screenshot(type="jpeg", quality=90))
    assert not result.get("isError"), result
    assert place.arrived("DELETE") == 1
    for name, path in (("b", "/mcp"), ("c", "/api/approvals/")):
        assert [node for node in "abc" if reached(nodes[node], path)] == [name], path
    return await draw(browser, shots, request, result)


def reached(node: Node, path: str) -> bool:
    """Return whether a POST to a path that begins so has come to a node through the proxy, by its access log."""
    lines = [json.loads(line) for line in node.lines if '"logger": "access"' in line]
    return any(
        line["method"] == "POST" and line["path"].startswith(path) and line["client"] == "127.0.0.1" for line in lines
    )


async def call(door: Door, http: aiohttp.ClientSession, request: dict[str, Any]) -> dict[str, Any]:
    """Call a tool of a view, and collect its answer."""
    answer = await door.call(http, "call_view_tool", app=False, **request)
    while (answer.get("structuredContent") or {}).get("status") == "running":
        answer = await door.call(http, "call_view_tool", app=False, call=answer["structuredContent"]["call"])
    return dict(answer)


async def draw(browser: Browser, shots: list[bytes], request: dict[str, Any], result: dict[str, Any]) -> bytes:
    """Return the strip."""
    shown = {**request, "view": request["view"][:12] + "…"}
    text = result["content"][0]["text"]
    said = (
        "tools/call call_view_tool\n" + json.dumps(shown, indent=2, ensure_ascii=False)
        + "\n\n… waits for a person …\n\n"
        + (text if len(text) < 700 else text[:700] + "…")
    )  # fmt: skip
    pictures = [f'<img src="data:image/jpeg;base64,{base64.b64encode(shot).decode()}" alt="">' for shot in shots]
    frames = [
        ("a", "A person has the shop open: its view is at node a.", pictures[0]),
        ("b", "A model’s call arrives at node b, which sends it to the view’s node.", f"<pre>{escape(said)}</pre>"),
        ("c", "The change needs a person. The question is answered in a console at node c.", pictures[1]),
        ("a", "Node a sends the request once. The item is gone from the cart.", pictures[2]),
    ]
    html = "".join(
        f"<figure><figcaption><b>node {node}</b>{escape(words)}</figcaption>{body}</figure>"
        for node, words, body in frames
    )
    async with await browser.new_context(viewport={"width": 1920, "height": 720}) as context:
        page = await context.new_page()
        await page.set_content(f"<!doctype html><style>{STYLE}</style><main>{html}</main>")
        return await page.screenshot(full_page=True, type="jpeg", quality=85)


async def main() -> None:
    """Write the picture of the docs."""
    expect.set_options(timeout=PATIENCE)
    with (
        postgresql() as server,
        machines() as places,
        tempfile.TemporaryDirectory() as folder,
        redis_server(bind=places.bound, protected_mode="no") as redis,
    ):
        serve_machines(server, places)
        async with async_playwright() as playwright, shop(Path(folder), places, server.url, redis) as place:
            browser = await launch(playwright)
            PICTURE.write_bytes(await film(browser, place))
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
