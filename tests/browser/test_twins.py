"""Pages that run twice, natively against their backend and in a view, must observe the same."""

import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Frame, Page, expect

from tests.browser.twins.backend import Backend
from tests.world import Server, running

ROOT = Path(__file__).parents[2]
TWINS = Path(__file__).parent / "twins"
NAMES = [
    name for file in sorted(TWINS.glob("*.js")) for name in re.findall(r'^twin\("([^"]+)"', file.read_text(), re.M)
]


@dataclass(frozen=True, slots=True)
class Twins:
    """The page on its own site, and in a view."""

    native: Page
    view: Frame

    async def seen(self, name: str) -> tuple[Any, Any]:
        """The observations of each."""
        observe = "name => observe(name)"
        return await self.native.evaluate(observe, name), await self.view.evaluate(observe, name)


def build(folder: Path) -> Path:
    """The page, with the libraries bundled as its authors would."""
    shutil.copytree(TWINS, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__", "policy.yaml"))
    entry = ROOT / "browser" / "node_modules" / ".cache" / "libraries.ts"
    entry.parent.mkdir(exist_ok=True)
    shutil.move(folder / "libraries.ts", entry)
    rolldown = ROOT / "browser" / "node_modules" / ".bin" / "rolldown"
    command = [str(rolldown), str(entry), "--file", str(folder / "libraries.js"), "--format", "iife", "--minify"]
    subprocess.run([*command, "--platform", "browser"], check=True, cwd=ROOT / "browser", capture_output=True)
    return folder


async def act(source: dict[str, Any], selector: str, how: str) -> None:
    """Act as a person in the page, on its request: press a key, or click."""
    element = source["frame"].locator(selector)
    await (element.click() if how == "click" else element.press(how))


@pytest.fixture(scope="module")
async def twins(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Twins]:
    """Both, loaded once."""
    folder = build(tmp_path_factory.mktemp("twins") / "page")
    server = Server()
    await server.start(Backend(folder).app())
    policy = (TWINS / "policy.yaml").read_text("utf-8").replace("127.0.0.1:1", f"127.0.0.1:{server.port}")
    try:
        async with (
            running(tmp_path_factory.mktemp("world"), policy=policy, source=folder) as world,
            await browser.new_context() as context,
        ):
            await context.expose_binding("act", act)
            native, console = await context.new_page(), await context.new_page()
            await native.goto(f"http://localhost:{server.port}/index.html")
            await console.goto(world.url)
            app = console.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
            await expect(app.locator("#ready")).to_be_visible()
            yield Twins(native, console.frames[-1])
    finally:
        await server.stop()


@pytest.mark.parametrize("name", NAMES)
async def test_a_page_sees_the_same_in_a_view(twins: Twins, name: str) -> None:
    """Values, order of events and errors agree."""
    native, view = await twins.seen(name)
    assert view == native
    assert native
