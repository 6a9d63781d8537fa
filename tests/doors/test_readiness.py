"""`/readyz` says what the gateway depends on, and is 503 exactly where requests would be refused."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg  # type: ignore[import-untyped]  # it has no types
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.app import ADMIN, build_app
from gateway.config import load_config
from gateway.stores import sql
from gateway.stores.records import Records
from gateway.stores.sql import Database
from tests.cli.test_serve import process, ready, wait_exit, write
from tests.cli.test_state_dir import mounted, set_state
from tests.cli.test_stop import serving
from tests.postgresql import postgresql
from tests.world import Server, free_port, local_client


@asynccontextmanager
async def admin(folder: Path, extra: str = "") -> AsyncIterator[str]:
    """A gateway in this process: the address of its listener for operators."""
    gateway, operators = Server(), Server()
    write(folder, gateway.port)
    with (folder / "gateway.yaml").open("a") as file:
        file.write(extra)
    app = build_app(load_config(folder / "gateway.yaml", {}))
    await gateway.start(app)
    await operators.start(app[ADMIN])
    try:
        yield f"http://127.0.0.1:{operators.port}"
    finally:
        await operators.stop()
        await gateway.stop()


async def until(http: aiohttp.ClientSession, url: str, status: int) -> dict[str, Any]:
    """Wait for `/readyz` to have this status; return what it says."""
    async with asyncio.timeout(60):
        while True:
            async with http.get(f"{url}/readyz") as answer:
                said: dict[str, Any] = await answer.json()
                if answer.status == status:
                    return said
            await asyncio.sleep(0.1)


async def test_a_postgresql_that_is_read_only_or_stopped_is_told(tmp_path: Path) -> None:
    """It names the database's own words; when the database works again, so does the gateway."""
    with postgresql() as server:
        engine = create_async_engine(
            server.url.replace("postgresql", "postgresql+asyncpg"), isolation_level="AUTOCOMMIT"
        )
        async with admin(tmp_path, f"stores: {{database: '{server.url}'}}\n") as url, local_client() as http:
            assert (await until(http, url, 200))["checks"]["database"] == {"status": "ok"}
            for mode, status in (("on", 503), ("off", 200)):
                async with engine.connect() as connection:
                    await connection.execute(text(f"ALTER SYSTEM SET default_transaction_read_only = {mode}"))
                    await connection.execute(text("SELECT pg_reload_conf()"))
                said = await until(http, url, status)
                assert ("read-only transaction" in str(said["checks"]["database"])) is (status == 503), said
            await engine.dispose()
            server.stop()
            said = await until(http, url, 503)
            assert said["status"] == "unavailable"
            assert said["checks"]["database"]["status"] == "failed"
            assert said["checks"]["journal"] == {"status": "ok"}
            server.start()
            await until(http, url, 200)


async def test_a_postgresql_in_recovery_or_out_of_connections_is_told(tmp_path: Path) -> None:
    """Requests are answered and recorded meanwhile; afterwards the gateway works again, and the database has all."""
    operators = free_port()
    settings = f"drain: {{announce: 0s}}, admin_listen: 127.0.0.1:{operators}"
    with postgresql() as server:
        extra = f"stores: {{database: '{server.url}'}}\n"
        server.stop()
        server.configure("max_connections=20", "max_wal_senders=0")
        server.start()
        async with Database(server.url):
            pass  # a standby has the tables of its primary
        server.stop()
        server.configure(recovery=True)
        server.start()
        async with serving(tmp_path, extra, server=settings) as gateway, local_client() as http:
            own, place = f"http://127.0.0.1:{operators}", f"http://127.0.0.1:{gateway.port}/api/x"
            site = {"host": gateway.hosts["app"], "webmcp-gateway-client": "1"}
            for words in ("read-only transaction", "too many clients"):
                async with AsyncExitStack() as held:
                    if words == "too many clients":
                        await _take_all_connections(server.url, held)
                        code, output = await _refused_start(tmp_path / "second", extra)
                        assert (code, words in output, "Traceback" in output) == (2, True, False), output
                    said = await until(http, own, 503)
                    assert words in said["checks"]["database"]["detail"]
                    async with http.post(place, headers=site, data=b"{}") as answer:
                        assert answer.status == 200
                    if words == "read-only transaction":
                        await (await held.enter_async_context(_can_connect(server.url))).execute("SELECT pg_promote()")
                await until(http, own, 200)
            await gateway.stop()
            code, output = await wait_exit(gateway.process)
            assert (code, "Traceback" in output) == (0, False), output
            chain = gateway.lines()[-1]["fields"]["chain"]
        async with Database(server.url) as database:
            position = await Records(database).position(chain)
        assert position is not None
        assert position.end == (tmp_path / "gateway.journal").stat().st_size


@asynccontextmanager
async def _can_connect(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def _take_all_connections(url: str, held: AsyncExitStack) -> None:
    """Open connections until there is no more, and close those that the gateway has."""
    left, own = asyncio.Event(), list[asyncpg.Connection]()

    async def take() -> None:
        while not left.is_set():
            try:
                own.append(await held.enter_async_context(_can_connect(url)))
            except asyncpg.TooManyConnectionsError:
                ours = [one.get_server_pid() for one in own]
                await own[0].fetch(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE backend_type = 'client backend' AND NOT pid = ANY($1::int[])",
                    ours,
                )
                await asyncio.sleep(0.05)

    taking = asyncio.create_task(take())

    async def end() -> None:
        left.set()
        await taking

    held.push_async_callback(end)


async def _refused_start(folder: Path, extra: str) -> tuple[int | None, str]:
    """Start another gateway; return its exit code and output."""
    folder.mkdir()
    write(folder, free_port())
    with (folder / "gateway.yaml").open("a") as file:
        file.write(extra)
    async with process(folder) as running:
        return await wait_exit(running)


async def test_an_sqlite_file_that_is_gone_or_replaced_is_told(tmp_path: Path) -> None:
    """The gateway would go on writing into a file that nobody can open any more."""
    async with admin(tmp_path) as url, local_client() as http:
        await until(http, url, 200)
        os.rename(tmp_path / "gateway.db", tmp_path / "away.db")
        assert "gateway.db cannot be used" in (await until(http, url, 503))["checks"]["database"]["detail"]
        (tmp_path / "gateway.db").write_bytes(b"")
        async with asyncio.timeout(60):
            while "replaced" not in (await until(http, url, 503))["checks"]["database"]["detail"]:
                await asyncio.sleep(0.1)
        os.rename(tmp_path / "away.db", tmp_path / "gateway.db")
        await until(http, url, 200)


async def test_a_full_disk_is_told_and_its_end_too(tmp_path: Path) -> None:
    """Before the first request fails, and as long as one would; what others must not see is left out for them."""
    operators = free_port()
    settings = f"drain: {{announce: 0s}}, admin_listen: 127.0.0.1:{operators}"
    async with serving(tmp_path, server=settings) as gateway, local_client() as http:
        own, site = f"http://127.0.0.1:{operators}", {"host": gateway.hosts["app"], "webmcp-gateway-client": "1"}
        await until(http, own, 200)
        unlimited = resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
        said = await until(http, own, 503)
        assert said["checks"]["journal"]["status"] == "failed"
        async with http.get(f"http://localhost:{gateway.port}/readyz", headers={"via": "1.1 proxy"}) as answer:
            assert (answer.status, await answer.json()) == (503, {"status": "unavailable"})
        async with http.post(f"http://127.0.0.1:{gateway.port}/api/x", headers=site, data=b"{}") as answer:
            assert (answer.status, answer.headers["gateway-reason"]) == (503, "audit-unavailable")
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, unlimited)
        assert (await until(http, own, 200))["checks"]["journal"] == {"status": "ok"}
        async with http.post(f"http://127.0.0.1:{gateway.port}/api/x", headers=site, data=b"{}") as answer:
            assert answer.status == 200


async def test_a_database_without_room_is_told_and_its_end_too(tmp_path: Path) -> None:
    """The state folder is a file system that something else fills up; when there is room again, all is well."""
    state, operators = tmp_path / "state", free_port()
    state.mkdir()
    set_state(tmp_path, state, free_port())
    text = (tmp_path / "gateway.yaml").read_text()
    (tmp_path / "gateway.yaml").write_text(
        text.replace("server: {", f"server: {{admin_listen: 127.0.0.1:{operators}, ", 1)
    )
    mount = f"mount -t tmpfs -o size=4m,mode=700 tmpfs {state}"
    async with mounted(tmp_path, mount) as running, local_client() as http:
        own = f"http://127.0.0.1:{operators}"
        assert (await ready(running, 1))[0].startswith("webmcp-gateway"), await wait_exit(running)
        await until(http, own, 200)
        filler = Path(f"/proc/{running.pid}/root{state}/filler")
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        async with asyncio.timeout(60):
            while "full" not in str((await until(http, own, 503))["checks"]["database"]):
                await asyncio.sleep(0.1)
        filler.unlink()
        assert (await until(http, own, 200))["checks"]["database"] == {"status": "ok"}


async def test_a_postgresql_that_can_write_no_file_is_told(tmp_path: Path) -> None:
    """The check of the database really writes; a limit of temporary files is no fault."""
    with postgresql() as server:
        async with Database(server.url) as database:
            await database.check()
            temporary = server.data / "base" / "pgsql_tmp"
            assert list(temporary.iterdir()) == []
            temporary.rmdir()
            temporary.write_bytes(b"")
            with pytest.raises(OSError, match="temporary file"):
                await database.check()
            temporary.unlink()
            await database.check()
            server.stop()
            server.configure("temp_file_limit=0")
            server.start()
            await database.check()


async def test_a_postgresql_whose_log_is_not_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections, reads and changes work, and only commits wait: here for a standby that does not exist."""
    monkeypatch.setattr(sql._engine, "__defaults__", (0.5,))  # seconds
    with postgresql() as server:
        async with Database(server.url) as database, _can_connect(server.url) as operator:
            await operator.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            await operator.execute("SELECT pg_reload_conf()")
            async with asyncio.timeout(60):
                while (failure := await _failure_of(database)) is None:
                    await asyncio.sleep(0.1)
            assert "the database cannot be used" in failure
            await operator.execute("SET synchronous_commit = local")
            await operator.execute("ALTER SYSTEM RESET synchronous_standby_names")
            await operator.execute("SELECT pg_reload_conf()")
            await database.check()


async def _failure_of(database: Database) -> str | None:
    """Return the error of its check, or None."""
    try:
        await database.check()
    except OSError as error:
        return str(error)
    return None


CALLERS: Final[tuple[tuple[dict[str, str], int], ...]] = (
    ({}, 200),
    ({"host": "10.1.2.3:9090"}, 200),
    ({"host": "[2001:db8::1]:9090"}, 200),
    ({"host": "evil.example"}, 421),
    ({"host": "127.0.0.1.evil.example"}, 421),
    ({"origin": "https://evil.example"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403),
)


async def test_the_admin_listener_answers_operators_alone(tmp_path: Path) -> None:
    """It takes any address, since probes use them, and refuses names and pages of others."""
    async with admin(tmp_path) as url, local_client() as http:
        for headers, status in CALLERS:
            for path in ("/healthz", "/readyz", "/metrics"):
                async with http.get(f"{url}{path}", headers=headers) as answer:
                    assert answer.status == status, (headers, await answer.text())
            async with http.get(f"{url}/mcp", headers=headers) as answer:
                assert answer.status == (404 if status == 200 else status)
