"""The servers of the benchmark: each a separate process on a free loopback port, ended at the end."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.errors import BenchmarkError

ROOT = Path(__file__).resolve().parents[1]
READY_WITHIN = 60.0
END_WITHIN = 15.0
LAST_LINES = 20


UNGIVEN = (20_000, 32_000)
"""Ports below the ephemeral ranges of Linux, macOS and Windows: a free one is not assigned to another process."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that listens on `port`."""

    name: str
    pid: int
    port: int


@dataclass(slots=True)
class Processes:
    """A context manager: leaving it ends every process that was started.

    The output of the servers is written to files in `folder`.
    """

    folder: Path
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.terminate()  # all before the first wait: a second Ctrl-C there leaves none behind
        for process in self._started:
            try:
                process.wait(END_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, name: str, command: Sequence[str], *, port: int | None = None) -> Running:
        """Start a server and wait until it listens; without `port` it gets a free one by `--port`.

        Raises `BenchmarkError`.
        """
        if port is None:
            port = free_port()
            command = [*command, "--port", str(port)]
        output = self.folder / f"{name.replace(' ', '-')}.log"
        with output.open("wb") as file:
            # a separate session: a terminal sends Ctrl-C to the whole group, and a second one ends a server at once
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        self._started.append(process)
        deadline = time.monotonic() + READY_WITHIN
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"The {name} did not start. Its last output:\n{last_words(output)}")
            time.sleep(0.05)  # there is no notice when another process listens; READY_WITHIN bounds the wait
        return Running(name, process.pid, port)

    def others_seconds(self) -> float | None:
        """Return the whole machine's processor seconds without this process, the servers, and their children.

        They count from the machine's start, and include time stolen by the host of a virtual machine. None off Linux.
        """
        with suppress(OSError):
            whole = Path("/proc/stat").read_text("ascii").split()
            busy = sum(int(whole[place]) for place in (1, 2, 3, 6, 7, 8))  # all but what it was idle, proc(5)
            sessions = {process.pid for process in self._started}
            pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
            own = sum(cpu_seconds(pid) or 0.0 for pid in pids if pid == os.getpid() or _session(pid) in sessions)
            return busy / os.sysconf("SC_CLK_TCK") - own
        return None


def free_port() -> int:
    """Return a free loopback port that the system does not assign by itself."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(*UNGIVEN))) as taken:
            return int(taken.getsockname()[1])


def last_words(output: Path) -> str:
    """Return the end of a process's output."""
    lines = output.read_text("utf-8", "replace").splitlines()[-LAST_LINES:]
    return "\n".join(f"    {line}" for line in lines) or "    (it printed nothing)"


def cpu_seconds(pid: int) -> float | None:
    """Return the processor time of a process, in seconds; None if the system does not report it (Linux does)."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) makes the id of its clock
    return None


def session_seconds(pid: int) -> float | None:
    """Return the processor time of a server and its running children."""
    whole = cpu_seconds(pid)
    others = [int(path.name) for path in Path("/proc").glob("[0-9]*") if int(path.name) != pid]
    return (
        None if whole is None else whole + sum(cpu_seconds(other) or 0.0 for other in others if _session(other) == pid)
    )


def _session(pid: int) -> int | None:
    with suppress(OSError):  # it has ended
        return os.getsid(pid)
    return None


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
