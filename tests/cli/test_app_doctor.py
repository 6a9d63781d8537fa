"""`doctor APP`: what of an app works in a view, what needs a line, and what no host can do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from gateway.cli import main

PAGE = """\
<!doctype html><title>Shop</title><link rel=stylesheet href="https://fonts.googleapis.com/css2?family=Inter">
<script type=module>
import {createBrowserRouter} from "./router.js"
const items = await fetch("/api/items"), later = await fetch(address)
const socket = new WebSocket(`wss://${location.host}/live`)
const events = new EventSource("/api/events")
fetch("/api/me", {headers: {Authorization: `Bearer ${token}`}})
localStorage.setItem("theme", "dark")
new Worker("worker.js")
navigator.serviceWorker.register("sw.js")
document.modelContext.registerTool({name: "add_item"})
</script>
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an app in shop/dist, which is the current one."""
    dist = tmp_path / "shop" / "dist"
    dist.mkdir(parents=True)
    (dist / "index.html").write_text(PAGE)
    (dist / "router.js").write_text("export function createBrowserRouter() { history.pushState({}, '', '/x') }")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["doctor", *arguments])


def findings(*arguments: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The findings as JSON by topic and verdict; the last of several."""
    told = json.loads(run(*arguments, "--json").output)
    return {(one["topic"], one["verdict"]): one for one in told["findings"]}


def test_each_need_comes_with_its_line(folder: Path) -> None:
    """The lines are those to write, with their places."""
    found = findings("shop/dist")
    lines = {topic: (one["lines"], one["under"]) for (topic, verdict), one in found.items() if verdict == "needs"}
    assert lines["WebSocket"] == (['- {path: "/live", methods: [GET], websocket: true}'], "`routes` in the policy")
    assert lines["login"] == (["authorization: pass"], "`backends.app` in the policy")
    assert lines["tools"] == (["add_item: {}"], "`tools` in the policy")
    assert lines["other sites"][0][:2] == ["external:", '  styles: ["https://fonts.googleapis.com"]']
    assert found["API", "needs"]["places"] == ["index.html:4"]


def test_what_works_and_what_no_host_can_do_are_told_apart(folder: Path) -> None:
    """With the place of the first use."""
    found = findings("shop/dist")
    assert found["router", "works"]["places"] == ["router.js:1"]
    assert found["storage", "works"]["lines"] == ["storage: gateway"]
    assert found["workers", "works"]["places"] == ["index.html:9"]
    assert found["workers", "never"]["places"] == ["index.html:10"]


def test_frames_that_the_page_makes_want_an_origin_of_their_own(folder: Path) -> None:
    """The line is for gateway.yaml; the hosts of others are named."""
    (folder / "shop" / "dist" / "index.html").write_text("<script>document.createElement('iframe')</script>")
    found = findings("shop/dist")["frames", "needs"]
    assert (found["lines"], found["under"]) == (["sandbox: dedicated"], "`apps.shop` in gateway.yaml")
    assert list(found["hosts"]) == ["Claude", "ChatGPT", "VS Code", "goose"]


def test_hosts_that_differ_are_named(folder: Path) -> None:
    """Files of other sites depend on the host, except in the gateway's own."""
    hosts = json.loads(run("shop/dist", "--json").output)["hosts"]
    assert list(hosts) == ["Claude", "ChatGPT", "VS Code", "goose", "our own"]
    assert (hosts["our own"], hosts["Claude"]) == ([], hosts["ChatGPT"])
    assert "resourceDomains" in hosts["ChatGPT"][0]


def test_an_app_of_the_configuration_is_held_against_its_policy(folder: Path) -> None:
    """What its policy opens works; the project's folder means its build, and both name the same app."""
    assert CliRunner().invoke(main, ["init", "shop", "--backend", "http://127.0.0.1:3000"]).exit_code == 0
    policy = folder / "policies" / "shop.yaml"
    assert ("WebSocket", "needs") in findings("shop/dist")
    policy.write_text(policy.read_text().replace("# - {path: /live", "- {path: /live"))
    policy.write_text(policy.read_text().replace("# authorization: pass", "authorization: pass"))
    (folder / "elsewhere").mkdir()
    for named in ("shop/dist", "shop"):
        found = findings(named, "-c", str(folder / "gateway.yaml"))
        assert ("WebSocket", "works") in found
        assert found["API", "works"]["what"] == "reads /api/events, /api/items, /api/me"
        assert ("login", "needs") not in found


def test_the_report_reads_as_text(folder: Path) -> None:
    """Headings, findings, lines, hosts."""
    result = run("shop/dist")
    assert result.exit_code == 0, result.output
    headings = [line for line in result.output.splitlines() if not line.startswith(" ")]
    assert headings == ["Works as it is", "Needs a line, or a look", "No host can do this", "In hosts"]


def test_an_app_that_cannot_be_shown_is_exit_code_1(folder: Path) -> None:
    """With the reason."""
    (folder / "shop" / "dist" / "index.html").unlink()
    result = run("shop/dist")
    assert (result.exit_code, "an app is a folder with an index.html" in result.output) == (1, True)


def test_what_is_no_app_is_refused(folder: Path) -> None:
    """Neither a path nor an app; options of the installation have no meaning."""
    assert (run("cart").exit_code, "there is no such folder, file or app" in run("cart").output) == (2, True)
    assert run("shop/dist", "--url", "https://mcp.example.com").exit_code == 2


def test_an_installation_as_json(folder: Path) -> None:
    """Its problems are a list."""
    result = run("--json", "-c", str(folder / "missing.yaml"))
    told = json.loads(result.output)
    assert (result.exit_code, told["ok"], len(told["problems"])) == (1, False, 1)


async def test_a_running_backend_is_read(folder: Path) -> None:
    """Its page, its own scripts, its cookies."""

    async def page(request: web.Request) -> web.Response:
        text = (
            f'<link rel=stylesheet href="{request.url.origin()}/site.css">'
            '<h1>Books</h1><form action=add method="post"><input name="csrfmiddlewaretoken"></form><a href="2">2</a>'
            '<a href="https://elsewhere.example/">more</a><script src="/app.js"></script>'
        )
        answer = web.Response(text=text, content_type="text/html")
        answer.set_cookie("sessionid", "7")
        return answer

    async def script(_: web.Request) -> web.Response:
        return web.Response(text='fetch("/api/books"); new Worker("w.js")', content_type="text/javascript")

    app = web.Application()
    app.add_routes([web.get("/shop/", page), web.get("/app.js", script)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        found = await asyncio.to_thread(findings, f"http://127.0.0.1:{port}/shop/")
        refused = await asyncio.to_thread(run, f"http://127.0.0.1:{port}/nothing")
    finally:
        await runner.cleanup()
    assert found["pages", "works"]["what"].startswith("rendered by the server")
    assert found["framework", "works"]["what"] == "Django"
    assert found["login", "needs"]["lines"] == ["cookies: jar"]
    paths = ["/shop/", "/shop/2", "/api/books", "/app.js", "/site.css"]
    assert found["API", "needs"]["lines"] == [f'- {{path: "{path}", methods: [GET]}}' for path in paths]
    assert found["forms", "needs"]["lines"] == ['- {path: "/shop/add", methods: [POST]}']
    assert found["workers", "works"]["places"] == ["/app.js:1"]
    assert (refused.exit_code, "answers 404" in refused.output) == (1, True)


async def test_a_backend_that_does_not_answer_is_named(folder: Path) -> None:
    """With the reason."""
    result = await asyncio.to_thread(run, "http://127.0.0.1:1/")
    assert (result.exit_code, "no connection" in result.output) == (1, True)


def test_a_page_that_is_too_large_for_a_view_cannot_be_shown(folder: Path) -> None:
    """The size that counts is that in JSON; size, limit and remedy are told."""
    page = folder / "shop" / "dist" / "index.html"
    page.write_text(f"<!doctype html><p>{'n' * 10_000_000}")
    assert run("shop/dist").exit_code == 0
    page.write_text("<!doctype html><p>" + '"' * 10_000_000)
    told = run("shop/dist")
    assert told.exit_code == 1
    assert "the packed page is too large: 20,0" in told.output
    assert "bytes as JSON, and a view gets 15,728,640 at most" in "".join(told.output.splitlines())
    assert "route" in told.output
