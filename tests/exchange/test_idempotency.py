"""Idempotency keys: hashed, bound to one request, stored for a day and across a restart."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from gateway.errors import Reason
from gateway.model import LOCAL, BodyType, Caller, Request
from gateway.stores.sql import Database
from gateway.stores.usage import PER_OWNER, IdempotencyKeys
from tests.exchange.house import PAGE, House, building, reason

KEYED = Request("POST", "/api/items", (("idempotency-key", "order-7"),), b'{"id":1}', BodyType.JSON)
OTHER = structs.replace(KEYED, body=b'{"id":2}')
BOB = structs.replace(PAGE, principal=replace(LOCAL, subject="bob"))


def keys(house: House) -> list[str | None]:
    """Return the keys that the shop received."""
    return [dict(request.headers).get("idempotency-key") for request in house.shop.sent]


async def send(house: House, request: Request, caller: Caller = PAGE) -> int:
    """Return the status of the answer."""
    return (await house.exchange.run(request, caller)).status


async def test_the_apps_key_goes_out_as_a_hash(tmp_path: Path) -> None:
    """The same for the same request, so that the backend recognizes it; never the key itself."""
    async with building(tmp_path, idempotent=True) as house:
        assert [await send(house, KEYED), await send(house, KEYED)] == [200, 200]
        first, second = keys(house)
        assert first == second
        assert first is not None
        assert len(first) == 64
        assert "order-7" not in str(house.shop.sent)


async def test_callers_do_not_meet(tmp_path: Path) -> None:
    """Another principal's key is a different key, although both share the gateway's credential."""
    async with building(tmp_path, idempotent=True) as house:
        assert [await send(house, KEYED), await send(house, OTHER, BOB)] == [200, 200]
        mine, theirs = keys(house)
        assert mine != theirs


async def test_a_key_stands_for_one_request(tmp_path: Path) -> None:
    """Another body with the same key is a conflict, and is not sent."""
    async with building(tmp_path, idempotent=True) as house:
        await send(house, KEYED)
        refused = await house.exchange.run(OTHER, PAGE)
        assert (refused.status, reason(refused)) == (409, Reason.IDEMPOTENCY_CONFLICT)
        assert len(house.shop.sent) == 1
        assert house.outcome()["reason"] == "idempotency-conflict"


async def test_other_headers_are_no_other_request(tmp_path: Path) -> None:
    """An app's second attempt may have another trace."""
    async with building(tmp_path, idempotent=True) as house:
        again = structs.replace(KEYED, headers=(*KEYED.headers, ("x-trace", "2")))
        assert [await send(house, KEYED), await send(house, again)] == [200, 200]


async def test_it_is_remembered_through_a_restart(tmp_path: Path) -> None:
    """The hash stays the same, too."""
    sent = []
    for request, expected in ((KEYED, 200), (OTHER, 409), (KEYED, 200)):
        async with building(tmp_path, idempotent=True) as house:
            assert await send(house, request) == expected
            sent += keys(house)
    assert len(sent) == 2
    assert len(set(sent)) == 1


async def test_a_day_later_it_is_free(tmp_path: Path) -> None:
    """After 24 hours the key may be used for another request."""
    async with building(tmp_path, idempotent=True) as house:
        await send(house, KEYED)
        house.clock.now += 24 * 3600 - 1
        assert await send(house, OTHER) == 409
        house.clock.now += 1
        assert await send(house, OTHER) == 200


async def test_without_one_each_request_has_its_own(tmp_path: Path) -> None:
    """On idempotent routes the gateway generates a key; on others, and for safe methods, it sends none."""
    plain = structs.replace(KEYED, headers=())
    async with building(tmp_path, idempotent=True) as house:
        for request in (plain, plain, Request("GET", "/api/items")):
            await send(house, request)
        first, second, safe = keys(house)
        assert first
        assert second
        assert first != second
        assert safe is None


async def test_a_key_is_hidden_on_every_route(tmp_path: Path) -> None:
    """An app could otherwise use another person's key at the shared backend."""
    async with building(tmp_path) as house:
        await send(house, KEYED)
        await send(house, structs.replace(KEYED, headers=()))
        hashed, none = keys(house)
        assert hashed != "order-7"
        assert none is None


async def test_safe_methods_carry_none(tmp_path: Path) -> None:
    """The app's own key is dropped there."""
    async with building(tmp_path, idempotent=True) as house:
        await send(house, Request("GET", "/api/items", KEYED.headers))
        assert keys(house) == [None]


@pytest.mark.parametrize(
    "headers",
    [
        (("idempotency-key", ""),),
        (("idempotency-key", "x" * 256),),
        (("idempotency-key", "ü"),),
        (("idempotency-key", "a"), ("idempotency-key", "b")),
    ],
)
async def test_what_is_no_key_is_refused(tmp_path: Path, headers: tuple[tuple[str, str], ...]) -> None:
    """Two keys, or a malformed one, are a bad request."""
    async with building(tmp_path, idempotent=True) as house:
        refused = await house.exchange.run(structs.replace(KEYED, headers=headers), PAGE)
        assert (refused.status, reason(refused)) == (400, Reason.BAD_REQUEST)
        assert house.shop.sent == []


async def test_without_its_database_nothing_is_sent(tmp_path: Path) -> None:
    """A key that cannot be looked up may be bound to another request."""
    async with building(tmp_path, idempotent=True) as house:
        await house.database.__aexit__(None, None, None)
        refused = await house.exchange.run(KEYED, PAGE)
        assert (refused.status, reason(refused)) == (503, Reason.STATE_UNAVAILABLE)
        assert house.shop.sent == []


async def test_nothing_of_the_request_is_stored(tmp_path: Path) -> None:
    """Neither body nor key: only hashes."""
    async with building(tmp_path, idempotent=True) as house:
        await send(house, structs.replace(KEYED, body=b'{"card":"4111111111111111"}'))
        async with house.database.connect() as connection:
            rows = str((await connection.exec_driver_sql("SELECT * FROM idempotency_keys")).all())
    assert "4111" not in rows
    assert "order-7" not in rows


@pytest.mark.bound("idempotency keys")
async def test_the_oldest_of_a_caller_goes_first(tmp_path: Path) -> None:
    """The entries of each caller are bounded, at no other caller's cost."""
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        known = IdempotencyKeys(database)
        await known.claim("bob", "bobs", "digest", 0.0)
        for number in range(PER_OWNER + 1):
            assert await known.claim("ann", f"key-{number}", "digest", float(number))
        assert await known.claim("ann", "key-0", "other digest", 2000.0)
        assert not await known.claim("ann", "key-5", "other digest", 2000.0)
        assert not await known.claim("bob", "bobs", "other digest", 2000.0)


async def test_views_of_a_shared_principal_do_not_share_keys(tmp_path: Path) -> None:
    """Each view counts as a caller: it gets neither another's answer, nor a conflict with it."""
    team = structs.replace(PAGE, principal=replace(PAGE.principal, shared=True))
    async with building(tmp_path, idempotent=True) as house:
        for view, request in (("v1", KEYED), ("v2", KEYED), ("v2", KEYED), ("v3", OTHER)):
            assert (await house.exchange.run(request, structs.replace(team, view=view))).status == 200
        first, second, again, _ = keys(house)
        assert first != second
        assert second == again
