"""The files of the demo chat agree with each other, and the command starts and ends all of it."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml

from examples.cart_app.demo import AUTH_PORT, GATEWAY_PORT, DemoError
from examples.chat_host import demo
from examples.chat_host.models.scripted import read_script
from examples.chat_host.settings import CONSOLE, GATEWAY, URL, Settings
from gateway.config import load_config
from tests.board import build_board
from tests.leaks.marks import MARK
from tests.world import free_port, local_client

SECRETS = ("CHAT_CLIENT_SECRET", "CONSOLE_SECRET")


def test_addresses_are_those_of_the_files() -> None:
    """The chat's origin is the one under `hosts`, and the gateway's port that of gateway.yaml."""
    config = yaml.safe_load((demo.HERE / "gateway.yaml").read_text("utf-8"))
    board = (demo.BOARD / "policy.yaml").read_text("utf-8")

    assert [host["origin"] for host in config["hosts"]] == [URL]
    assert config["server"]["listen"] == f"127.0.0.1:{GATEWAY_PORT}"
    assert (urlsplit(GATEWAY).port, urlsplit(CONSOLE).port) == (GATEWAY_PORT, GATEWAY_PORT)
    assert f"127.0.0.1:{demo.BOARD_PORT}" in board
    issuers = {one["issuer"] for one in (*config["auth"], *config["hosts"])}
    assert issuers == {demo.login_environ()["CHAT_ISSUER"]}


@pytest.mark.parametrize("installed", [True, False])
def test_the_gateway_takes_the_configuration_of_the_demo(tmp_path: Path, installed: bool) -> None:
    """With the published server, and where it is not installed."""
    build_board()
    server = tmp_path / "index.js"
    if installed:
        server.write_text("")

    config = load_config(
        demo.write_config(tmp_path, server), dict.fromkeys(("SHOP_SECRET", *SECRETS), f"a secret of these tests {MARK}")
    )

    assert set(config.apps) == {"cart", "board"}
    assert set(config.upstreams) == ({"budget"} if installed else set())
    assert config.hosts[0].apps == (("cart", "board", "budget") if installed else ("cart", "board"))


def test_the_script_ends_with_a_scene_for_everything() -> None:
    """So each message is answered."""
    *others, last = read_script()
    assert last.pattern.search("xyzzy")
    assert not any(scene.pattern.search("xyzzy") for scene in others)


def test_the_command_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board that was not built."""
    monkeypatch.setattr(demo, "BOARD", tmp_path)
    with pytest.raises(DemoError, match="npm run build in examples/board_app/web"):
        demo.parts(tmp_path, Settings(tmp_path))


def test_a_busy_port_or_a_bad_setting_ends_the_command_with_1(tmp_path: Path) -> None:
    """The command prints a message and no traceback."""
    build_board()
    command = [sys.executable, "-m", "examples.chat_host.demo", "--no-open", "--data", str(tmp_path)]
    try:
        taken = socket.create_server(("127.0.0.1", AUTH_PORT))
    except OSError:
        taken = None  # by another program, which is as good
    for environ, words in (({}, "is not free"), ({"CHAT_PROVIDER": "none"}, "set openai, anthropic or scripted")):
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, cwd=demo.HERE.parents[1],
            env={"PATH": "/usr/bin", **environ},
        )  # fmt: skip
        assert (ended.returncode, words in ended.stderr, "Traceback" in ended.stderr) == (1, True, False), ended.stderr
    if taken is not None:
        taken.close()


async def test_the_server_ends_at_a_signal(tmp_path: Path) -> None:
    """Also while a page follows a conversation, for which the server would wait a minute, and without a gateway."""
    url = f"http://localhost:{free_port()}"
    environ = {"PATH": "/usr/bin", "CHAT_URL": url, "CHAT_GATEWAY": "http://localhost:9"}
    command = [sys.executable, "-m", "examples.chat_host.server", "--data", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*command, env=environ, cwd=demo.HERE.parents[1])
    try:
        async with local_client() as http:
            while process.returncode is None:
                try:
                    async with http.post(f"{url}/api/conversations", json={}) as response:
                        id = (await response.json())["id"]
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.1)
            async with http.get(f"{url}/api/conversations/{id}/events") as stream:
                assert b'"connected": ' in await stream.content.readline()
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(50):
                    assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
