"""Kills a process at each of its calls of the system and the database, one after the other, and looks at what is left.

`python -m tests.stores.killing PART FOLDER STRIDE` is a process without threads, so that it can fork.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it has no types
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio.engine import create_async_engine

from gateway.cli.credential import rotate_key
from gateway.credentials import Token
from gateway.model import LOCAL, AuditRecord, Secret
from gateway.ports.sessions import McpClientState
from gateway.ports.views import StoredLaunch
from gateway.stores.heads import key_in
from gateway.stores.journal import Journal, Keeping
from gateway.stores.mcp_sessions import DatabaseMcpSessions
from gateway.stores.page_storage import PageStorage
from gateway.stores.schema import METADATA, MIGRATIONS, version_of
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.segments import lines_from
from gateway.stores.sql import Database
from gateway.stores.tokens import TokenStore
from gateway.stores.verify import found_in, verify_chain
from gateway.stores.view_state import DatabaseLaunches
from tests.cli.test_serve import write
from tests.stores.test_versions import lite, old

CALLS = ("open", "link", "unlink", "rename", "replace", "write", "close", "ftruncate", "fsync", "remove")
"""The calls of the system that change files."""

Work = Callable[[], None]


def die_at(number: int) -> None:
    """Kill this process before its `number`-th such call, or statement of the database."""
    left = number

    def step(*_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            step()
            return call(*arguments, **named)

        return counted

    for name in CALLS:
        setattr(os, name, counting(getattr(os, name)))
    event.listen(Engine, "before_cursor_execute", step)
    event.listen(Engine, "commit", step)


def run_forked(work: Work) -> bool:
    """Run `work` in a process of its own; return False if it was killed. Raises RuntimeError if it failed."""
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001  it must end here in any case
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if status:
        raise RuntimeError(f"status {status}")
    return True


def each_killed(work: Work, check: Work, stride: int) -> int:
    """Run `work`, killed at its first call, then `stride` calls later and so on until it ends; `check` after each."""
    number, kills = 1, 0
    while True:

        def killed(number: int = number) -> None:
            die_at(number)
            work()

        ended = run_forked(killed)
        run_forked(check)
        if ended:
            return kills
        number, kills = number + stride, kills + 1


def journal(folder: Path) -> tuple[Work, Work]:
    """A start of the journal, with its key, lines, and two rotations."""
    path, key, written = folder / "gateway.journal", folder / "gateway.journal.key", folder / "written"
    note = os.open(written, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    to_file = os.write

    async def work() -> None:
        async with Journal(path, key=key_in(key), keeping=Keeping(size=1)) as opened:
            for _ in range(2):
                for phase in ("intent", "outcome"):
                    record = AuditRecord(os.urandom(8).hex(), phase, 1.0, {"kind": "http"})
                    opened.append(record)
                    to_file(note, f"{record.id}\n".encode())
                opened.rotate()

    async def check() -> None:
        async with Journal(path, key=key_in(key)):
            pass
        verdict = verify_chain(found_in(path), [key_in(key).public])
        assert verdict.sound, verdict.problems
        lines = [json.loads(raw) for _, raw in lines_from(path)]
        assert set(written.read_text().split()) <= {line["id"] for line in lines}
        open_ = {line["id"] for line in lines if line["phase"] == "intent"}
        assert open_ <= {line["id"] for line in lines if line["phase"] == "outcome"}

    return lambda: asyncio.run(work()), lambda: asyncio.run(check())


def migration(folder: Path) -> tuple[Work, Work]:
    """A start with the database of an early version, whose lines are kept."""
    before, file = folder / "before", folder / "gateway.db"
    before.mkdir()

    def prepare() -> None:
        with lite(before) as connection:
            old(connection, 2)
            connection.commit()

    run_forked(prepare)

    async def migrate() -> None:
        async with Database(f"sqlite:///{file}"):
            pass

    def work() -> None:
        asyncio.run(migrate())

    def check() -> None:
        asyncio.run(migrate())
        with lite(folder) as connection:
            assert version_of(connection) == len(MIGRATIONS)
            assert set(METADATA.tables) <= set(connection.dialect.get_table_names(connection))
            rows = connection.exec_driver_sql("SELECT line FROM audit_before_4 ORDER BY id").scalars().all()
            assert rows == ["line 0", "line 1"], rows
        for one in folder.glob("gateway.db*"):
            one.unlink()
        shutil.copy(before / "gateway.db", file)

    shutil.copy(before / "gateway.db", file)
    return work, check


def migration_in_postgresql(folder: Path) -> tuple[Work, Work]:
    """The same in the PostgreSQL whose URL is in the file `url`: a killed process leaves the old state, or the new one.

    So the next one continues with the same database, until one comes to the end.
    """
    url = (folder / "url").read_text("utf-8")

    async def prepare() -> None:
        engine = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
        async with engine.begin() as connection:
            await connection.run_sync(old, 2)
        await engine.dispose()

    async def migrate() -> None:
        async with Database(url):
            pass

    async def check() -> None:
        connection = await asyncpg.connect(url)
        version = await connection.fetchval("SELECT version FROM schema_version")
        tables = {
            row[0] for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        }
        kept = "audit" if version == 3 else "audit_before_4"
        rows = [row[0] for row in await connection.fetch(f"SELECT line FROM {kept} ORDER BY id")]
        await connection.close()
        assert rows == ["line 0", "line 1"], rows
        if version == 3:
            assert tables == {"schema_version", "audit", "audit_filled", "quotas", "idempotency_keys", "secrets"}
        else:
            assert version == len(MIGRATIONS)
            assert set(METADATA.tables) <= tables

    run_forked(lambda: asyncio.run(prepare()))
    return lambda: asyncio.run(migrate()), lambda: asyncio.run(check())


def keys(folder: Path) -> tuple[Work, Work]:
    """Rotations of the encryption key, one after the other without a pause to repair anything."""
    write(folder, 1)
    url, key = f"sqlite:///{folder / 'gateway.db'}", folder / "gateway.key"
    state, launch = McpClientState("2025-11-25", level="warning"), StoredLaunch("view", "ann", "cart", True, 3600.0)

    async def prepare() -> None:
        async with Database(url) as database:
            ring = KeyRing(KeyFile(key))
            await TokenStore(database, ring).put("shop", "ann", Token(Secret("t"), "Bearer", None), "c", 0.0)
            await PageStorage(database, ring).save("ann", "cart", {"a": "b"}, now=0.0)
            await DatabaseLaunches(database, ring).put("value", launch, 10)
            for number in range(3):
                sessions = DatabaseMcpSessions(database, ring, most=99, each=99, idle=3600.0)
                await sessions.open(f"s{number}", LOCAL, "cart", state, lambda: None)

    run_forked(lambda: asyncio.run(prepare()))

    def work() -> None:
        rotate_key.main(["--config", str(folder / "gateway.yaml"), "--json"], standalone_mode=False)

    async def check() -> None:
        async with Database(url) as database:
            ring = KeyRing(KeyFile(key))
            token = await TokenStore(database, ring).load("shop", "ann")
            assert token is not None
            assert token.token.value.reveal() == "t"
            assert await PageStorage(database, ring).load("ann", "cart") == {"a": "b"}
            assert await DatabaseLaunches(database, ring).find("value", "ann") is not None
            for number in range(3):
                sessions = DatabaseMcpSessions(database, ring, most=99, each=99, idle=3600.0)
                assert await sessions.adopt(f"s{number}", LOCAL, "cart", lambda: None) == state

    return work, lambda: asyncio.run(check())


PARTS = {"journal": journal, "migration": migration, "postgresql": migration_in_postgresql, "keys": keys}

if __name__ == "__main__":
    print(each_killed(*PARTS[sys.argv[1]](Path(sys.argv[2])), int(sys.argv[3])))  # noqa: T201  for the test
