"""The port `ApprovedVersions`: one version of each app is approved, for all processes."""

import pytest
from sqlalchemy import insert, update

from gateway.exchange.approvals import MemoryApprovedVersions
from gateway.ports.approvals import ApprovedVersions
from gateway.stores.approved_versions import DatabaseApprovedVersions
from gateway.stores.schema import APPROVED_VERSIONS
from gateway.stores.sealing import KeyRing
from gateway.stores.sql import Database


@pytest.fixture
def versions(shared: Database | None, ring: KeyRing) -> ApprovedVersions:
    """Each implementation, with nothing approved."""
    return MemoryApprovedVersions() if shared is None else DatabaseApprovedVersions(shared, ring.derive("versions"))


async def test_the_latest_approved_version_is_the_approved_one(versions: ApprovedVersions) -> None:
    """Of each app; the one before takes another approval."""
    assert not await versions.is_approved("cart", "1")
    await versions.approve("cart", "1")
    assert [await versions.is_approved(app, "1") for app in ("cart", "notes", "")] == [True, False, False]
    await versions.approve("cart", "2")
    assert [await versions.is_approved("cart", version) for version in ("1", "2")] == [False, True]


async def test_what_is_not_in_effect_any_more_is_forgotten(versions: ApprovedVersions) -> None:
    """The version in effect stays approved, for processes that have not read it yet."""
    await versions.approve("cart", "1")
    await versions.supersede("notes", "2")
    await versions.supersede("cart", "1")
    assert await versions.is_approved("cart", "1")
    await versions.supersede("cart", "2")
    assert not await versions.is_approved("cart", "1")


async def test_one_process_approves_for_the_other(database: Database, other_database: Database, ring: KeyRing) -> None:
    """At once."""
    one, other = (DatabaseApprovedVersions(each, ring.derive("versions")) for each in (database, other_database))
    await one.approve("cart", "1")
    assert await other.is_approved("cart", "1")


async def test_a_version_that_was_written_into_the_database_is_not_approved(database: Database, ring: KeyRing) -> None:
    """Neither with a made up signature, nor with that of another app."""
    versions = DatabaseApprovedVersions(database, ring.derive("versions"))
    await versions.approve("cart", "1")
    async with database.connect() as connection:
        await connection.execute(insert(APPROVED_VERSIONS).values(app="notes", version="1", mac="0" * 64))
        await connection.execute(update(APPROVED_VERSIONS).where(APPROVED_VERSIONS.c.app == "cart").values(app="drive"))
        await connection.execute(insert(APPROVED_VERSIONS).values(app="cart", version="2", mac=""))
        await connection.commit()
    assert [await versions.is_approved(app, one) for app, one in (("notes", "1"), ("drive", "1"), ("cart", "2"))] == [
        False, False, False,
    ]  # fmt: skip
