"""The apps of principals whose views are tainted, in the database, so that a restart ends no taint."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import delete, select, tuple_

from gateway.ports.views import StoredTaint, TaintKey
from gateway.stores.schema import TAINTS
from gateway.stores.sql import Database, insert, whole


class DatabaseTaints:
    """The port `TaintStore` in `database`, which several processes may share."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self, most: int) -> dict[TaintKey, StoredTaint]:
        """Return up to `most` taints."""
        table = TAINTS.c
        query = select(table.principal, table.app, table.evidence, table.call).limit(most)
        async with self._database.connect() as connection:
            rows = await connection.execute(query)
            return {(row.principal, row.app): StoredTaint(row.evidence, row.call) for row in rows}

    async def put(self, taints: Mapping[TaintKey, StoredTaint]) -> None:
        """Store these."""
        await whole(self._put(taints))

    async def remove(self, keys: Collection[TaintKey]) -> None:
        """Delete these, after a person acted."""
        await whole(self._remove(keys))

    async def _put(self, taints: Mapping[TaintKey, StoredTaint]) -> None:
        rows = [
            {"principal": principal, "app": app, "evidence": taint.evidence, "call": taint.call}
            for (principal, app), taint in taints.items()
        ]
        async with self._database.connect() as connection:
            await connection.execute(insert(connection, TAINTS).on_conflict_do_nothing(), rows)
            await connection.commit()

    async def _remove(self, keys: Collection[TaintKey]) -> None:
        async with self._database.connect() as connection:
            await connection.execute(delete(TAINTS).where(tuple_(TAINTS.c.principal, TAINTS.c.app).in_(list(keys))))
            await connection.commit()
