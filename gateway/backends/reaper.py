"""Ends the process groups that a killed gateway leaves behind, from a separate process that waits for its end.

This module is also its program. It imports the standard library only, so that it starts quickly and stays small.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final

GRACE: Final = 2.0
"""Seconds that processes have to exit after SIGTERM."""

LOOK: Final = 0.02
"""Seconds between two checks whether they have."""

CHUNK: Final = 65536
"""Bytes of commands that are read at once."""

log = logging.getLogger(__name__)


def lease_clock() -> float:
    """Return the seconds of the clock of leases, that of `gateway.cluster.lease`."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Reaper:
    """Ensures that process groups end with this process, however that ends.

    Leased ones end also at the time of the last `extend`, on the clock `lease_clock`, even if this process is stopped.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: dict[int, str] = {}
        """The registered groups, each with the sign by which it is registered."""
        self._until: float | None = None

    def start(self) -> None:
        """Start the process that watches, so that what is started next need not wait for it to be registered."""
        self._tell("")

    def watch(self, group: int, *, leased: bool = False) -> None:
        """Register the process group `group`, which must not outlive this process; nor the lease, if it is `leased`."""
        sign = self._groups[group] = "~" if leased else "+"
        self._tell(f"={self._until or 0.0}\n~{group}\n" if leased else f"{sign}{group}\n")

    def extend(self, until: float) -> None:
        """Let leased groups run until then, in seconds of `lease_clock`."""
        self._until = until
        if any(sign == "~" for sign in self._groups.values()):
            self._tell(f"={until}\n")

    def forget(self, group: int) -> None:
        """Unregister a group that has ended: its number may be reused."""
        self._groups.pop(group, None)
        if self._process is not None:
            self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the remaining groups, and the reaper process."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait()

    def _tell(self, line: str) -> None:
        if not self._is_told(line):
            self._process = None  # it was killed: the next one receives all groups
            if self._groups and not self._is_told(""):
                log.warning("processes of upstreams would survive a kill of this gateway: nothing can watch it")

    def _is_told(self, line: str) -> bool:
        try:
            if self._process is None:
                self._process = _start()
                line = "".join(f"{sign}{group}\n" for group, sign in self._groups.items())
            if "~" in line and self._until is not None:
                line = f"={self._until}\n{line}"
            assert self._process.stdin is not None  # noqa: S101  # this is a pipe
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError:
            if self._process is not None:
                _drop(self._process)
            return False
        return True


def _drop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    with suppress(OSError):  # unwritten data is discarded
        assert process.stdin is not None  # noqa: S101  # this is a pipe
        process.stdin.close()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # this very file, with the Python that runs
        [sys.executable, "-I", "-S", os.path.abspath(__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal to the gateway's group does not reach it
    )


def main() -> None:
    """Read groups to add and to remove, and the end of the lease, one per line.

    At the end of the lease, kill the leased groups; at the end of input, end the remaining ones.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its input does
    groups: set[int] = set()
    leased: set[int] = set()
    until, rest = 0.0, b""
    while True:
        wait = max(0.0, until - lease_clock()) if leased else None
        if not select.select([0], [], [], wait)[0]:
            for group in leased:  # the gateway may be stopped, and another node start the same upstream soon
                _signal_group(group, signal.SIGKILL)
            leased.clear()
            continue
        if not (chunk := os.read(0, CHUNK)):
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            sign, text = line[:1], line[1:]
            if sign == b"=":
                until = float(text)
                continue
            for known in (groups, leased):
                known.discard(int(text))
            if sign != b"-":
                (leased if sign == b"~" else groups).add(int(text))
    groups |= leased
    for number in (signal.SIGTERM, signal.SIGKILL):
        groups = {group for group in groups if _signal_group(group, number)}
        until = time.monotonic() + GRACE
        while (groups := {group for group in groups if _signal_group(group, 0)}) and time.monotonic() < until:
            time.sleep(LOOK)


def _signal_group(group: int, number: int) -> bool:
    """Signal a group; return whether it has any process."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
