"""Apps whose routers use the history behave the same on a plain server and packed, in the strictest frame."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Frame, Page

from tests.browser.runtime_host import ROOT, Host, host_server, pack_html
from tests.browser.test_single_owner import complaints
from tests.world import serving

ROUTERS = Path(__file__).parent / "routers"
APPS = ("react.tsx", "vue.ts", "tanstack.tsx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built apps."""
    return tmp_path_factory.mktemp("routers")


def page_of(folder: Path, app: str) -> str:
    """The page, built as its authors would."""
    sources = ROOT / "browser" / "node_modules" / ".cache" / "routers"
    shutil.copytree(ROUTERS, sources, dirs_exist_ok=True)
    script = folder / f"{app}.js"
    command = [ROOT / "browser" / "node_modules" / ".bin" / "rolldown", sources / app, "--file", script]
    options = ["--format", "esm", "--minify", "--platform", "browser"]
    defined = ["process.env.NODE_ENV:'production'", "__VUE_OPTIONS_API__:true", "__VUE_PROD_DEVTOOLS__:false"]
    defines = [part for one in defined for part in ("--transform.define", one)]
    subprocess.run([*map(str, command), *options, *defines], check=True, cwd=ROOT / "browser", capture_output=True)
    code = script.read_text("utf-8").replace("</script", "<\\/script")
    return f"<!doctype html><html><body><div id=root></div><script type=module>{code}</script></body></html>"


async def walk_routes(frame: Frame | Page) -> Any:
    """The app's observations on its way, without its origin."""
    seen = await frame.evaluate("() => walk().then(JSON.stringify)")
    return re.sub(r"https?://(?!other)[^/\"\\ ]+", "<origin>", seen)


@pytest.mark.parametrize("app", APPS)
async def test_a_router_goes_the_same_way(page: Page, folder: Path, app: str) -> None:
    """Links, calls, parameters, queries, redirects, back and forward, fragments and states agree, without an error."""
    html = page_of(folder, app)

    async def any_path(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    site = web.Application()
    site.router.add_get("/{path:.*}", any_path)
    async with serving(site) as port:
        await page.goto(f"http://localhost:{port}/")
        native = await walk_routes(page)
    async with host_server() as url:
        await page.goto(url)
        errors = complaints(page)  # not those of the native page, whose server has ended
        host = Host(page)
        await host.in_our_host()
        frame = await host.show(pack_html(folder / app.partition(".")[0], html))
        assert (await walk_routes(frame)).split('],["') == native.split('],["')
    assert errors == []
    assert "Order 8" in native
