"""Rates and quotas: taken together or not at all, refused with Retry-After, and kept across a restart."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from gateway.errors import Reason
from gateway.exchange import limit
from gateway.model import LOCAL, Caller, Outbound, Principal, Request, Response
from gateway.policy import Limit, Per, Quota, Rate, Window
from gateway.token_buckets import Buckets
from tests.exchange.house import JSON, PAGE, House, building, reason

TWO_A_DAY = Quota(2, Window.DAY, Per.PRINCIPAL, "test")
ITEMS = Request("GET", "/api/items")
NOON = 1_785_585_600.0  # 2026-08-01T12:00:00Z


async def statuses(house: House, count: int) -> list[int]:
    """Return the statuses of so many requests."""
    return [(await house.exchange.run(ITEMS, PAGE)).status for _ in range(count)]


async def test_a_quota_is_used_up(tmp_path: Path) -> None:
    """The third request of a day is refused with the time to the next day, and is not sent."""
    async with building(tmp_path, quotas=(TWO_A_DAY,)) as house:
        house.clock.now = NOON
        assert await statuses(house, 2) == [200, 200]
        refused = await house.exchange.run(ITEMS, PAGE)
        assert (refused.status, reason(refused)) == (429, Reason.QUOTA_EXCEEDED)
        assert refused.header("retry-after") == str(12 * 3600)
        assert refused.header("ratelimit") == '"principal";r=0;t=43200'
        assert refused.header("ratelimit-policy") == '"principal";q=2;w=86400'
        assert len(house.shop.sent) == 2
        assert house.outcome()["reason"] == "quota-exceeded"


async def test_a_quota_outlives_the_process(tmp_path: Path) -> None:
    """Usage from before a restart counts after it."""
    for expected in ([200], [200], [429]):
        async with building(tmp_path, quotas=(TWO_A_DAY,)) as house:
            house.clock.now = NOON
            assert await statuses(house, 1) == expected


async def test_the_next_window_begins_anew(tmp_path: Path) -> None:
    """At midnight UTC."""
    async with building(tmp_path, quotas=(TWO_A_DAY,)) as house:
        house.clock.now = NOON
        assert await statuses(house, 3) == [200, 200, 429]
        house.clock.now = NOON + 12 * 3600
        assert await statuses(house, 3) == [200, 200, 429]


async def test_principals_count_apart(tmp_path: Path) -> None:
    """One person's quota is separate from another's."""
    async with building(tmp_path, quotas=(TWO_A_DAY,)) as house:
        assert await statuses(house, 3) == [200, 200, 429]
        other = structs.replace(PAGE, principal=replace(LOCAL, subject="bob"))
        assert (await house.exchange.run(ITEMS, other)).status == 200


async def test_many_at_once_do_not_use_more(tmp_path: Path) -> None:
    """Twenty concurrent requests share five."""
    async with building(tmp_path, quotas=(replace(TWO_A_DAY, count=5),)) as house:
        answers = await asyncio.gather(*(house.exchange.run(ITEMS, PAGE) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [200] * 5 + [429] * 15


async def test_all_limits_are_taken_or_none(tmp_path: Path) -> None:
    """A refusal by a used up quota takes nothing from the rate, nor from another quota."""
    rate = Limit(Rate(3, 3600.0), Per.PRINCIPAL, "test")
    hourly = Quota(3, Window.HOUR, Per.PRINCIPAL, "test")
    async with building(tmp_path, limits=(rate,), quotas=(hourly, TWO_A_DAY)) as house:
        house.clock.now = NOON - 1
        assert await statuses(house, 5) == [200, 200, 429, 429, 429]
        assert house.outcome()["reason"] == "quota-exceeded"  # not the rate, which has one left
        assert await house.database_counts() == {3600: 2, 86400: 2}
        house.clock.now = NOON + 12 * 3600  # a new day, a new hour, a full rate
        assert await statuses(house, 4) == [200, 200, 429, 429]


async def test_a_refused_rate_costs_no_quota(tmp_path: Path) -> None:
    """The quota counts only requests that were let through."""
    rate = Limit(Rate(1, 60.0), Per.PRINCIPAL, "test")
    async with building(tmp_path, limits=(rate,), quotas=(TWO_A_DAY,)) as house:
        assert await statuses(house, 3) == [200, 429, 429]
        assert await house.database_counts() == {86400: 1}


async def test_without_its_database_a_quota_refuses(tmp_path: Path) -> None:
    """A request that cannot be counted is not sent; routes without a quota still work."""
    async with building(tmp_path, quotas=(TWO_A_DAY,)) as house:
        await house.database.__aexit__(None, None, None)
        refused = await house.exchange.run(ITEMS, PAGE)
        assert (refused.status, reason(refused)) == (503, Reason.STATE_UNAVAILABLE)
        assert house.shop.sent == []


async def test_report_mode_only_writes_it_down(tmp_path: Path) -> None:
    """Requests over a rate or quota pass, and are recorded."""
    async with building(tmp_path, quotas=(TWO_A_DAY,), report=True) as house:
        assert await statuses(house, 3) == [200, 200, 200]
        (reported,) = house.outcome()["reported"]
        assert reported.startswith("quota-exceeded")


@pytest.mark.parametrize("answer", [500, 200])
async def test_a_quota_counts_whatever_is_answered(tmp_path: Path, answer: int) -> None:
    """A failure of the backend counts, too."""

    def said(request: Outbound) -> Response:
        return Response(answer, JSON, b"{}")

    async with building(tmp_path, quotas=(TWO_A_DAY,)) as house:
        house.shop.answer = said
        assert await statuses(house, 3) == [answer, answer, 429]


async def test_cancelled_while_it_counts(tmp_path: Path) -> None:
    """Callers that are cancelled midway leave no lock behind; units already taken stay taken."""
    async with building(tmp_path, quotas=(replace(TWO_A_DAY, count=100),)) as house:
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(house.exchange.run(ITEMS, PAGE)) for _ in range(30)]
            for number, call in enumerate(calls):
                for _ in range(number % 7):
                    await asyncio.sleep(0.001)
                call.cancel()
        assert await statuses(house, 1) == [200]
        (used,) = (await house.database_counts()).values()
        assert 1 <= used <= 31


@pytest.mark.bound("token buckets of rates per view")
async def test_new_views_are_no_way_around_a_rate_of_the_principal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A principal has so many buckets for its views; further views share one. Other principals have their own."""
    per_view = Limit(Rate(2, 3600.0), Per.VIEW, "test")
    other = replace(LOCAL, subject="bob")

    def asking(view: str, principal: Principal = LOCAL) -> Caller:
        return structs.replace(PAGE, principal=principal, view=view, proven=True)

    monkeypatch.setattr(limit, "Buckets", lambda: Buckets(each=3))
    async with building(tmp_path, limits=(per_view,)) as house:
        own = [(await house.exchange.run(ITEMS, asking(f"view {number}"))).status for number in range(3)]
        churned = [(await house.exchange.run(ITEMS, asking(f"new {number}"))).status for number in range(5)]
        assert (own, churned) == ([200] * 3, [200, 200, 429, 429, 429])
        assert (await house.exchange.run(ITEMS, asking("view 0"))).status == 200  # its own bucket is as it was
        assert (await house.exchange.run(ITEMS, asking("bob's", other))).status == 200


@pytest.mark.parametrize("per", [Per.VIEW, Per.PRINCIPAL])
async def test_a_used_up_quota_gives_back_what_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per: Per
) -> None:
    """Also in the bucket that excess views share."""
    monkeypatch.setattr(limit, "Buckets", lambda: Buckets(each=0))
    rate = Limit(Rate(3, 3600.0), per, "test")
    async with building(tmp_path, limits=(rate,), quotas=(replace(TWO_A_DAY, count=1),)) as house:
        asking = structs.replace(PAGE, view="one", proven=True)
        answers = [await house.exchange.run(ITEMS, asking) for _ in range(6)]
        assert [answer.status for answer in answers] == [200, *[429] * 5]
        assert {reason(answer) for answer in answers[1:]} == {Reason.QUOTA_EXCEEDED}
