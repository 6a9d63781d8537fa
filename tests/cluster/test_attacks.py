"""A part of the attacks against two nodes, each request at another one than the one before: `make cluster` runs all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.attacks import test_dedicated, test_requests, test_sequences
from tests.attacks.world import AttackWorld, Stores, running_world
from tests.postgresql import PostgreSQL
from tests.redis_server import redis_server


@pytest.fixture(scope="module", autouse=True)
def stores(server: PostgreSQL) -> Iterator[None]:
    """What the nodes share; each request of a client takes a connection of its own."""
    with redis_server() as redis, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.attacks.world.TWO_NODES", [Stores(server, redis)])
        patch.setattr("tests.world.ONE_REQUEST_EACH", True)
        yield


@pytest.fixture(scope="module")
async def attacked(stores: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackWorld]:
    """Two nodes."""
    async with running_world(tmp_path_factory.mktemp("attacks")) as world:
        assert len(world.nodes) == 2
        yield world


@pytest.mark.parametrize(
    ("door", "name"), [("modern", "rules"), ("legacy", "body"), ("bridge", "body"), ("site", "redirect")]
)
async def test_requests_at_two_nodes(attacked: AttackWorld, door: str, name: str) -> None:
    """Each case has the outcome that it has at one process."""
    await test_requests.hold(attacked, door, name)
    assert all(node.offset for node in attacked.nodes)  # both have recorded some


@pytest.mark.parametrize(("name", "door"), [("quota", "modern"), ("stream", "legacy"), ("cookies", "bridge")])
async def test_sequences_at_two_nodes(tmp_path: Path, name: str, door: str) -> None:
    """Counts, streams and cookies are the same at both."""
    await test_sequences.test_the_sequences_of_a_family_at_a_door(tmp_path, name, door)


async def test_pages_on_dedicated_origins_at_two_nodes(attacked: AttackWorld) -> None:
    """A page that one node has prepared is served by the other, once, into its frame alone."""
    await test_dedicated.test_a_page_waits_for_its_own_frame_alone(attacked)
