"""The program of the process that copies lines of the journal into the database."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.stores.copying import Copied

REST: Final = 0.003
"""Seconds before each module: some hundred are loaded, and whoever is ready meanwhile has the processor."""


class _Rest:
    """Finds no module, and lets others work before each one."""

    @staticmethod
    def find_spec(*_: object) -> None:
        time.sleep(REST)


async def main() -> None:
    """Read the database's URL, then stretches, a line each; answer each with a line. End with the input."""
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
