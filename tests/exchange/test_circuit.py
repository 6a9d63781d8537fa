"""The circuit breaker of a backend: it opens after consecutive failures, refuses, and lets one request probe."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.errors import Reason, Refusal
from gateway.exchange.backend_protection import Circuits
from gateway.model import Initiator, Outbound, Request, Response
from gateway.policy import Circuit, Retry
from tests.exchange.house import JSON, PAGE, Clock, House, building, reason

THREE = Circuit(failures=3, reset=30.0)
ITEMS = Request("GET", "/api/items")


def refusing_backend(reason: Reason) -> Refusal:
    """A backend that does not answer."""
    return Refusal(reason, "no")


async def fail(house: House, times: int, outcome: int | Refusal = 503) -> None:
    """Let the backend fail so often."""

    def answer(request: Outbound) -> Response:
        if isinstance(outcome, Refusal):
            raise outcome
        return Response(outcome, JSON, b"{}")

    house.shop.answer = answer
    for _ in range(times):
        await house.exchange.run(ITEMS, PAGE)


@pytest.mark.parametrize("outcome", [502, 503, 504, refusing_backend(Reason.BACKEND_UNREACHABLE)])
async def test_failures_in_a_row_open_it(tmp_path: Path, outcome: int | Refusal) -> None:
    """The next request is refused with Retry-After, and is not sent."""
    async with building(tmp_path, circuit=THREE) as house:
        await fail(house, 3, outcome)
        refused = await house.exchange.run(ITEMS, PAGE)
        assert (refused.status, reason(refused)) == (503, Reason.BACKEND_UNAVAILABLE)
        assert refused.header("retry-after") == "30"
        assert len(house.shop.sent) == 3
        assert (house.outcome()["circuit"], house.outcome()["reason"]) == ("open", "backend-unavailable")


async def test_nobody_is_asked_for_a_credential_while_it_is_open(tmp_path: Path) -> None:
    """Not even if the cached one has expired."""
    async with building(tmp_path, circuit=Circuit(failures=3, reset=1000.0)) as house:
        await fail(house, 3)
        house.clock.now += 400
        assert reason(await house.exchange.run(ITEMS, PAGE)) == Reason.BACKEND_UNAVAILABLE
        assert house.outcome()["circuit"] == "open"
        assert house.fetched == [1]


@pytest.mark.parametrize("outcome", [200, 404, 500, 429])
async def test_a_backend_that_answers_does_not_open_it(tmp_path: Path, outcome: int) -> None:
    """Nor does one failure among answers."""
    async with building(tmp_path, circuit=THREE) as house:
        await fail(house, 4, outcome)
        assert len(house.shop.sent) == 4
        for _ in range(3):
            await fail(house, 2)
            await fail(house, 1, outcome)
        assert len(house.shop.sent) == 13


async def test_after_a_while_one_request_tries(tmp_path: Path) -> None:
    """Others are refused meanwhile; once the probe succeeds, all pass again."""
    async with building(tmp_path, circuit=THREE) as house:
        await fail(house, 3)
        house.shop.answer = lambda request: Response(200, JSON, b"{}")
        house.shop.hold = asyncio.Event()
        house.clock.now += 30
        async with asyncio.TaskGroup() as tasks:
            trying = tasks.create_task(house.exchange.run(ITEMS, PAGE))
            while len(house.shop.sent) < 4:
                await asyncio.sleep(0)
            assert reason(await house.exchange.run(ITEMS, PAGE)) == Reason.BACKEND_UNAVAILABLE
            house.shop.hold.set()
        assert trying.result().status == 200
        assert house.outcome()["circuit"] == "half-open"
        assert (await house.exchange.run(ITEMS, PAGE)).status == 200
        assert "circuit" not in house.outcome()


async def test_a_try_that_fails_opens_it_again(tmp_path: Path) -> None:
    """At once, for the whole reset time."""
    async with building(tmp_path, circuit=THREE) as house:
        await fail(house, 3)
        house.clock.now += 31
        await fail(house, 1)
        assert len(house.shop.sent) == 4
        refused = await house.exchange.run(ITEMS, PAGE)
        assert refused.header("retry-after") == "30"
        assert len(house.shop.sent) == 4


async def test_a_try_that_is_cancelled_leaves_the_next_one_to_try(tmp_path: Path) -> None:
    """A cancellation is no evidence about the backend."""
    async with building(tmp_path, circuit=THREE) as house:
        await fail(house, 3)
        house.clock.now += 31
        house.shop.hold = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            trying = tasks.create_task(house.exchange.run(ITEMS, PAGE))
            while len(house.shop.sent) < 4:
                await asyncio.sleep(0)
            trying.cancel()
        house.shop.hold = None
        house.shop.answer = lambda request: Response(200, JSON, b"{}")
        assert (await house.exchange.run(ITEMS, PAGE)).status == 200


async def test_an_app_cannot_open_it_with_timeouts_of_its_own(tmp_path: Path) -> None:
    """A timeout that the app lowered is not the backend's failure; the route's own timeout is."""
    late = refusing_backend(Reason.BACKEND_TIMEOUT)
    async with building(tmp_path, circuit=THREE) as house:

        def answer(request: Outbound) -> Response:
            raise late

        house.shop.answer = answer
        hasty = replace(ITEMS, timeout=0.001)
        for _ in range(5):
            assert reason(await house.exchange.run(hasty, PAGE)) == Reason.BACKEND_TIMEOUT
        await fail(house, 4, late)
        assert house.outcome()["reason"] == "backend-unavailable"
        assert len(house.shop.sent) == 8


async def test_attempts_end_where_it_opens(tmp_path: Path) -> None:
    """Retries stop at the open breaker; the app gets the backend's last answer."""
    retry = Retry(attempts=5, on=frozenset({503}), backoff=0.1)
    async with building(tmp_path, circuit=THREE, retry=retry) as house:
        await fail(house, 1)
        assert len(house.shop.sent) == 3
        assert (house.outcome()["status"], house.outcome()["attempts"]) == (503, [503, 503, 503])


async def test_everybody_shares_it(tmp_path: Path) -> None:
    """The breaker belongs to the backend, not to the caller."""
    async with building(tmp_path, circuit=THREE) as house:
        await fail(house, 3)
        other = replace(PAGE, view="v2", initiator=Initiator.PERSON)
        assert reason(await house.exchange.run(ITEMS, other)) == Reason.BACKEND_UNAVAILABLE


def test_a_late_answer_does_not_close_it() -> None:
    """A request that began before the failures is no evidence of recovery."""
    circuits = Circuits(Clock())
    place = ("cart", "shop")
    with circuits.passage(place, THREE) as late:
        for _ in range(3):
            with circuits.passage(place, THREE) as failing:
                failing.success = False
        late.success = True
    assert circuits.is_open(place)
