"""Quotas survive changes of the clock, and expired windows are deleted in the end."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from gateway.model import LOCAL, Caller, Door, Initiator
from gateway.policy import Quota, parse_policy
from gateway.stores import usage as quotas_module
from gateway.stores.sql import Database
from gateway.stores.usage import DatabaseQuotas

CALLER = Caller(LOCAL, "cart", Door.SITE, Initiator.PAGE, "app-origin")
POLICY = """
version: 1
backends: {shop: {url: "http://shop.test"}}
routes: [{path: /api, methods: [GET], quota: 1/day per principal}]
"""
NOON = 1_790_000_000.0 - 1_790_000_000.0 % 86400 + 43200
DAY = 86400.0


@pytest.fixture
def quota() -> tuple[Quota, ...]:
    return parse_policy(POLICY, "p").routes.all[0].decision.obligations.quotas


@pytest.mark.parametrize("days", [1, 5, 400, -1])
async def test_a_clock_that_jumps_and_comes_back(tmp_path: Path, quota: tuple[Quota, ...], days: int) -> None:
    """Today's usage still counts once the clock is right again."""
    steady = [0.0]
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        quotas = DatabaseQuotas(database, lambda: steady[0])
        assert await quotas.take(quota, CALLER, NOON) is None
        for seconds in (4000, 8000, 12000):
            steady[0] = seconds
            await quotas.take(quota, CALLER, NOON + days * DAY + seconds)
        steady[0] = 12010
        assert await quotas.take(quota, CALLER, NOON + 12010) is not None


async def test_a_process_that_starts_under_a_wrong_clock(tmp_path: Path, quota: tuple[Quota, ...]) -> None:
    """By a day or two, which it cannot detect."""
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        assert await DatabaseQuotas(database).take(quota, CALLER, NOON) is None
        assert await DatabaseQuotas(database).take(quota, CALLER, NOON + 2 * DAY) is None
        assert await DatabaseQuotas(database).take(quota, CALLER, NOON) is not None


async def test_what_is_over_is_forgotten(tmp_path: Path, quota: tuple[Quota, ...]) -> None:
    """After some days of a clock that agrees with the monotonic one."""
    steady = [0.0]
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        quotas = DatabaseQuotas(database, lambda: steady[0])
        for day in range(10):
            steady[0] = day * DAY
            assert await quotas.take(quota, CALLER, NOON + day * DAY) is None
        async with database.connect() as connection:
            left = (await connection.exec_driver_sql("SELECT count(*) FROM quotas")).scalar()
    assert left == 3


@pytest.mark.bound("quota rows in the database")
async def test_one_principal_has_so_many_views_in_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further views share one quota; expired ones free their places, and other principals' views have their own."""
    monkeypatch.setattr(quotas_module, "EACH", 3)
    (quota,) = (
        parse_policy(POLICY.replace("1/day per principal", "2/day per view"), "p")
        .routes.all[0]
        .decision.obligations.quotas
    )
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        quotas = DatabaseQuotas(database)

        async def used_up(view: str, subject: str = "local", day: int = 0) -> bool:
            caller = structs.replace(
                CALLER, principal=dataclasses.replace(LOCAL, subject=subject), view=view, proven=True
            )
            return await quotas.take((quota,), caller, NOON + day * DAY) is not None

        assert [await used_up(f"view-{number}") for number in range(3)] == [False] * 3
        assert [await used_up(f"more-{number}") for number in range(4)] == [False, False, True, True]
        assert [await used_up(f"view-{number}") for number in range(3)] == [False] * 3
        assert [await used_up(f"bobs-{number}", "bob") for number in range(3)] == [False] * 3
        assert [await used_up(f"more-{number}", day=1) for number in range(3)] == [False] * 3
        async with database.connect() as connection:
            mine = "SELECT count(*) FROM quotas WHERE owner LIKE '%|local'"
            assert (await connection.exec_driver_sql(mine)).scalar() == 3
