"""Copies journal lines into the database in a child process while the gateway is under load."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import Final

import msgspec

from gateway.stores import copier
from gateway.stores.copying import Copied, Stretch

NICE: Final = 10
"""How much lower than the gateway's the child's scheduling priority is."""

IDLE_SECONDS: Final = 60.0
"""Seconds without lines after which the child process is ended."""


class NoProcess(OSError):
    """The child process could not be started, or has exited."""


class Aside:
    """Copies into the database at `url`, in a child process that is started by the first copy, or by `begin`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        """Start the child process if it does not run: it takes some seconds until it can copy. Raises NoProcess."""
        await self._there()
        self._idles()

    async def copy(self, stretch: Stretch) -> Copied:
        """Copy as `gateway.stores.copying.copy` does. Raises NoProcess, too."""
        try:
            said = await _asked(await self._there(), msgspec.json.encode(stretch) + b"\n")
            if isinstance(said, str):
                raise OSError(said)
        except BaseException:  # its late answer would be taken for the next one; without a database it exits
            await self.close()
            raise
        self._idles()
        return said

    async def close(self) -> None:
        """Kill the child process in any state: lines that were not copied are in the journal."""
        process = self._process
        self._end()
        if process is not None:
            await process.wait()

    async def _there(self) -> asyncio.subprocess.Process:
        if self._idle is not None:
            self._idle.cancel()
        if self._process is None:
            self._process = await _started(self._url)
        return self._process

    def _idles(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end)

    def _end(self) -> None:
        process, self._process = self._process, None
        if self._idle is not None:
            self._idle.cancel()
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()


async def _started(url: str) -> asyncio.subprocess.Process:
    """Start the process, which imports its modules before the first request."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", copier.__name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal is for the gateway
        )
    except OSError as error:
        raise NoProcess(f"it cannot be started: {error.strerror}") from error
    with suppress(ProcessLookupError):
        # From outside, so that its start has the low priority, too.
        os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    assert process.stdin is not None  # noqa: S101  # this is a pipe
    process.stdin.write(f"{url}\n".encode())
    return process


async def _asked(process: asyncio.subprocess.Process, line: bytes) -> Copied | str:
    """Send a request and return the answer: the copied lines, or an error."""
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018  # these are pipes
    with suppress(ConnectionError):
        process.stdin.write(line)
        await process.stdin.drain()
    answer = await process.stdout.readline()
    if not answer:
        raise NoProcess(f"it ended with status {await process.wait()}")
    return msgspec.json.decode(answer, type=Copied | str)
