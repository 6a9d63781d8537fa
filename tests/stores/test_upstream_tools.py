"""Tests of `gateway.stores.upstream_tools`: thousands of tools of upstreams at once."""

from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from gateway.stores.sql import Database
from gateway.stores.upstream_tools import PORTION, KnownTool, UpstreamTools, key_of


async def test_many_are_written_in_portions(tmp_path: Path) -> None:
    """No portion blocks others for long; all are stored afterwards."""
    tools = {key_of(str(number)): KnownTool("a", str(number)) for number in range(4 * PORTION + 1)}
    sizes: list[int] = []

    def written(*said: Any) -> None:
        if said[2].startswith("INSERT"):
            sizes.append(len(said[3]))

    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        store = UpstreamTools(database)
        event.listen(Engine, "before_cursor_execute", written)
        try:
            await store.keep("shop", tools)
        finally:
            event.remove(Engine, "before_cursor_execute", written)
        assert await store.of("shop") == tools
    assert sizes[:4] == [PORTION] * 4
    assert len(sizes) == 5
