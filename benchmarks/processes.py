"""The servers of the benchmark: each a process of its own on a free loopback port, all ended at the end."""

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
"""Ports below those that Linux, macOS and Windows choose from: nobody else is given one that was found free."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that listens on `port`."""

    name: str
    pid: int
    port: int


@dataclass(slots=True)
class Processes:
    """A context manager: leaving it ends every process that was started.

    What the servers print goes into files in `folder`.
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
        """Start a server and wait until it listens; without `port` it is told a free one by `--port`.

        Raises `BenchmarkError`.
        """
        if port is None:
            port = free_port()
            command = [*command, "--port", str(port)]
        output = self.folder / f"{name.replace(' ', '-')}.log"
        with output.open("wb") as file:
            # a session of its own: a terminal sends Ctrl-C to all, and who hears it twice ends at once
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        self._started.append(process)
        deadline = time.monotonic() + READY_WITHIN
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"The {name} did not start. Its last output:\n{last_words(output)}")
            time.sleep(0.05)  # nothing tells when another process listens; READY_WITHIN bounds it
        return Running(name, process.pid, port)

    def others_seconds(self) -> float | None:
        """The processor time of the whole machine but for this process, these, and what they started; as `cpu_seconds`.

        It counts from when the machine started; what the host of a virtual machine took from it is in it.
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
    """A loopback port that nobody listens on, and that the system itself gives to nobody meanwhile."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(*UNGIVEN))) as taken:
            return int(taken.getsockname()[1])


def last_words(output: Path) -> str:
    """The end of what a process printed."""
    lines = output.read_text("utf-8", "replace").splitlines()[-LAST_LINES:]
    return "\n".join(f"    {line}" for line in lines) or "    (it printed nothing)"


def cpu_seconds(pid: int) -> float | None:
    """The processor time that a process has used; None where the system does not tell (it does on Linux)."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)
    return None


def session_seconds(pid: int) -> float | None:
    """The same of a server and of what it has started; of what has ended it counts nothing any more."""
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
