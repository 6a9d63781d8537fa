"""Tests of `gateway.stores.page_storage`: items of pages, encrypted, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.stores.page_storage import QUOTA, PageStorage, StoredPage
from gateway.stores.sealing import KeyFile, KeyRing, SealBroken
from gateway.stores.sql import Database
from tests.postgresql import postgresql


@pytest.fixture(params=["sqlite", "postgresql"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        async with Database(f"sqlite:///{tmp_path}/gateway.db") as opened:
            yield opened
    else:
        with postgresql() as server:
            async with Database(server.url) as opened:
                yield opened


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing(KeyFile(tmp_path / "gateway.key"))


async def test_it_keeps_items_by_person_and_app(database: Database, ring: KeyRing) -> None:
    """In order; a change affects no other person's or app's items."""
    storage = PageStorage(database, ring)
    assert await storage.load("ann", "cart") == {}
    assert await storage.save("ann", "cart", {"z": "1", "a": "\x00ü", "gone": "x"}, now=1.0)
    assert await storage.save("ann", "board", {"z": "other app"}, now=2.0)
    assert await storage.save("bob", "cart", {"z": "other person"}, now=3.0)
    assert await storage.save("ann", "cart", {"gone": None, "b": "2", "never": None}, now=4.0)
    assert list((await storage.load("ann", "cart")).items()) == [("z", "1"), ("a", "\x00ü"), ("b", "2")]
    assert await storage.save("ann", "cart", {"new": "3"}, clear=True, now=5.0)
    assert await storage.load("ann", "cart") == {"new": "3"}
    assert await storage.list() == [
        StoredPage("ann", "board", 10, 2.0),
        StoredPage("ann", "cart", 4, 5.0),
        StoredPage("bob", "cart", 13, 3.0),
    ]
    assert (await storage.delete("ann", "cart"), await storage.delete("ann", "cart")) == (1, 0)
    assert (await storage.load("ann", "cart"), await storage.load("bob", "cart")) == ({}, {"z": "other person"})
    assert await storage.delete() == 2


async def test_what_is_too_much_changes_nothing(database: Database, ring: KeyRing) -> None:
    """The bound is exact to the character; removals in the same change count."""
    storage = PageStorage(database, ring)
    assert await storage.save("ann", "cart", {"a": "x" * (QUOTA - 1)}, now=1.0)
    assert not await storage.save("ann", "cart", {"b": ""}, now=2.0)
    assert list(await storage.load("ann", "cart")) == ["a"]
    assert await storage.save("ann", "cart", {"b": "x" * (QUOTA - 1), "a": None}, now=3.0)
    assert list(await storage.load("ann", "cart")) == ["b"]


async def test_two_processes_lose_none_of_each_others_changes(database: Database, ring: KeyRing) -> None:
    """Each builds on the other's changes."""
    first, second = PageStorage(database, ring), PageStorage(database, ring)
    saves = [
        storage.save("ann", "cart", {f"{name}{n}": str(n)}, now=1.0)
        for n in range(3)
        for name, storage in (("first", first), ("second", second))
    ]
    assert all(await asyncio.gather(*saves))
    assert len(await first.load("ann", "cart")) == 6


async def test_it_is_sealed_for_its_place(database: Database, ring: KeyRing, tmp_path: Path) -> None:
    """After a rotation a new key decrypts re-encrypted items; without the key nothing is read or overwritten."""
    storage = PageStorage(database, ring)
    await storage.save("ann", "cart", {"secret": "value"}, now=1.0)
    async with database.connect() as connection:
        moved = "UPDATE page_storage SET person = 'bob'"
        await connection.exec_driver_sql(moved)
        await connection.commit()
    with pytest.raises(SealBroken):
        await storage.load("bob", "cart")
    async with database.connect() as connection:
        await connection.exec_driver_sql("UPDATE page_storage SET person = 'ann'")
        await connection.commit()
    ring.rotate()
    assert await storage.reseal() == (1, 0)
    ring.rotate()
    assert await storage.load("ann", "cart") == {"secret": "value"}
    (tmp_path / "gateway.key").unlink()
    with pytest.raises(SealBroken):
        await storage.save("ann", "cart", {"secret": "other"}, now=2.0)
    assert await storage.reseal() == (0, 1)
