"""The program of the child process that copies journal lines into the database; it exits with its gateway."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.stores.copying import Copied

REST: Final = 0.003
"""Seconds of pause before each of some hundred imports, so that other processes get the processor."""


PARENT_LOOK: Final = 1.0
"""Seconds between two checks of the parent, if the system does not report the end of the pipe."""


def end_with_parent() -> None:
    """Exit at once when the parent process has ended, in any state.

    A killed gateway sends no notice. Its end of the pipe closes, which `poll` reports even while no thread reads.
    """
    parent = os.getppid()

    def watch() -> None:
        poll = select.poll()
        poll.register(sys.stdin.fileno(), 0)
        while not poll.poll(1000 * PARENT_LOOK) and os.getppid() == parent:
            pass
        os._exit(0)  # an open transaction is rolled back

    threading.Thread(target=watch, daemon=True).start()


class _Rest:
    """A module finder that finds nothing, and pauses before each import."""

    @staticmethod
    def find_spec(*_: object) -> None:
        time.sleep(REST)


async def main() -> None:
    """Read the database's URL, then one stretch per line; answer each with a line. Exit at the end of input."""
    end_with_parent()
    sys.meta_path.insert(0, _Rest)
    import msgspec  # noqa: PLC0415  with pauses

    from gateway.errors import StartError  # noqa: PLC0415  with pauses
    from gateway.stores.copying import Stretch, copy  # noqa: PLC0415  with pauses
    from gateway.stores.records import Records  # noqa: PLC0415  with pauses
    from gateway.stores.sql import Database  # noqa: PLC0415  with pauses

    sys.meta_path.remove(_Rest)

    def answer(said: Copied | str) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
        sys.stdout.buffer.flush()

    url = sys.stdin.readline().rstrip("\n")
    try:
        async with Database(url) as database:
            records = Records(database)
            for line in sys.stdin:
                stretch = msgspec.json.decode(line, type=Stretch)
                try:
                    answer(await copy(records, stretch))
                except OSError as error:
                    answer(str(error))
    except StartError as error:
        answer(str(error))


if __name__ == "__main__":
    asyncio.run(main())
