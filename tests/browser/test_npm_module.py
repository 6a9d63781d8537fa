"""The module that apps install from npm: packed, installed into a small Vite app, typed, and run in a host."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Frame, expect

from tests.browser.runtime_host import ROOT, Host, pack_html

BROWSER = ROOT / "browser"
LINKED = [
    "react",
    "react-dom",
    "scheduler",
    "@types/react",
    "@types/react-dom",
    "csstype",
    "@modelcontextprotocol",
    "zod",
]
TSCONFIG = {
    "compilerOptions": {
        "strict": True, "noEmit": True, "target": "ES2022", "module": "ESNext", "moduleResolution": "bundler",
        "lib": ["ES2022", "DOM", "DOM.Iterable"], "skipLibCheck": False, "exactOptionalPropertyTypes": True,
        "types": [],
        "preserveSymlinks": True,
    },
    "include": ["main.ts"],
}  # fmt: skip


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command; on failure it is shown."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Vite app with the tarball installed."""
    folder = tmp_path_factory.mktemp("npm")
    run("npm", "pack", "--pack-destination", folder, cwd=BROWSER)
    (tarball,) = folder.glob("*.tgz")
    (folder / "package.json").write_text(json.dumps({"name": "mini", "private": True, "type": "module"}), "utf-8")
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--legacy-peer-deps", tarball, cwd=folder)
    for name in LINKED:
        place, source = folder / "node_modules" / name, BROWSER / "node_modules" / name
        place.parent.mkdir(exist_ok=True)
        if source.exists() and not place.exists():
            os.symlink(source, place)
    (folder / "main.ts").write_text((Path(__file__).parent / "module" / "main.ts").read_text("utf-8"), "utf-8")
    (folder / "index.html").write_text(
        "<!doctype html><body><script type=module src=/main.ts></script></body>", "utf-8"
    )
    (folder / "tsconfig.json").write_text(json.dumps(TSCONFIG), "utf-8")
    return folder


@pytest.fixture(scope="module")
def script(project: Path) -> str:
    """The script that Vite builds of the app."""
    run(BROWSER / "node_modules" / ".bin" / "vite", "build", "--logLevel", "error", cwd=project)
    (built,) = (project / "dist" / "assets").glob("*.js")
    return built.read_text("utf-8").replace("</script", "<\\/script")


async def ready(host: Host, html: str) -> Frame:
    """The connected app."""
    frame = await host.show(html)
    await frame.wait_for_function("() => window.ready")
    return frame


def bare(script: str) -> str:
    """The app in a page without the view runtime."""
    return f"<!doctype html><body><script type=module>{script}</script></body>"


async def request_arguments(host: Host) -> list[dict[str, Any]]:
    """The arguments of the calls of `http_request`."""
    found: list[dict[str, Any]] = await host.run("() => host.calls('http_request')")
    return found


@pytest.mark.parametrize("resolution", ["bundler", "nodenext"])
def test_its_types_are_right_for_strict_apps(project: Path, resolution: str) -> None:
    """Strict apps compile with ext-apps' own `App`, React, and exact optional properties, for bundlers and Node."""
    modules = "ESNext" if resolution == "bundler" else "NodeNext"
    command = [str(BROWSER / "node_modules" / ".bin" / "tsc"), "-p", ".", "--module", modules]
    command += ["--moduleResolution", resolution]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    # ext-apps' own declarations need packages that only some of its users have.
    others = "node_modules/@modelcontextprotocol/"
    assert [line for line in done.stdout.splitlines() if line and not line.startswith(others)] == []


def test_it_holds_what_it_promises_and_nothing_else(project: Path) -> None:
    """It contains the built files, the types, the README and the license; no source, no test."""
    installed = project / "node_modules" / "webmcp-gateway-view"
    exports = json.loads((installed / "package.json").read_text("utf-8"))["exports"]
    named = [place for one in exports.values() for place in (one.values() if isinstance(one, dict) else [one])]
    assert [place for place in named if not (installed / place).is_file()] == []
    assert sorted(path.name for path in installed.iterdir()) == ["README.md", "dist", "package.json"]
    assert {path.suffix for path in (installed / "dist").rglob("*") if path.is_file()} == {"", ".js", ".ts", ".css"}
    assert (installed / "dist" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


async def test_fetch_and_xhr_are_carried_by_the_apps_own_client(host: Host, script: str) -> None:
    """Without the view runtime they are calls of the `App`, under the published options."""
    await host.answers("return { bodyType: 'json', body: { url: args.url, got: args.body } };")
    frame = await ready(host, bare(script))
    fetched = await frame.evaluate(
        "async () => (await fetch('/api/x?a=1', {method: 'POST', body: JSON.stringify({n: 1}),"
        " headers: {'content-type': 'application/json'}})).json()"
    )
    assert fetched["url"] == "/api/x?a=1"
    asked = await frame.evaluate(
        "() => new Promise((resolve) => { const xhr = new XMLHttpRequest(); xhr.open('GET', '/api/y');"
        " xhr.onload = () => resolve([xhr.status, JSON.parse(xhr.responseText).url]); xhr.send(); })"
    )
    assert asked == [200, "/api/y"]
    assert [(args["method"], args["timeoutMs"]) for args in await request_arguments(host)] == [
        ("POST", 9000),
        ("GET", 9000),
    ]


async def test_an_answer_may_tell_its_length(host: Host, script: str) -> None:
    """Other servers send content-length: it appears once, and progress uses it."""
    await host.answers(
        "return { bodyType: 'text', body: 'hello world',"
        " headers: {'content-length': '11', 'content-type': 'text/plain'} };"
    )
    frame = await ready(host, bare(script))
    seen = await frame.evaluate(
        """() => new Promise((resolve) => {
          const xhr = new XMLHttpRequest();
          const told = [];
          xhr.open("GET", "/api/y");
          xhr.onprogress = ({lengthComputable, loaded, total}) => told.push([lengthComputable, loaded, total]);
          xhr.onloadend = () =>
            resolve([xhr.status, xhr.responseText, xhr.getResponseHeader("content-length"), told.at(-1)]);
          xhr.send();
        })"""
    )
    assert seen == [200, "hello world", "11", [True, 11, 11]]


async def test_a_request_that_is_not_carried_is_the_browsers_own_xhr(host: Host, script: str) -> None:
    """`open()` decides: earlier settings are applied; only a native request may be synchronous."""
    await host.answers("return { bodyType: 'text', body: 'carried' };")
    frame = await ready(host, bare(script))
    seen = await frame.evaluate(
        """async () => {
          const seen = [];
          const name = (run) => {
            try {
              run();
              return "none";
            } catch (error) {
              return [error.name, /not supported in MCP Apps/.test(error.message)];
            }
          };
          const xhr = new XMLHttpRequest();
          xhr.responseType = "json";
          xhr.withCredentials = true;
          const events = [];
          const see = (event) => events.push([event.type, event.target === xhr, xhr.readyState]);
          for (const type of ["readystatechange", "loadstart", "error", "loadend"]) xhr[`on${type}`] = see;
          xhr.open("GET", "/other");
          seen.push(xhr.responseType, xhr.withCredentials, xhr.readyState, name(() => xhr.send()));
          await new Promise((go) => xhr.addEventListener("loadend", go));
          seen.push(events, xhr.status);
          const sync = new XMLHttpRequest();
          seen.push(name(() => sync.open("GET", "/other", false)), name(() => sync.send()));
          seen.push(name(() => sync.open("GET", "/api/x", false)));
          sync.open("GET", "/api/x");
          const loaded = new Promise((go) => sync.addEventListener("load", go));
          sync.send();
          await loaded;
          seen.push(sync.responseText, sync instanceof XMLHttpRequest, String(sync));
          seen.push(Object.keys(sync), XMLHttpRequest.DONE);
          return seen;
        }"""
    )
    blocked = [
        ["readystatechange", True, 1],
        ["loadstart", True, 1],
        ["readystatechange", True, 4],
        ["error", True, 4],
        ["loadend", True, 4],
    ]
    assert seen == [
        "json", True, 1, "none", blocked, 0, "none", ["NetworkError", False], ["InvalidAccessError", True],
        "carried", True, "[object XMLHttpRequest]", [], 4,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sent_limit"),
    [("2 ** 53", 2**53 - 1), ("0", None), ("-5", None), ("NaN", None), ("1.5", 2), ("Infinity", None)],
)
async def test_a_limit_in_time_is_one_that_the_tool_takes(
    host: Host, script: str, given: str, sent_limit: int | None
) -> None:
    """Any `timeoutMs` of a page is converted to a valid limit."""
    await host.answers("return { bodyType: 'text', body: 'ok' };")
    frame = await ready(host, bare(script))
    await frame.evaluate(f"handle.restore(), init(app, {{installGlobal: false, timeoutMs: {given}}}).fetch('/api/x')")
    assert [args.get("timeoutMs") for args in await request_arguments(host)] == [sent_limit]


async def test_what_is_not_to_be_carried_is_the_browsers(host: Host, script: str) -> None:
    """Other paths, other origins and a stopped handle use native requests; here the content policy refuses them."""
    await host.answers("return { bodyType: 'text', body: 'carried' };")
    frame = await ready(host, bare(script))
    tried = "async (url) => fetch(url).then((r) => r.text(), (error) => error.name)"
    for url in ("/apiadmin", "/other", "https://api.example/api/x"):
        assert await frame.evaluate(tried, url) == "TypeError"
    await frame.evaluate("handle.stop()")
    assert [await frame.evaluate("handle.isActive()"), await frame.evaluate(tried, "/api/x")] == [False, "TypeError"]
    await frame.evaluate("handle.start()")
    assert await frame.evaluate(tried, "/api/x") == "carried"
    await frame.evaluate("handle.restore()")
    assert await frame.evaluate("[/native code/.test(fetch), /native code/.test(XMLHttpRequest)]") == [True, True]
    assert len(await request_arguments(host)) == 1


async def test_the_options_decide(host: Host, script: str) -> None:
    """`shouldIntercept`, `interceptEnabled`, `allowAbsoluteUrls`, `isMcpApp`, `fallbackToNative`, `toolName` apply."""
    await host.answers("return { bodyType: 'text', body: args.url };")
    await host.run("() => { host.tools.other_request = host.tools.http_request; }")
    frame = await ready(host, bare(script))
    seen = await frame.evaluate(
        """async () => {
          handle.restore();
          const before = window.fetch;
          const tried = async (options, url = "/api/x") => {
            const made = init(app, {installGlobal: false, ...options});
            const told = async (r) => r.status === 200 ? r.text() : r.headers.get("gateway-reason");
            return made.fetch(url).then(told, (error) => error.name);
          };
          const lines = [];
          const all = [
            await tried({shouldIntercept: (url, request) => request.method === "POST"}),
            await tried({interceptPaths: [], shouldIntercept: (url) => url.pathname === "/api/x"}),
            await tried({interceptEnabled: () => false}),
            await tried({allowAbsoluteUrls: true}, "https://api.example/z"),
            await tried({isMcpApp: () => false, fallbackToNative: false}),
            await tried({interceptPaths: ["/other"], fallbackToNative: false}),
            await tried({toolName: "other_request", debug: (line) => lines.push(line)}),
            await tried({isMcpApp: () => false, fetch: async () => new Response("native")}),
          ];
          return [all, lines.length, window.fetch === before];
        }"""
    )
    assert seen == [
        ["TypeError", "/api/x", "TypeError", "https://api.example/z", "no-host", "TypeError", "/api/x", "native"],
        1,
        True,
    ]
    assert await host.run("() => host.calls('other_request').length") == 1


async def test_what_the_tool_says_in_place_of_an_answer_is_the_error(host: Host, script: str) -> None:
    """An error result of the tool is the error, as in the published adapter; an `XMLHttpRequest` fails."""
    frame = await ready(host, bare(script))
    seen = []
    for content in ("[{ type: 'text', text: 'boom' }]", "[]"):
        await host.run(f"() => {{ host.tools.http_request = async () => ({{ isError: true, content: {content} }}); }}")
        seen.append(
            await frame.evaluate(
                """async () => {
                  const failed = await fetch("/api/x").catch((error) => error);
                  const xhr = new XMLHttpRequest();
                  xhr.open("GET", "/api/x");
                  xhr.send();
                  await new Promise((resolve) => (xhr.onloadend = xhr.onerror = resolve));
                  return [failed instanceof TypeError, failed.message, xhr.readyState, xhr.status];
                }"""
            )
        )
    assert seen == [[True, "boom", 4, 0], [True, "The tool gave an error", 4, 0]]


async def test_each_half_is_there_alone(host: Host, script: str) -> None:
    """`initMcpFetch`, `initMcpXhr` with `shouldIntercept`, `patchFetch` and `patchXhr` leave the other API alone."""
    await host.answers("return { bodyType: 'text', body: args.url };")
    frame = await ready(host, bare(script))
    seen = await frame.evaluate(
        """async () => {
          handle.restore();
          const [fetch, Xhr] = [window.fetch, window.XMLHttpRequest];
          const replaced = () => [window.fetch !== fetch, window.XMLHttpRequest !== Xhr];
          const asked = [];
          const sent = (url) => new Promise((resolve) => {
            const xhr = new XMLHttpRequest();
            xhr.open("GET", url);
            xhr.onload = () => resolve(xhr.responseText);
            xhr.onerror = () => resolve("native");
            xhr.send();
          });
          const tried = async (made) => {
            const all = [...replaced(), made.isActive()];
            const words = [await window.fetch("/x").then((r) => r.text(), () => "native"), await sent("/x?y=1")];
            made.stop();
            made.restore();
            made.start();
            return [...all, ...words, ...replaced(), made.isActive()];
          };
          const decides = (...given) => (asked.push(given), given[1] === "/x?y=1");
          const all = [await tried(initFetch(app)), await tried(initXhr(app, {shouldIntercept: decides})),
            await tried(init(app, {patchXhr: false})), await tried(init(app, {patchFetch: false}))];
          return [all, asked];
        }"""
    )
    only_fetch = [True, False, True, "/x", "native", False, False, False]
    only_xhr = [False, True, True, "native", "/x?y=1", False, False, False]
    assert seen == [[only_fetch, only_xhr, only_fetch, only_xhr], [["GET", "/x?y=1"]]]


async def test_with_the_view_runtime_its_calls_are_proven(host: Host, script: str, tmp_path: Path) -> None:
    """There is one `App` and one initialize; the runtime adds proofs to the module's requests."""
    await host.attaches()
    await host.answers("return { bodyType: 'text', body: 'ok' };")
    frame = await ready(host, pack_html(tmp_path, bare(script)))
    await host.until("host.calls('webmcp_attach').length")
    assert await frame.evaluate("fetch('/api/x').then((r) => r.text())") == "ok"
    assert [("_view" in args, args["timeoutMs"]) for args in await request_arguments(host)] == [(True, 9000)]
    assert await host.run("() => host.of('ui/initialize').length") == 1


async def test_react_follows_the_tier(host: Host, script: str, tmp_path: Path) -> None:
    """The gate is closed in tier static; actions are reported with the component's name."""
    await host.run("() => { host.capabilities = { updateModelContext: {} }; }")
    frame = await ready(host, pack_html(tmp_path, bare(script)))
    await expect(frame.locator("#tier")).to_have_text("context-synced")
    await frame.locator("button").click()
    await expect(frame.locator("#count")).to_have_text("100")
    report = await host.run("() => host.of('ui/update-model-context').at(-1).params.content[0].text")
    assert 'component: "counter"' in report
    await host.run("() => { host.capabilities = {}; }")
    static = await ready(host, pack_html(tmp_path, bare(script)))
    await expect(static.locator("i")).to_have_text("not here")
    await expect(static.locator("button")).to_have_count(0)
    assert await static.evaluate("tiers") == ["static"]


async def test_react_offers_tools_while_mounted(host: Host, script: str, tmp_path: Path) -> None:
    """The newest closure is called; the tool is re-registered only when its description changes."""
    await host.attaches("count")
    frame = await ready(host, pack_html(tmp_path, bare(script)))
    await host.until("host.calls('webmcp_attach').length")
    call = "([id, by]) => host.ask(id, 'tools/call', {name: 'count', arguments: {by}})"
    texts = []
    for number in (1, 2):
        texts.append((await host.run(call, [number, 1]))["result"]["content"][0]["text"])
        await expect(frame.locator("#count")).to_have_text(str(number))
    assert texts == ["0 + 1", "1 + 1"]
    listed = await host.run("() => host.ask(9, 'tools/list')")
    assert [tool["description"] for tool in listed["result"]["tools"]] == ["Counts on from many."]
    await frame.evaluate("root.unmount()")
    assert (await host.run("() => host.ask(10, 'tools/list')"))["result"]["tools"] == []


async def test_without_the_runtime_the_rest_says_that_nobody_is_there(host: Host, script: str) -> None:
    """No call throws, and style sheets see the tier."""
    frame = await ready(host, bare(script))
    await expect(frame.locator("#tier")).to_have_text("standalone")
    await expect(frame.locator("html")).to_have_attribute("data-tier", "standalone")
    assert await frame.evaluate("said('x')") == "Nobody here can call the tool x"
    assert await frame.evaluate("report({action: 'x'})") is False


async def test_others_that_replace_fetch_before_and_after_stay(host: Host, script: str) -> None:
    """The previous `fetch` gets the requests that are not carried; a later wrapper stays when the module is removed."""
    await host.answers("return { bodyType: 'text', body: 'carried' };")
    frame = await ready(host, bare(script))
    seen = await frame.evaluate(
        """async () => {
          handle.restore();
          const native = window.fetch;
          const asked = [];
          const before = async (...given) => (asked.push(`before ${given[0]}`), new Response("before"));
          window.fetch = before;
          const made = init(app, {interceptPaths: ["/api"]});
          const mine = window.fetch;
          const after = (...given) => (asked.push(`after ${given[0]}`), mine(...given));
          window.fetch = after;
          const tried = async (url) => (await fetch(url)).text();
          const texts = [await tried("/api/x"), await tried("/other")];
          made.restore();
          texts.push(await tried("/api/y"));
          const kept = window.fetch === after;
          window.fetch = before;
          const again = init(app);
          again.restore();
          const back = window.fetch === before;
          window.fetch = native;
          return [texts, asked, kept, back];
        }"""
    )
    assert seen == [
        ["carried", "before", "before"],
        ["after /api/x", "after /other", "before /other", "after /api/y", "before /api/y"],
        True,
        True,
    ]


WHOLE = """
import "webmcp-gateway-view/runtime";
const events = new EventSource("/api/events");
events.onmessage = ({data}) => { window.heard = data; events.close(); };
navigator.sendBeacon("/api/beacon", "x");
window.ready = true;
"""


async def test_the_whole_runtime_serves_a_page_that_nobody_packed(host: Host, project: Path) -> None:
    """Imported first, it provides view proof, `EventSource`, forms as tools, and beacons."""
    folder = project / "whole"
    folder.mkdir()
    (folder / "whole.ts").write_text(WHOLE, "utf-8")
    (folder / "index.html").write_text("<!doctype html><script type=module src=/whole.ts></script>", "utf-8")
    run(BROWSER / "node_modules" / ".bin" / "vite", "build", "--logLevel", "error", cwd=folder)
    (built,) = (folder / "dist" / "assets").glob("*.js")
    script = built.read_text("utf-8").replace("</script", "<\\/script")
    await host.attaches("book")
    await host.answers(
        "return args.url !== '/api/events' ? {} :"
        " { bodyType: 'text', headers: { 'content-type': 'text/event-stream' }, body: 'data: hello\\n\\n' };"
    )
    form = "<form toolname=book tooldescription='Books a table.'><input name=seats type=number></form>"
    frame = await ready(host, bare(script).replace("<body>", f"<body>{form}"))
    await frame.wait_for_function("() => window.heard === 'hello'")
    await host.until("host.calls('http_request').length >= 2")
    assert {(args["url"], "_view" in args) for args in await request_arguments(host)} == {
        ("/api/events", True),
        ("/api/beacon", True),
    }
    listed = await host.run("() => host.ask('list', 'tools/list')")
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["book"]
