"""An app on an origin of its own: what works there as on a site, and what a hostile page cannot do there either."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, Frame, Page, Route, async_playwright, expect

from tests.browser.conftest import ARGUMENTS, program
from tests.browser.test_main_job import app_of
from tests.callers.tokens import link
from tests.world import World, running

PAGE = """<!doctype html><html><head><title>x</title></head><body><p id=out>waiting</p>
<script>
const results = {};
const attempt = async (name, run) => {
  try { results[name] = String(await run()); } catch (error) { results[name] = `${error.name}: ${error.message}`; }
};
const frame = async (set) => {
  const made = document.createElement("iframe");
  set(made);
  const loaded = new Promise((go) => made.addEventListener("load", go, { once: true }));
  document.body.append(made);
  await loaded;
  return made;
};
(async () => {
  await attempt("about:blank", async () => {
    const made = document.body.appendChild(document.createElement("iframe"));
    made.contentDocument.body.innerHTML = "<b contenteditable>edited</b>";
    return made.contentDocument.body.textContent;
  });
  await attempt("srcdoc", async () => {
    const made = await frame((one) => { one.srcdoc = "<p>preview</p><script>window.ran = 'ran'<\\/script>"; });
    return made.contentDocument.querySelector("p").textContent + made.contentWindow.ran;
  });
  await attempt("blob frame", async () => {
    const url = URL.createObjectURL(new Blob(["<p>of a blob</p>"], { type: "text/html" }));
    return (await frame((one) => { one.src = url; })).contentDocument.body.textContent;
  });
  await attempt("blob worker", () => new Promise((go, fail) => {
    const code = "onmessage = ({ data }) => postMessage(data * 2)";
    const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
    worker.onmessage = ({ data }) => go(data);
    worker.onerror = () => fail(new Error("blocked"));
    worker.postMessage(21);
  }));
  await attempt("canvas", async () => {
    const picture = new Image();
    picture.src = URL.createObjectURL(new Blob(["<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"],
      { type: "image/svg+xml" }));
    await picture.decode();
    const canvas = document.createElement("canvas");
    canvas.getContext("2d").drawImage(picture, 0, 0);
    return canvas.toDataURL().slice(0, 22);
  });
  await attempt("media", () => new Promise((go, fail) => {
    const wave = new Uint8Array(44 + 8000);
    const text = (at, what) => [...what].forEach((char, index) => { wave[at + index] = char.charCodeAt(0); });
    const view = new DataView(wave.buffer);
    text(0, "RIFF"); view.setUint32(4, 36 + 8000, true); text(8, "WAVEfmt "); view.setUint32(16, 16, true);
    view.setUint16(20, 1, true); view.setUint16(22, 1, true); view.setUint32(24, 8000, true);
    view.setUint32(28, 8000, true); view.setUint16(32, 1, true); view.setUint16(34, 8, true);
    text(36, "data"); view.setUint32(40, 8000, true);
    const sound = document.createElement("audio");
    sound.onloadedmetadata = () => go(sound.duration);
    sound.onerror = () => fail(new Error(sound.error.message));
    sound.src = URL.createObjectURL(new Blob([wave], { type: "audio/wav" }));
  }));
  await attempt("storage", async () => { localStorage.setItem("a", "b"); return localStorage.getItem("a"); });
  await attempt("indexeddb", () => new Promise((go, fail) => {
    const opening = indexedDB.open("x");
    opening.onupgradeneeded = () => opening.result.createObjectStore("s");
    opening.onerror = () => fail(opening.error);
    opening.onsuccess = () => go(opening.result.objectStoreNames[0]);
  }));
  await attempt("cookie", async () => { document.cookie = "c=1"; return document.cookie; });
  await attempt("wasm", async () => {
    const bytes = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]);
    return (await WebAssembly.compile(bytes)) instanceof WebAssembly.Module;
  });
  await attempt("fetch", async () => (await fetch("/api/products")).status);
  out.textContent = JSON.stringify(results);
})();
</script></body></html>
"""


@asynccontextmanager
async def world_of(folder: Path, *, sandbox: str = "dedicated", extra: str = "", **pages: str) -> AsyncIterator[World]:
    """A gateway for an app of these pages, by their names."""
    source = folder / "app"
    source.mkdir()
    for name, page in pages.items():
        (source / f"{name}.html").write_text(page, "utf-8")
    async with running(folder, source=source, sandbox=sandbox, extra=extra) as world:
        yield world


async def test_a_page_can_do_there_what_it_can_do_on_its_site(context: BrowserContext, tmp_path: Path) -> None:
    """Frames of its own, workers, pictures, sound, storage, WebAssembly: equal to the same page as an ordinary site."""
    async with world_of(tmp_path, index=PAGE) as world:
        page = await context.new_page()
        await page.goto(world.console)
        out = app_of(page).locator("#out")
        await expect(out).to_contain_text("{")
        site = await context.new_page()
        await site.goto(world.site)
        await expect(site.locator("#out")).to_have_text(await out.inner_text())
        assert "Error" not in await out.inner_text()


LOCAL = """<!doctype html><html><head><title>x</title></head><body><p id=out>waiting</p>
<script>
const results = {};
const attempt = async (name, run) => {
  try { results[name] = String(await run()); } catch (error) { results[name] = error.constructor.name; }
};
const events = (source) => new Promise((go) => {
  source.onmessage = ({ data }) => { source.close(); go(data); };
  source.onerror = () => { source.close(); go(`error ${source.readyState}`); };
});
const load = (url, method = "GET") => new Promise((go) => {
  const request = new XMLHttpRequest();
  request.open(method, url);
  request.onloadend = () => go([request.status, request.responseText, request.responseURL === url]);
  request.send();
});
const heard = (post) => new Promise((go) => {
  const listen = (event) => {
    if (typeof event.data !== "string") return; // the host's
    removeEventListener("message", listen);
    go([event.data, event.origin === location.origin, event.source === window]);
  };
  addEventListener("message", listen);
  post();
  setTimeout(() => { removeEventListener("message", listen); go("lost"); }, 500);
});
(async () => {
  const blob = URL.createObjectURL(new Blob(["of a blob"], { type: "text/x" }));
  const data = "data:text/x,of%20data";
  const stream = new Blob(["data: told\\n\\n"], { type: "text/event-stream" });
  for (const [name, url] of Object.entries({ blob, data })) {
    await attempt(`${name} fetch`, async () => (await fetch(url)).text());
    await attempt(`${name} Request`, async () => {
      const request = new Request(url, { headers: { a: "b" } });
      const answer = await fetch(request);
      const facts = [request.url === url, answer.url === url, answer.status, answer.headers.get("content-type")];
      return [...facts, await answer.text()];
    });
    await attempt(`${name} clone`, async () => (await fetch(new Request(new Request(url)).clone())).text());
    await attempt(`${name} POST`, async () => (await fetch(url, { method: "POST", body: "x" })).status);
    await attempt(`${name} URL`, () => new URL(url).protocol);
    await attempt(`${name} XMLHttpRequest`, () => load(url));
    await attempt(`${name} XMLHttpRequest POST`, () => load(url, "POST"));
    await attempt(`${name} sendBeacon`, () => navigator.sendBeacon(url, "x"));
  }
  await attempt("blob EventSource", () => events(new EventSource(URL.createObjectURL(stream))));
  await attempt("data EventSource", () => events(new EventSource("data:text/event-stream,data:%20told%0A%0A")));
  await attempt("blob Worker", () => new Promise((go, fail) => {
    const worker = new Worker(URL.createObjectURL(new Blob(["postMessage('at work')"], { type: "text/javascript" })));
    worker.onmessage = (event) => go(event.data);
    worker.onerror = () => fail(new Error("blocked"));
  }));
  URL.revokeObjectURL(blob);
  await attempt("revoked", async () => (await fetch(blob)).status);
  const { port1 } = new MessageChannel();
  await attempt("to its origin", () => heard(() => window.postMessage("a", location.origin)));
  await attempt("to its own", () => heard(() => postMessage("b", "/")));
  await attempt("by options", () => heard(() => self.postMessage("c", { targetOrigin: location.origin })));
  await attempt("by a variable", () => { const options = { targetOrigin: origin, transfer: [port1] };
    return heard(() => window.postMessage("d", options)); });
  await attempt("to all", () => heard(() => postMessage("e", "*")));
  await attempt("to another", () => heard(() => window.postMessage("f", "https://other.example")));
  await attempt("to nothing", () => window.postMessage("g", "no origin"));
  out.textContent = JSON.stringify(results);
})();
</script></body></html>
"""


@pytest.mark.parametrize("sandbox", ["dedicated", "opaque"])
async def test_local_urls_and_messages_to_itself_are_as_on_its_site(
    context: BrowserContext, tmp_path: Path, sandbox: str
) -> None:
    """`blob:` and `data:` URLs in each way to load one, and `postMessage` with each way to name the page's origin."""
    async with world_of(tmp_path, sandbox=sandbox, index=LOCAL) as world:
        page = await context.new_page()
        await page.goto(world.console)
        out = app_of(page).locator("#out")
        await expect(out).to_contain_text("{")
        site = await context.new_page()
        await site.goto(world.site)
        await expect(site.locator("#out")).to_contain_text("{")
        assert json.loads(await out.inner_text()) == json.loads(await site.locator("#out").inner_text())


ONE = """<!doctype html><html><body><p id=out></p><a href=two.html>two</a><script>
sessionStorage.loads = Number(sessionStorage.loads ?? 0) + 1;
out.textContent = `first, load ${sessionStorage.loads} at ${location.pathname}${location.hash}`;
</script><button onclick="location.reload()">again</button><button id=away>away</button>
<script>away.onclick = () => { Reflect.get(self, "location").href = "https://elsewhere.example/"; };</script>"""
TWO = """<!doctype html><html><body><p id=out></p><script>
document.getElementById("out").textContent = `second at ${location.pathname}`;
</script><a href="index.html">back</a></body></html>"""


async def test_a_page_reloads_and_goes_to_other_pages_of_its_app(context: BrowserContext, tmp_path: Path) -> None:
    """Each time at a new address, as each works once; what a tab keeps is kept."""
    async with world_of(tmp_path, index=ONE, two=TWO) as world:
        page = await context.new_page()
        await page.goto(world.console)
        out = app_of(page).locator("#out")
        await expect(out).to_have_text("first, load 1 at /")
        await app_of(page).get_by_text("again").click()
        await expect(out).to_have_text("first, load 2 at /")
        await app_of(page).get_by_text("two").click()
        await expect(out).to_have_text("second at /two.html")
        await app_of(page).get_by_text("back").click()
        await expect(out).to_have_text("first, load 3 at /index.html")


async def test_a_page_that_leaves_its_origin_is_ended(context: BrowserContext, tmp_path: Path) -> None:
    """The proxy's policy names no other site."""
    async with world_of(tmp_path, index=ONE) as world:
        page = await context.new_page()
        await page.goto(world.console)
        await app_of(page).locator("#away").click()
        await expect(page.get_by_text("went to another page").last).to_be_visible()


def frames_of(page: Page) -> list[Frame]:
    """The documents on dedicated origins."""
    return [frame for frame in page.frames if frame.url.startswith("http://0")]


async def frame_of(page: Page, count: int = 1) -> list[Frame]:
    """Wait for that many."""
    async with asyncio.timeout(60):
        while len(frames_of(page)) < count:
            await asyncio.sleep(0.05)
    return frames_of(page)


ATTACKS: dict[str, str] = {
    "fetch of the console": "await real.fetch(`http://gateway.localhost:${port}/api/state`, {credentials: 'include'})",
    "fetch of the app's site": "await real.fetch(`http://cart.localhost:${port}/api/cart`, {credentials: 'include'})",
    "fetch of its own origin": "await real.fetch('/api/state')",
    "a socket to the bridge": """await new Promise((go, fail) => {
        const socket = new real.WebSocket(`ws://gateway.localhost:${port}/bridge`, 'webmcp-gateway.v1');
        socket.onopen = go; socket.onerror = () => fail(new Error('blocked')); })""",
    "framing the console": "await shows(`http://gateway.localhost:${port}/`)",
    "framing the proxy": "await shows(document.referrer + 'proxy.html')",
    "framing itself": "await shows(real.location.href)",
    "framing the app's site": "await shows(`http://cart.localhost:${port}/`)",
    "document.domain": "document.domain = 'localhost'",
    "the proxy's document": "Object.getOwnPropertyDescriptor(real, 'parent').get.call(self).document.title",
    "the console's document": "top.document.title",
    "the console's location": "top.location.href",
    "navigating the console": "top.location = 'https://evil.example/'",
    "a service worker": "await real.navigator.serviceWorker.register('/?sw')",
    "a service worker of a blob": "await real.navigator.serviceWorker.register(URL.createObjectURL(new Blob(['1'])))",
    "a popup": "if (!real.open('about:blank')) throw new Error('blocked')",
    "a cookie of the parent domain": """real.document.cookie = 'evil=1; domain=localhost; path=/';
        real.document.cookie = 'evil=1; path=/'; if (!real.document.cookie.includes('evil')) throw new Error('none')""",
    "the frame's sandbox": "frameElement.sandbox.add('allow-top-navigation')",
}
"""What a hostile page tries with functions that the runtime does not replace, as those of a frame that it made."""

HOSTILE = """async ({ attack, port }) => {
  const made = document.body.appendChild(document.createElement("iframe"));
  const real = made.contentWindow;
  const shows = (url) => new Promise((go, fail) => {
    const frame = document.createElement("iframe");
    addEventListener("securitypolicyviolation", () => fail(new Error("blocked")), { once: true });
    frame.onload = () => {
      try { fail(new Error(`${frame.contentDocument ? "empty" : "refused"}`)); } catch (error) { fail(error); }
    };
    frame.src = url;
    document.body.append(frame);
  });
  const run = Object.getPrototypeOf(async () => 0).constructor;
  try { await (new run("real", "shows", "port", attack))(real, shows, port); return "done"; }
  catch (error) { return `${error.name}: ${error.message}`; }
}"""


async def test_a_hostile_page_reaches_nothing_else(context: BrowserContext, tmp_path: Path) -> None:
    """Not the console, its site, its proxy, other origins, nor a worker that stays; and no cookie is ever there."""
    html = "<!doctype html><html><body><p id=out>app</p></body></html>"
    async with world_of(tmp_path, index=html) as world:
        page = await context.new_page()
        await context.add_cookies([{"name": "host", "value": "1", "url": world.console}])
        await page.goto(world.console)
        [frame] = await frame_of(page)
        await expect(app_of(page).locator("#out")).to_have_text("app")
        for name, attack in ATTACKS.items():
            script = {"attack": attack, "port": world.gateway.port}
            said = await frame.evaluate(HOSTILE, script)
            assert said != "done", name
        cookies = await context.cookies()
        assert [cookie["name"] for cookie in cookies if cookie["name"] == "evil"] == []
        assert await page.title() != ""
        await expect(app_of(page).locator("#out")).to_have_text("app")


GESTURES = """async () => {
  const word = { jsonrpc: "2.0", method: "ui/notifications/sandbox-gesture", params: { age: 0 } };
  const made = document.body.appendChild(document.createElement("iframe"));
  const real = Object.getOwnPropertyDescriptor(made.contentWindow, "parent").get.call(self);
  const around = [real, parent, top];
  for (const target of around) target.postMessage(word, "*");
  const button = document.body.appendChild(document.createElement("button"));
  button.click();
  made.contentDocument.body.appendChild(document.createElement("button")).click();
  Object.defineProperty(made.contentWindow.UserActivation.prototype, "isActive", { get: () => true });
  await fetch("/api/products?by=page");
}"""


async def test_a_page_cannot_attest_a_gesture(context: BrowserContext, tmp_path: Path) -> None:
    """Its requests count as the page's until a person acts in it."""
    button = "<button id=go onclick=\"fetch('/api/products?by=person')\">go</button>"
    html = f"<!doctype html><body>{button}<script>({GESTURES})()</script></body>"
    async with world_of(tmp_path, index=html) as world:
        page = await context.new_page()
        await page.goto(world.console)
        # Nothing is evaluated in the frame before, which would count as a gesture.
        assert (await recorded(world, "/api/products?by=page"))["initiator"] == "page"
        await app_of(page).locator("#go").click()
        assert (await recorded(world, "/api/products?by=person"))["initiator"] == "person"


STORED = """() => {
  const real = document.body.appendChild(document.createElement("iframe")).contentWindow;
  return real.localStorage.getItem("kept");
}"""
"""What the browser keeps for the origin, whatever the runtime puts in its place."""


async def test_a_logout_deletes_what_a_persons_frames_stored(tmp_path: Path) -> None:
    """In a browser that grants frames of other sites storage; what another person stored stays."""
    profile = tmp_path / "profile" / "Default"
    profile.mkdir(parents=True)
    (profile / "Preferences").write_text('{"profile": {"cookie_controls_mode": 0}}', "utf-8")
    html = "<!doctype html><p id=out>app</p>"
    async with world_of(tmp_path, index=html, extra="auth: [token]\n") as world, async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            profile.parent, executable_path=program(playwright), args=ARGUMENTS, headless=True
        )
        page = await context.new_page()

        async def shown(person: str) -> Frame:
            """The frame of a person who logs in."""
            await page.goto(await link(world, person))
            await expect(page.get_by_text(f"Signed in as {person}")).to_be_visible()
            await page.goto(f"{world.console}/#/apps/cart")
            await expect(app_of(page).locator("#out")).to_have_text("app")
            [frame] = await frame_of(page)
            return frame

        async def log_out() -> None:
            await page.get_by_test_id("logout").click()
            await expect(page.get_by_role("heading", name="Logged out")).to_be_visible()

        for person in ("ann", "bob"):
            frame = await shown(person)
            await frame.evaluate(f"localStorage.setItem('kept', '{person}')")
            assert await frame.evaluate(STORED) == person
            if person == "ann":
                await context.clear_cookies()  # another person at the same browser, without a logout
        await log_out()
        assert await (await shown("bob")).evaluate(STORED) is None
        await context.clear_cookies()
        assert await (await shown("ann")).evaluate(STORED) == "ann"
        await context.close()


async def test_another_persons_address_shows_nothing(browser: Browser, tmp_path: Path) -> None:
    """Not as a page, in a frame of another site, or in the proxy of the other one; it still serves its own frame."""
    html = "<!doctype html><p id=out>app</p>"
    async with (
        world_of(tmp_path, index=html, extra="auth: [token]\n") as world,
        await browser.new_context() as anns,
        await browser.new_context() as bobs,
    ):
        held: asyncio.Queue[Route] = asyncio.Queue()
        await anns.route(re.compile("^http://0.*webmcp-gateway="), held.put)
        ann, bob = await anns.new_page(), await bobs.new_page()
        for page, person in ((ann, "ann"), (bob, "bob")):
            await page.goto(await link(world, person))
            await expect(page.get_by_text(f"Signed in as {person}")).to_be_visible()
            await page.goto(f"{world.console}/#/apps/cart")
        route = await asyncio.wait_for(held.get(), 60)
        url = route.request.url
        await expect(app_of(bob).locator("#out")).to_have_text("app")
        [frame] = await frame_of(bob)
        assert urlsplit(frame.url).netloc != urlsplit(url).netloc
        proxy = frame.parent_frame
        assert proxy is not None
        await proxy.evaluate(INSIDE, url)  # refused by the signed policy of the proxy, before anything is sent
        tab = await bobs.new_page()
        answer = await tab.goto(url)
        assert answer is not None
        assert answer.status == 403
        await route.continue_()
        await expect(app_of(ann).locator("#out")).to_have_text("app")


INSIDE = """(url) => new Promise((go) => {
  addEventListener("securitypolicyviolation", go, { once: true });
  document.querySelector("iframe").src = url;
})"""


async def recorded(world: World, url: str) -> dict[str, Any]:
    """The record of the request for `url`."""
    async with asyncio.timeout(60):
        while True:
            for line in world.records():
                if line["fields"].get("url") == url and line["phase"] == "outcome":
                    found: dict[str, Any] = line["fields"]
                    return found
            await asyncio.sleep(0.05)
