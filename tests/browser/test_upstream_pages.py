"""The page of an upstream's app in Chromium: its requests through the host, and its content security policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.server import Server as McpServer
from playwright.async_api import Page, Route, expect

from gateway.app import build_app
from gateway.config import load_config
from gateway.mcp.tools import APP_MIME_TYPE
from tests.browser.test_main_job import app_of
from tests.interop.probe import text
from tests.interop.serving import over_http
from tests.world import Server

ADDRESS = "mcp-app://shop/app.html"
"""The format of earlier drafts of MCP Apps, with the flat keys of tools."""

PAGE = """<!doctype html><pre id=reached></pre><script>
const waiting = new Map();
const tell = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const ask = (method, params = {}) => new Promise((resolve) => {
  waiting.set(waiting.size, resolve);
  tell({ id: waiting.size - 1, method, params });
});
addEventListener("message", ({ data }) => {
  if (data.method) heard.textContent += JSON.stringify(data.params) + "\\n";
  else waiting.get(data.id)?.(data.result ?? data.error);
});
const reached = async (url) => {
  let blocked = "";
  const hear = ({ effectiveDirective }) => (blocked = effectiveDirective);
  document.addEventListener("securitypolicyviolation", hear);
  const answer = await fetch(url).then((response) => response.text(), () => "failed");
  await new Promise((go) => setTimeout(go));
  document.removeEventListener("securitypolicyviolation", hear);
  return blocked || answer;
};
(async () => {
  const appInfo = { name: "app", version: "1" };
  await ask("ui/initialize", { appInfo, appCapabilities: {}, protocolVersion: "2026-01-26" });
  tell({ method: "ui/notifications/initialized", params: {} });
  const call = async (name) => (await ask("tools/call", { name, arguments: {} })).content[0].text;
  const named = (list, key) => list.map((one) => one[key]).join();
  document.querySelector("#reached").textContent = [
    await call("both"), await call("page"), await call("model"),
    named((await ask("resources/list")).resources, "title"),
    (await ask("resources/read", { uri: "shop://note" })).contents[0].text,
    named((await ask("resources/templates/list")).resourceTemplates, "title"),
    named((await ask("prompts/list")).prompts, "title"),
    (await ask("prompts/get", { name: "greet" })).messages[0].content.text,
    await reached("https://listed.example/"), await reached("https://read.example/"), "end",
  ].join("\\n");
})();
</script>"""


def shop(who: str) -> McpServer[Any]:
    """A server with an app; all its answers contain `who`, the only difference between two of them."""

    def csp(origin: str) -> dict[str, Any]:
        return {"ui": {"csp": {"connectDomains": [origin]}}}

    callers: dict[str, list[str]] = {"both": ["model", "app"], "page": ["app"], "model": ["model"]}
    tools = [
        types.Tool(name=name, input_schema={"type": "object"}, _meta={"ui/resourceUri": ADDRESS, "ui/visibility": seen})
        for name, seen in callers.items()
    ]

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"{params.name} of {who}")])

    async def list_resources(_: Any, __: Any) -> types.ListResourcesResult:
        listed = types.Resource(uri=ADDRESS, name="app", title=who, _meta=csp("https://listed.example"))
        return types.ListResourcesResult(resources=[listed])

    async def list_templates(_: Any, __: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template="shop://{name}", name="any", title=who)
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        is_app = str(params.uri) == ADDRESS
        content = types.TextResourceContents(
            uri=params.uri,
            mime_type=APP_MIME_TYPE if is_app else "text/plain",
            text=PAGE if is_app else f"a note of {who}",
            _meta=csp("https://read.example") if is_app else None,
        )
        return types.ReadResourceResult(contents=[content])

    async def list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name="greet", title=who)])

    async def get_prompt(_: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        said = types.TextContent(type="text", text=f"{params.name} of {who}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=said)])

    return McpServer(
        who,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


def twin() -> McpServer[Any]:
    """The server that comes first."""
    return shop("twin")


async def test_a_page_reaches_its_own_upstream_and_what_it_declares(page: Page, tmp_path: Path) -> None:
    """It uses its own upstream's tools, resources, templates and prompts, though another has the same names.

    Of two content policies the one of the resource that is read applies. The page and the model can both call a tool
    for both, and neither can call a tool for the other.
    """

    async def answer(route: Route) -> None:
        await route.fulfill(body="reached", headers={"access-control-allow-origin": "*"})

    await page.route("https://*.example/", answer)
    door = Server()
    (tmp_path / "app.yaml").write_text("version: 1\n", "utf-8")
    async with over_http(shop("shop")) as url:
        (tmp_path / "gateway.yaml").write_text(
            f"server: {{listen: 127.0.0.1:{door.port}}}\n"
            "upstreams:\n  twin: {server: 'tests.browser.test_upstream_pages:twin', trust: us}\n"
            f"  shop: {{url: '{url}', network: private, trust: us}}\n"
            f"apps:\n  shown: {{source: {{upstream: shop, resource: '{ADDRESS}'}}, policy: app.yaml}}\n",
            "utf-8",
        )
        await door.start(build_app(load_config(tmp_path / "gateway.yaml", {})))
        try:
            await page.goto(f"http://localhost:{door.port}")
            reached = app_of(page).locator("#reached")
            await expect(reached).to_contain_text("end")
            found = (await reached.inner_text()).split("\n")
            assert found == [
                "both of shop",
                "page of shop",
                "policy-denied: The tool 'model' is not for apps.",
                "shop",
                "a note of shop",
                "shop",
                "shop",
                "greet of shop",
                "connect-src",
                "reached",
                "end",
            ]
            for mount, prefix in (("/shop", ""), ("", "shop_")):
                async with Client(f"http://localhost:{door.port}/mcp{mount}") as model:
                    listed = {tool.name for tool in (await model.list_tools()).tools}
                    assert {f"{prefix}both", f"{prefix}model"} <= listed
                    assert f"{prefix}page" not in listed
                    said = [await model.call_tool(f"{prefix}{name}") for name in ("both", "model", "page")]
                    assert [text(one) for one in said[:2]] == ["both of shop", "model of shop"]
                    assert said[2].is_error
        finally:
            await door.stop()
