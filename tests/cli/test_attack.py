"""`attack`: our gateway holds, failures are reported, and nothing else is connected to."""

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from gateway.cli import main
from tests.attacks.world import AttackWorld, running_world
from tests.cli.lax_servers import Trusting, deaf, listening
from tests.world import serving


async def run(*arguments: str) -> Result:
    """Run the command concurrently with the servers of this test."""
    return await asyncio.to_thread(CliRunner().invoke, main, ["attack", "--rate", "500", *arguments])


@pytest.fixture
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackWorld]:
    """A gateway with two apps."""
    async with running_world(tmp_path_factory.mktemp("attacked")) as world:
        yield world


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for a second answer in tests of other things."""
    monkeypatch.setattr("gateway.cli.attack.raw.QUIET", 0.05)


async def test_a_gateway_of_ours_holds(target: AttackWorld) -> None:
    """Hundreds of attempts at both doors are reported with counts, exit code 0; no backend is reached."""
    result = await run(f"http://localhost:{target.port}", "--app", "target")
    assert result.exit_code == 0, result.output
    tried = re.search(r"(\d+) of (\d+) attacks held", result.output)
    assert tried is not None
    assert tried[1] == tried[2]
    assert int(tried[1]) > 250
    assert target.take_arrived() == []


@pytest.mark.usefixtures("brief")
async def test_a_server_that_takes_everything_does_not_hold(lax_server: int) -> None:
    """Each attempt that succeeded is reported with its reason, in JSON too; exit code 1."""
    result = await run(f"http://127.0.0.1:{lax_server}", "--json")
    report = json.loads(result.output)
    assert result.exit_code == 1
    assert not report["ok"]
    assert report["held"] < report["tried"]
    assert all(case["why"] for case in report["cases"])


@pytest.fixture
async def lax_server() -> AsyncIterator[int]:
    """The port of an MCP server that accepts some of the attacks."""

    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        url = str(asked["params"].get("arguments", {}).get("url"))
        status = 200 if ".." in url else 400
        headers = {} if status == 200 else {"gateway-reason": "bad-request"}
        content = {"status": status, "headers": headers}
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": {"structuredContent": content}})

    app = web.Application()
    app.router.add_post("/mcp", answer)
    async with serving(app) as port:
        yield port


@pytest.fixture
def hasty(brief: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for answers that a broken server does not send."""
    monkeypatch.setattr("gateway.cli.attack.command.WAIT", 1.0)


@pytest.mark.usefixtures("hasty")
async def test_each_attack_on_mcp_and_http_catches_a_server_that_has_the_hole() -> None:
    """No expectation of an attack is met by a server with that hole."""
    async with listening(Trusting().serve) as trusting, listening(deaf) as other:
        results = [
            await run(f"http://127.0.0.1:{port}", "--json", "--patience", "1", "--token", "x")
            for port in (trusting, other)
        ]
    reports = [json.loads(result.output)["cases"] for result in results]
    missed = [{case["id"] for case in report if not case["held"]} for report in reports]
    tried = {case["id"] for report in reports for case in report if case["family"] in ("mcp", "raw")}
    assert [result.exit_code for result in results] == [1, 1]
    assert len(tried) > 300
    assert tried - missed[0] - missed[1] == set()


@pytest.mark.usefixtures("brief")
async def test_where_nobody_is_let_in_nothing_was_tried(target: AttackWorld) -> None:
    """On the mount of two apps every unproven call is refused, which proves nothing; exit code 2."""
    result = await run(f"http://localhost:{target.port}")
    assert result.exit_code == 2
    assert "--app" in result.output


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://localhost", "http://a:b@localhost", "nonsense", "http://"])
async def test_what_is_no_address_is_refused(url: str) -> None:
    """The exit code is 2, with the remedy."""
    result = await run(url)
    assert result.exit_code == 2
    assert "http://localhost:8080" in result.output or "not a URL" in result.output


async def test_where_nothing_answers_nothing_was_tried() -> None:
    """The message does not claim an answer."""
    result = await run("http://127.0.0.1:1")
    assert result.exit_code == 2
    assert "Nothing answers at http://127.0.0.1:1/mcp" in result.output


async def test_a_header_of_another_form_is_refused() -> None:
    """A header is a name, a colon and a value."""
    assert (await run("http://localhost:1", "--header", "x y")).exit_code == 2
