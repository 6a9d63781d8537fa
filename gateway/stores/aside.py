"""A process that copies lines of the journal into the database, while exchanges have the gateway's own at work."""

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
"""How far it stands back behind exchanges."""

IDLE_SECONDS: Final = 60.0
"""After so long without lines it is ended."""


class NoProcess(OSError):
    """It could not be started, or ended by itself."""


class Aside:
    """Copies into the database at `url`, in a process that is started when it is first asked, or before."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        """Start it, if it is not there: it takes some seconds until it copies. Raises NoProcess."""
        await self._there()
        self._idles()

    async def copy(self, stretch: Stretch) -> Copied:
        """As `gateway.stores.copying.copy`. Raises NoProcess, too."""
        try:
            said = await _asked(await self._there(), msgspec.json.encode(stretch) + b"\n")
            if isinstance(said, str):
                raise OSError(said)
        except BaseException:  # it may still answer, which is not what is asked for next, or ends without a database
            await self.close()
            raise
        self._idles()
        return said

    async def close(self) -> None:
        """End it, wherever it is: what was not copied stands in the journal."""
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
    """It loads what it needs while nobody waits for it yet."""
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
        # From outside, so that its start stands back, too.
        os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    assert process.stdin is not None  # noqa: S101  # this is a pipe
    process.stdin.write(f"{url}\n".encode())
    return process


async def _asked(process: asyncio.subprocess.Process, line: bytes) -> Copied | str:
    """What it answers: what it has copied, or why it cannot."""
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018  # these are pipes
    with suppress(ConnectionError):
        process.stdin.write(line)
        await process.stdin.drain()
    answer = await process.stdout.readline()
    if not answer:
        raise NoProcess(f"it ended with status {await process.wait()}")
    return msgspec.json.decode(answer, type=Copied | str)
