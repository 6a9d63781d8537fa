"""Restarts of a gateway under load: `python scripts/restart_load.py` prints a table."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.whole.restart_load import cut_by_gateway, measure, placed  # noqa: E402  # the tests are no installed package

CLIENTS = 4
"""Clients of each kind."""

CALLS = 500
"""Calls that begin between two restarts."""

RESTARTS = 3

PLACES = {
    "alone": ("", False),
    "alone, with the socket unit of systemd": ("", True),
    "behind nginx": ("nginx", False),
    "behind nginx, with the socket unit": ("nginx", True),
    "behind Caddy": ("caddy", False),
}


async def main() -> None:
    """Print the table."""
    print("| gateway | calls | refused in between | cut | run twice | without an answer | processor time of a start |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (front, held) in PLACES.items():
        with tempfile.TemporaryDirectory() as folder:
            async with placed(Path(folder), front, held=held) as place:
                tally = await measure(place, CLIENTS, CALLS, RESTARTS)
            cut = cut_by_gateway(Path(folder)) if front == "nginx" else []
        for one in (*tally.cut, *tally.twice, *cut):
            print(one, file=sys.stderr)
        counts = (len(tally.answered), len(tally.refused), len(tally.cut), len(tally.twice))
        print(f"| {name} | {' | '.join(map(str, counts))} | {tally.gap:.1f} s | {tally.start:.1f} s |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
