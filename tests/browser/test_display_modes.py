"""Display modes and message items of `<mcp-app>`: tiles, the panel, the workspace, history, accessibility."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import FrameLocator, Locator, Page, expect

from tests.browser.element_host import PlainHost, gateway_host, plain_host, until
from tests.browser.far_end import PAGES
from tests.browser.stock_host import dump
from tests.browser.test_accessibility import findings
from tests.browser.test_main_job import model
from tests.docs.blocks import blocks
from tests.world import running

ALL = ["inline", "fullscreen", "pip"]


def app_page(modes: list[str] | None) -> str:
    """A page that declares these display modes."""
    return (PAGES / "modes.html").read_text("utf-8").replace("/* MODES */ null", json.dumps(modes))


@asynccontextmanager
async def chat(page: Page) -> AsyncIterator[PlainHost]:
    """A chat without messages; nothing moves by itself while a test clicks."""
    await page.emulate_media(reduced_motion="reduce")
    async with plain_host() as host:
        host.pages["/"] = (PAGES / "chat.html").read_text("utf-8").replace("SANDBOX", json.dumps(host.sandbox))
        await page.goto(host.origin)
        await until(page, "window.ready")
        yield host


def item(number: int, modes: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """An item with its page."""
    return {
        "response_type": "mcp_app",
        "title": f"Trip {number}",
        "mcp_app_id": f"trip-{number}",
        "resource_html": app_page(ALL if modes is None else modes),
        **more,
    }


def app(page: Page, number: int) -> FrameLocator:
    """The page of an item."""
    return page.frame_locator(f"iframe[title='Trip {number}']").frame_locator("iframe")


async def test_an_app_moves_between_the_flow_the_panel_and_the_workspace(page: Page) -> None:
    """No frame is loaded again; the page hears each mode, and its requests are answered with the one that applies."""
    async with chat(page):
        await page.evaluate("(one) => void add(one)", item(1))
        await page.evaluate("(one) => void add(one)", item(2, display_mode="pip"))
        one, two = app(page, 1), app(page, 2)
        await expect(one.locator("#mode")).to_have_text("Shown: inline")
        await one.locator("#note").fill("kept")
        assert await one.locator("body").evaluate("() => context.availableDisplayModes") == ALL
        await one.locator("#pip").click()
        await expect(one.locator("#out")).to_have_text("pip -> pip")
        await expect(one.locator("#mode")).to_have_text("Shown: pip")
        await expect(page.get_by_role("region", name="Trip 1")).to_be_visible()
        assert await page.evaluate("innerWidth - document.querySelector('main').getBoundingClientRect().right") >= 360

        tile = page.get_by_role("button", name="Trip 2")
        await expect(tile).to_have_text("Trip 2Open")
        assert await page.locator("iframe").count() == 1  # behind a tile, nothing is loaded
        await tile.click()
        await expect(tile).to_have_text("Trip 2Viewing")
        await expect(one.locator("#mode")).to_have_text("Shown: inline")  # one workspace at a time
        await two.locator("#fullscreen").click()
        await expect(two.locator("#out")).to_have_text("fullscreen -> fullscreen")
        await expect(page.get_by_role("dialog", name="Trip 2")).to_be_visible()
        await two.locator("#note").fill("also kept")
        await page.get_by_role("button", name="Close").click()
        await expect(tile).to_have_text("Trip 2Open")
        await expect(tile).to_be_focused()
        await tile.click()
        await expect(two.locator("#note")).to_have_value("also kept")
        await expect(one.locator("#note")).to_have_value("kept")
        events = [line for line in await page.evaluate("log") if "initialized" not in line]
        assert events == [
            "before-open trip-1 pip page",
            "open trip-1 pip page",
            "before-open trip-2 pip person",
            "before-close trip-1 pip replaced",
            "close trip-1 pip replaced",
            "open trip-2 pip person",
            "before-open trip-2 fullscreen page",
            "open trip-2 fullscreen page",
            "before-close trip-2 fullscreen person",
            "close trip-2 fullscreen person",
            "before-open trip-2 pip person",
            "open trip-2 pip person",
        ]


async def test_the_page_around_may_refuse_to_open_and_to_close(page: Page) -> None:
    """A prevented event leaves everything as it is, also what the other app has; the answer is the former mode."""
    async with chat(page):
        await page.evaluate("(one) => void add(one)", item(1))
        await page.evaluate("(one) => void add(one)", item(2, display_mode="pip"))
        one = app(page, 1)
        await page.evaluate("window.refuse = 'before-open'")
        await one.locator("#fullscreen").click()
        await expect(one.locator("#out")).to_have_text("fullscreen -> inline")
        await page.evaluate("window.refuse = 'before-close'")
        await one.locator("#pip").click()
        await expect(one.locator("#out")).to_have_text("pip -> pip")
        await page.get_by_role("button", name="Trip 2").click()
        await one.locator("#inline").click()
        await expect(one.locator("#out")).to_have_text("inline -> pip")
        for key in ("Escape", "Escape"):
            await page.get_by_role("heading", name="Trip 1").press(key)
        await expect(page.get_by_role("region", name="Trip 1")).to_be_visible()
        assert not [line for line in await page.evaluate("log") if line.startswith(("close", "open trip-2"))]
        # An element outside of the document has no ancestors that could listen.
        await page.evaluate("""() => {
          const gone = document.querySelector("mcp-app");
          gone.addEventListener("mcp-app-close", ({ detail }) => log.push("close " + detail.reason));
          document.querySelector("mcp-app-item").remove();
        }""")
        assert (await page.evaluate("log"))[-1] == "close removed"
        assert (
            await page.evaluate(
                "getComputedStyle(document.documentElement).getPropertyValue('--mcp-app-workspace-width')"
            )
            == ""
        )


ASKING = """
  const appCapabilities = { availableDisplayModes: ["inline", "fullscreen", "pip"] };
  const appInfo = { name: "app", version: "1" };
  ask("ui/initialize", { appInfo, appCapabilities, protocolVersion: "2026-01-26" }).then(async () => {
    tell({ method: "ui/notifications/initialized", params: {} });
    const shown = [];
    for (const mode of ["fullscreen", "pip", "inline"]) {
      shown.push((await ask("ui/request-display-mode", { mode })).result.mode);
    }
    console.log("shown: " + shown.join());
  });
"""
"""The script of a page that asks for every mode by itself."""


@pytest.mark.parametrize(
    ("host_decides", "shown"),
    [("", "inline,inline,inline"), ("event.detail.respondWith(mode);", "fullscreen,pip,inline")],
)
async def test_a_page_leaves_the_flow_only_after_a_gesture_or_if_the_host_decides(
    page: Page, host_decides: str, shown: str
) -> None:
    """Without a gesture it stays in the flow and is told so; the event says that there was none."""
    async with plain_host() as host:
        properties = json.dumps(host.html(ASKING)).replace("</", "<\\/")
        host.pages["/"] = f"""<!doctype html><title>host</title><script type=module>
          import "/host/mcp-app.js";
          const app = Object.assign(document.createElement("mcp-app"), {properties});
          app.addEventListener("mcp-app-request-display-mode", (event) => {{
            const {{ mode, from, userActivated }} = event.detail;
            console.log(`asked: ${{from}} ${{mode}} ${{userActivated}}`);
            {host_decides}
          }});
          document.body.append(app);
        </script>"""
        lines: list[str] = []
        page.on("console", lambda message: lines.append(message.text))
        # Whatever Playwright evaluates counts as a gesture: until the page has asked, the test only listens.
        async with page.expect_console_message(lambda message: message.text.startswith("shown:")) as last:
            await page.goto(host.origin)
        assert (await last.value).text == f"shown: {shown}"
        asked = [line.split() for line in lines if line.startswith("asked:")]
        assert [(mode, activated) for _, _, mode, activated in asked] == [
            (mode, "false") for mode in ("fullscreen", "pip", "inline")
        ]


async def test_an_app_that_declares_no_modes_stays_in_the_flow_until_it_asks(page: Page) -> None:
    """Its tile is gone once it says nothing of modes; its own button opens it all the same."""
    async with chat(page):
        silent = {**item(1, display_mode="fullscreen"), "resource_html": app_page(None)}
        await page.evaluate("(one) => void add(one)", silent)
        await page.get_by_role("button", name="Trip 1").click()
        await expect(app(page, 1).locator("#mode")).to_have_text("Shown: inline")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await app(page, 1).locator("#fullscreen").click()
        await expect(app(page, 1).locator("#out")).to_have_text("fullscreen -> fullscreen")
        await expect(page.get_by_role("dialog", name="Trip 1")).to_be_visible()


async def test_of_many_closed_apps_the_first_is_unloaded(page: Page) -> None:
    """Four go on behind their tiles with what is in them; the fifth ends the one that was closed first."""
    async with chat(page):
        numbers = range(1, 6)
        for number in numbers:
            await page.evaluate("(one) => void add(one)", item(number, display_mode="fullscreen"))
            await page.get_by_role("button", name=f"Trip {number}").click()
            await app(page, number).locator("#note").fill(f"note {number}")
            await page.get_by_role("button", name="Close").click()
            await expect(page.get_by_role("dialog")).to_have_count(0)
            await expect(page.locator("iframe")).to_have_count(min(number, 4))
        for number in reversed(numbers):
            await page.get_by_role("button", name=f"Trip {number}").click()
            note = app(page, number).locator("#note")
            await expect(note).to_have_value("" if number == 1 else f"note {number}")
            await page.get_by_role("button", name="Close").click()


async def test_an_app_falls_back_to_what_it_declares_and_to_the_space_there_is(page: Page) -> None:
    """Without the mode in its capabilities, it stays in the flow; on a narrow page the workspace is a panel."""
    async with chat(page):
        await page.evaluate("(one) => void add(one)", item(1, [], display_mode="fullscreen"))
        await page.evaluate("(one) => void add(one)", item(2, ["inline", "pip"], display_mode="pip"))
        await page.get_by_role("button", name="Trip 1").click()
        one, two = app(page, 1), app(page, 2)
        await expect(one.locator("#mode")).to_have_text("Shown: inline")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.get_by_role("button", name="Trip 1")).to_have_count(0)
        await one.locator("#pip").click()
        await expect(one.locator("#out")).to_have_text("pip -> inline")
        assert await one.locator("body").evaluate("() => context.availableDisplayModes") == ["inline"]
        await page.set_viewport_size({"width": 400, "height": 800})
        await page.get_by_role("button", name="Trip 2").click()
        await expect(page.get_by_role("dialog", name="Trip 2")).to_be_visible()
        await expect(two.locator("#mode")).to_have_text("Shown: fullscreen")
        await two.locator("#note").fill("kept")
        await page.set_viewport_size({"width": 1280, "height": 800})
        await expect(page.get_by_role("region", name="Trip 2")).to_be_visible()
        await expect(two.locator("#mode")).to_have_text("Shown: pip")
        await page.set_viewport_size({"width": 400, "height": 800})
        await expect(page.get_by_role("dialog", name="Trip 2")).to_be_visible()
        await expect(two.locator("#note")).to_have_value("kept")
        await page.set_viewport_size({"width": 1280, "height": 800})
        await page.evaluate(
            """() => {
              const place = document.createElement("aside");
              place.dataset.mcpAppWorkspace = "";
              place.style.cssText = "position:fixed;left:0;bottom:0;width:500px;height:300px";
              document.body.append(place);
            }"""
        )
        await page.get_by_role("button", name="Close").click()
        await page.get_by_role("button", name="Trip 2").click()
        box = await page.get_by_role("region", name="Trip 2").bounding_box()
        assert box == {"x": 0, "y": 500, "width": 500, "height": 300}  # the page's own place


async def test_keyboard_and_assistive_technology(page: Page) -> None:
    """The panel keeps the focus, Escape closes it, the focus returns; axe finds nothing.

    In light, in dark, on a phone, and from right to left.
    """
    async with chat(page):
        await page.evaluate("(one) => void add(one)", item(1))
        await page.evaluate(
            "(one) => void add(one)", item(2, display_mode="fullscreen", aria_label="The plan of the trip")
        )
        await page.evaluate("(one) => void add(one)", {**item(3), "title": ""})
        await expect(app(page, 1).locator("#mode")).to_have_text("Shown: inline")
        tile = page.get_by_role("button", name="Trip 2")
        await tile.focus()
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="The plan of the trip")
        await expect(dialog.get_by_role("heading", name="Trip 2")).to_be_focused()
        await expect(
            page.frame_locator("iframe[title='The plan of the trip']").frame_locator("iframe").locator("#mode")
        ).to_have_text("Shown: fullscreen")
        for key in ["Tab"] * 8 + ["Shift+Tab"] * 8:
            await page.keyboard.press(key)
            assert await page.evaluate("document.activeElement.mcpAppId") == "trip-2", key
        assert not await findings(page)
        await dialog.get_by_role("button", name="Close").focus()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(tile).to_be_focused()
        await page.get_by_role("button", name="Open beside the conversation").click()
        for scheme, width, direction in (("dark", 1280, "rtl"), ("dark", 400, "ltr")):
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            await page.set_viewport_size({"width": width, "height": 800})
            await page.evaluate("(direction) => { document.dir = direction; }", direction)
            role = "dialog" if width == 400 else "region"
            await expect(page.get_by_role(role, name="Trip 1")).to_be_visible()  # type: ignore[arg-type]
            assert not await findings(page), (scheme, width, direction)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            if direction == "rtl":
                left = "(region) => region.getBoundingClientRect().left"
                assert await page.get_by_role("region", name="Trip 1").evaluate(left) == 0


async def test_an_item_follows_its_tool_call(page: Page) -> None:
    """Arguments in parts, whole, the result: each once, in one page; without an id of the call, nothing."""
    async with chat(page):
        await page.evaluate(
            """(one) => {
              window.one = { ...one, tool_call_id: "c1", tool_name: "plan" };
              window.element = add({ ...window.one, tool_input_partial: { city: "Li" } });
            }""",
            item(1),
        )
        one = app(page, 1)
        await expect(one.locator("#told")).to_have_text('input-partial {"city":"Li"}')
        await one.locator("#note").fill("kept")
        states: list[dict[str, Any]] = [
            {"tool_input_partial": {"city": "Lisb"}},
            {"tool_input": {"city": "Lisbon"}},
            {"tool_input": {"city": "Lisbon"}, "tool_result": {"content": [], "structuredContent": {"days": 3}}},
        ]
        for news in states:
            await page.evaluate("(news) => { element.item = { ...one, ...news }; }", news)
            await page.evaluate("() => new Promise(requestAnimationFrame)")
        await expect(one.locator("#told")).to_have_text(
            'input-partial {"city":"Li"}; input-partial {"city":"Lisb"}; input {"city":"Lisbon"}; result {"days":3}'
        )
        await expect(one.locator("#note")).to_have_value("kept")
        calls: dict[str, Any] = {
            "tool_call_id": "c2",
            "tool_input": {"city": "Porto"},
            "tool_cancelled": "The person stopped it.",
        }
        await page.evaluate("(one) => void add(one)", item(2, **calls))
        await expect(app(page, 2).locator("#told")).to_have_text(
            'input {"city":"Porto"}; cancelled "The person stopped it."'
        )
        await page.evaluate("(one) => void add(one)", item(3, tool_name="plan", tool_input={"city": "Faro"}))
        await expect(app(page, 3).locator("#mode")).to_have_text("Shown: inline")
        assert await app(page, 3).locator("body").evaluate("() => notices") == []


async def test_a_stream_becomes_items_with_the_lines_of_the_docs(page: Page) -> None:
    """The chunks of a model reach the app while the model writes."""
    async with chat(page):
        (code,) = [block.text for block in blocks("js") if "toolCallItems" in block.text]
        await page.evaluate(
            """async ([code, resource_html]) => {
              const tools = [{ name: "plan", title: "Trip 1", _meta: { ui: { resourceUri: "ui://trip/plan.html" } } }];
              Object.assign(window, { tools, conversation: document.querySelector("main") });
              window.options = { ...chatOptions, defaults: { resource_html } };
              const whole = code.replace("webmcp-gateway-host", new URL("/host/mcp-app.js", location.href).href);
              const address = URL.createObjectURL(new Blob([whole], { type: "text/javascript" }));
              window.receive = (await import(address)).receive;
            }""",
            [code, app_page(ALL)],
        )
        start = {"index": 0, "id": "c1", "function": {"name": "plan", "arguments": '{"city":"Li'}}
        chunks: list[Any] = [
            {"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [start]}}]},
            {
                "id": "x",
                "choices": [
                    {
                        "index": 0,
                        "delta": {"tool_calls": [{"index": 0, "function": {"arguments": 'sbon"}'}}]},
                        "finish_reason": "tool_calls",
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "3 days"},
        ]
        await page.evaluate("(chunk) => receive(chunk)", chunks[0])
        await expect(app(page, 1).locator("#told")).to_have_text('input-partial {"city":"Li"}')
        await page.evaluate("(chunks) => chunks.forEach(receive)", chunks[1:])
        await expect(app(page, 1).locator("#told")).to_contain_text(
            '; input {"city":"Lisbon"}; result [{"type":"text","text":"3 days"}]'
        )
        assert await page.locator("mcp-app").count() == 1


async def test_a_stored_conversation_shows_its_apps_and_repeats_nothing(page: Page) -> None:
    """Fifty apps are created as they come into view, with input and result of then, and no call goes out."""
    async with chat(page):
        stored = [
            item(
                n,
                tool_call_id=f"c{n}",
                tool_name="plan",
                tool_input={"n": n},
                tool_result={"structuredContent": {"n": n}},
            )
            for n in range(50)
        ]
        await page.evaluate("(stored) => { for (const item of JSON.parse(JSON.stringify(stored))) add(item); }", stored)
        await expect(app(page, 0).locator("#told")).to_have_text('input {"n":0}; result {"n":0}')
        assert await page.locator("mcp-app-item").count() == 50
        assert await page.locator("mcp-app").count() < 10
        await page.evaluate("document.querySelectorAll('mcp-app-item')[49].scrollIntoView()")
        await expect(app(page, 49).locator("#told")).to_have_text('input {"n":49}; result {"n":49}')
        assert await page.locator("mcp-app").count() < 25  # what was scrolled past was not created
        assert not [line for line in await page.evaluate("log") if "call" in line]


async def test_requests_of_other_methods_and_changed_lists(page: Page) -> None:
    """The host's own handler answers a vendor's method, or refuses it; the page hears of a changed list."""
    async with chat(page):
        await page.evaluate(
            """(one) => {
              chatOptions.onFallbackRequest = ({ method, params }) => {
                if (method !== "x/clipboard/write") throw new Error("Unknown method " + method);
                return { written: params.text };
              };
              window.element = add(one);
            }""",
            item(1),
        )
        body = app(page, 1).locator("body")
        await expect(app(page, 1).locator("#mode")).to_have_text("Shown: inline")
        assert await body.evaluate("() => ask('x/clipboard/write', { text: 'Lisbon' })") == {"written": "Lisbon"}
        refusal = await body.evaluate("() => ask('x/other')")
        assert "Unknown method x/other" in refusal["message"]
        out = "document.querySelector('#out')"
        await body.evaluate(
            f"() => addEventListener('message', ({{ data }}) => {{ {out}.textContent += data.method; }})"
        )
        await page.evaluate("() => element.app.sendToolListChanged()")
        await expect(app(page, 1).locator("#out")).to_have_text("notifications/tools/list_changed")


async def test_a_bad_item_is_an_error_in_its_place(page: Page) -> None:
    """It names the field and the remedy, and shows the fallback; the items around it are shown."""
    async with chat(page):
        await page.evaluate(
            "(bad) => void add(bad)",
            {
                "response_type": "mcp_app",
                "title": "Trip",
                "fallback_text": "Three days: 55 euros.",
                "display_mode": "big",
            },
        )
        await page.evaluate("(one) => void add(one)", item(1))
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("Three days: 55 euros.")
        await expect(alert).to_contain_text("mcp_app_id: is missing; write an id that stays the same")
        await expect(alert).to_contain_text('display_mode: is "big"; write "inline", "fullscreen" or "pip"')
        await expect(app(page, 1).locator("#mode")).to_have_text("Shown: inline")
        assert "error bad-item" in await page.evaluate("log")
        await page.evaluate("(good) => { document.querySelector('mcp-app-item').item = good; }", item(2))
        await expect(app(page, 2).locator("#mode")).to_have_text("Shown: inline")


RENDER = """async () => {
  const { renderMcpAppItem } = await import("/host/mcp-app.js");
  const items = JSON.parse(sessionStorage.getItem("items"));
  document.body.replaceChildren(...items.map((item) => renderMcpAppItem(item, { gateway: "/" })));
}"""
"""A conversation of stored items, on a page without scripts and styles of its own."""


def cart(page: Page, number: int) -> Locator:
    """An item of the cart, in one of the frames of this page."""
    frame = page.frame_locator(f"iframe >> nth={number}").frame_locator("iframe")
    return frame.locator("[data-item-id]").first


async def test_a_stored_app_of_the_gateway_is_shown_again_without_its_call(page: Page, tmp_path: Path) -> None:
    """By its address on `/mcp` alone; the page is a web page, at home in each mode; after a reload it is all there."""
    async with running(tmp_path) as world, model(world) as client:
        opening = next(tool for tool in (await client.list_tools()).tools if tool.name == "open_cart")
        stored = {
            "response_type": "mcp_app",
            "title": "Fennel",
            "mcp_app_id": "cart-1",
            "resource_uri": (opening.meta or {})["ui"]["resourceUri"],
            "tool_name": "open_cart",
            "tool_call_id": "c1",
            "tool_input": {},
            "tool_result": dump(await client.call_tool("open_cart", {})),
        }
        sent: list[str] = []
        page.on("websocket", lambda socket: socket.on("framesent", lambda text: sent.append(str(text))))
        both = [stored, {**stored, "mcp_app_id": "cart-2", "display_mode": "pip"}]
        for items in (both, None):
            await gateway_host(page, world, "")
            if items:  # the second time, what was stored is all there is
                await page.evaluate("(items) => sessionStorage.setItem('items', JSON.stringify(items))", items)
            await page.evaluate(RENDER)
            await expect(cart(page, 0)).to_be_visible()
            assert await page.locator("iframe").count() == 1
        await page.get_by_role("button", name="Fennel").last.click()
        region = page.get_by_role("region", name="Fennel")
        await expect(region).to_be_visible()
        await expect(cart(page, 1)).to_be_visible()
        messages = [json.loads(text).get("message", {}) for text in sent]
        called = [message["params"]["name"] for message in messages if message.get("method") == "tools/call"]
        assert set(called) == {"http_request"}  # the page's own requests
