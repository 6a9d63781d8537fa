"""`stdio`: serves a desktop client over its stdio through the running gateway, so that all clients share its views."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import click

from gateway.backends.connect import Connections
from gateway.cli import lock
from gateway.cli.group import Unusable, config_option, opener
from gateway.cli.stdio.pipe import LONGEST, Pipe
from gateway.config import app_id_problem, state_folder
from gateway.errors import StartError

TOKEN = "WEBMCP_GATEWAY_TOKEN"  # noqa: S105  # the name of the variable
STARTED_WITHIN = 30.0
LOG = "gateway.log"
"""The log of a gateway started by `stdio`, in the state folder."""


class _Anywhere:
    """Allows any address: the user chose the gateway."""

    def allows(self, ip: str) -> bool:
        return True


@click.command()
@click.option("--url", help="URL of the gateway's MCP endpoint, such as http://localhost:8080/mcp.")
@config_option("Configuration of the gateway to connect to, or to start.")
@click.option("--app", help="Serve this app or upstream alone: /mcp/APP.")
@click.option("--no-start", is_flag=True, help="Do not start a gateway if none runs.")
def stdio(url: str | None, path: Path, app: str | None, no_start: bool) -> None:
    """Serve an MCP client over its stdio, as desktop clients start servers.

    It connects the client to the running gateway, so that several clients share its views. Without --url the gateway
    is found by the lock file beside the configuration; if none runs, one is started, which keeps running afterwards.
    A bearer token is read from WEBMCP_GATEWAY_TOKEN. Problems are written to the standard error.

    Example: webmcp-gateway stdio --config /path/to/gateway.yaml
    """
    if app is not None and (problem := app_id_problem(app)):
        raise Unusable(f"--app: {problem}")
    place = url if url is not None else _find_gateway(path, no_start)
    if not is_address(place):
        raise Unusable(f"--url {place!r} is not a URL such as http://localhost:8080/mcp")
    asyncio.run(_run(f"{place.rstrip('/')}/{app}" if app is not None else place))


def is_address(url: str) -> bool:
    """Return whether an http or https URL has a host and a port that can be connected to."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid host or port
        return False


def _find_gateway(path: Path, no_start: bool) -> str:
    """Return the URL of this configuration's gateway, starting it if needed. Raises StartError."""
    if not path.is_file():
        raise StartError(f"there is no {path}: name it with --config, or the gateway with --url")
    state = state_folder(path)
    url = lock.running_url(state)
    if url is not None:
        return url
    if no_start and not lock.is_starting(state):
        raise StartError(f"no gateway runs with {path}: start it with `webmcp-gateway serve --config {path}`")
    return _start_gateway(path, state)


def _start_gateway(path: Path, state: Path) -> str:
    log = state / LOG
    state.mkdir(0o700, exist_ok=True)
    with open(log, "ab", opener=opener) as file:
        process = subprocess.Popen(  # noqa: S603  # this same program, with the path that the user gave
            [sys.executable, "-c", "from gateway.cli import main; main()", "serve", "--config", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,  # it outlives this client, and serves others
        )
    end = threading.Event()
    seconds = 0.0
    while seconds < STARTED_WITHIN:
        url = lock.running_url(state)
        if url is not None:
            if lock.process(state) == process.pid:
                _complain(f"started a gateway (process {process.pid}, log {log}); it keeps running afterwards")
            else:
                process.terminate()  # another pipe's gateway came first: this one would start when that one ends
            return url
        if process.poll() is not None and not lock.is_starting(state):
            last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
            raise StartError(f"no gateway runs, and none could be started: {''.join(last) or 'see ' + str(log)}")
        end.wait(0.05)
        seconds += 0.05
    raise StartError(f"the gateway did not start within {STARTED_WITHIN:g} seconds; see {log}")


async def _run(url: str) -> None:
    writing = asyncio.Lock()

    async def say(text: str) -> None:
        async with writing:
            await asyncio.to_thread(_write, text.encode("utf-8", "replace") + b"\n")

    loop = asyncio.get_running_loop()
    current = asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, current.cancel if current is not None else loop.stop)
    async with Connections() as connections:
        client = connections.open(_Anywhere())
        with suppress(asyncio.CancelledError, BrokenPipeError):
            await Pipe(url, client, say, _complain, os.environ.get(TOKEN)).run(_lines(loop))


async def _lines(loop: asyncio.AbstractEventLoop) -> AsyncIterator[bytes]:
    """Yield the lines of standard input, of any kind, read by a daemon thread.

    A line longer than `LONGEST` is cut.
    """
    queue: asyncio.Queue[bytes] = asyncio.Queue(64)

    def read() -> None:
        # Bypass Python's buffer: a thread that waits in it blocks the exit of the process.
        with suppress(RuntimeError, OSError):  # the loop is closed, without a reader
            data = b"\n"
            while data:
                data = os.read(sys.stdin.fileno(), 65536)
                asyncio.run_coroutine_threadsafe(queue.put(data), loop).result()

    threading.Thread(target=read, daemon=True, name="standard input").start()
    buffer, cut = bytearray(), False
    while data := await queue.get():
        *lines, rest = data.split(b"\n")
        for line in lines:
            buffer += line
            if not cut:
                yield bytes(buffer)
            buffer, cut = bytearray(), False
        buffer += rest
        if len(buffer) > LONGEST and not cut:
            yield bytes(buffer)
            cut = True
        if cut:
            buffer.clear()
    if buffer:
        yield bytes(buffer)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _complain(words: str) -> None:
    click.echo(f"webmcp-gateway stdio: {words}", err=True)
