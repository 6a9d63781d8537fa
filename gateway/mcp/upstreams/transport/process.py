"""An upstream as a child process that speaks on its standard input and output, one message per line."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from gateway.backends.reaper import Reaper
from gateway.eventloop.fair_share import RoundRobin, TimeSlices
from gateway.exchange.filter import SecretRedactor
from gateway.jsontext.messages import LONG, encode_in_thread, read
from gateway.mcp.upstreams.catalog.listing import LISTS
from gateway.mcp.upstreams.transport.conversation import Message, Receive, Unreadable, UpstreamLost

log = logging.getLogger(__name__)

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The only variables that a child gets of the gateway's environment, which may contain secrets."""

STUCK = 10.0
"""Seconds after which a process that does not read its input is killed."""

GRACE = 2.0
"""Seconds that a process has to end after its input was closed, and again after SIGTERM."""

LOOK = 1.0
"""Seconds between checks that a process still runs."""

CHUNK = 64 * 1024

SAID = 1024
"""Bytes of standard error processed at a time: all of it for the log, else only the end of a chunk."""


class Process:
    """Runs `command` and exchanges messages with it. `limit` is the bytes of one message.
    Its other output goes to the log and into error messages, with the values of `env` masked. With `reaper` it ends
    also if the gateway is killed, and if it is `leased`, with the lease of this node.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        limit: int,
        in_turn: RoundRobin,
        reaper: Reaper | None = None,
        leased: bool = False,
    ) -> None:
        self._name = name
        self._command = tuple(command)
        self._secrets = tuple(env.values())
        self._env = {key: os.environ[key] for key in INHERITED if key in os.environ} | dict(env)
        self._cwd = cwd
        self._limit = limit
        self._in_turn = in_turn
        self._reaper = reaper
        self._leased = leased
        self._killed = False
        self._process: asyncio.subprocess.Process | None = None
        self._start = asyncio.Event()
        self._writing = asyncio.Lock()
        self._last_lines: deque[str] = deque(maxlen=5)
        self._over = asyncio.Event()
        self._ending = ""

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        await self._start.wait()
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            raise UpstreamLost(await self._why("the process is not running"), unsent=True)
        try:
            line = await encode_in_thread(message) + b"\n"
            async with self._writing:
                process.stdin.write(line)
                async with asyncio.timeout(STUCK):
                    await process.stdin.drain()
        except TimeoutError as error:
            process.kill()
            raise UpstreamLost("the process does not read its input") from error
        except (OSError, RuntimeError) as error:
            raise UpstreamLost(await self._why("the process closed its input")) from error

    def kill(self) -> None:
        """Kill it now, with its children: its time is over."""
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            _kill(self._process)

    async def _why(self, otherwise: str) -> str:
        """Return the reason of its end, if it ends now."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._over.wait()
        return self._ending or otherwise

    async def abandon(self, id: int) -> bool:
        return False

    async def run(self, receive: Receive) -> None:
        if self._reaper is not None:
            self._reaper.start()
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        except OSError as error:
            self._ending = f"{self._command[0]} cannot be started: {error.strerror}"
            self._over.set()
            raise UpstreamLost(self._ending, unsent=True) from error
        finally:
            self._start.set()
        if self._reaper is not None:
            self._reaper.watch(process.pid, leased=self._leased)
        if self._killed:
            _kill(process)
        listening, watching = asyncio.ensure_future(self._listen(process)), asyncio.ensure_future(_watch(process))
        try:
            await self._read(process, receive)
            await asyncio.wait({listening}, timeout=GRACE)
        except UpstreamLost as error:
            self._ending = str(error)
            raise
        finally:
            listening.cancel()
            watching.cancel()
            await asyncio.shield(asyncio.ensure_future(self._end(process)))
            text = f"; it said: {' / '.join(self._last_lines)}" if self._last_lines else ""
            self._ending = self._ending or f"the process ended with status {process.returncode}{text}"[:1000]
            self._over.set()
        raise UpstreamLost(self._ending)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        await _end(process)
        if self._reaper is not None:
            self._reaper.forget(process.pid)

    async def _read(self, process: asyncio.subprocess.Process, receive: Receive) -> None:
        if process.stdout is None:
            return
        partial_line, moments = bytearray(), TimeSlices(self._in_turn)
        while part := await process.stdout.read(CHUNK):
            *lines, rest = part.split(b"\n")
            if lines and partial_line:
                partial_line += lines[0]
                lines[0], partial_line = bytes(partial_line), bytearray()
            partial_line += rest
            for line in lines:
                began = perf_counter()
                if not await self._line(line, receive, moments):
                    await moments.spend(perf_counter() - began)
            if len(partial_line) > self._limit:
                raise UpstreamLost(f"the process sent a message of more than {self._limit} bytes")
            await asyncio.sleep(0)  # reading available data does not yield by itself

    async def _line(self, line: bytes, receive: Receive, moments: TimeSlices) -> bool:
        if len(line) > self._limit:
            raise UpstreamLost(f"the process sent a message of more than {self._limit} bytes")
        if not line.strip():
            return receive(None, None, len(line))
        try:
            message = await read(line, moments, LISTS)
        except ValueError as error:
            visible_line = SecretRedactor(self._secrets).whole(line[:LONG])[:200]
            log.debug("upstream %s: not JSON on its output: %r", self._name, visible_line)
            message = Unreadable.of(line, error)
        return receive(message, None, len(line))

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keep the process's standard error for the log and for error messages."""
        if process.stderr is None:
            return
        echo, moments, logged = (
            SecretRedactor(self._secrets),
            TimeSlices(self._in_turn),
            log.isEnabledFor(logging.DEBUG),
        )
        while part := await process.stderr.read(SAID if logged else CHUNK):
            began = perf_counter()
            text = echo.part(part)
            self._says(text if logged else text[-SAID:])
            await moments.spend(perf_counter() - began)
        self._says(echo.rest())

    def _says(self, part: bytes) -> None:
        for line in part.decode("utf-8", "replace").splitlines():
            text = "".join(letter for letter in line.strip() if letter.isprintable())[:300]
            if text:
                self._last_lines.append(text)
                log.debug("upstream %s: %s", self._name, text)


async def _watch(process: asyncio.subprocess.Process) -> None:
    """End its output once it has ended, even if another process holds the pipe: earlier output is still read."""
    while process.returncode is None:  # noqa: ASYNC110  # `wait` waits for the end of the output, too
        await asyncio.sleep(LOOK)
    _kill(process)
    await asyncio.sleep(GRACE)
    transport = getattr(process, "_transport", None)
    output = transport.get_pipe_transport(1) if transport is not None else None
    if output is not None:
        output.close()  # held by a process in another session


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process group, with children left behind."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process and its children: close its input, then SIGTERM, then SIGKILL."""
    if process.stdin is not None:
        process.stdin.close()
    dropping = asyncio.ensure_future(_drop(process))  # a process that cannot write does not end by itself
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            break
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await process.wait()
                break
    dropping.cancel()
    _kill(process)
    transport = getattr(process, "_transport", None)  # else a pipe held by a grandchild stays open
    if transport is not None:
        transport.close()


async def _drop(process: asyncio.subprocess.Process) -> None:
    """Read and discard the remaining output."""
    if process.stdout is None:
        return
    while part := await process.stdout.read(CHUNK):
        log.debug("dropped %d bytes of a process that ends", len(part))
        await asyncio.sleep(0)  # a process that never stops writing must not starve others
