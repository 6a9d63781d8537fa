"""A stranger's app as the README says: `init`, `serve` in report mode, clicks in Chromium, `learn`, enforcement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner
from playwright.async_api import Page, expect

from gateway.cli import main
from gateway.policy import load_policy
from tests.browser.test_main_job import app_of
from tests.cli.test_serve import COMMAND
from tests.leaks.watch import environment
from tests.world import free_port, serving

PAGE = """\
<!doctype html><title>Notes</title><ul id=notes></ul><input id=text><button id=add>Add</button>
<button id=other>Other</button><p id=status></p>
<script>
const at = (path) => new URL(path, location.origin).pathname; // no file names these paths
const say = (text) => (document.querySelector("#status").textContent = text);
async function load() {
  const answer = await fetch(at(["", "data", "notes"].join("/")));
  if (!answer.ok) return say(`load ${answer.status}`);
  document.querySelector("#notes").innerHTML = (await answer.json()).map((note) => `<li>${note}</li>`).join("");
}
document.querySelector("#add").onclick = async () => {
  const body = document.querySelector("#text").value;
  const answer = await fetch(at(["", "data", "notes"].join("/")), { method: "POST", body });
  say(`add ${answer.status}`);
  await load();
};
document.querySelector("#other").onclick = async () => {
  const answer = await fetch(at(["", "data", "secrets"].join("/")));
  say(`other ${answer.status}`);
};
void load();
</script>
"""


async def notes(_: web.Request) -> web.Response:
    """The notes of the backend."""
    return web.json_response(NOTES)


async def add(request: web.Request) -> web.Response:
    """Add a note."""
    NOTES.append(await request.text())
    return web.json_response(NOTES)


async def secrets(_: web.Request) -> web.Response:
    """A path that the app was never seen to use."""
    return web.json_response(["secret"])


NOTES: list[str] = []


@pytest.fixture
async def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stranger's app in notes/dist, which is the current one."""
    (tmp_path / "notes" / "dist").mkdir(parents=True)
    (tmp_path / "notes" / "dist" / "index.html").write_text(PAGE)
    monkeypatch.chdir(tmp_path)
    NOTES[:] = ["milk"]
    return tmp_path


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[None]:
    """`serve`, as a process."""
    running = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", cwd=folder, env=environment(), stdout=asyncio.subprocess.PIPE
    )
    assert running.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b"http://" not in await running.stdout.readline():
                pass
        yield
    finally:
        if running.returncode is None:
            running.terminate()
        async with asyncio.timeout(60):
            await running.communicate()


async def command(*arguments: str) -> str:
    """Run a command in this process, and return its output."""
    result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


async def test_an_app_is_learned_in_report_mode_and_enforced(folder: Path, page: Page) -> None:
    """What the page reads and what a person does is learned; afterwards the same works, and nothing else."""
    port = free_port()
    backend = web.Application()
    backend.add_routes([web.get("/data/notes", notes), web.post("/data/notes", add), web.get("/data/secrets", secrets)])
    async with serving(backend) as at:
        told = await command("init", "notes", "--backend", f"http://127.0.0.1:{at}", "--port", str(port), "--report")
        assert "the policy opens nothing yet" in told
        app = app_of(page)
        async with gateway(folder):
            await page.goto(f"http://gateway.localhost:{port}/")
            await expect(app.locator("#notes")).to_have_text("milk", timeout=60_000)
            await app.locator("#text").fill("bread")
            await app.locator("#add").press("Enter")
            await expect(app.locator("#status")).to_have_text("add 200", timeout=60_000)
        policy = folder / "policies" / "notes.yaml"
        learned = await command("policy", "learn", "gateway.journal", "--into", str(policy))
        assert "routes added" in learned
        routes = [(route.template.text, *(route.methods or ())) for route in load_policy(policy).routes.all]
        assert routes == [("/data/notes", "GET"), ("/data/notes", "POST")]
        lines = policy.read_text().splitlines(keepends=True)
        policy.write_text("".join(line for line in lines if not line.startswith("mode:")))
        await command("policy", "test", str(policy))
        async with gateway(folder):
            await page.goto("about:blank")
            await page.goto(f"http://gateway.localhost:{port}/")
            await expect(app.locator("#notes li")).to_have_text(["milk", "bread"], timeout=60_000)
            await app.locator("#text").fill("salt")
            await app.locator("#add").press("Enter")
            await expect(app.locator("#status")).to_have_text("add 200", timeout=60_000)
            await expect(app.locator("#notes li")).to_have_text(["milk", "bread", "salt"], timeout=60_000)
            await app.locator("#other").click()
            await expect(app.locator("#status")).to_have_text("other 403", timeout=60_000)
