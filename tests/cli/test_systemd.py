"""A gateway under systemd: it reports its state, and listens on the sockets that were passed to it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from gateway.cli.serve import inherited_sockets
from tests.cli.test_serve import COMMAND, write
from tests.leaks.watch import environment
from tests.world import free_port

PASS = """
import os, sys
for place, given in enumerate(map(int, sys.argv[1].split(","))):
    os.dup2(given, 3 + place)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(sys.argv[1].split(",")))}
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Passes sockets as systemd does, then becomes the service."""


async def start_gateway(folder: Path, *sockets: socket.socket) -> asyncio.subprocess.Process:
    """Start `serve` as systemd would."""
    given = [sock.fileno() for sock in sockets]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", PASS, ",".join(map(str, given)), *COMMAND, "serve",
        cwd=folder, env={**environment(), "NOTIFY_SOCKET": str(folder / "notify")}, pass_fds=given,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_requests_wait_while_it_restarts(tmp_path: Path) -> None:
    """It reports readiness and its stop; who connects in between is answered by the next process."""
    port = free_port()
    write(tmp_path, port)
    with socket.create_server(("127.0.0.1", port)) as passed, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(180):
            first = await start_gateway(tmp_path, passed)
            assert await loop.sock_recv(told, 100) == b"READY=1"
            assert b" 200 " in await answer(await ask(port))
            first.send_signal(signal.SIGINT)
            assert await loop.sock_recv(told, 100) == b"STOPPING=1"
            await first.communicate()
            waiting = await ask(port)
            second = await start_gateway(tmp_path, passed)
            assert b" 200 " in await answer(waiting)
            second.send_signal(signal.SIGINT)
            await second.communicate()
        assert (first.returncode, second.returncode) == (0, 0)


async def ask(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode())
    return reader, writer


async def answer(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    """Read the answer."""
    reader, writer = connection
    answered = await reader.read()
    writer.close()
    return answered


async def test_a_socket_of_another_address_is_reported(tmp_path: Path) -> None:
    """The gateway listens where its configuration says, and names the passed socket that it does not use."""
    port = free_port()
    write(tmp_path, port)
    with socket.create_server(("127.0.0.1", 0)) as other:
        running = await start_gateway(tmp_path, other)
        assert running.stderr is not None
        async with asyncio.timeout(60):
            line = (await running.stderr.readline()).decode()
            running.send_signal(signal.SIGINT)
            await running.communicate()
        assert f"systemd passed a socket at 127.0.0.1:{other.getsockname()[1]}, which is neither" in line


@pytest.mark.parametrize(
    "variables",
    [{}, {"LISTEN_FDS": "1"}, {"LISTEN_FDS": "1", "LISTEN_PID": "1"}, {"LISTEN_FDS": "x", "LISTEN_PID": "{pid}"}],
)
def test_variables_of_another_process_are_dropped(variables: dict[str, str]) -> None:
    """They were meant for the parent, or are invalid; children do not inherit them."""
    environ = {name: value.replace("{pid}", str(os.getpid())) for name, value in variables.items()}
    assert inherited_sockets(environ) == {}
    assert environ == {}
