"""Every store on a real PostgreSQL: the record through an outage, quotas, idempotency keys, retention, verification."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.errors import StartError
from gateway.model import LOCAL, AuditRecord, Caller, Door, Initiator
from gateway.policy import parse_policy
from gateway.stores import filler
from gateway.stores.copying import CopyResult, Stretch
from gateway.stores.filler import Filler, FillProcess
from gateway.stores.heads import new_key
from gateway.stores.journal import Journal
from gateway.stores.records import Filter, Records
from gateway.stores.retention import Retention
from gateway.stores.sql import Database
from gateway.stores.usage import DatabaseQuotas, IdempotencyKeys
from gateway.stores.verify import verify_chain
from gateway.telemetry import Metrics
from tests.postgresql import PostgreSQL, postgresql
from tests.world import SECRET, running

CALLER = Caller(LOCAL, "cart", Door.SITE, Initiator.PAGE, "app-origin")
CLIENT = {"webmcp-gateway-client": "1"}
POLICY = """
version: 1
backends: {shop: {url: "http://shop.test"}}
routes: [{path: /api, methods: [GET], quota: 2/day per principal}]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with postgresql() as found:
        yield found


@pytest.fixture
async def database(server: PostgreSQL) -> AsyncIterator[Database]:
    async with Database(server.url) as opened:
        async with opened.connect() as connection:
            await connection.exec_driver_sql("DELETE FROM audit")
            await connection.exec_driver_sql("DELETE FROM audit_filled")
            await connection.commit()
        yield opened


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filler, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(filler, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(filler, "LONGEST_PAUSE_SECONDS", 0.1)


async def caught_up(records: Records, journal: Journal) -> None:
    """Wait until the database has the whole journal."""
    end = journal.position
    async with asyncio.timeout(60):
        while True:
            try:
                position = await records.position(journal.chain)
            except OSError:
                position = None
            if position is not None and position.end >= end:
                return
            await asyncio.sleep(0.02)


async def test_the_record_through_an_outage(server: PostgreSQL, database: Database, tmp_path: Path) -> None:
    """The journal continues while the server is down; afterwards nothing is missing, and the outage was reported."""
    key, metrics, told = new_key(), Metrics(), list[str | None]()
    records = Records(database)
    async with Journal(tmp_path / "journal", key=key) as journal:
        filling = asyncio.ensure_future(Filler(records, journal, metrics, told.append).run())
        journal.append(AuditRecord("a", "intent", 1.0, {"app": "cart", "url": "/\x00\ud800", "view": "v\x00"}))
        await caught_up(records, journal)
        server.stop()
        journal.append(AuditRecord("a", "outcome", 2.0, {"app": "cart", "status": 200}))
        journal.append(AuditRecord("b", "outcome", 3.0, {"app": "cart", "reason": "policy-denied"}))
        async with asyncio.timeout(60):
            while not any(told):
                await asyncio.sleep(0.02)
        server.start()
        await caught_up(records, journal)
        found = await records.query(10, Filter(app="cart"))
        journal.seal()
        await caught_up(records, journal)
        verdict = verify_chain([line async for line in records.lines(journal.chain)], [key.public])
        filling.cancel()
    assert [(one.id, one.ended_at) for one in found] == [("b", 3.0), ("a", 2.0)]
    assert [one.id for one in await records.query(10, Filter(reason="policy-denied"))] == ["b"]
    assert verdict.sound, verdict.problems
    assert told[-1] is None
    assert b'sink_failures_total{sink="database"}' in metrics.render()


async def test_pages_and_an_unknown_edge(database: Database, tmp_path: Path) -> None:
    """Pages follow each other; the page before an unknown record is empty."""
    records = Records(database)
    async with Journal(tmp_path / "journal") as journal:
        filling = asyncio.ensure_future(Filler(records, journal).run())
        for number in range(20):
            journal.append(AuditRecord(str(number), "outcome", 5.0, {"app": "cart"}))
        await caught_up(records, journal)
        filling.cancel()
    first = await records.query(12)
    second = await records.query(12, before=first[-1].id)
    assert [one.id for one in (*first, *second)] == [str(number) for number in reversed(range(20))]
    assert await records.query(10, before="nothing") == []


async def test_another_process_fills_it(server: PostgreSQL, database: Database, tmp_path: Path) -> None:
    """As it does under load."""
    aside = FillProcess(server.url)
    async with Journal(tmp_path / "journal") as journal:
        journal.append(AuditRecord("a", "outcome", 5.0, {"app": "cart"}))
        epoch = await Records(database).take_over(journal.chain)
        copied = await aside.copy(Stretch(str(journal.path), journal.chain, 0, journal.position, epoch))
        assert copied == CopyResult(journal.position, [], journal.last(1)[0].hash)
    await aside.close()
    assert [one.id for one in await Records(database).query(10)] == ["a"]


async def test_quotas(database: Database) -> None:
    """Exact under many concurrent calls."""
    quotas = DatabaseQuotas(database)
    limits = next(iter(parse_policy(POLICY, "p").routes.all)).decision.obligations.quotas
    outcomes = await asyncio.gather(*(quotas.take(limits, CALLER, 1_000_000.0) for _ in range(6)))
    assert sum(one is None for one in outcomes) == 2


async def test_idempotency_keys(database: Database) -> None:
    """A key belongs to one request, and two processes share one secret."""
    keys = IdempotencyKeys(database)
    assert await keys.claim("owner", "pg-key", "digest", 1000.0)
    assert await keys.claim("owner", "pg-key", "digest", 1001.0)
    assert not await keys.claim("owner", "pg-key", "other", 1002.0)
    assert await keys.secret() == await IdempotencyKeys(database).secret()


async def test_retention(database: Database, tmp_path: Path) -> None:
    """Old values are deleted, and the chain holds."""
    key, records = new_key(), Records(database)
    async with Journal(tmp_path / "journal", key=key, now=lambda: 1000.0) as journal:
        filling = asyncio.ensure_future(Filler(records, journal).run())
        journal.append(AuditRecord("old", "outcome", 1000.0, {"who": "private"}))
        await caught_up(records, journal)
        await Retention(journal, database, 100.0, lambda: 2000.0).delete()
        await caught_up(records, journal)
        found = [line async for line in records.lines(journal.chain)]
        filling.cancel()
    assert b"private" not in b"".join(line.raw or b"" for line in found)
    assert verify_chain(found, [key.public]).sound


async def test_processes_that_start_together(server: PostgreSQL) -> None:
    """The tables are created once."""
    async with Database(server.url) as one, one.connect() as connection:
        await connection.exec_driver_sql("DROP TABLE schema_version, audit, audit_filled, quotas CASCADE")
        await connection.exec_driver_sql("DROP TABLE idempotency_keys, secrets CASCADE")
        rest = await connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in rest.all():
            await connection.exec_driver_sql(f'DROP TABLE "{table}" CASCADE')
        await connection.commit()

    async def start() -> None:
        async with Database(server.url) as database, database.connect() as connection:
            await connection.exec_driver_sql("SELECT count(*) FROM audit")

    await asyncio.gather(*(start() for _ in range(5)))


async def test_a_server_that_is_not_there() -> None:
    """The start fails without showing the password."""
    with pytest.raises(StartError, match="cannot be used") as caught:
        async with Database("postgresql://gateway:hunter2@127.0.0.1:1/gateway"):
            pass
    assert "hunter2" not in str(caught.value)


async def test_a_whole_gateway_on_it(server: PostgreSQL, database: Database, tmp_path: Path) -> None:
    """Its records are in PostgreSQL, without a secret."""
    extra = f"stores: {{database: '{server.url}'}}\n"
    async with running(tmp_path, extra=extra) as world, world.client(headers=CLIENT) as client:
        async with client.get(f"{world.site}/api/products") as answer:
            assert answer.status == 200
        async with asyncio.timeout(60):
            while not (found := await Records(database).query(10, Filter(app="cart"))):
                await asyncio.sleep(0.05)
    assert found[0].fields["url"] == "/api/products"
    async with database.connect() as connection:
        text = str((await connection.exec_driver_sql("SELECT line FROM audit")).all())
    assert SECRET not in text
