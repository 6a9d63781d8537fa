"""A rolling restart of three nodes behind nginx and Caddy: no call is lost that could have been answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.machines import NAMES, Machines
from tests.cluster.rolling import measure, placed
from tests.redis_server import RedisServer


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("proxy", "method", "names"),
    [
        ("nginx", "", NAMES[1:2]),
        ("nginx", "hash $http_authorization consistent;", NAMES),
        ("nginx", "", NAMES),
        ("caddy", "", NAMES),
    ],
    ids=["one node", "hash", "nginx", "caddy"],
)
async def test_a_rolling_restart_loses_nothing(
    tmp_path: Path,
    places: Machines,
    database: str,
    redis: RedisServer,
    proxy: str,
    method: str,
    names: tuple[str, ...],
) -> None:
    """Each call of each kind of client is answered by some node, and none runs twice."""
    async with placed(tmp_path, places, database, redis, proxy, method) as place:
        tally = await measure(place, 1, 50, names)
    if place.deployment.lapses:
        pytest.skip("the machine is too busy: a node could not renew its lease in time, which costs calls")
    assert (tally.refused, tally.cut, tally.twice) == ([], [], [])
