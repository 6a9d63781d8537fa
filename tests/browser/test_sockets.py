"""`WebSocket` in a view and on the app's own site behaves as natively, at the backend itself."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Frame, Page, expect

from tests.browser.test_main_job import app_of, model, tool
from tests.exchange.socket_backend import SocketWorld, socket_world

PAGE = """<!doctype html><meta charset=utf-8><title>t</title><p id=ready>ready</p>
<script>
// What it tests is named here, as the packer looks for it: WebSocket
const seen = async (socket, until, act = () => {}) => {
  const events = [];
  const shown = async (data) => typeof data === "string" ? data : data instanceof Blob
    ? ["blob", [...new Uint8Array(await data.arrayBuffer())]] : ["buffer", [...new Uint8Array(data)]];
  const told = { open: () => [socket.protocol], error: () => [],
    message: async (event) => [await shown(event.data), event.isTrusted === undefined],
    close: ({ code, reason, wasClean }) => [code, reason, wasClean] };
  let line = Promise.resolve();
  for (const type of Object.keys(told)) socket["on" + type] = (event) => {
    const state = socket.readyState;
    const told_now = told[type](event);
    line = line.then(async () => {
      const what = await told_now;
      events.push([type, state, ...what]);
      await act(type, socket, events);
    });
  };
  for (let wait = 0; wait < 1500 && !until(events); wait++) await new Promise((go) => setTimeout(go, 20));
  return events;
};
const closed = (events) => events.some(([type]) => type === "close");
const failure = (run) => {
  try {
    return run();
  } catch (error) {
    return [error.name, error.constructor.name, error.message];
  }
};
</script>"""


HEARD = """async (said) => {
  for (let wait = 0; wait < 3000 && !heard.includes(said); wait++) await new Promise((go) => setTimeout(go, 20));
  if (!heard.includes(said)) throw new Error(`not heard: ${said}`);
}"""


@dataclass(frozen=True, slots=True)
class SocketPlaces:
    """The page at the backend itself, on the app's own site, and in a view."""

    sockets: SocketWorld
    places: dict[str, Page | Frame]

    async def same(self, script: str, argument: Any = None) -> Any:
        """The common result of all places."""
        seen = {name: await place.evaluate(script, argument) for name, place in self.places.items()}
        assert seen == dict.fromkeys(seen, seen["backend"]), seen
        return seen["backend"]


@pytest.fixture(scope="module")
async def places(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketPlaces]:
    """The three places, loaded once."""
    async with (
        socket_world(tmp_path_factory.mktemp("world"), PAGE) as sockets,
        await browser.new_context() as context,
    ):
        native, site, console = [await context.new_page() for _ in range(3)]
        await native.goto(f"http://127.0.0.1:{sockets.port}/page")
        await site.goto(sockets.world.site)
        await console.goto(sockets.world.url)
        app = console.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
        await expect(app.locator("#ready")).to_be_visible()
        yield SocketPlaces(sockets, {"backend": native, "site": site, "view": console.frames[-1]})


async def test_messages_of_every_kind(places: SocketPlaces) -> None:
    """Texts, buffers, views of them and blobs, in order; events in the order of a browser."""
    found = await places.same(
        """() => {
          const socket = new WebSocket("/echo", "chat");
          return seen(socket, closed, (type, socket, events) => {
            if (type === "open") {
              socket.send("héllo \\ud83d");
              socket.send(new Uint8Array([0, 1, 255]).buffer);
              socket.send(new Blob(["blob"]));
              socket.send(new DataView(new ArrayBuffer(8), 2, 3));
              socket.send("");
            }
            if (type === "message" && events.length === 6) {
              socket.binaryType = "arraybuffer";
              socket.send(new Uint8Array([7]));
            }
            if (type === "message" && events.length === 7) socket.close(4000, "döne");
          });
        }"""
    )
    assert [event[0] for event in found] == ["open", *["message"] * 6, "close"]
    assert found[-1] == ["close", 3, 4000, "", True]  # aiohttp answers without the reason


@pytest.mark.parametrize("said", ["close 1000", "close 1011 broken", "close 4321 ünd", "leave"])
async def test_the_backend_ends_it(places: SocketPlaces, said: str) -> None:
    """With a code and reason, or by breaking off."""
    script = "(said) => seen(new WebSocket('/echo'), closed, (type, socket) => type === 'open' && socket.send(said))"
    assert (await places.same(script, said))[-1][0] == "close"


@pytest.mark.parametrize(("path", "protocol"), [("/refuse", ""), ("/other", "none")])
async def test_an_opening_that_fails(places: SocketPlaces, path: str, protocol: str) -> None:
    """Whatever the cause is: the events `error` and `close`, with 1006."""
    script = "([path, protocol]) => seen(new WebSocket(path, protocol || []), closed)"
    assert await places.same(script, [path, protocol]) == [["error", 3], ["close", 3, 1006, "", False]]


async def test_it_is_closed_before_it_opened(places: SocketPlaces) -> None:
    """An error, and 1006."""
    script = """async () => {
      const socket = new WebSocket("/echo");
      const early = [socket.readyState, failure(() => socket.send("x"))];
      socket.close(1000);
      return [early, socket.readyState, await seen(socket, closed)];
    }"""
    assert (await places.same(script))[2] == [["error", 3], ["close", 3, 1006, "", False]]


async def test_the_interface(places: SocketPlaces) -> None:
    """Values, errors and attributes agree."""
    script = """async () => {
      const socket = new WebSocket("echo?a=1");
      const at = new URL(socket.url);
      const first = [/^wss?:$/.test(at.protocol), at.pathname + at.search, socket.binaryType, socket.bufferedAmount];
      socket.binaryType = "nonsense";
      const errors = [() => new WebSocket(), () => new WebSocket("ftp://a/"), () => new WebSocket("ws://["),
        () => new WebSocket("/a#b"), () => new WebSocket("/a", "b c"), () => new WebSocket("/a", ["x", "x"]),
        () => socket.close(1001), () => socket.close(3000, "é".repeat(62)), () => WebSocket.prototype.url,
        () => WebSocket("/echo"), () => socket.send(),
      ].map((run) => failure(run)?.slice?.(0, 2) ?? "none");
      const names = Object.keys(WebSocket.prototype).sort();
      const more = [WebSocket.OPEN, socket.CLOSING, WebSocket.length, WebSocket.name, String(socket), socket.binaryType,
        socket instanceof EventTarget, names, socket.onopen];
      const events = await seen(socket, closed, (type) => {
        if (type === "open") socket.send("x".repeat(10)), more.push(socket.bufferedAmount), socket.close();
      });
      socket.send("later");
      return [first, errors, more, events, socket.bufferedAmount > 0, failure(() => socket.close())];
    }"""
    assert await places.same(script)


async def test_a_url_of_the_pages_own_site(places: SocketPlaces) -> None:
    """As many pages write it: with the scheme of HTTP, or of WebSockets."""
    script = """async () => {
      const url = new Request("/echo").url;
      const act = (type, socket) => type === "open" && socket.close(1000);
      const both = [url, url.replace("http", "ws")].map((one) => seen(new WebSocket(one), closed, act));
      return Promise.all(both);
    }"""
    found = await places.same(script)
    assert [events[-1] for events in found] == [["close", 3, 1000, "", True]] * 2


async def test_a_flood_stops_at_a_slow_page(places: SocketPlaces) -> None:
    """All 20 MB arrive in order; a page that does not read slows the backend down."""
    script = """() => new Promise((done) => {
      const socket = new WebSocket("/echo");
      let count = 0, ordered = true;
      socket.onopen = () => socket.send("flood");
      socket.onmessage = ({ data }) => {
        ordered &&= data.startsWith(`${count} `);
        if (++count === 3000) socket.close(), done([count, ordered]);
      };
    })"""
    assert await places.places["view"].evaluate(script) == [3000, True]
    assert await places.places["site"].evaluate(script) == [3000, True]


async def test_a_chat(places: SocketPlaces) -> None:
    """What one says reaches all, in a view as on the site."""
    join = """(who) => new Promise((go) => {
      window.heard = [];
      window.chat = new WebSocket("/room");
      chat.onmessage = ({ data }) => heard.push(data);
      chat.onopen = go;
    })"""
    for name, place in places.places.items():
        await place.evaluate(join, name)
    for name, place in places.places.items():
        await place.evaluate("(who) => chat.send('hello from ' + who)", name)
        for other in places.places.values():
            await other.evaluate(HEARD, f"hello from {name}")
    for place in places.places.values():
        assert await place.evaluate("heard.length") == 3
        await place.evaluate("chat.close()")
    async with asyncio.timeout(60):
        while places.sockets.backend.rooms:
            await asyncio.sleep(0.02)


async def test_a_view_that_closes_ends_its_sockets(places: SocketPlaces) -> None:
    """The backend is told, and the record closes."""
    view = places.places["view"]
    await view.evaluate("() => new Promise((go) => { window.last = new WebSocket('/leaving'); last.onopen = go; })")
    console = view.page if isinstance(view, Frame) else view
    await console.close()
    (outcome,) = await places.sockets.until("/leaving")
    assert outcome["door"] == "bridge"


SPEAKING = """<!doctype html><meta charset=utf-8><title>t</title><button id=say>say</button>
<script>
// Nothing is evaluated in this page, which would count as a person's gesture: it says what it sees on /trusting.
const opened = (path) => new Promise((go) => { const made = new WebSocket(path); made.onopen = () => go(made); });
const trusting = opened("/trusting"), before = opened("/other");
before.then((socket) => socket.send("the page"));
const attempt = async (socket, when) => {
  const over = new Promise((go) => { socket.onclose = ({ code }) => go(code); });
  socket.send("EVIL");
  (await trusting).send(`${when}: ${await over}`);
};
document.modelContext.registerTool({ name: "speak", description: "Speak.", inputSchema: { type: "object" },
  execute: async () => {
    await attempt(await before, "during the call");
    setTimeout(async () => attempt(await opened("/other"), "after the call"), 100);
    return "spoken";
  } });
say.onclick = async () => (await opened("/other")).send("a person");
</script>"""


async def test_a_models_call_sends_nothing_where_the_route_denies_it(page: Page, tmp_path: Path) -> None:
    """While it runs, and afterwards, until a person acts in the view: 1008, but for `model: allow`."""
    async with socket_world(tmp_path, SPEAKING) as sockets:

        async def heard(said: str) -> None:
            async with asyncio.timeout(60):
                while said not in sockets.backend.heard:
                    await asyncio.sleep(0.02)

        await page.goto(sockets.world.url)
        await heard("the page")
        async with model(sockets.world) as client:
            await tool(client, "cart_speak")
            answer = await client.call_tool("cart_speak", {})
            assert not answer.is_error, answer
            await heard("after the call: 1008")
        async with asyncio.timeout(60):
            while "a person" not in sockets.backend.heard:  # a gesture soon after the call does not count
                await app_of(page).get_by_text("say").click()
                await asyncio.sleep(0.2)
        outcomes = [(one["status"], one.get("reason")) for one in await sockets.until("/other", 2)]
    said = [one for one in sockets.backend.heard if one != "a person"]
    assert said == ["the page", "during the call: 1008", "after the call: 1008"]
    assert outcomes[:2] == [(403, "policy-denied")] * 2
