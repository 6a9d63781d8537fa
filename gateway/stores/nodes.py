"""The nodes of a gateway of several processes, with their leases, and the owners of views: in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Float, delete, func, select, text, tuple_, update
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.crypto import SigningKeys
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json, sorted_json
from gateway.ports.nodes import Announcement, NameTaken, NodeRow, Renewal, ViewOwner
from gateway.stores.schema import NODES, UPSTREAM_OWNERS, VIEW_OWNERS
from gateway.stores.sql import Database, as_whole, insert, whole

ENDS_AFTER: Final = 10.0
"""Seconds after a renewal from which a node cannot renew its lease any more, and others take over."""

KEPT: Final = 3600.0
"""Seconds after which the row of a node that has ended is deleted: until then `cluster status` shows it."""

KEPT_OWNERS: Final = 48 * 3600.0
"""Seconds after which the owner of a view is forgotten: launch values are valid for half as long."""

_TO: Final = "#"
"""Separates a view from the former owner in the key of a notice; no id contains it."""

_JOINING: Final = 7_238_104_657
"""The number of the advisory lock under which names are compared: two processes may start at a time."""

NOW: Final = func.extract("epoch", func.clock_timestamp()).cast(Float)
"""The database's time, the one clock of all nodes, in seconds since the epoch."""


class DatabaseNodes:
    """The port `NodeStore`. `keys` sign announcements: who can write the database must not redirect requests."""

    def __init__(self, database: Database, keys: SigningKeys) -> None:
        self._database = database
        self._keys = keys
        self._noticed: list[tuple[str, int]] = []
        """The notices of the last renewal whose answer has arrived, which the next one deletes."""

    @as_whole
    async def join(self, announced: Announcement) -> None:
        """Add a node. Raises `NameTaken`."""
        table = NODES.c
        async with self._database.connect() as connection:
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_JOINING})"))
            lives = select(table.name).where(table.name == announced.name, NOW - table.renewed < ENDS_AFTER)
            if (await connection.execute(lives)).first() is not None:
                raise NameTaken(announced.name)
            await connection.execute(delete(NODES).where(NOW - table.renewed > KEPT))
            await connection.execute(delete(VIEW_OWNERS).where(NOW - VIEW_OWNERS.c.changed > KEPT_OWNERS))
            row = {**self._values(announced), "started": NOW, "renewed": NOW, "draining": False}
            await connection.execute(NODES.insert().values(row))
            await connection.commit()

    async def renew(self, announced: Announcement, *, draining: bool, owns: Mapping[str, int]) -> Renewal:
        """Renew the lease, if it has not ended, with what the node announces now, and read all nodes."""
        return await whole(self._renew(announced, draining, owns))

    async def _renew(self, announced: Announcement, draining: bool, owns: Mapping[str, int]) -> Renewal:
        table, owners = NODES.c, VIEW_OWNERS.c
        mine = (table.incarnation == announced.incarnation, NOW - table.renewed < ENDS_AFTER)
        values = {**self._values(announced), "renewed": NOW, "draining": draining, "owns": plain_json(dict(owns))}
        async with self._database.connect() as connection:
            renewed = await connection.execute(update(NODES).where(*mine).values(values))
            former = owners.former == announced.incarnation
            if self._noticed:
                done = tuple_(owners.view, owners.epoch).in_(self._noticed)
                await connection.execute(delete(VIEW_OWNERS).where(former, done))
            notices = (await connection.execute(select(owners.view, owners.epoch).where(former))).all()
            now, rows = await self._read(connection)
            await connection.commit()
        self._noticed = [(row.view, row.epoch) for row in notices]
        lost_views = [row.view.partition(_TO)[0] for row in notices]
        return Renewal(now, rows, lost=not renewed.rowcount, lost_views=lost_views)

    async def nodes(self) -> Sequence[NodeRow]:
        """Return all nodes with a row."""
        return await whole(self._nodes())

    async def _nodes(self) -> Sequence[NodeRow]:
        async with self._database.connect() as connection:
            return (await self._read(connection))[1]

    @as_whole
    async def leave(self, incarnation: str) -> None:
        """End the lease of a node that stops."""
        ended = update(NODES).where(NODES.c.incarnation == incarnation).values(renewed=NODES.c.renewed - ENDS_AFTER)
        async with self._database.connect() as connection:
            await connection.execute(ended)
            await connection.commit()

    def _values(self, announced: Announcement) -> dict[str, Any]:
        return {
            "incarnation": announced.incarnation,
            "name": announced.name,
            "address": announced.address,
            "version": announced.version,
            "digest": announced.digest,
            "keys": announced.keys,
            "policies": sorted_json(dict(announced.policies)),
            "proof": self._keys.sign(*_signed(announced)),
        }

    async def _read(self, connection: AsyncConnection) -> tuple[float, list[NodeRow]]:
        rows = (await connection.execute(select(NODES, NOW.label("now")))).all()
        now = rows[0].now if rows else (await connection.execute(select(NOW))).scalar_one()
        return float(now), [self._row(row) for row in rows]

    def _row(self, row: Any) -> NodeRow:
        announced = Announcement(
            row.incarnation, row.name, row.address, row.version, row.digest, row.keys, parse_json(row.policies)
        )
        signed = self._keys.verify(row.proof, *_signed(announced))
        owns = parse_json(row.owns) if row.owns else {}
        return NodeRow(announced, row.now - row.renewed, row.now - row.started, row.draining, signed, owns)


def _signed(announced: Announcement) -> tuple[str, ...]:
    return (
        "node",
        announced.incarnation,
        announced.name,
        announced.address,
        announced.version,
        announced.digest,
        announced.keys,
        sorted_json(dict(announced.policies)),
    )


class DatabaseViewOwners:
    """The port `ViewOwners`. A row is a hint: a node that does not have the view refuses what is sent for it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @as_whole
    async def take(self, view: str, incarnation: str, made_by: str) -> ViewOwner | None:
        """Make this node the owner; return the owner before, None if it was this one."""
        table = VIEW_OWNERS.c
        async with self._database.connect() as connection:
            query = select(VIEW_OWNERS).where(table.view == view).with_for_update()
            row = (await connection.execute(query)).first()
            if row is None:
                row = await self._add(connection, view, made_by)
            before = ViewOwner(row.owner, row.epoch)
            moved = before.incarnation != incarnation
            values = {"owner": incarnation, "epoch": before.epoch + 1, "changed": NOW}
            await connection.execute(update(VIEW_OWNERS).where(table.view == view).values(values))
            if moved:  # each former owner has a notice of its own: a view may move on before the first one has noticed
                await connection.execute(delete(VIEW_OWNERS).where(table.view == f"{view}{_TO}{incarnation}"))
                notice = {**values, "view": f"{view}{_TO}{before.incarnation}", "former": before.incarnation}
                added = insert(connection, VIEW_OWNERS).values(notice)
                await connection.execute(added.on_conflict_do_update(index_elements=["view"], set_=values))
            await connection.commit()
        return before if moved else None

    async def find(self, view: str) -> ViewOwner | None:
        """Return the owner of a view; None without a row."""
        return await whole(self._find(view))

    async def _find(self, view: str) -> ViewOwner | None:
        async with self._database.connect() as connection:
            query = select(VIEW_OWNERS.c.owner, VIEW_OWNERS.c.epoch).where(VIEW_OWNERS.c.view == view)
            row = (await connection.execute(query)).first()
        return ViewOwner(row.owner, row.epoch) if row is not None else None

    @as_whole
    async def drop(self, view: str, incarnation: str) -> None:
        """Delete the row of a view that ended at this node."""
        mine = (VIEW_OWNERS.c.view == view, VIEW_OWNERS.c.owner == incarnation)
        async with self._database.connect() as connection:
            await connection.execute(delete(VIEW_OWNERS).where(*mine))
            await connection.commit()

    async def _add(self, connection: AsyncConnection, view: str, owner: str) -> Any:
        """Add the row of a view that has none, and return it locked; another node may do so at the same time."""
        row = {"view": view, "owner": owner, "epoch": 0, "former": None, "changed": NOW}
        await connection.execute(insert(connection, VIEW_OWNERS).values(row).on_conflict_do_nothing())
        query = select(VIEW_OWNERS).where(VIEW_OWNERS.c.view == view).with_for_update()
        return (await connection.execute(query)).one()


class DatabaseUpstreamOwners:
    """The port `UpstreamOwners`. A claim lasts as long as the owner's lease, whose end its processes do not outlive."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @as_whole
    async def claim(self, upstream: str, incarnation: str) -> str:
        """Make this node the owner, unless the node that is lives; return the owner."""
        table = UPSTREAM_OWNERS.c
        async with self._database.connect() as connection:
            mine = {"upstream": upstream, "owner": incarnation}
            added = insert(connection, UPSTREAM_OWNERS).values(mine).on_conflict_do_nothing()
            query = select(table.owner).where(table.upstream == upstream).with_for_update()
            owner: str | None = None
            while owner is None:  # the one that it had may leave it between the two
                await connection.execute(added)
                owner = (await connection.execute(query)).scalar_one_or_none()
            lives = select(NODES.c.name).where(NODES.c.incarnation == owner, NOW - NODES.c.renewed < ENDS_AFTER)
            if owner != incarnation and (await connection.execute(lives)).first() is None:
                change = update(UPSTREAM_OWNERS).where(table.upstream == upstream).values(owner=incarnation)
                await connection.execute(change)
                owner = incarnation
            await connection.commit()
        return owner

    @as_whole
    async def release(self, upstream: str, incarnation: str) -> None:
        """Leave the upstream to any other node, if this one is the owner."""
        mine = (UPSTREAM_OWNERS.c.upstream == upstream, UPSTREAM_OWNERS.c.owner == incarnation)
        async with self._database.connect() as connection:
            await connection.execute(delete(UPSTREAM_OWNERS).where(*mine))
            await connection.commit()
