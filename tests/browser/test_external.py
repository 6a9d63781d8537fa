"""What the policy opens under `external` is loaded by the browser itself, in a view as on the app's own site."""

import base64
import hashlib
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Browser, expect

from tests.apps.packing import write
from tests.world import running, serving

SCRIPTS = {"a.js": "seen.push('a')", "later.js": "seen.push('later')", "changed.js": "seen.push('never')"}
PICTURE = "<svg xmlns='http://www.w3.org/2000/svg' width='3' height='4'/>"

PAGE = """<!doctype html><script>const seen = [], told = (what) => seen.push(what)</script>
<link rel=stylesheet href=SITE/sheet.css><img id=open src=SITE/p.svg>
<script src=SITE/a.js></script><script src=SITE/changed.js onerror="told('changed')"></script>
<script src=SITE/other.js onerror="told('other')"></script><p>p</p><p id=ready>ready</p>
<script>
  const later = document.createElement("script");
  later.src = "SITE/later.js";
  const run = async () => {
    await new Promise((go) => { later.onload = go; document.head.append(later); });
    const drawn = new Image();
    drawn.src = "SITE/p.svg?2";
    await drawn.decode();
    seen.push(drawn.naturalWidth, getComputedStyle(document.querySelector("p")).color);
    seen.push(await fetch("SITE/data").then((one) => one.json()));
    const request = new XMLHttpRequest();
    request.open("POST", "SITE/data");
    request.onload = () => seen.push(request.status, request.responseText, "end");
    request.send("body");
  };
  addEventListener("load", () => run().catch((error) => seen.push(String(error), "end")));
</script>"""


def policy_for(site: str) -> str:
    """A policy that opens that site, but for one script; another script has other bytes than the policy names."""
    digests = {name: hashlib.sha384(code.encode()).digest() for name, code in SCRIPTS.items()}
    digests["changed.js"] = hashlib.sha384(b"other").digest()
    scripts = ", ".join(
        f"{{url: '{site}/{name}', integrity: 'sha384-{base64.b64encode(digest).decode()}'}}"
        for name, digest in digests.items()
    )
    return (
        "version: 1\nbackends: {shop: {url: 'http://127.0.0.1:9401', network: private}}\n"
        "routes: [{path: /api/none.js, methods: [GET]}]\n"
        f"external: {{images: ['{site}'], styles: ['{site}'], connect: ['{site}'], scripts: [{scripts}]}}\n"
    )


def elsewhere(asked: list[tuple[str, str | None]]) -> web.Application:
    """The other site, which lets every page read."""

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.path, request.headers.get("authorization")))
        name = request.path.removeprefix("/")
        headers = {"access-control-allow-origin": "*"}
        if name in SCRIPTS or name == "other.js":
            return web.Response(text=SCRIPTS.get(name, ""), content_type="text/javascript", headers=headers)
        if name == "sheet.css":
            return web.Response(text="p { color: rgb(1, 2, 3) }", content_type="text/css", headers=headers)
        if name == "p.svg":
            return web.Response(text=PICTURE, content_type="image/svg+xml", headers=headers)
        return web.json_response({"asked": await request.text()}, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return app


@pytest.mark.parametrize("waits", [False, True])
async def test_what_the_policy_opens_is_loaded_by_the_browser(browser: Browser, tmp_path: Path, waits: bool) -> None:
    """Pictures, sheets, requests, and scripts with the digests of the policy; no other script of the site.

    So it is if the scripts of the page wait for one of the backend (`waits`).
    """
    asked: list[tuple[str, str | None]] = []
    async with serving(elsewhere(asked)) as port:
        site = f"http://127.0.0.1:{port}"
        page = PAGE.replace("SITE", site) + ("<script src=/api/none.js></script>" if waits else "")
        source = write(tmp_path / "app", index__html=page)
        async with (
            running(tmp_path, policy=policy_for(site), source=source) as world,
            await browser.new_context() as context,
        ):
            console = await context.new_page()
            await console.goto(world.url)
            app = console.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
            await expect(app.locator("#ready")).to_be_visible()
            view = console.frames[-1]
            await view.wait_for_function("() => seen.at(-1) === 'end'")
            assert await view.evaluate("seen") == [
                *("a", "changed", "other", "later", 3, "rgb(1, 2, 3)", {"asked": ""}, 200, '{"asked": "body"}', "end"),
            ]
            assert await view.evaluate("document.querySelector('#open').naturalWidth") == 3
            assert await view.evaluate("later.integrity.slice(0, 7)") == "sha384-"
            assert "/other.js" not in {path for path, _ in asked}
            assert {authorization for _, authorization in asked} == {None}
            assert all("127.0.0.1" not in record["url"] for record in world.records() if record.get("url"))
