"""Ends the process groups that a killed gateway leaves behind, from a separate process that waits for its end.

This module is also its program. It imports the standard library only, so that it starts quickly and stays small.
"""

from __future__ import annotations

import logging
import os
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

log = logging.getLogger(__name__)


class Reaper:
    """Ensures that process groups end with this process, however that ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def start(self) -> None:
        """Start the process that watches, so that what is started next need not wait for it to be registered."""
        self._tell("")

    def watch(self, group: int) -> None:
        """Register the process group `group`, which must not outlive this process."""
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Unregister a group that has ended: its number may be reused."""
        self._groups.discard(group)
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
                line = "".join(f"+{group}\n" for group in self._groups)
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
    """Read groups to add and to remove, one per line; at the end of input, end the remaining ones."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its input does
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
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
