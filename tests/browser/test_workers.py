"""Workers of the app's own files, and WebAssembly: as on a site, in frames with and without an origin."""

from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, expect

from tests.browser.test_main_job import app_of
from tests.world import running

PAGE = """<!doctype html><html><body><p id=out>waiting</p><script>
const results = {};
const attempt = async (name, run) => {
  try { results[name] = String(await run()); } catch (error) { results[name] = `${error.name}: ${error.message}`; }
};
const ask = (worker, what) => new Promise((go, fail) => {
  worker.onmessage = ({ data }) => go(data);
  worker.onerror = (event) => { event.preventDefault(); fail(new Error("failed")); };
  worker.postMessage(what);
});
(async () => {
  await attempt("classic", () => ask(new Worker("w.js"), 20));
  await attempt("module", () => ask(new Worker("/sub/m.js", { type: "module", name: "m" }), 20));
  await attempt("blob", () => ask(new Worker(URL.createObjectURL(new Blob(["onmessage = () => postMessage(1)"]))), 0));
  await attempt("missing", () => ask(new Worker("none.js"), 0));
  await attempt("throws", () => ask(new Worker("throws.js"), 0));
  await attempt("kind", () => new Worker("w.js") instanceof Worker);
  await attempt("wasm", async () => {
    const { instance } = await WebAssembly.instantiateStreaming(fetch("add.wasm"));
    return instance.exports.add(20, 22);
  });
  out.textContent = JSON.stringify(results);
})();
</script></body></html>"""

FILES = {
    "index.html": PAGE,
    "w.js": """importScripts("sub/lib.js", './other.js');
      onmessage = async ({ data }) => {
        const answer = await fetch("/api/products");
        const isJson = typeof (await answer.json()) === "object";
        postMessage([twice(data) + one, answer.status, isJson, location.pathname].join());
      };""",
    "other.js": "const one = 1;",
    "throws.js": "throw new Error('at once')",
    "sub/lib.js": "const twice = (value) => value * 2;",
    "sub/m.js": """import { twice } from "./n.js";
      import * as all from './n.js';
      onmessage = async ({ data }) => postMessage(twice(data) + all.two + (await import("./late.js")).default);""",
    "sub/n.js": """import { two } from '../two.js';
      export const twice = (value) => value * two; export { two } from '../two.js';""",
    "sub/late.js": "export default 100;",
    "two.js": "export const two = 2;",
}
ADD = bytes.fromhex("0061736d0100000001070160027f7f017f030201000707010361646400000a09010700200020016a0b")


@pytest.mark.parametrize("sandbox", ["opaque", "dedicated"])
async def test_workers_run_as_on_a_site(context: BrowserContext, tmp_path: Path, sandbox: str) -> None:
    """Of files, modules and blobs; what they import and fetch comes by the page."""
    source = tmp_path / "app"
    (source / "sub").mkdir(parents=True)
    for name, text in FILES.items():
        (source / name).write_text(text, "utf-8")
    (source / "add.wasm").write_bytes(ADD)
    async with running(tmp_path, source=source, sandbox=sandbox) as world:
        page = await context.new_page()
        await page.goto(world.console)
        out = app_of(page).locator("#out")
        await expect(out).to_contain_text("{")
        said = await out.inner_text()
        assert '"classic":"41,200,true,/w.js","module":"142","blob":"1","missing":"Error: failed"' in said
        site = await context.new_page()
        await site.goto(world.site)
        await expect(site.locator("#out")).to_have_text(said)


BLOB = """<!doctype html><html><body><p id=out></p><script>
const url = URL.createObjectURL(new Blob([`importScripts('${new URL("sub/lib.js", document.baseURI)}');
  onmessage = ({ data }) => postMessage(twice(data))`], { type: "application/javascript" }));
const worker = new Worker(url);
URL.revokeObjectURL(url);
worker.onmessage = ({ data }) => { out.textContent = data; };
worker.postMessage(21);
</script></body></html>"""


async def test_a_worker_of_a_blob_imports_files_of_the_app(context: BrowserContext, tmp_path: Path) -> None:
    """By their addresses, as editors do; its URL may be revoked at once."""
    source = tmp_path / "app"
    (source / "sub").mkdir(parents=True)
    (source / "index.html").write_text(BLOB, "utf-8")
    (source / "sub" / "lib.js").write_text(FILES["sub/lib.js"], "utf-8")
    async with running(tmp_path, source=source) as world:
        page = await context.new_page()
        await page.goto(world.console)
        await expect(app_of(page).locator("#out")).to_have_text("42")
