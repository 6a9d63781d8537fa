"""The program of the process that copies lines of the journal into the database; it ends with its gateway."""

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
"""Seconds before each module: some hundred are loaded, and whoever is ready meanwhile has the processor."""


PARENT_LOOK: Final = 1.0
"""Seconds between two looks at who started this process, where the system does not report the end of its pipe."""


def end_with_parent() -> None:
    """End this process at once when the one that started it has ended, whatever is being done.

    A killed gateway tells nobody. Its end of the pipe closes, which `poll` reports also while nobody reads.
    """
    parent = os.getppid()

    def watch() -> None:
        poll = select.poll()
        poll.register(sys.stdin.fileno(), 0)
        while not poll.poll(1000 * PARENT_LOOK) and os.getppid() == parent:
            pass
        os._exit(0)  # a transaction that is open is rolled back

    threading.Thread(target=watch, daemon=True).start()


class _Rest:
    """Finds no module, and lets others work before each one."""

    @staticmethod
    def find_spec(*_: object) -> None:
        time.sleep(REST)


async def main() -> None:
    """Read the database's URL, then stretches, a line each; answer each with a line. End with the input."""
    end_with_parent()
    sys.meta_path.insert(0, _Rest)
    import msgspec  # noqa: PLC0415  # with rests

    from gateway.errors import StartError  # noqa: PLC0415  # with rests
    from gateway.stores.copying import Stretch, copy  # noqa: PLC0415  # with rests
    from gateway.stores.records import Records  # noqa: PLC0415  # with rests
    from gateway.stores.sql import Database  # noqa: PLC0415  # with rests

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
