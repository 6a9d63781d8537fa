"""Published apps that need more than the content security policy of MCP Apps allows, in the console."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp import Client
from playwright.async_api import FrameLocator, Page, expect

from tests.browser.test_upstream_apps import calls, show_app, until

SCENE = """
const renderer = new THREE.WebGLRenderer({ canvas });
const scene = new THREE.Scene();
scene.add(new THREE.Mesh(new THREE.BoxGeometry(1, 1, 1), new THREE.MeshBasicMaterial({ color: "red" })));
renderer.render(scene, new THREE.OrthographicCamera(-2, 2, 2, -2, -2, 2));
canvas.title = `${renderer.info.render.triangles} triangles`;
"""


def pdf(text: str) -> bytes:
    """A PDF of one page (ISO 32000-1, 7.5), with a text on it."""
    drawn = f"BT /F1 24 Tf 40 100 Td ({text}) Tj ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 400 200] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    made, entries = "%PDF-1.4\n", ["0000000000 65535 f "]
    for number, content in enumerate(objects, 1):
        entries.append(f"{len(made):010} 00000 n ")
        made += f"{number} 0 obj\n{content}\nendobj\n"
    table = f"xref\n0 {len(entries)}\n" + "\n".join(entries)
    return f"{made}{table}\ntrailer << /Size {len(entries)} /Root 1 0 R >>\nstartxref\n{len(made)}\n%%EOF\n".encode()


@asynccontextmanager
async def open_app(
    page: Page, folder: Path, name: str, more: str, sandbox: str = "opaque"
) -> AsyncIterator[FrameLocator]:
    """The app of the server `name` in the console, after a model called the tool that opens it."""
    document = folder / "hello.pdf"
    document.write_bytes(pdf("Hello from a file"))
    tool, given = {
        "pdf": ("display_pdf", {"url": str(document)}),
        "threejs": ("show_threejs_scene", {"code": SCENE}),
    }[name]
    arguments: tuple[Any, ...] = (str(document),) if name == "pdf" else ()
    async with show_app(page, folder, name, more, arguments=arguments, sandbox=sandbox) as (app, _):
        await expect(app.locator("body")).to_be_attached()
        async with Client(f"http://localhost:{urlsplit(page.url).port}/mcp/{name}") as model:
            await model.list_tools()
            assert not (await model.call_tool(tool, given)).is_error
        yield app


LONG = pytest.mark.corpus
NEEDED = [pytest.param("pdf", "blob-workers", marks=LONG), ("threejs", "eval")]
"""Each app and the keyword that it needs."""

DONE = {"pdf": "text=Hello from a file", "threejs": "canvas[title='12 triangles']"}
"""The element that each app has once it shows the requested content."""


@pytest.mark.parametrize(("name", "word"), NEEDED)
@pytest.mark.parametrize("runtime", [pytest.param("", marks=LONG), ", runtime: true"])
async def test_a_published_app_works_with_the_word_that_allows_it(
    page: Page, tmp_path: Path, name: str, word: str, runtime: str
) -> None:
    """It shows the content that the model requested, and there is no notice."""
    async with open_app(page, tmp_path, name, f"{runtime}, allow: [{word}]") as app:
        await expect(app.locator(DONE[name])).to_be_attached(timeout=60_000)
        await expect(page.get_by_test_id("blocked")).to_have_count(0)


@pytest.mark.parametrize(("name", "more"), [pytest.param("pdf", "", marks=LONG), ("threejs", ", allow: [eval]")])
async def test_a_published_app_works_on_an_origin_of_its_own(page: Page, tmp_path: Path, name: str, more: str) -> None:
    """There, workers of blobs need no word; others are still for the configuration to allow."""
    async with open_app(page, tmp_path, name, more, "dedicated") as app:
        await expect(app.locator(DONE[name])).to_be_attached(timeout=60_000)
        await expect(page.get_by_test_id("blocked")).to_have_count(0)


@pytest.mark.parametrize(("name", "word"), NEEDED)
async def test_the_word_that_a_published_app_needs_is_named(page: Page, tmp_path: Path, name: str, word: str) -> None:
    """The notice names only that keyword, and the app shows nothing without it."""
    async with open_app(page, tmp_path, name, "") as app:
        needed = f"write allow: [{word}] at upstreams.{name} in gateway.yaml"
        await expect(page.get_by_test_id("blocked")).to_contain_text(needed, timeout=60_000)
        await expect(app.locator(DONE[name])).to_have_count(0)


@pytest.mark.parametrize("more", ["", ", runtime: true"])
async def test_an_app_that_only_looks_whether_it_may_make_code_needs_no_word(
    page: Page, tmp_path: Path, more: str
) -> None:
    """Every app with zod tests whether it can compile a function; it works without."""
    async with show_app(page, tmp_path, "basic-vue", more) as (app, records):
        button = app.get_by_role("button", name="Get Server Time")
        await expect(app.locator("body")).to_contain_text(re.compile(r"\d{4}-\d\d-\d\dT"))
        await button.click()
        await until(lambda: len(calls(records(), "get-time")) > 1)
        await expect(page.get_by_test_id("blocked")).to_have_count(0)
