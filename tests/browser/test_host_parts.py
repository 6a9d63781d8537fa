"""The bridge client, the mounted app and the sandbox proxy in Chromium, against the real mux."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from playwright.async_api import FrameLocator, Page, Route, expect

from gateway import mux
from gateway.model import Channel, Json
from tests.browser.far_end import echo, far_end

CALLS = "tools/call"


def app_frame(page: Page, app: str = "one") -> FrameLocator:
    """The app's own page, inside the proxy."""
    return page.frame_locator(f"[data-app={app}] iframe").frame_locator("iframe")


async def out(page: Page, text: str, app: str = "one") -> None:
    """Wait until the app shows `text`.

    Not for use before a check for gestures: Playwright's evaluation counts as one.
    """
    await expect(app_frame(page, app).locator("#out")).to_contain_text(text)


async def test_a_page_is_greeted_and_its_call_is_answered(page: Page) -> None:
    """Only working capabilities are declared, the host announces its bridge, and a call is answered."""
    script = """begin().then(async ({ hostCapabilities, hostContext }) => {
      show(Object.keys(hostCapabilities).sort().join() + " " + JSON.stringify(hostContext["webmcp-gateway"]));
      show(JSON.stringify((await call("now", { a: 1 })).result.structuredContent));
    });"""
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await out(page, 'logging,sandbox,serverResources,serverTools {"bridge":true,"approvals":false}')
        await out(page, '{"a":1}')
        await out(page, "tool-input")


async def test_a_page_is_told_what_is_logged_of_its_call(page: Page) -> None:
    """The log message arrives unchanged, and before the answer."""
    script = """addEventListener("message", ({ data }) => {
        if (data.method === "notifications/message") show("logged " + JSON.stringify(data.params));
      });
      begin().then(() => call("long")).then(() => show("answered"));"""
    async with far_end(one=script) as end:
        end.on_call = lambda params: None
        await page.goto(end.url("one"))
        await end.until(lambda: end.messages(Channel.UI, CALLS))
        ((view, number),) = [
            (frame.view, frame.message["id"]) for frame in end.of(mux.Message) if frame.message.get("method") == CALLS
        ]
        params: dict[str, Json] = {"level": "info", "logger": "shop", "data": {"odd": [1, None]}}
        logged: dict[str, Json] = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
        await end.say(mux.Message(view, Channel.UI, logged))
        await end.say(mux.Message(view, Channel.UI, {"jsonrpc": "2.0", "id": number, "result": {"content": []}}))
        await out(page, 'logged {"level":"info","logger":"shop","data":{"odd":[1,null]}};answered')


async def test_a_page_asks_for_completions(page: Page) -> None:
    """The request passes the host to the gateway, and back."""
    script = """begin().then(async () => {
      const asked = { ref: { type: "ref/prompt", name: "greet" }, argument: { name: "city", value: "Pa" } };
      show((await ask("completion/complete", asked)).result.completion.values.join());
    });"""
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await out(page, "greet,Pa")


async def test_a_large_body_goes_both_ways_beside_the_frames(page: Page) -> None:
    """A body over 256 KiB is transferred by HTTP, and arrives complete."""
    script = """begin().then(async () => {
      const body = "é".repeat(400000);
      const { result } = await call("big", { body });
      show(String(result.structuredContent.body === body));
    });"""
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await out(page, "true")
        assert [list(message["params"]) for message in end.messages(Channel.UI, CALLS)] == [["$body"]]  # type: ignore[arg-type]


async def test_an_aborted_call_is_cancelled_at_the_gateway(page: Page) -> None:
    """The page's `notifications/cancelled` arrives with the gateway's id of the call."""
    script = """begin().then(() => {
      void call("hang");
      setTimeout(() => tell({ method: "notifications/cancelled", params: { requestId: prefix + count } }), 200);
    });"""
    async with far_end(one=script) as end:
        end.on_call = lambda params: None
        await page.goto(end.url("one"))
        await end.until(lambda: end.messages(Channel.UI, "notifications/cancelled"))
        (call,) = end.messages(Channel.UI, CALLS)
        (cancel,) = end.messages(Channel.UI, "notifications/cancelled")
        assert cancel["params"]["requestId"] == call["id"]  # type: ignore[call-overload, index]


async def test_a_real_click_is_attested_before_its_call(page: Page) -> None:
    """The proxy detects the person's gesture; a call without one is not attested."""
    async with far_end(one="begin().then(() => call('auto').then(() => show('auto')));") as end:
        await page.goto(end.url("one"))
        await end.until(lambda: end.messages(Channel.UI, CALLS))
        assert end.of(mux.Gesture) == []
        await app_frame(page).locator("#go").click()
        await end.until(lambda: len(end.messages(Channel.UI, CALLS)) == 2)
        kinds = [type(frame) for frame in end.told if not isinstance(frame, mux.Focus)]
        assert kinds[-2:] == [mux.Gesture, mux.Message]
        assert end.of(mux.Gesture)[0].age < 3000


async def test_a_page_can_not_attest_for_itself(page: Page) -> None:
    """Neither `click()` nor a forged gesture message attests anything."""
    script = """begin().then(async () => {
      tell({ method: "ui/notifications/sandbox-gesture", params: { age: 0 } });
      top.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-gesture", params: { age: 0 } }, "*");
      document.querySelector("#go").click();
    });"""
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await end.until(lambda: end.messages(Channel.UI, CALLS))
        assert end.of(mux.Gesture) == []


@pytest.mark.parametrize("place", ["", "&shadow"], ids=["document", "shadow"])
async def test_the_gateway_hears_which_app_has_the_focus(page: Page, place: str) -> None:
    """Focus is reported wherever the host page put the app's frame."""
    async with far_end(one="begin();") as end:
        await page.goto(end.url("one") + place)
        await out(page, "tool-input")
        assert end.of(mux.Focus) == []
        await app_frame(page).locator("body").click()
        await end.until(lambda: end.of(mux.Focus))


async def test_the_frame_is_opaque_and_stays_where_it_is(page: Page) -> None:
    """It has no origin, no storage, no access to its embedder, cannot navigate, and accepts no second page."""
    script = """begin().then(() => {
      const tries = { origin: () => origin, storage: () => localStorage.length, parent: () => parent.document.title,
        top: () => (top.location.href = "about:blank") };
      for (const [name, attempt] of Object.entries(tries)) {
        try { show(name + "=" + attempt()); } catch (error) { show(name + "!" + error.name); }
      }
      tell({ method: "ui/notifications/sandbox-resource-ready", params: { html: "<p id=other>other" } });
      window.ontool = () => { location.href = "http://localhost:PORT/"; };
    });"""
    async with far_end() as end:
        end.scripts["one"] = script.replace("PORT", str(end.port))
        await page.goto(end.url("one"))
        await out(page, "origin=null;storage!SecurityError;parent!SecurityError;top!SecurityError")
        inner = page.frame_locator("[data-app=one] iframe").locator("iframe")
        assert await inner.get_attribute("sandbox") == "allow-scripts allow-forms"
        (view,) = end.resumable
        await end.say(mux.Message(view, Channel.WEBMCP, {"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        await page.wait_for_function("log.includes('left')")
        assert not any(frame.url.startswith("http://localhost") for frame in page.frames)
        assert page.url.startswith(end.host)


async def test_a_proxy_speaks_to_its_own_host_alone(page: Page) -> None:
    """With another host in its URL, or none, it sends nothing to the embedding page."""
    async with far_end(one="") as end:
        await page.goto(end.url())
        for address in (end.sandbox.replace("gateway.", "other."), end.sandbox.split("?")[0]):
            await page.evaluate(
                """(src) => { window.heard = []; addEventListener("message", (event) => heard.push(event.data));
                const frame = document.createElement("iframe"); frame.src = src; document.body.append(frame); }""",
                address,
            )
        await expect(page.frame_locator("iframe").last.locator("body")).to_contain_text("inside a page")
        await expect(page.frame_locator("iframe").first.locator("body")).to_contain_text("inside a page")
        assert await page.evaluate("heard") == []


async def test_what_a_host_says_to_its_proxy_is_not_the_pages(page: Page) -> None:
    """A second page, and unknown sandbox messages of the host, are not forwarded."""
    script = "addEventListener('message', ({ data }) => data.n && show('heard ' + data.n)); begin();"
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await out(page, "tool-input")
        await page.evaluate(
            """(sandbox) => {
              const own = "ui/notifications/sandbox-";
              [`${own}resource-ready`, `${own}x`, "other"].forEach((method, at) =>
                frames[0].postMessage({ jsonrpc: "2.0", method, params: { html: "" }, n: at + 1 }, sandbox));
            }""",
            end.sandbox.split("/proxy")[0],
        )
        await out(page, "tool-input;heard 3;")


async def test_an_app_is_shown_at_the_origin_of_its_sandbox_alone(page: Page) -> None:
    """Another URL is not loaded, even if the gateway sends it."""
    async with far_end(one="begin();") as end:
        end.shown = {"sandbox": end.sandbox.replace("sandbox.", "elsewhere.")}
        await page.goto(end.url("one"))
        await page.wait_for_function("log.includes('failed')")
        assert [frame.url for frame in page.frames if "elsewhere." in frame.url] == []


async def test_tools_answer_on_their_own_channel(page: Page) -> None:
    """The gateway's messages wait for the page's tools; payloads pass unchanged, both ways."""
    script = """const changed = { jsonrpc: "2.0", method: "notifications/tools/list_changed" };
      window.ontool = (got) => { serve({ jsonrpc: "2.0", id: got.id, result: { got } }); serve(changed); };
      begin();"""
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await end.until(lambda: end.of(mux.Open) and end.resumable)
        message: dict[str, Json] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "x"}}
        (view,) = end.resumable
        await end.say(mux.Message(view, Channel.WEBMCP, message))
        await end.until(lambda: len(end.messages(Channel.WEBMCP)) == 2)
        assert end.messages(Channel.WEBMCP)[0] == {"jsonrpc": "2.0", "id": 1, "result": {"got": message}}
        await page.wait_for_function("log.includes('tools changed')")
        assert end.messages(Channel.WEBMCP)[1]["method"] == "notifications/tools/list_changed"


async def test_a_proxy_that_loads_slowly_is_not_spoken_to(page: Page) -> None:
    """The browser reports no error, and the page's tools are listed once they are there."""
    said: list[str] = []
    page.on("console", lambda line: said.append(line.text))

    async def slowly(route: Route) -> None:
        await asyncio.sleep(1)
        await route.continue_()

    script = "window.ontool = (got) => serve({ jsonrpc: '2.0', id: got.id, result: {} }); begin();"
    async with far_end(one=script) as end:
        await page.route("**/proxy.html*", slowly)
        await page.goto(end.url("one"))
        await end.until(lambda: end.of(mux.Open) and end.resumable)
        (view,) = end.resumable
        await end.say(mux.Message(view, Channel.WEBMCP, {"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        await end.until(lambda: end.messages(Channel.WEBMCP))
    assert [line for line in said if "postMessage" in line or "allow-same-origin" in line] == []


async def test_a_spoofed_channel_reaches_nothing(page: Page) -> None:
    """An answer on the wrong channel settles no call, and a method of the other channel is refused."""
    script = """window.ontool = (message) => {
        tell({ id: message.id, result: { tools: [] } });
        serve({ jsonrpc: "2.0", id: "s", method: "tools/call", params: { name: "x", arguments: {} } });
        if (message.error) show("refused " + message.error.code);
      };
      begin();"""
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await out(page, "tool-input")
        (view,) = end.resumable
        await end.say(mux.Message(view, Channel.WEBMCP, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
        await out(page, "refused -32601")
        assert end.messages(Channel.WEBMCP) == []
        assert end.messages(Channel.UI, CALLS) == []


async def test_a_page_that_reloads_is_another_view(page: Page) -> None:
    """The old view is closed with its reason, the new one starts from the page's first message."""
    script = """begin().then(async () => {
      show(JSON.stringify((await call("loaded")).result.content));
      window.ontool = (message) => { if (message.method === "ping") location.reload(); };
    });"""
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await out(page, "loaded")
        (first,) = end.resumable
        await end.say(mux.Message(first, Channel.WEBMCP, {"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        await end.until(lambda: len(end.messages(Channel.UI, CALLS)) == 2)
        assert end.of(mux.Close) == [mux.Close(first, "reload")]
        second = next(view for view in end.resumable if view != first)
        assert [frame.view for frame in end.of(mux.Message) if frame.message.get("method") == CALLS] == [first, second]
        await out(page, "loaded")
        assert await page.evaluate("mounted.one.view") == second


async def test_a_dropped_connection_is_taken_up_again(page: Page) -> None:
    """The view stays, the call in flight fails and is not repeated, the next one works."""
    script = """begin().then(async () => show((await call("first")).error?.message));"""
    async with far_end(one=script) as end:
        end.on_call = lambda params: None if params["name"] == "first" else echo(params)
        await page.goto(end.url("one"))
        await end.until(lambda: end.messages(Channel.UI, CALLS))
        (view,) = end.resumable
        await end.drop()
        await out(page, "connection-lost;")
        await end.until(lambda: end.of(mux.Resume))
        await app_frame(page).locator("#go").click()
        await out(page, "echo")
        assert [frame.view for frame in end.of(mux.Resume)] == [view]
        assert names(end.messages(Channel.UI, CALLS)) == ["first", "echo"]


async def test_after_a_restart_the_page_gets_another_view(page: Page) -> None:
    """A gateway without the view opens a new one; the page need not reload."""
    async with far_end(one="begin();") as end:
        await page.goto(end.url("one"))
        await out(page, "tool-input")
        (old,) = end.resumable
        end.resumable.clear()
        await end.drop()
        await end.until(lambda: end.resumable)
        await page.wait_for_function("(old) => mounted.one.view && mounted.one.view !== old", arg=old)
        await app_frame(page).locator("#go").click()
        await out(page, "echo")
        assert end.messages(Channel.UI, "resources/read") == end.messages(Channel.UI, "resources/read")[:1]


async def test_a_flood_ends_the_page_that_sent_it(page: Page) -> None:
    """Its view is closed with a notice; the other app on the same page keeps working."""
    flood = """begin().then(() => {
      const method = "ui/notifications/size-changed";
      for (let height = 0; height < 20000; height++) tell({ method, params: { height } });
    });"""
    async with far_end(one=flood, two="begin();") as end:
        await page.goto(end.url("one", "two"))
        await expect(page.locator("[data-app=one] [role=alert]")).to_contain_text("too many messages")
        await end.until(lambda: end.of(mux.Close))
        assert [frame.reason for frame in end.of(mux.Close)] == ["flooded"]
        await app_frame(page, "two").locator("#go").click()
        await out(page, "echo", "two")


async def test_garbage_harms_nobody(page: Page) -> None:
    """After any message of a page, its next call and the other app still work."""
    garbage = """begin().then(async () => {
      const deep = JSON.parse("[".repeat(500) + "]".repeat(500));
      const junk = [null, 1, "x", [], {}, { jsonrpc: "2.0" }, { jsonrpc: "2.0", id: 1 }, { channel: "mcp-iframe" },
        { channel: "mcp-iframe", type: "mcp", direction: "server-to-client", payload: [] }, new Blob(["x"]), new Map(),
        { jsonrpc: "2.0", id: "d", method: "tools/call", params: { name: "deep", arguments: { deep } } },
        { jsonrpc: "2.0", id: {}, method: "tools/call" }, { jsonrpc: "2.0", id: "p", method: "__proto__" },
        { jsonrpc: "2.0", id: "b", method: "tools/call", params: { $body: "x".repeat(22) } }];
      for (const data of junk) { parent.postMessage(data, "*"); if (data) serve(data); }
      show(JSON.stringify((await call("after")).result.content));
    });"""
    async with far_end(one=garbage, two="begin();") as end:
        await page.goto(end.url("one", "two"))
        await out(page, "after")
        await app_frame(page, "two").locator("#go").click()
        await out(page, "echo", "two")
        assert len(end.sockets) == 1
        assert names(end.messages(Channel.UI, CALLS)) == ["after", "echo"]


async def test_two_apps_do_not_hear_each_other(page: Page) -> None:
    """Answers and tool calls reach only the page that they are for."""
    listen = "window.ontool = (message) => show('tool ' + message.method); begin();"
    async with far_end(one=listen, two=listen) as end:
        await page.goto(end.url("one", "two"))
        await out(page, "tool-input", "one")
        await out(page, "tool-input", "two")
        view = str(await page.evaluate("mounted.one.view"))
        await end.say(mux.Message(view, Channel.WEBMCP, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
        await out(page, "tool tools/list", "one")
        await app_frame(page, "one").locator("#go").click()
        await out(page, "echo", "one")
        assert await app_frame(page, "two").locator("#out").text_content() == "tool-input;"


async def test_closing_and_reloading_by_the_host(page: Page) -> None:
    """A reload creates another view in another frame; a close removes everything."""
    async with far_end(one="begin();") as end:
        await page.goto(end.url("one"))
        await out(page, "tool-input")
        await page.evaluate("mounted.one.reload()")
        await out(page, "tool-input")
        await page.evaluate("mounted.one.close()")
        assert await page.locator("[data-app=one] > *").count() == 0
        await end.until(lambda: len(end.of(mux.Close)) == 2)
        assert [frame.reason for frame in end.of(mux.Close)] == ["reload", "gone"]


def names(calls: list[dict[str, Any]]) -> list[str]:
    """The names of the tools that were called."""
    return [json.loads(json.dumps(call))["params"]["name"] for call in calls]


async def test_a_models_call_is_told_to_the_page(page: Page) -> None:
    """The page receives partial input, input, cancellation and result of one call, which has its own view."""
    script = """addEventListener("message", ({ data }) => {
      if (/^ui\\/notifications\\/tool-/.test(data.method)) show(data.method.slice(17) + JSON.stringify(data.params));
    });
    begin().then(() => show("ready"));"""
    notices: list[tuple[str, dict[str, Json]]] = [
        ("tool-input-partial", {"arguments": {"a": [1]}}),
        ("tool-input", {"arguments": {"a": [1, 2]}}),
        ("tool-result", {"content": [], "structuredContent": {"b": 1}}),
    ]
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await out(page, 'tool-input{"arguments":{}}')
        (first,) = end.resumable
        for name, params in notices:
            view = str(await page.evaluate("mounted.one.view"))
            message: dict[str, Json] = {"jsonrpc": "2.0", "method": f"ui/notifications/{name}", "params": params}
            await end.say(mux.Message(view, Channel.UI, message))
            await out(page, f"{name}{json.dumps(params, separators=(',', ':'))}")
        assert end.of(mux.Close) == [mux.Close(first, "reload")]
        said = await app_frame(page).locator("#out").text_content()
        assert [part.partition("{")[0] for part in str(said).split(";") if part.startswith("tool-")] == [
            "tool-input-partial",
            "tool-input",
            "tool-input",
            "tool-result",
        ]  # the page itself repeats the input, too
        gives_up: dict[str, Json] = {"jsonrpc": "2.0", "method": "ui/notifications/tool-input", "params": {}}
        await end.say(mux.Message(view, Channel.UI, gives_up))
        await end.until(lambda: len(end.of(mux.Close)) == 2)
        await page.wait_for_function("(before) => mounted.one.view && mounted.one.view !== before", arg=view)
        view = str(await page.evaluate("mounted.one.view"))
        cancelled: dict[str, Json] = {
            "jsonrpc": "2.0",
            "method": "ui/notifications/tool-cancelled",
            "params": {"reason": "no more"},
        }
        await end.say(mux.Message(view, Channel.UI, cancelled))
        await out(page, 'tool-cancelled{"reason":"no more"}')


async def test_a_page_that_speaks_json_rpc_alone_hears_nothing_else(page: Page) -> None:
    """No other message follows, at any time; before initialization there are only answers."""
    script = """const heard = [];
      addEventListener("message", ({ data }) => heard.push(data));
      const wait = (time) => new Promise((go) => setTimeout(go, time));
      (async () => {
        const appInfo = { name: "app", version: "1" };
        await ask("ui/initialize", { appInfo, appCapabilities: {}, protocolVersion: "2026-01-26" });
        show("begun");
        await new Promise((go) => (document.querySelector("#go").onclick = go));
        await wait(700);
        show("early " + heard.filter((message) => message.method).length);
        tell({ method: "ui/notifications/initialized", params: {} });
        await call("slow");
        await wait(700);
        show("strange " + heard.filter((message) => message.jsonrpc !== "2.0").length);
        show(heard.filter((message) => message.method).map((message) => message.method).join());
      })();"""
    async with far_end(one=script) as end:
        await page.goto(end.url("one"))
        await end.until(lambda: end.resumable)
        await page.wait_for_function("mounted.one")  # the view is at the gateway before the page has its handle
        await out(page, "begun")
        await page.evaluate("mounted.one.setHostContext({ theme: 'dark' })")
        (view,) = end.resumable
        changed: dict[str, Json] = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await end.say(mux.Message(view, Channel.UI, changed))
        await app_frame(page).locator("#go").click()
        await out(page, "early 0;")
        await out(page, "strange 0;ui/notifications/host-context-changed,ui/notifications/tool-input;")
        assert end.messages(Channel.WEBMCP) == []
