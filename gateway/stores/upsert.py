"""Inserts or updates a row in one statement, for both kinds of database."""

from __future__ import annotations

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


def insert(connection: AsyncConnection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert into `table` that supports `on_conflict_…`."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
