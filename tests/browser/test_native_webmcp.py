"""Chromium with native WebMCP: a page's tool is one tool, for the browser's agent and for every host."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, CDPSession, Frame, Page, async_playwright

from tests.browser.conftest import launch
from tests.browser.runtime_host import Host, host_server, pack_html, show_page
from tests.browser.test_form_tools import FORM, SCHEMA
from tests.browser.test_runtime_tools import CLIENT, TOOLS, ask, envelope
from tests.browser.test_single_owner import client as with_client
from tests.browser.test_single_owner import complaints, polyfill
from tests.browser.test_single_owner import show_in_frame as in_frame
from tests.browser.test_webmcp import call_tool, wait_listed

LISTED = "document.modelContext.getTools().then((tools) => tools.map(({ inputSchema }) => inputSchema))"

# mcp-b passes a tool its input alone.
ALONE = TOOLS.replace("{signal})", "{signal} = new AbortController())")
PAGES = {
    "plain": TOOLS,
    "mcp-b": ALONE.replace("<script>", f"{polyfill().partition('</script>')[0]}</script><script>", 1),
    "client": TOOLS.replace("</body>", with_client("@modelcontextprotocol/ext-apps") + "</body>"),
}
"""A page with the tools `add` and `clear`; the same with @mcp-b/global before them, or with its own client."""

KEPT = "a lone surrogate becomes U+FFFD, as in all text of the web; Chromium loses the whole text"
EXCEPTIONS = {
    "order of registerTool": "the hints of MCP that WebMCP does not know are read, too, last, and told to the model",
    "listed with description 8": KEPT,
    "result lone": KEPT,
    "promise of lone": KEPT,
    "executeTool with JSON": "the input may be JSON text, as mcp-b writes it",
    "the origin null": "the origin of a view is opaque, and its tools can be called all the same",
    "this of execute": "`execute` is called as a method of the tool, as libraries do",
    "names of earlier drafts": "pages still use them",
    "isTrusted of an event": "no script can make a trusted event",
    "styles of a form that is filled": "no script can add a pseudo-class",
}
"""Differences of a view from the browser, with their reasons: docs/app-authors.md lists each of them."""


@pytest.fixture(scope="module")
async def native() -> AsyncIterator[Browser]:
    """The browser."""
    async with async_playwright() as playwright:
        browser = await launch(playwright, "--enable-features=WebMCP")
        yield browser
        await browser.close()


class Agent:
    """The browser's agent, simulated by its debugging domain."""

    def __init__(self, session: CDPSession) -> None:
        self._session = session
        self.tools: dict[str, list[dict[str, Any]]] = {}
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        session.on("WebMCP.toolsAdded", lambda event: self._added(event["tools"]))
        session.on("WebMCP.toolsRemoved", lambda event: self._removed(event["tools"]))
        session.on("WebMCP.toolResponded", self._answers.put_nowait)

    def _added(self, tools: list[dict[str, Any]]) -> None:
        for tool in tools:
            self.tools.setdefault(tool["name"], []).append(tool)

    def _removed(self, tools: list[dict[str, Any]]) -> None:
        for tool in tools:
            self.tools[tool["name"]].pop()

    async def until(self, *names: str) -> None:
        """Wait until exactly these tools are listed, each once."""
        async with asyncio.timeout(60):
            while {name: len(found) for name, found in self.tools.items() if found} != dict.fromkeys(names, 1):
                await asyncio.sleep(0.02)

    async def call(self, name: str) -> dict[str, Any]:
        """Call a tool, and return its answer."""
        given = {"frameId": self.tools[name][0]["frameId"], "toolName": name, "input": {"n": 3}}
        await self._session.send("WebMCP.invokeTool", given)
        async with asyncio.timeout(60):
            return await self._answers.get()


@pytest.mark.parametrize("kind", PAGES)
async def test_a_tool_is_listed_and_called_once_everywhere(native: Browser, tmp_path: Path, kind: str) -> None:
    """The browser's agent, a host with the envelope and one with app tools see it, also when it is removed."""
    async with await native.new_context() as context, host_server() as url:
        page = await context.new_page()
        await page.goto(url)
        host = Host(page)
        frame = await open_page(host, tmp_path, PAGES[kind])
        agent = Agent(await context.new_cdp_session(frame))
        await agent._session.send("WebMCP.enable")
        await agent.until("add", "clear")
        answer = (await agent.call("add"))["output"]["content"][0]["text"]
        assert json.loads(answer) == {"name": "add", "status": 204}
        listed = await host.run("() => host.ask('list', 'tools/list')")
        assert sorted(tool["name"] for tool in listed["result"]["tools"]) == ["add", "clear"]
        await host.run("() => host.ask('call', 'tools/call', { name: 'add', arguments: { n: 4 } })")
        await host.run("m => host.post(m)", envelope("mcp-check-ready"))
        await host.until("host.log.some((m) => m.payload === 'mcp-server-ready')")
        await ask(host, 1, "initialize", CLIENT)
        assert sorted(tool["name"] for tool in (await ask(host, 2, "tools/list"))["result"]["tools"]) == [
            "add",
            "clear",
        ]
        await ask(host, 3, "tools/call", {"name": "add", "arguments": {"n": 5}})
        assert await frame.evaluate("runs") == [["add", {"n": 3}], ["add", {"n": 4}], ["add", {"n": 5}]]
        await host.until("host.calls('http_request').length === 3")
        assert await host.run("() => host.calls('http_request').map((args) => args._initiator)") == ["model"] * 3
        await frame.evaluate(
            "() => { window.end = new AbortController(); document.modelContext.registerTool("
            "{ name: 'late', description: 'd', execute: () => 'late' }, { signal: end.signal }); }"
        )
        await agent.until("add", "clear", "late")
        await frame.evaluate("() => end.abort()")
        await agent.until("add", "clear")


async def test_a_page_with_mcp_b_has_its_tools_where_the_browser_has_none(native: Browser, tmp_path: Path) -> None:
    """Hosts do not set `allow="tools"`, so the permission is checked before a tool is registered natively."""
    async with await native.new_context() as context, host_server() as url:
        page = await context.new_page()
        errors = complaints(page)
        await page.goto(url)
        host = Host(page)
        await host.attaches("add", "clear")
        frame = await in_frame(host, "srcdoc", pack_html(tmp_path, PAGES["mcp-b"]))
        assert not await frame.evaluate("FeaturePolicy.prototype.allowsFeature.call(document.featurePolicy, 'tools')")
        await wait_listed(host, "add", "clear")
        assert await frame.evaluate("document.modelContext.getTools().then(({ length }) => length)") == 2
    assert errors == []


async def test_a_form_is_one_tool_too(native: Browser, tmp_path: Path) -> None:
    """In a view the page's response is the result; on its own site the tool is the browser's alone."""
    async with await native.new_context() as context, host_server() as url:
        page = await context.new_page()
        errors = complaints(page)
        page.on("console", lambda line: errors.append(line.text) if line.type == "warning" else None)
        await page.goto(url)
        host = Host(page)
        frame = await open_page(host, tmp_path, FORM)
        tools = await wait_listed(host, "book")
        answer = await call_tool(host, "book", {"seats": 4})
        assert tools["book"]["inputSchema"] == SCHEMA
        assert answer["result"]["structuredContent"] == {"booked": ["4"]}
        assert [agent for agent, _ in await frame.evaluate("submitted")] == [True]
        agent = Agent(await context.new_cdp_session(frame))
        await agent._session.send("WebMCP.enable")
        await agent.until("book")
        await page.route(
            "**/site.html", lambda route: route.fulfill(body=pack_html(tmp_path, FORM), content_type="text/html")
        )
        await page.goto(f"{url}/../site.html")
        (own,) = await page.evaluate(LISTED)
        assert "multipleOf" in own["properties"]["seats"]  # unlike our schemas
    assert errors == []


async def test_a_form_is_no_tool_past_the_rules(native: Browser, tmp_path: Path) -> None:
    """The browser's agent sees only the free forms, wherever they are; the requests that they cause are marked."""
    form = "<form toolname={0} tooldescription=Does toolautosubmit onsubmit='{1}'><input name=n></form>"
    sends = 'event.preventDefault(); event.respondWith(fetch("/api/add").then(() => "done"))'
    html = f"<!doctype html><body>{form.format('held', sends)}{form.format('add', sends)}</body>"
    async with await native.new_context() as context, host_server() as url:
        page = await context.new_page()
        await page.goto(url)
        host = Host(page)
        frame = await open_page(host, tmp_path, html)
        agent = Agent(await context.new_cdp_session(frame))
        await agent._session.send("WebMCP.enable")
        await agent.until("add")
        await frame.evaluate(
            """(form) => {
              for (const name of ["other", "late"])
                document.body.insertAdjacentHTML("beforeend", form.replace("{0}", name));
              for (const name of ["shady", "clear"]) {
                const place = document.body.appendChild(document.createElement("div"));
                place.attachShadow({ mode: "closed" }).innerHTML = form.replace("{0}", name);
              }
              document.forms[0].setAttribute("tooldescription", "Does more");
            }""",
            form,
        )
        await agent.until("add", "late", "clear")
        answer = await agent.call("add")
        initiators = await host.run("() => host.calls('http_request').map((args) => args._initiator)")
    assert answer["output"]["content"][0]["text"] == "done"
    assert initiators == ["model"]
    assert set(agent.tools) == {"add", "late", "clear"}


async def test_a_form_of_fetched_markup_is_no_tool_past_the_rules(native: Browser, tmp_path: Path) -> None:
    """In a page without such a form, the browser's agent sees only the free one of two, once."""
    forms = "".join(f"<form toolname={name} tooldescription=Does><input name=n></form>" for name in ("held", "add"))
    script = "fetch('/api/part').then((answer) => answer.text()).then((text) => { document.body.innerHTML = text; });"
    async with await native.new_context() as context, host_server() as url:
        page = await context.new_page()
        await page.goto(url)
        host = Host(page)
        await host.attaches("add")
        await host.answers(
            f"return {{ bodyType: 'text', headers: {{ 'content-type': 'text/html' }}, body: {json.dumps(forms)} }};"
        )
        frame = await host.show(pack_html(tmp_path, f"<!doctype html><body><script>{script}</script></body>"))
        agent = Agent(await context.new_cdp_session(frame))
        await agent._session.send("WebMCP.enable")
        await agent.until("add")
        assert (await agent.call("add"))["output"]["structuredContent"]["status"] == "The form was submitted."
        assert await frame.evaluate("document.forms.length") == 2
        assert set(agent.tools) == {"add"}


async def open_page(host: Host, folder: Path, html: str) -> Frame:
    """The attached page in a third-party host."""
    await host.attaches("add", "clear", "late", "book")
    await host.answers("return { status: 204 };")
    frame = await host.show(pack_html(folder, html))
    await host.until("host.calls('webmcp_attach').length")
    return frame


@pytest.mark.parametrize("kind", ["plain", "mcp-b"])
async def test_on_its_own_site_a_tool_is_the_browsers(native: Browser, tmp_path: Path, kind: str) -> None:
    """Without a host, also under the older name, each tool is registered natively, once."""
    older = PAGES[kind].replace("document.modelContext.registerTool({\n", "navigator.modelContext.registerTool({\n")
    assert older != PAGES[kind]
    async with await native.new_context() as context, host_server() as url:
        page = await context.new_page()
        errors = complaints(page)
        html = pack_html(tmp_path, older)
        await page.route("**/site.html", lambda route: route.fulfill(body=html, content_type="text/html"))
        await page.goto(f"{url}/../site.html")
        agent = Agent(await context.new_cdp_session(page))
        await agent._session.send("WebMCP.enable")
        await agent.until("add", "clear")
        assert (await agent.call("add"))["status"] == "Completed"
        assert await page.evaluate("runs") == [["add", {"n": 3}]]
    assert errors == []


async def test_a_page_sees_the_same_of_webmcp(native: Browser, tmp_path: Path) -> None:
    """Listing and calling, events, errors, and the end of a tool and of a call look the same to a page."""
    observe = (Path(__file__).parent / "native" / "webmcp.js").read_text("utf-8").partition("*/")[2]
    async with host_server() as url:
        site, page = await native.new_page(), await native.new_page()
        await site.goto(url)
        await page.goto(url)
        frame = await show_page(Host(page), tmp_path)
        own = await site.evaluate(observe)
        assert own
        assert await frame.evaluate(observe) == own


async def test_each_member_is_as_in_the_browser(native: Browser, page: Page, tmp_path: Path) -> None:
    """A page with native WebMCP, and a view without it, observe the same except for `EXCEPTIONS`."""
    observe = (Path(__file__).parent / "native" / "members.js").read_text("utf-8").partition("*/")[2]
    async with host_server() as url:
        site = await native.new_page()
        await site.goto(url)
        await page.goto(url)
        frame = await show_page(Host(page), tmp_path)
        browsers, ours = await site.evaluate(observe), await frame.evaluate(observe)
    assert len(browsers) > 300
    assert browsers.keys() == ours.keys()
    differing = {label: (browsers[label], ours[label]) for label in browsers if browsers[label] != ours[label]}
    assert {label: pair for label, pair in differing.items() if label not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() <= differing.keys()


FORMS = """<!doctype html><meta charset=utf-8><body>
<form toolname=one tooldescription=One tooltitle=Title>
  <label>Text <input name=text></label><input name=described toolparamdescription=Described placeholder=no>
  <label for=two>First</label><label for=two>Second</label><input id=two name=two required>
  <input name=fixed readonly><input name=off disabled><input name=letters pattern=[a-z]+>
  <input name=n1 type=number min=1 max=9 step=2><input name=n2 type=number><input name=n3 type=number step=any>
  <input name=n4 type=number min=0.5 step=0.25><input name=n5 type=number min=x max=" 2">
  <input name=n6 type=number step=-1>
  <input name=n7 type=number step=2 value=1><input name=n8 type=number step=0.1 min=0.3>
  <input name=n9 type=number min=2.5>
  <input name=r1 type=range><input name=r2 type=range min=10 max=20 step=5>
  <input name=r3 type=range min=5 max=1 readonly>
  <input name=date type=date><input name=t1 type=time><input name=t2 type=time step=1><input name=t3 type=time step=0.5>
  <input name=t4 type=time step=3600><input name=l1 type=datetime-local><input name=l2 type=datetime-local step=1>
  <input name=month type=month><input name=week type=week><input name=color type=color>
  <input name=emails type=email multiple>
  <input name=tel type=tel><input name=search type=search><input name=odd type=odd><textarea name=area required>
  </textarea>
  <input name=box type=checkbox><label>Yes<input name=box2 type=checkbox value=yes required></label>
  <label>A<input name=boxes type=checkbox value=a></label><input name=boxes type=checkbox value=b>
  <label>L<input name=radio type=radio value=1></label><input name=radio type=radio value=2 required>
  <fieldset toolparamdescription=Set><input name=radio2 type=radio value=1>
    <input name=radio2 type=radio value=2></fieldset>
  <select name=s1><option value="">Choose<option value=1>One<optgroup label=Group><option value=2>Two</option
    ><option value=3>Three</optgroup><option>Bare</select>
  <label>More<select name=s2 multiple required><option value=a>A<option selected>B</select></label>
  <input name=twice><input name=twice><input name=mixed><input name=mixed type=checkbox>
  <input name=hidden type=hidden><input name=file type=file><input name=sub type=submit><button name=button>B</button>
</form>
<form toolname=empty tooldescription=Empty></form><form toolname=bare></form><form tooldescription=nameless></form>
<input name=outside form=outer><form id=outer toolname=outer tooldescription=Outer></form></body>"""

LOCAL_FORMS = {"t1", "t2", "t3", "t4", "l1", "l2", "month", "week", "color"}
"""Fields whose `format` in Chromium is not one of JSON Schema; our schemas have it as `pattern`."""


async def test_the_schemas_of_forms_are_as_in_the_browser(native: Browser, page: Page, tmp_path: Path) -> None:
    """They are equal, except that local formats are patterns, and `format` replaces the note on dates."""
    listing = "document.modelContext.getTools().then((all) => all.map(({window, origin, ...tool}) => tool))"
    async with host_server() as url:
        site = await native.new_page()
        await site.goto(url)
        await site.set_content(FORMS)
        browsers = {tool["name"]: tool for tool in await site.evaluate(listing)}
        await page.goto(url)
        frame = await show_page(Host(page), tmp_path, FORMS)
        ours = {tool["name"]: tool for tool in await frame.evaluate(listing)}
    assert sorted(browsers) == ["empty", "one", "outer"]
    theirs = browsers["one"]["inputSchema"]["properties"]
    assert len(theirs) > 35
    for name in LOCAL_FORMS:
        theirs[name]["pattern"] = theirs[name].pop("format").replace("[0-9a-zA-Z]", "[0-9a-fA-F]")
    assert theirs["date"].pop("description") == "Dates MUST be provided in 'YYYY-MM-DD' format."
    own = ours["one"]["inputSchema"]["properties"]
    assert {name: (own.get(name), theirs[name]) for name in theirs if own.get(name) != theirs[name]} == {}
    assert ours == browsers
