"""Tests of `gateway.exchange.snapshot`: which answers travel inside a page, and which never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.exchange.snapshot import FRESH, LARGEST, Snapshot
from gateway.model import Outbound, Response
from gateway.policy import parse_policy
from tests.exchange.house import JSON, House, Shop, building

POLICY = """
version: 1
backends:
  shop: {url: "http://shop.test", credential: shop-service, cookies: jar}
responses: {mask: [$.secret]}
routes:
  - {path: "/api/products/**", methods: [GET], snapshot: true}
  - {path: "/api/pages/{page}", methods: [GET], snapshot: [/api/pages/1, "/api/pages/%32?q=%61", /api/pages/gone]}
"""


def snapshot(house: House) -> Snapshot:
    """The snapshot of the house's app."""
    return Snapshot("cart", lambda: parse_policy(POLICY, "policy.yaml"), house.exchange, house.clock)


async def test_only_what_the_policy_names_is_asked_for_without_any_credential(tmp_path: Path) -> None:
    """The page is the same for everyone, so it may contain nothing personal."""
    async with building(tmp_path, POLICY) as house:
        found = await snapshot(house).responses()
        assert list(found) == ["/api/products", "/api/pages/1", "/api/pages/2?q=a", "/api/pages/gone"]
        assert {name for request in house.shop.sent for name, _ in request.headers}.isdisjoint(
            {"authorization", "cookie"}
        )
        assert house.fetched == []


async def test_nothing_of_anybody_follows_a_redirect(tmp_path: Path) -> None:
    """Nor are cookies from an answer sent the next time."""

    def answer(request: Outbound) -> Response:
        moved = (("location", "/api/products/moved"),) if request.url.endswith("/1") else ()
        return Response(302 if moved else 200, (*JSON, *moved, ("set-cookie", "session=1")), b"{}")

    async with building(tmp_path, POLICY, shop=Shop(answer)) as house:
        kept = snapshot(house)
        await kept.responses()
        house.clock.now += FRESH
        assert (await kept.responses())["/api/pages/1"] is not None
        assert [request.url for request in house.shop.sent].count("http://shop.test/api/products/moved") == 2
        assert {name for request in house.shop.sent for name, _ in request.headers} == {"traceparent"}
        assert house.fetched == []


async def test_answers_are_filtered_and_errors_left_out(tmp_path: Path) -> None:
    """Masks and header lists apply; an error page is no data."""

    def answer(request: Outbound) -> Response:
        if request.url.endswith("gone"):
            return Response(404, JSON, b"{}")
        return Response(200, (*JSON, ("set-cookie", "a=b")), b'{"name": "tea", "secret": "s"}')

    async with building(tmp_path, POLICY, shop=Shop(answer)) as house:
        found = await snapshot(house).responses()
        assert "/api/pages/gone" not in found
        assert found["/api/products"] == {
            "status": 200,
            "statusText": "",
            "url": "/api/products",
            "ok": True,
            "redirected": False,
            "headers": {"content-type": "application/json"},
            "bodyType": "json",
            "body": {"name": "tea", "secret": "***"},
        }


async def test_answers_are_kept_for_a_while(tmp_path: Path) -> None:
    """A page that is read often rarely asks the backend; a later failure leaves the cached answer."""
    async with building(tmp_path, POLICY) as house:
        kept = snapshot(house)
        await kept.responses()
        await kept.responses()
        assert len(house.shop.sent) == 4
        house.clock.now += FRESH
        house.shop.answer = lambda request: Response(503)
        assert len(await kept.responses()) == 4
        assert len(house.shop.sent) == 8


@pytest.mark.parametrize("status", [302, 401, 403, 404, 410])
async def test_what_is_withdrawn_does_not_stay(tmp_path: Path, status: int) -> None:
    """If the backend now answers that it is private or gone, the cached answer is dropped, too."""
    async with building(tmp_path, POLICY) as house:
        kept = snapshot(house)
        assert len(await kept.responses()) == 4
        house.clock.now += FRESH
        house.shop.answer = lambda request: Response(status)
        assert await kept.responses() == {}


async def test_another_policy_holds_at_once_for_what_was_asked_for_before(tmp_path: Path) -> None:
    """It may mask or deny the cached answer; if the backend then fails, the old answer is not used."""
    async with building(tmp_path, POLICY) as house:
        text = POLICY
        kept = Snapshot("cart", lambda: parse_policy(text, "policy.yaml"), house.exchange, house.clock)
        assert len(await kept.responses()) == 4
        text = POLICY.replace("$.secret", "$.name")
        house.shop.answer = lambda request: Response(503)
        assert await kept.responses() == {}


async def test_a_snapshot_is_bounded(tmp_path: Path) -> None:
    """Answers that would make the page too large are left out."""
    body = b'"' + b"x" * (LARGEST // 2) + b'"'
    async with building(tmp_path, POLICY, shop=Shop(lambda request: Response(200, JSON, body))) as house:
        assert list(await snapshot(house).responses()) == ["/api/products"]


async def test_it_stands_in_the_record(tmp_path: Path) -> None:
    """The gateway's own requests are recorded like all others."""
    async with building(tmp_path, POLICY) as house:
        await snapshot(house).responses()
        assert (house.outcome()["door"], house.outcome()["evidence"]) == ("snapshot", "snapshot")
