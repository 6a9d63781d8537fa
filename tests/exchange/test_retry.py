"""Retries: of configured failures, of methods that may be repeated, and never beyond the route's timeout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import Reason, Refusal
from gateway.model import Headers, Outbound, Request, Response
from gateway.policy import METHODS, Retry
from tests.exchange.house import JSON, PAGE, House, building, reason

ON: frozenset[int | Reason] = frozenset({502, 503, Reason.BACKEND_UNREACHABLE, Reason.BACKEND_TIMEOUT})
THREE = Retry(attempts=3, on=ON, backoff=0.2)
ITEMS = Request("GET", "/api/items")
NO = Refusal(Reason.BACKEND_UNREACHABLE, "the shop is closed")


def answers(*said: int | Refusal, headers: Headers = ()) -> Callable[[Outbound], Response]:
    """Give these answers in order, the last one for ever."""
    left = list(said)

    def answer(request: Outbound) -> Response:
        one = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(one, Refusal):
            raise one
        return Response(one, (*JSON, *headers), b"{}")

    return answer


async def send_request(house: House, request: Request = ITEMS) -> tuple[int, int]:
    """Return the status that the app gets, and the number of requests to the shop."""
    response = await house.exchange.run(request, PAGE)
    return response.status, len(house.shop.sent)


@pytest.mark.parametrize(
    ("said", "came"),
    [
        ((503, 200), (200, 2)),
        ((NO, 502, 200), (200, 3)),
        ((503, 503, 503, 200), (503, 3)),
        ((NO,), (502, 3)),
        ((500, 200), (500, 1)),
        ((404,), (404, 1)),
    ],
)
async def test_what_is_worth_it_is_tried_again(tmp_path: Path, said: Any, came: tuple[int, int]) -> None:
    """As often as the policy allows; then the last outcome is the answer."""
    async with building(tmp_path, retry=THREE) as house:
        house.shop.answer = answers(*said)
        assert await send_request(house) == came


async def test_the_record_has_every_attempt(tmp_path: Path) -> None:
    """The result of each, under one id."""
    async with building(tmp_path, retry=THREE) as house:
        house.shop.answer = answers(NO, 503, 200)
        await send_request(house)
        assert house.outcome()["attempts"] == ["backend-unreachable", 503, 200]
        assert [line["phase"] for line in house.lines()] == ["outcome"]


async def test_each_attempt_carries_what_the_credential_is_then(tmp_path: Path) -> None:
    """A token that expired meanwhile is not sent again."""
    async with building(tmp_path, retry=THREE, timeout=1000.0) as house:
        said = answers(503, 200)

        def late(request: Outbound) -> Response:
            house.clock.now += 400
            return said(request)

        house.shop.answer = late
        assert await send_request(house) == (200, 2)
        shown = [dict(sent.headers)["authorization"] for sent in house.shop.sent]
        assert shown == ["Bearer token-number-1", "Bearer token-number-2"]


async def test_pauses_grow(tmp_path: Path) -> None:
    """The first as in the policy, the next twice as long."""
    async with building(tmp_path, retry=THREE) as house:
        house.shop.answer = answers(503)
        began = house.clock.now
        await send_request(house)
        assert house.clock.now - began == pytest.approx(0.2 + 0.4)


@pytest.mark.parametrize(
    "after", ["3", "0" * 20 + "3", "Thu, 01 Jan 1970 00:16:43 GMT"]
)  # 1003 seconds after the epoch
async def test_the_backend_says_when(tmp_path: Path, after: str) -> None:
    """Retry-After in seconds or as a date is waited for."""
    async with building(tmp_path, retry=THREE) as house:
        house.shop.answer = answers(503, 200, headers=(("retry-after", after),))
        assert await send_request(house) == (200, 2)
        assert house.clock.now == 1003.0


@pytest.mark.parametrize("after", ["11", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_no_wait_beyond_the_timeout(tmp_path: Path, after: str) -> None:
    """A backend that demands more time than the route has is not retried; the app gets its Retry-After."""
    async with building(tmp_path, retry=THREE, timeout=10.0) as house:
        house.shop.answer = answers(503, 200, headers=(("retry-after", after),))
        assert await send_request(house) == (503, 1)
        assert house.clock.now == 1000.0


async def test_nonsense_in_retry_after_asks_for_nothing(tmp_path: Path) -> None:
    """The policy's own pause applies."""
    async with building(tmp_path, retry=THREE) as house:
        house.shop.answer = answers(503, 200, headers=(("retry-after", "soon, ²"),))
        assert await send_request(house) == (200, 2)


async def test_an_attempt_has_the_time_that_is_left(tmp_path: Path) -> None:
    """All attempts and pauses together take no longer than the route allows."""
    async with building(tmp_path, retry=THREE, timeout=10.0) as house:
        house.shop.answer = answers(503, 200, headers=(("retry-after", "4"),))
        await send_request(house)
        assert [request.timeout for request in house.shop.sent] == [10.0, 6.0]


async def test_an_unsafe_method_is_sent_once(tmp_path: Path) -> None:
    """A POST may have run, whatever the answer."""
    async with building(tmp_path, retry=THREE) as house:
        house.shop.answer = answers(503, 200)
        assert await send_request(house, Request("POST", "/api/items")) == (503, 1)


async def test_a_key_makes_it_repeatable(tmp_path: Path) -> None:
    """On an idempotent route each attempt carries the same key."""
    every = Retry(attempts=3, on=ON, backoff=0.2, methods=METHODS)
    async with building(tmp_path, retry=every, idempotent=True) as house:
        house.shop.answer = answers(503, 200)
        assert await send_request(house, Request("POST", "/api/items")) == (200, 2)
        keys = [dict(request.headers)["idempotency-key"] for request in house.shop.sent]
        assert keys[0] == keys[1]


async def test_a_rate_counts_the_request_not_its_attempts(tmp_path: Path) -> None:
    """Retries by the gateway cost the app nothing."""
    policy = """
version: 1
backends:
  shop: {url: "http://shop.test"}
routes:
  - {path: /api/items, methods: [GET], rate: 1/minute per principal}
"""
    async with building(tmp_path, policy, retry=THREE) as house:
        house.shop.answer = answers(503, 503, 200)
        assert await send_request(house) == (200, 3)
        assert reason(await house.exchange.run(ITEMS, PAGE)) == Reason.RATE_LIMITED
