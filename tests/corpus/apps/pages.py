"""Admin panels, reports, test runners, notebooks and other pages."""

import shutil
from pathlib import Path

from aiohttp import web

from tests.corpus.catalog import api, app, folder, page
from tests.corpus.visit import Visit


@app(
    "LavaMoat dashboard",
    "lavamoat-viz",
    "React, d3 in SVG",
    folder("dist"),
    limit="A library asks for virtual reality, which frames may not use, and writes an error to the console.",
)
async def lavamoat(visit: Visit) -> None:
    """Look at the packages."""
    await visit.read("#root")


QUNIT = """<!doctype html><html><head><meta charset="utf-8"><link rel="stylesheet" href="qunit.css"></head><body>
<div id="qunit"></div><script src="qunit.js"></script><script>
QUnit.test("adds", (assert) => assert.equal(1 + 1, 2))
QUnit.test("waits", async (assert) => { await new Promise((go) => setTimeout(go, 5)); assert.ok(true) })
QUnit.test.todo("later", (assert) => assert.equal("a", "b"))
QUnit.test.skip("never", () => {})
</script></body></html>"""


@app(
    "QUnit",
    "qunit",
    "test runner in the page",
    page(QUNIT, **{"qunit.js": "qunit/qunit.js", "qunit.css": "qunit/qunit.css"}),
    ignore=(r"[\d.]+ (ms|milliseconds|seconds)", r"Source: .*?(?=Expected|Rerun|$)"),
)
async def qunit(visit: Visit) -> None:
    """Wait for the results."""
    await visit.read("#qunit-testresult", "4 tests")
    await visit.read("#qunit-tests .skipped", "never")


MOCHA = """<!doctype html><html><head><meta charset="utf-8"><link rel="stylesheet" href="mocha.css"></head><body>
<div id="mocha"></div><script src="mocha.js"></script><script>
mocha.setup("bdd")
describe("numbers", () => {
  it("adds", () => { if (1 + 1 !== 2) throw new Error("no") })
  it("waits", (done) => setTimeout(done, 5))
  it("comes later")
})
mocha.run(() => document.body.append("finished"))
</script></body></html>"""


@app(
    "Mocha",
    "mocha",
    "test runner in the page",
    page(MOCHA, **{"mocha.js": "mocha.js", "mocha.css": "mocha.css"}),
    ignore=(r"\d+\.?\d*m?s",),
)
async def mocha(visit: Visit) -> None:
    """Wait for the results, and look at the code of a test."""
    await visit.read("body", "finished")
    await visit.read("#mocha-stats .passes")
    await visit.click("#mocha-report .pass h2", "adds")
    await visit.read("#mocha-report .pass pre", "1 + 1")


BRYTHON = """<!doctype html><html><head><meta charset="utf-8"><script src="brython.js"></script>
<script src="brython_stdlib.js"></script></head><body onload="brython()"><input id="name">
<button id="greet">Greet</button><p id="out"></p><script type="text/python">
from browser import document
import re
def greet(event):
    words = re.split("[ ]+", document["name"].value)
    document["out"].text = " ".join(f"Hello, {word.title()}!" for word in words)
document["greet"].bind("click", greet)
document["out"].text = "ready"
</script></body></html>"""


@app(
    "Brython",
    "brython",
    "Python compiled to JavaScript in the page",
    page(BRYTHON, **{"brython.js": "brython.js", "brython_stdlib.js": "brython_stdlib.js"}),
)
async def brython(visit: Visit) -> None:
    """Run a Python function by a click."""
    await visit.read("#out", "ready")
    await visit.fill("#name", "ann bob")
    await visit.click("#greet")
    await visit.read("#out", "Bob")


SKULPT = """<!doctype html><html><head><meta charset="utf-8"><script src="skulpt.min.js"></script>
<script src="skulpt-stdlib.js"></script></head><body><textarea id="code">for n in range(3): print(n * n)</textarea>
<button id="run">Run</button><pre id="out"></pre><script>
Sk.configure({ output: (text) => { document.querySelector("#out").textContent += text }, read: (name) => {
  if (!Sk.builtinFiles?.files[name]) throw new Error(`no ${name}`)
  return Sk.builtinFiles.files[name]
} })
document.querySelector("#run").onclick = () =>
  Sk.misceval.asyncToPromise(() => Sk.importMainWithBody("<stdin>", false, document.querySelector("#code").value, true))
</script></body></html>"""


@app(
    "Skulpt",
    "skulpt",
    "Python interpreted in the page, code made from strings",
    page(SKULPT, **{"skulpt.min.js": "dist/skulpt.min.js", "skulpt-stdlib.js": "dist/skulpt-stdlib.js"}),
    limit="Programs are run by an `eval` of several statements, whose value is used; the frame forbids `eval` "
    "(`script-src`), and the emulation does not know that value.",
)
async def skulpt(visit: Visit) -> None:
    """Run a program, then another one."""
    await visit.click("#run")
    await visit.read("#out", "4")
    await visit.fill("#code", "import math\nprint(math.floor(2.5) + 40)")
    await visit.click("#run")
    await visit.read("#out", "42")


BLOCKLY = """<!doctype html><html><head><meta charset="utf-8"><script src="blockly.min.js"></script></head><body>
<div id="blocks" style="height: 400px; width: 600px"></div><pre id="code"></pre><script>
const toolbox = { kind: "flyoutToolbox", contents: [
  { kind: "block", type: "controls_if" }, { kind: "block", type: "math_number" }] }
const workspace = Blockly.inject("blocks", { toolbox, media: "media/", sounds: false })
workspace.addChangeListener(() => {
  document.querySelector("#code").textContent = Object.keys(Blockly.serialization.workspaces.save(workspace)).join()
    + " " + workspace.getAllBlocks().map((block) => block.type)
})
</script></body></html>"""


@app(
    "Blockly",
    "blockly",
    "visual programming, SVG, drag and drop by pointer events",
    page(BLOCKLY, **{"blockly.min.js": "blockly.min.js", "media": "media"}),
)
async def blockly(visit: Visit) -> None:
    """Drag a block out of the toolbox."""
    block = visit.find(".blocklyFlyout .blocklyDraggable").first
    box = await block.bounding_box()
    assert box is not None
    mouse = visit.page.mouse
    await mouse.move(box["x"] + 12, box["y"] + 12)
    await mouse.down()
    await mouse.move(box["x"] + 250, box["y"] + 100, steps=8)
    await mouse.up()
    await visit.read("#code", "controls_if")


@app("Editor.md", "editor.md", "CodeMirror 5, marked, scripts added later", folder(), start="/examples/simple.html")
async def editor_md(visit: Visit) -> None:
    """Write Markdown, and see the preview."""
    await visit.read(".CodeMirror-lines")
    await visit.evaluate("testEditor.setMarkdown('# New title') && 1")
    await visit.read(".editormd-preview h1", "New title")
    await visit.evaluate("testEditor.getMarkdown()")


@app("Playwright report", "playwright-core", "React, data in a ZIP inside of the page", folder("lib/vite/htmlReport"))
async def playwright_report(visit: Visit) -> None:
    """Read the page without results."""
    await visit.read("#root")


@app(
    "Matterbridge",
    "@matterbridge/frontend",
    "dashboard: React, MUI, WebSocket",
    folder("build"),
    paths=("/api/**",),
    behind=api(web.Application),
)
async def matterbridge(visit: Visit) -> None:
    """Read the login page."""
    await visit.read("#root")


@app("tuna", "tuna", "profile viewer: d3, Bootstrap", folder("tuna/web"))
async def tuna(visit: Visit) -> None:
    """Read the page."""
    await visit.read("nav")


@app(
    "OpenJSCAD",
    "jscad",
    "CAD: jQuery UI, WebGL",
    folder(),
    limit="Models are computed in a worker that computes the names of the scripts that it imports; "
    "the frame loads no file (`script-src`).",
)
async def jscad(visit: Visit) -> None:
    """Read the page."""
    await visit.read("body")


JSONSERVER = folder("public")


def posts() -> web.Application:
    """The API of json-server's page."""

    async def database(_: web.Request) -> web.Response:
        return web.json_response({"posts": [{"id": 1}, {"id": 2}], "comments": [{"id": 1}]})

    async def rules(_: web.Request) -> web.Response:
        return web.json_response({"/blog/:id": "/posts/:id"})

    application = web.Application()
    application.router.add_get("/db", database)
    application.router.add_get("/__rules", rules)
    return application


@app(
    "json-server",
    "json-server",
    "page of a mock server, custom element",
    JSONSERVER,
    paths=("/db", "/__rules"),
    behind=api(posts),
)
async def json_server(visit: Visit) -> None:
    """Read the resources of the server."""
    await visit.read("#resources", "comments")
    await visit.read("#custom-routes table", "blog")


AGENDA = folder("public")


def jobs() -> web.Application:
    """The API of Agendash."""

    async def every(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "overview": [
                    {
                        "displayName": "All Jobs",
                        "_id": "x",
                        "total": 1,
                        "running": 0,
                        "scheduled": 1,
                        "queued": 0,
                        "completed": 0,
                        "failed": 0,
                        "repeating": 0,
                    }
                ],
                "jobs": [
                    {
                        "job": {"_id": "1", "name": "mail", "data": {}, "nextRunAt": "2030-01-01T00:00:00Z"},
                        "running": False,
                        "scheduled": True,
                        "queued": False,
                        "completed": False,
                        "failed": False,
                        "repeating": False,
                        "_id": "1",
                    }
                ],
                "totalPages": 1,
                "title": "Agendash",
                "currentRequest": {},
            }
        )

    application = web.Application()
    application.router.add_get("/api", every)
    return application


@app(
    "Agendash", "agendash", "dashboard of a job queue: Vite build", AGENDA, paths=("/api", "/api/**"), behind=api(jobs)
)
async def agendash(visit: Visit) -> None:
    """Read the list of jobs."""
    await visit.read("body", "mail")


SQL = """<!doctype html><html><head><meta charset="utf-8"><script src="sql-asm.js"></script></head><body>
<textarea id="sql">SELECT 1 + 1 AS two</textarea><button id="run">Run</button><pre id="out"></pre><script>
initSqlJs().then((SQL) => {
  const database = new SQL.Database()
  document.querySelector("#run").onclick = () => {
    document.querySelector("#out").textContent = JSON.stringify(database.exec(document.querySelector("#sql").value))
  }
})
</script></body></html>"""


@app("sql.js", "sql.js", "SQLite compiled to asm.js", page(SQL, **{"sql-asm.js": "dist/sql-asm.js"}))
async def sql_js(visit: Visit) -> None:
    """Make a table and query it."""
    await visit.fill("#sql", "CREATE TABLE t (a); INSERT INTO t VALUES (1), (2); SELECT sum(a) AS s FROM t")
    await visit.click("#run")
    await visit.read("#out", "3")


def jasmine_folder(package: Path, target: Path) -> None:
    """The example of the package with its runner."""
    shutil.copytree(package / "lib" / "jasmine-core", target)
    scripts = ["jasmine.js", "jasmine-html.js", "boot.js"]
    tags = "".join(f'<script src="{name}"></script>' for name in scripts)
    spec = """jasmine.getEnv().configure({ random: false }); describe("numbers", () => {
  it("adds", () => expect(1 + 1).toBe(2)); xit("waits", () => {}) })"""
    (target / "index.html").write_text(
        f'<!doctype html><html><head><meta charset="utf-8"><link rel="stylesheet" href="jasmine.css">{tags}'
        f"<script>{spec}</script></head><body></body></html>",
        "utf-8",
    )


@app("Jasmine", "jasmine-core", "test runner in the page", jasmine_folder, ignore=(r"[\d.]+m?s\b",))
async def jasmine(visit: Visit) -> None:
    """Wait for the results."""
    await visit.read(".jasmine-overall-result, .jasmine-alert", "2 specs")
    await visit.read(".jasmine-summary, .jasmine-results", "adds")


@app(
    "Radicale",
    "radicale",
    "page of a calendar server: modules",
    folder("radicale/web/internal_data"),
)
async def radicale(visit: Visit) -> None:
    """Read the login form."""
    await visit.read("#loginscene, main")


@app(
    "GraphQL Playground",
    "graphql-playground-react",
    "React, Redux, CodeMirror 5",
    folder("build"),
    paths=("/graphql",),
    behind=api(web.Application),
)
async def playground(visit: Visit) -> None:
    """Read the empty window."""
    await visit.read("#root")
