"""Rolling restarts of three nodes under load: `python scripts/restart_rolling.py` prints a table.

Names of proxies as arguments choose among the rows.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.cluster.machines import NAMES, machines, serve_machines  # noqa: E402  # the tests are no installed package
from tests.cluster.rolling import measure, placed  # noqa: E402
from tests.postgresql import postgresql  # noqa: E402
from tests.redis_server import redis_server  # noqa: E402

CLIENTS = 2
"""Clients of each kind."""

CALLS = 300
"""Calls that begin between two restarts."""

PROXIES = {
    "nginx": ("nginx", ""),
    "nginx, with a hash of Authorization": ("nginx", "hash $http_authorization consistent;"),
    "Caddy": ("caddy", ""),
}


def read_log(folder: Path, proxy: str) -> str:
    """Return what the proxy has logged."""
    return (folder / ("nginx.log" if proxy == "nginx" else "caddy.out")).read_text()


async def main(chosen: list[str]) -> None:
    """Print the table."""
    with postgresql() as server, machines() as places:
        serve_machines(server, places)
        where = "in network namespaces" if places.separate else "at addresses of loopback"
        print(f"Three nodes {where}.\n")
        print("| balancer | calls | answered | errors | run twice |")
        print("|---|---:|---:|---:|---:|")
        for name, (proxy, method) in PROXIES.items():
            if chosen and name not in chosen:
                continue
            with (
                tempfile.TemporaryDirectory() as folder,
                redis_server(bind=places.bound, protected_mode="no") as redis,
            ):
                async with placed(Path(folder), places, server.url, redis, proxy, method) as place:
                    tally = await measure(place, CLIENTS, CALLS, NAMES)
                said = read_log(Path(folder), proxy)
            for one in (*(str(one) for one in tally.refused), *tally.cut, *tally.twice):
                print(one, file=sys.stderr)
            if tally.refused or tally.cut:
                print(said, file=sys.stderr)
            answered, errors = len(tally.answered), len(tally.refused) + len(tally.cut)
            print(f"| {name} | {answered + errors} | {answered} | {errors} | {len(tally.twice)} |", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
