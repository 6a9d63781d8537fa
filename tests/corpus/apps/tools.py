"""Editors, viewers and other tools."""

import shutil
from pathlib import Path

from playwright.async_api import expect

from tests.corpus.catalog import app, folder
from tests.corpus.visit import Visit


@app(
    "Ace",
    "ace-builds",
    "AMD loader, scripts added later, worker",
    folder(),
    start="/editor.html",
)
async def ace(visit: Visit) -> None:
    """Type a line, and see it highlighted."""
    await visit.read(".ace_line .ace_storage", "function")
    await visit.find(".ace_text-input").focus()
    await visit.press(".ace_text-input", "Control+End")
    await visit.find(".ace_text-input").press_sequentially("let x = 1;")
    await visit.read(".ace_line .ace_numeric", "1")
    await visit.evaluate("editor.getValue()")
    await visit.find(".ace_text-input").press_sequentially(" let y = ;")
    await expect(visit.find(".ace_gutter-cell.ace_error, .ace_gutter-cell .ace_error").first).to_be_visible()


@app(
    "JSON Editor",
    "jsoneditor",
    "Ace, schema validation by ajv",
    folder(),
    start="/examples/07_json_schema_validation.html",
)
async def jsoneditor(visit: Visit) -> None:
    """See an error of the schema, change a value, and add a field."""
    await visit.read(".jsoneditor-validation-errors, .jsoneditor-values .jsoneditor-number, .jsoneditor-tree")
    await visit.click(".jsoneditor-expand-all")
    await visit.fill(".jsoneditor-value.jsoneditor-string", "Jane")
    await visit.click(".jsoneditor-search input")
    await visit.fill(".jsoneditor-search input", "Jane")
    await visit.read(".jsoneditor-results", "1")
    await visit.evaluate("JSON.stringify(editor.get())")


@app("reveal.js", "reveal.js", "presentation, Markdown, fragments, hash routes", folder(), start="/demo.html")
async def reveal(visit: Visit) -> None:
    """Go through some slides."""
    await visit.read("section.present h1, section.present h2, section.present h3")
    await visit.keys("ArrowRight", "ArrowDown", "ArrowRight")
    await visit.read("section.present:not(.stack)")
    await visit.evaluate("JSON.stringify(Reveal.getIndices())")


@app("impress.js", "impress.js", "presentation by CSS 3D transforms, hash routes", folder(), quick=True)
async def impress(visit: Visit) -> None:
    """Go to the next two steps."""
    await visit.read("#bored.active")
    await visit.keys("ArrowRight", "ArrowRight")
    await visit.read("#step-3.active")
    # The hash is written at the end of the movement.
    look = "const look = () => location.hash === '#/step-3' ? go(location.hash) : setTimeout(look, 50)"
    await visit.evaluate(f"new Promise((go) => {{ {look}; look(); }})")


DOCSIFY = """<!doctype html><html><head><meta charset="utf-8"><link rel="stylesheet" href="themes/vue.css"></head><body>
<div id="app"></div>
<script>window.$docsify = { name: "Docs", loadSidebar: true, relativePath: false, search: "auto" }</script>
<script src="docsify.min.js"></script><script src="plugins/search.min.js"></script></body></html>"""


def docsify_folder(package: Path, target: Path) -> None:
    """A site of two pages."""
    shutil.copytree(package / "lib", target, ignore=shutil.ignore_patterns("*.map"))
    (target / "index.html").write_text(DOCSIFY, "utf-8")
    (target / "README.md").write_text("# Start\n\nSee [the guide](guide.md).\n\n```js\nlet a = 1\n```\n", "utf-8")
    (target / "guide.md").write_text("# Guide\n\n## First\n\nKoalas climb.\n\n## Second\n\nThe end.\n", "utf-8")
    (target / "_sidebar.md").write_text("- [Start](/)\n- [Guide](guide.md)\n", "utf-8")


@app("docsify", "docsify", "documentation site, Markdown by XMLHttpRequest, hash routes", docsify_folder, quick=True)
async def docsify(visit: Visit) -> None:
    """Follow links and search."""
    await visit.read("article h1", "Start")
    await visit.click("article a", "the guide")
    await visit.read("article", "Koalas")
    await visit.fill("input[type=search]", "koalas")
    await visit.read(".results-panel", "Koalas")
    await visit.click(".sidebar-nav a", "Start")
    await visit.read("article h1", "Start")
    await visit.evaluate("location.hash")
