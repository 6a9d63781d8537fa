"""`serve` as a process: ready lines, shutdown, and start-up errors."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

import gateway
from tests.leaks.watch import environment
from tests.world import free_port, listen

ROOT = Path(gateway.__file__).parent.parent
COMMAND = (sys.executable, "-c", "from gateway.cli import main; main()")


def write(folder: Path, port: int, backend: int = 9) -> None:
    """Write a configuration for one page, whose requests go to a port of this machine."""
    (folder / "index.html").write_text("<!doctype html><title>one page</title>")
    (folder / "policy.yaml").write_text(
        f"version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{backend}', network: private}}}}\n"
        "limits: {timeout: 60s}\nroutes: [{path: /api/slow, methods: [GET]}]\n"
    )
    (folder / "gateway.yaml").write_text(
        f"server: {{listen: 127.0.0.1:{port}, drain: {{announce: 0s}}}}\n"
        f"apps: {{page: {{source: index.html, policy: policy.yaml}}}}\n"
    )


@asynccontextmanager
async def process(folder: Path, *arguments: str, command: str = "serve") -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command in `folder`; kill it at the end if it still runs."""
    started = await asyncio.create_subprocess_exec(
        *COMMAND,
        command,
        *arguments,
        cwd=folder,
        env=environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def ready(running: asyncio.subprocess.Process, lines: int) -> list[str]:
    """The next `lines` lines of its output, except the ones about packing."""
    assert running.stdout is not None
    said: list[str] = []
    async with asyncio.timeout(60):
        while len(said) < lines:
            line = (await running.stdout.readline()).decode().strip()
            if not line.startswith("Packing "):
                said.append(line)
    return said


async def wait_exit(running: asyncio.subprocess.Process) -> tuple[int | None, str]:
    """Its exit code and the rest of its output."""
    async with asyncio.timeout(60):
        out, err = await running.communicate()
    return running.returncode, (out + err).decode()


async def wait_closed(port: int) -> None:
    """Wait until nobody accepts connections at the port."""
    async with asyncio.timeout(60):
        with suppress(ConnectionError):
            while True:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serve_says_where_it_is_and_ends_with_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """The ready lines are printed when it accepts requests; SIGTERM and Ctrl-C end it with exit code 0."""
    port = free_port()
    write(tmp_path, port)
    async with process(tmp_path) as running, aiohttp.ClientSession() as http:
        lines = await ready(running, 5)
        assert lines[0].startswith("webmcp-gateway")
        assert lines[1].endswith(f"http://gateway.localhost:{port}")
        assert lines[2].endswith(f"http://localhost:{port}/mcp")
        assert lines[3].endswith(f"http://page.localhost:{port}")
        assert f"http://localhost:{port}/mcp/page" in lines[4]
        async with http.get(f"http://127.0.0.1:{port}/readyz", headers={"webmcp-gateway-client": "1"}) as answer:
            assert answer.status == 200
        running.send_signal(number)
        code, rest = await wait_exit(running)
    assert code == 0, rest
    assert "Traceback" not in rest


async def test_no_login_link_stands_in_a_log(tmp_path: Path) -> None:
    """Others can read logs: without a terminal the output explains how to make a link, in the log's format if JSON."""
    write(tmp_path, free_port())
    with (tmp_path / "gateway.yaml").open("a") as file:
        file.write("auth: [token]\nlog: json\n")
    async with process(tmp_path) as running:
        assert running.stdout is not None
        lines: list[dict[str, str]] = []
        async with asyncio.timeout(60):
            while not lines or "token link" not in lines[-1]["message"]:
                lines.append(json.loads(await running.stdout.readline()))
        running.send_signal(signal.SIGTERM)
        code, rest = await wait_exit(running)
    lines += map(json.loads, rest.splitlines())
    assert code == 0, rest
    assert [line["message"].partition(" ")[0] for line in lines] == ["Packing", "webmcp-gateway", "To", "Stopping:"]
    assert {line["level"] for line in lines} == {"info"}
    assert "code=" not in json.dumps(lines)


@pytest.mark.parametrize(("format", "shown"), [("text", True), ("json", False)])
async def test_a_login_link_is_shown_in_a_terminal(tmp_path: Path, format: str, shown: bool) -> None:
    """The person at the terminal has started the gateway; lines in JSON are a log, also where that is a terminal."""
    write(tmp_path, free_port())
    with (tmp_path / "gateway.yaml").open("a") as file:
        file.write(f"auth: [token]\nlog: {format}\n")
    ours, theirs = pty.openpty()
    running = await asyncio.create_subprocess_exec(*COMMAND, "serve", cwd=tmp_path, env=environment(), stdout=theirs)
    os.close(theirs)
    said = b""
    while b"/login/link?code=" not in said and b"token link" not in said:
        said += await asyncio.to_thread(os.read, ours, 4096)
    running.terminate()
    await running.wait()
    os.close(ours)
    assert (b"/login/link?code=" in said) is shown


async def test_all_that_the_gateway_makes_is_its_users_alone(tmp_path: Path) -> None:
    """The umask has no effect on record, keys, database, lock file and their companions."""
    write(tmp_path, free_port())
    with (tmp_path / "gateway.yaml").open("a") as file:
        file.write("auth: [token]\n")
    before = set(tmp_path.iterdir())
    umask = os.umask(0)
    try:
        async with process(tmp_path) as running:
            await ready(running, 3)
            made = set(tmp_path.rglob("*")) - before
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made}
    finally:
        os.umask(umask)
    assert {"gateway.db", "gateway.db-wal", "gateway.journal", "gateway.journal.key", "gateway.lock"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes


async def test_serve_says_at_once_what_it_packs(tmp_path: Path) -> None:
    """Large scripts take seconds to pack."""
    write(tmp_path, free_port())
    async with process(tmp_path) as running:
        assert running.stdout is not None
        async with asyncio.timeout(60):
            assert (await running.stdout.readline()).decode().strip() == "Packing page"


async def test_dev_tells_of_a_script_that_no_browser_can_read_as_of_an_error(tmp_path: Path) -> None:
    """File, line and column are shown; the page is shown all the same, as on its own site."""
    write(tmp_path, free_port())
    (tmp_path / "index.html").write_text('<!doctype html><script type="module" src="app.js"></script>')
    (tmp_path / "app.js").write_text("let a = 1;\nlet b = ;\n")
    async with process(tmp_path, command="dev") as running:
        await ready(running, 5)
        running.terminate()
        code, rest = await wait_exit(running)
    assert code == 0, rest
    assert f"ERROR gateway.assembly.packing: app page: {tmp_path / 'app.js'}:2:9: " in rest


async def test_a_running_request_is_answered_after_sigterm(tmp_path: Path) -> None:
    """SIGTERM ends listening; requests that came before that are answered, the last one with `Connection: close`."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        arrived.set()
        await go_on.wait()
        return web.json_response({"late": True})

    api = web.Application()
    api.router.add_get("/api/slow", slow)
    runner = web.AppRunner(api)
    await runner.setup()
    sock, port = listen(), free_port()
    await web.SockSite(runner, sock).start()
    write(tmp_path, port, sock.getsockname()[1])
    headers = {"host": f"page.localhost:{port}", "webmcp-gateway-client": "1"}
    try:
        async with process(tmp_path) as running, aiohttp.ClientSession(headers=headers) as http:
            await ready(running, 5)
            call = asyncio.ensure_future(http.get(f"http://127.0.0.1:{port}/api/slow"))
            async with asyncio.timeout(60):
                await arrived.wait()
            running.terminate()
            await ready(running, 1)
            await wait_closed(port)
            asyncio.get_running_loop().call_later(1, go_on.set)  # long enough to notice a cut-off
            answer = await call
            assert (answer.status, await answer.json()) == (200, {"late": True})
            assert answer.headers["connection"] == "close"
            answer.close()
            code, rest = await wait_exit(running)
        assert code == 0, rest
    finally:
        await runner.cleanup()


async def test_a_port_that_is_taken_ends_with_2(tmp_path: Path) -> None:
    """The message names the address and the setting."""
    with listen() as taken:
        write(tmp_path, taken.getsockname()[1])
        async with process(tmp_path) as running:
            code, output = await wait_exit(running)
    assert code == 2
    assert "cannot listen on 127.0.0.1" in output
    assert "server.listen" in output
    assert "Traceback" not in output


async def test_a_wrong_configuration_ends_with_2_and_its_places(tmp_path: Path) -> None:
    """Only the problems of gateway.yaml and of the policy are printed."""
    write(tmp_path, 8080)
    (tmp_path / "policy.yaml").write_text("version: 1\nroute: []\n")
    with (tmp_path / "gateway.yaml").open("a") as file:
        file.write("plugin: []\n")
    async with process(tmp_path, "--config", "gateway.yaml") as running:
        code, output = await wait_exit(running)
    assert code == 2
    assert [line.split(": ")[0] for line in output.splitlines()] == ["gateway.yaml:3:1", "policy.yaml:2:1"]


async def test_a_plugin_that_is_not_there_ends_with_2(tmp_path: Path) -> None:
    """The error has no traceback."""
    write(tmp_path, free_port())
    with (tmp_path / "gateway.yaml").open("a") as file:
        file.write("plugins: [gone_plugin]\n")
    async with process(tmp_path) as running:
        code, output = await wait_exit(running)
    assert code == 2
    assert "cannot start: plugin gone_plugin" in output
    assert "Traceback" not in output


async def test_sighup_reads_the_files_again(tmp_path: Path) -> None:
    """Nothing is interrupted; newly forbidden requests are denied, and the policy in effect is logged."""
    port = free_port()
    write(tmp_path, port)
    headers = {"host": f"page.localhost:{port}", "webmcp-gateway-client": "1"}
    async with process(tmp_path) as running, aiohttp.ClientSession(headers=headers) as http:
        await ready(running, 5)
        (tmp_path / "policy.yaml").write_text('version: 1\nroutes: [{path: "/**", deny: "not today"}]\n')
        running.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            text = ""
            while "not today" not in text:
                async with http.get(f"http://127.0.0.1:{port}/api/slow") as answer:
                    text = await answer.text()
        running.terminate()
        code, output = await wait_exit(running)
    assert code == 0, output
    assert "app page: policy.yaml is in effect, version sha256:" in output


async def test_logs_and_the_drain_change_while_it_runs_and_the_rest_is_named(tmp_path: Path) -> None:
    """SIGHUP after a changed file: the log is JSON, requests are logged, and `doctor` names what needs a restart."""
    port = free_port()
    write(tmp_path, port)
    file = tmp_path / "gateway.yaml"
    async with process(tmp_path) as running, aiohttp.ClientSession() as http:
        await ready(running, 4)
        text = file.read_text("utf-8").replace("announce: 0s", "announce: 0s, timeout: 7s")
        text = text.replace("{listen:", "{busy_poll: true, listen:")
        file.write_text(f"{text}log: json\naccess_log: true\n", "utf-8")
        running.send_signal(signal.SIGHUP)
        health: dict[str, object] = {}
        async with asyncio.timeout(60):
            while health.get("needs_restart") != ["server.busy_poll"]:
                async with http.get(f"http://localhost:{port}/readyz") as answer:
                    health = await answer.json()
        checked = await asyncio.create_subprocess_exec(
            *COMMAND, "doctor", cwd=tmp_path, env=environment(), stdout=asyncio.subprocess.PIPE
        )
        said = (await checked.communicate())[0].decode()
        assert "gateway.yaml:1:10: server.busy_poll: was changed: restart the gateway to use it" in said
        async with http.get(f"http://localhost:{port}/healthz"):
            pass
        running.send_signal(signal.SIGTERM)
        code, output = await wait_exit(running)
    assert code == 0
    assert "running calls have 7 seconds" in output
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [line["path"] for line in lines if line["logger"] == "access"][-1] == "/healthz"
    (warning,) = (line for line in lines if "server.busy_poll" in line.get("message", ""))
    assert (warning["level"], warning["logger"]) == ("warning", "gateway.assembly.reload")
