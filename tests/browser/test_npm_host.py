"""The package `webmcp-gateway-host`: packed, installed, typed, and rendered on servers by frameworks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.element_host import SPEAK, app_in, in_app, plain_host, until, until_app
from tests.browser.test_display_modes import app, item
from tests.browser.test_npm_module import BROWSER, TSCONFIG, run

PACKAGE = BROWSER / "packages" / "host"
LINKED = [
    "react",
    "react-dom",
    "scheduler",
    "vue",
    "@vue",
    "svelte",
    "@modelcontextprotocol",
    "zod",
    "rolldown",
    "@types",
    "csstype",
]

SERVER = """
import { renderToString } from "react-dom/server";
import { createElement } from "react";
import { createSSRApp, h } from "vue";
import { renderToString as renderVue } from "vue/server-renderer";
import { compile } from "svelte/compiler";
import { render } from "svelte/server";
import { writeFileSync } from "node:fs";
import { buildMcpHostContext, defineMcpApp, McpApp } from "webmcp-gateway-host";

const attributes = { gateway: "", app: "cart", title: "Fennel & Oak", "tool-call-id": "call-1" };
const react = renderToString(createElement("mcp-app", attributes));
const vue = await renderVue(createSSRApp({ render: () => h("mcp-app", attributes) }));
const source = `<mcp-app gateway="" app="cart" title={"Fennel & Oak"} tool-call-id="call-1"></mcp-app>`;
writeFileSync("app.svelte.js", compile(source, { generate: "server" }).js.code);
const svelte = render((await import("./app.svelte.js")).default).body;
defineMcpApp();
const is = [typeof McpApp, typeof window];
console.log(JSON.stringify({ react, vue, svelte, context: buildMcpHostContext(), is }));
"""

TYPES = """
import { buildMcpHostContext, McpApp, type McpAppItem } from "webmcp-gateway-host";

const app = document.createElement("mcp-app");
app.title = "Map";
app.sandboxUrl = "https://sandbox.example/proxy.html";
app.onCallTool = async ({ name, arguments: given }, { signal }) => ({ content: [], name, given, over: signal.aborted });
app.addEventListener("mcp-app-open-link", (event) => event.detail.respondWith(event.detail.url.startsWith("https:")));
app.addEventListener("mcp-app-error", ({ detail }) => console.error(detail.code satisfies string));
app.displayMode = "pip";
app.toolResult = { content: [] };
void app.callTool("move", { to: 3 }).then((result) => result.content);
export const item: McpAppItem = { response_type: "mcp_app", title: "Map", mcp_app_id: "1", resource_uri: "ui://map/x" };
export const context = buildMcpHostContext(app instanceof McpApp ? app : null).theme;
"""


REACT = """
import { useRef } from "react";
import { McpApp, McpAppItem } from "webmcp-gateway-host/react";

export function Page({ item, dark }: { item: McpAppItem; dark: boolean }) {
  const app = useRef<McpApp>(null);
  return (
    <main>
      <McpApp
        ref={app} gateway="" app="cart" title="Cart" displayMode="pip" className="app" tools={undefined}
        hostContext={{ theme: dark ? "dark" : "light" }}
        onCallTool={({ name }, { signal }) => ({ content: [], name, over: signal.aborted })}
        onmcp-app-size-changed={(event) => console.log(event.detail.height satisfies number | undefined)}
        onmcp-app-open-link={(event) => event.detail.respondWith(event.detail.url.startsWith("https:"))}
      />
      <McpAppItem item={item} options={{ gateway: "", eager: true }} onClick={() => app.current?.retry()} />
      {/* @ts-expect-error: a title is required */}
      <McpApp gateway="" app="cart" />
    </main>
  );
}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tarball installed, beside the frameworks and the package's own dependencies."""
    folder = tmp_path_factory.mktemp("npm-host")
    run("npm", "pack", "--pack-destination", folder, cwd=PACKAGE)
    (tarball,) = folder.glob("*.tgz")
    installed = folder / "node_modules" / "webmcp-gateway-host"
    installed.mkdir(parents=True)
    subprocess.run(["tar", "xzf", tarball, "--strip-components=1", "-C", installed], check=True)
    for name in LINKED:
        os.symlink(BROWSER / "node_modules" / name, folder / "node_modules" / name)
    (folder / "package.json").write_text('{"name": "mini", "private": true, "type": "module"}', "utf-8")
    return folder


def test_it_holds_the_element_its_types_and_the_proxy(project: Path) -> None:
    """Every export is there, and nothing else but README and license; its versions are the gateway's."""
    installed = project / "node_modules" / "webmcp-gateway-host"
    files = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    others = {name for name in files if not name.startswith("dist/types/")}
    sandbox = {"dist/sandbox/proxy.html"}
    assert others == {"README.md", "package.json", "dist/LICENSE", "dist/index.js", "dist/react.js", *sandbox}
    package = json.loads((installed / "package.json").read_text("utf-8"))
    view = json.loads((BROWSER / "package.json").read_text("utf-8"))
    assert package["version"] == view["version"]
    needs, tested = package["dependencies"], view["devDependencies"]
    assert needs == {name: tested[name] for name in needs}


def test_it_is_imported_and_rendered_without_a_browser(project: Path) -> None:
    """React, Vue and Svelte write the tag with its attributes; the browser defines it later."""
    (project / "server.js").write_text(SERVER, "utf-8")
    told = json.loads(run("node", "server.js", cwd=project))
    assert told["is"] == ["function", "undefined"]
    assert told["context"]["displayMode"] == "inline"
    for framework in ("react", "vue", "svelte"):
        html = told[framework]
        assert "<mcp-app " in html, framework
        assert 'title="Fennel &amp; Oak"' in html, framework
        assert 'tool-call-id="call-1"' in html, framework


def test_its_types_are_right_for_strict_pages(project: Path) -> None:
    """The element, its events and its methods are typed for bundlers, for Node, and in JSX."""
    (project / "main.ts").write_text(TYPES, "utf-8")
    (project / "page.tsx").write_text(REACT, "utf-8")
    options = {**TSCONFIG["compilerOptions"], "jsx": "react-jsx"}  # type: ignore[dict-item]  # the options are an object
    (project / "tsconfig.json").write_text(
        json.dumps({"compilerOptions": options, "include": ["main.ts", "page.tsx"]}), "utf-8"
    )
    for module, resolution in (("ESNext", "bundler"), ("NodeNext", "nodenext")):
        command = [BROWSER / "node_modules" / ".bin" / "tsc", "-p", ".", "--module", module]
        done = subprocess.run(
            [*map(str, command), "--moduleResolution", resolution],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        ours = [line for line in done.stdout.splitlines() if not line.startswith("node_modules/@modelcontextprotocol/")]
        assert [line for line in ours if line and not line.startswith(" ")] == []


async def test_items_follow_their_calls_in_frameworks(project: Path, page: Page) -> None:
    """React, Vue and Svelte render an item; the news of its call reach its app, which no rendering loads again."""
    (project / "pages.mjs").write_text(
        (Path(__file__).parent / "frameworks/host/pages.mjs").read_text("utf-8"), "utf-8"
    )
    run("node", "pages.mjs", cwd=project)
    call, asked = {"tool_call_id": "c1", "tool_name": "plan"}, {"tool_input": {"city": "Lisbon"}}
    first = {**item(1), **call, "tool_input_partial": {"city": "Li"}}
    async with plain_host() as host:
        for framework in ("react", "vue", "svelte"):
            settings = {"sandboxUrl": host.sandbox, "hostContext": {"theme": "dark"}, "tools": []}
            await host.open(page, "<main></main>")
            await page.evaluate("([first, settings]) => Object.assign(window, { first, settings })", [first, settings])
            await page.add_script_tag(path=project / "dist" / f"{framework}.js")
            told = app(page, 1).locator("#told")
            await expect(told).to_have_text('input-partial {"city":"Li"}')
            await app(page, 1).locator("#note").fill("kept")
            for news in (asked, {**asked, "tool_result": {"content": [], "structuredContent": {"days": 3}}}):
                await page.evaluate("(next) => setItem(next)", {**item(1), **call, **news})
            await expect(told).to_have_text('input-partial {"city":"Li"}; input {"city":"Lisbon"}; result {"days":3}')
            await expect(app(page, 1).locator("#note")).to_have_value("kept")


SAVE = """
window.saves = true;
addEventListener("message", async ({ data }) => {
  if (data.method !== "ui/resource-teardown") return;
  await call("save");
  tell({ id: data.id, result: {} });
});"""
"""The app calls a tool before it ends."""


async def test_a_page_that_was_rendered_on_a_server_is_hydrated_and_navigates(project: Path, page: Page) -> None:
    """As in Next: React's server writes the page, its client takes over, and a router shows others in its place.

    Properties, handlers and listeners reach the element in both ways, no rendering loads an app again, and an app that
    is navigated away from saves its state.
    """
    folder = Path(__file__).parent / "frameworks/host"
    for name in ("next_like.mjs", "next_like_build.mjs"):
        (project / name).write_text((folder / name).read_text("utf-8"), "utf-8")
    html = run("node", "next_like_build.mjs", cwd=project)
    assert "<mcp-app " in html
    problems: list[str] = []
    page.on("console", lambda one: problems.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    async with plain_host() as host:
        settings = {"sandboxUrl": host.sandbox, "html": host.app(SPEAK + SAVE)}
        host.pages["/page.js"] = (project / "dist/next_like.js").read_text("utf-8")
        script = f"<script>window.settings = {json.dumps(settings).replace('</', '<' + chr(92) + '/')}</script>"
        tail = "<script type=module src=/page.js></script>"
        for path in ("/", "/two"):
            host.pages[path] = (
                f"<!doctype html>{script}<div id=root>{run('node', 'server.mjs', path, cwd=project)}</div>{tail}"
            )
        await page.goto(host.origin)
        out = app_in(page).locator("#out")
        await expect(out).to_contain_text("ready")
        assert await in_app(page, "told.hostContext.locale") == "de-CH"
        assert (await in_app(page, "call('count')"))["result"]["structuredContent"] == {"count": 0}
        await page.get_by_role("button", name="Count").click()
        assert (await in_app(page, "call('count')"))["result"]["structuredContent"] == {"count": 1}
        await page.get_by_role("link", name="Two").click()
        await expect(page.get_by_role("heading")).to_have_text("Page /two")
        await expect(out).to_contain_text("ready")
        assert (await until_app(page, "heard.find(({ params }) => params?.arguments)"))["params"] == {
            "arguments": {"page": "/two"}
        }
        await page.go_back()
        await expect(page.get_by_role("heading")).to_have_text("Page /")
        await expect(out).to_contain_text("ready")
        await until(page, 'JSON.stringify(events) === \'["/","/two","/"]\'')
        await until(page, 'JSON.stringify(saved) === \'["/","/two"]\'')
        assert await page.evaluate("document.querySelectorAll('iframe').length") == 0  # all are in shadow trees
        assert problems == []
