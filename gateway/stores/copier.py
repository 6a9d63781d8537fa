"""The program of the child process that copies journal lines into the database; it exits with its gateway."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.stores.copying import CopyResult, LineStore

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


@asynccontextmanager
async def _lines(url: str, file: str | None) -> AsyncIterator[LineStore]:
    """Yield the database, with the modules that it needs. Raises StartError."""
    if file is not None:
        from gateway.stores.sqlite_lines import SqliteLines  # noqa: PLC0415  with pauses

        with SqliteLines(Path(file)) as lines:
            yield lines
        return
    from gateway.stores.records import Records  # noqa: PLC0415  with pauses
    from gateway.stores.sql import Database  # noqa: PLC0415  with pauses

    async with Database(url) as database:
        yield Records(database)


async def main() -> None:
    """Read the URL and the file of the database, then one stretch per line, as JSON; answer each with a line.

    Exit at the end of input.
    """
    end_with_parent()
    sys.meta_path.insert(0, _Rest)
    import msgspec  # noqa: PLC0415  with pauses

    from gateway.errors import StartError  # noqa: PLC0415  with pauses
    from gateway.stores.copying import LARGE_BATCH, Stretch, copy  # noqa: PLC0415  with pauses

    def answer(result: CopyResult | str) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
        sys.stdout.buffer.flush()

    url, file = msgspec.json.decode(sys.stdin.readline(), type=tuple[str, str | None])
    try:
        async with _lines(url, file) as store:
            sys.meta_path.remove(_Rest)
            for line in sys.stdin:
                stretch = msgspec.json.decode(line, type=Stretch)
                try:
                    answer(await copy(store, stretch, LARGE_BATCH))
                except OSError as error:
                    answer(str(error))
    except (StartError, OSError) as error:
        answer(str(error))


if __name__ == "__main__":
    asyncio.run(main())
