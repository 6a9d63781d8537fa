"""The sandbox proxy attests a gesture only for real input of the browser in this app."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

from gateway import mux
from gateway.model import Channel
from tests.browser.far_end import FarEnd, far_end
from tests.browser.test_host_parts import CALLS, app_frame

ATTACKS = """
const put = (html) => {
  document.body.insertAdjacentHTML("beforeend", html);
  return document.body.lastElementChild;
};
const word = { jsonrpc: "2.0", method: "ui/notifications/sandbox-gesture", params: { age: 0 } };
const attacks = {
  click: () => put("<a href='#there' accesskey=x onclick='return false'>there</a>").click(),
  window: () => put("<a href='https://other.example/' target=_blank download>other</a>").click(),
  label: () => put("<label><input type=checkbox><b>agree</b></label>").querySelector("b").click(),
  events() {
    const button = put("<button>button</button>");
    const init = { bubbles: true, cancelable: true, composed: true, pointerType: "mouse", isPrimary: true, key: "a" };
    for (const type of ["pointerdown", "pointerup"]) button.dispatchEvent(new PointerEvent(type, init));
    for (const type of ["mousedown", "mouseup", "click", "dblclick"]) button.dispatchEvent(new MouseEvent(type, init));
    for (const type of ["keydown", "keypress", "keyup"]) button.dispatchEvent(new KeyboardEvent(type, init));
    for (const type of ["touchstart", "touchend"]) button.dispatchEvent(new Event(type, init));
    for (const type of ["dragstart", "dragend", "drop"]) button.dispatchEvent(new DragEvent(type, init));
  },
  focus: () => put("<input autofocus>").focus(),
  submit: () => put("<form onsubmit='return false'><button>send</button></form>").requestSubmit(),
  command: () => document.execCommand("copy"),
  clipboard: () => navigator.clipboard.writeText("x"),
  picker: () => put("<input type=file>").showPicker(),
  fullscreen: () => document.documentElement.requestFullscreen(),
  pointer: () => document.documentElement.requestPointerLock(),
  popup: () => open("about:blank"),
  question: () => confirm("x"),
  dialog: () => put("<dialog>x</dialog>").showModal(),
  popover: () => put("<div popover>x</div>").showPopover(),
  invoker: () => put("<div><button command=show-modal commandfor=d>x</button><dialog id=d>x</dialog></div>")
    .firstChild.click(),
  details: () => put("<details><summary>x</summary>y</details>").firstChild.click(),
  film: () => put("<video muted>").play(),
  speech: () => speechSynthesis.speak(new SpeechSynthesisUtterance("x")),
  notification: () => Notification.requestPermission(),
  credential: () => navigator.credentials.get({ publicKey: { challenge: new Uint8Array(16) } }),
  delegated: () => parent.postMessage({ jsonrpc: "2.0", method: "x" },
    { targetOrigin: "*", includeUserActivation: true, delegate: "fullscreen" }),
  redefined() {
    Object.defineProperty(UserActivation.prototype, "isActive", { get: () => true });
    Object.defineProperty(navigator, "userActivation", { value: { isActive: true, hasBeenActive: true } });
  },
  word() {
    const words = [word, { ...word, method: new String(word.method) }, { ...word, method: [word.method] },
      { ...word, channel: "mcp-iframe", type: "mcp", direction: "server-to-client", payload: word },
      Object.assign([], word), [word], { ...word, id: 1 }, { ...word, params: { age: -1 } }];
    for (const target of [parent, top]) for (const one of words) target.postMessage(one, "*");
  },
  framed() {
    const frame = document.createElement("iframe");
    frame.srcdoc = `<body><button>x</button><script>document.querySelector("button").click();
      for (const to of [parent, parent.parent, top]) to.postMessage(${JSON.stringify(word)}, "*");<` + `/script>`;
    document.body.append(frame);
    return new Promise((loaded) => (frame.onload = loaded));
  },
};
const soon = () => new Promise((go) => setTimeout(go, 20));
begin().then(async () => {
  for (const [name, attack] of Object.entries(attacks)) {
    try { await Promise.race([attack(), soon()]); } catch { /* the browser's word */ }
    await soon();
    await call(name);
  }
  for (const one of document.querySelectorAll("dialog, [popover]")) one.remove();
  await call("over");
});
"""

IDLE = "begin().then(() => setInterval(() => call('idle'), 50));"


def calls_of(end: FarEnd, name: str) -> list[Any]:
    """The calls of this tool that the gateway received."""
    told: list[Any] = end.messages(Channel.UI, CALLS)
    return [message for message in told if message["params"]["name"] == name]


async def test_no_script_makes_a_gesture(page: Page) -> None:
    """No action of a page counts as a gesture; a click of a person does."""
    async with far_end(one=ATTACKS) as end:
        await page.goto(end.url("one"))
        await end.until(lambda: calls_of(end, "over"))
        assert len(end.messages(Channel.UI, CALLS)) > 25
        assert end.of(mux.Gesture) == []
        await app_frame(page).locator("#go").click()
        await end.until(lambda: calls_of(end, "echo"))
        assert len(end.of(mux.Gesture)) == 1


async def test_a_gesture_counts_in_its_own_app_alone(page: Page) -> None:
    """A click does not count for another app with a proxy of the same origin, nor one in the host's page for any."""
    async with far_end(one=IDLE, two=IDLE) as end:
        await page.goto(end.url("one", "two"))
        await end.until(lambda: len({frame.view for frame in end.of(mux.Message)}) == 2 and calls_of(end, "idle"))
        await page.mouse.click(5, 5)
        await page.keyboard.press("a")
        seen = len(calls_of(end, "idle"))
        await end.until(lambda: len(calls_of(end, "idle")) > seen + 10)
        assert end.of(mux.Gesture) == []
        box = await page.locator("[data-app=two] iframe").bounding_box()
        assert box is not None
        await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        await end.until(lambda: end.of(mux.Gesture))
        seen = len(calls_of(end, "idle"))
        await end.until(lambda: len(calls_of(end, "idle")) > seen + 10)
        two = await page.evaluate("mounted.two.view")
        assert {frame.view for frame in end.of(mux.Gesture)} == {two}


@pytest.mark.parametrize("gesture", [False, True])
async def test_a_debugger_may_say_that_it_is_a_person(page: Page, gesture: bool) -> None:
    """Playwright does so with every evaluation, and with each result of an exposed binding."""
    async with far_end(one="begin().then(() => call('auto'));") as end:
        await page.goto(end.url("one"))
        await end.until(lambda: calls_of(end, "auto"))
        # Playwright may know the frame later than the far end.
        await end.until(lambda: page.frames[-1].url == "about:srcdoc")
        session = await page.context.new_cdp_session(page.frames[-1])
        said = await session.send("Runtime.evaluate", {"expression": "call('debugged')", "userGesture": gesture})
        assert "exceptionDetails" not in said
        await end.until(lambda: calls_of(end, "debugged"))
        assert bool(end.of(mux.Gesture)) is gesture
