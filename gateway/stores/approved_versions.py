"""The policies that a person has approved, in the database, signed: for all processes of a gateway."""

from __future__ import annotations

from sqlalchemy import delete, select

from gateway.crypto import SigningKeys
from gateway.stores.schema import APPROVED_VERSIONS
from gateway.stores.sql import Database, as_whole, insert


class DatabaseApprovedVersions:
    """The port `ApprovedVersions` in `database`, for several processes with the same `keys`."""

    def __init__(self, database: Database, keys: SigningKeys) -> None:
        self._database = database
        self._keys = keys

    @as_whole
    async def is_approved(self, app: str, version: str) -> bool:
        """Return whether this is the approved version."""
        query = select(APPROVED_VERSIONS.c.mac).where(APPROVED_VERSIONS.c.app == app)
        async with self._database.connect() as connection:
            mac = await connection.scalar(query)
        return mac is not None and self._keys.verify(mac, "approved version", app, version)

    @as_whole
    async def approve(self, app: str, version: str) -> None:
        """Make this the approved version."""
        row = {"version": version, "mac": self._keys.sign("approved version", app, version)}
        async with self._database.connect() as connection:
            stored = insert(connection, APPROVED_VERSIONS).values(app=app, **row)
            await connection.execute(stored.on_conflict_do_update(index_elements=["app"], set_=row))
            await connection.commit()

    @as_whole
    async def supersede(self, app: str, version: str) -> None:
        """Forget the approved version unless it is this one."""
        table = APPROVED_VERSIONS.c
        async with self._database.connect() as connection:
            await connection.execute(delete(APPROVED_VERSIONS).where(table.app == app, table.version != version))
            await connection.commit()
