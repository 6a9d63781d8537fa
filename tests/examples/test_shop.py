"""The shop of the cart app: carts, orders, and wrong input."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from examples.cart_app import shop
from tests.examples.house import House, forge_token, running


async def test_from_empty_cart_to_order(house: House) -> None:
    """Add, add again, change, remove, check out: the total is right at each step, and the cart empty at the end."""
    token = await house.token()

    empty = (await house.ask("GET", "/api/cart", token))[1]
    added = (await house.ask("POST", "/api/cart", token, json={"item_id": "mug"}))[1]
    more = (await house.ask("POST", "/api/cart", token, json={"item_id": "mug", "quantity": 2}))[1]
    both = (await house.ask("POST", "/api/cart", token, json={"item_id": "honey"}))[1]
    changed = (await house.ask("PUT", "/api/cart/honey", token, json={"quantity": 4}))[1]
    removed = (await house.ask("DELETE", "/api/cart/mug", token))[1]
    status, order, _ = await house.ask("POST", "/api/checkout", token)
    after = (await house.ask("GET", "/api/cart", token))[1]

    assert empty == after == {"items": [], "total": 0}
    assert added["items"] == [{"item_id": "mug", "name": "Stoneware mug", "price": 1800, "quantity": 1}]
    assert [cart["total"] for cart in (added, more, both, changed, removed)] == [1800, 5400, 6380, 9320, 3920]
    assert (status, order["order_number"], order["total"]) == (201, 1001, 3920)


async def test_orders_count_up(house: House) -> None:
    """Each order has the next number."""
    token, numbers = await house.token(), []
    for _ in range(2):
        await house.ask("POST", "/api/cart", token, json={"item_id": "oil"})
        numbers.append((await house.ask("POST", "/api/checkout", token))[1]["order_number"])

    assert numbers == [1001, 1002]


async def test_each_customer_has_a_cart(house: House) -> None:
    """The cart belongs to the token's subject."""
    await house.ask("POST", "/api/cart", forge_token(house, sub="ann"), json={"item_id": "mug"})

    assert (await house.ask("GET", "/api/cart", forge_token(house, sub="bob")))[1]["items"] == []


async def test_concurrent_adding_loses_nothing(house: House) -> None:
    """Twenty requests at once make twenty pieces."""
    token = await house.token()

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(house.ask("POST", "/api/cart", token, json={"item_id": "bowl"}))

    assert (await house.ask("GET", "/api/cart", token))[1]["items"][0]["quantity"] == 20


async def test_cart_survives_a_restart(tmp_path: Path) -> None:
    """With the same files a new pair of servers has the same cart, and continues the order numbers."""
    async with running(tmp_path) as house:
        await house.ask("POST", "/api/cart", await house.token(), json={"item_id": "teapot", "quantity": 2})
        before = (await house.ask("GET", "/api/cart", await house.token()))[1]
    async with running(tmp_path) as house:
        after = (await house.ask("GET", "/api/cart", await house.token()))[1]

    assert before["items"]
    assert after == before


def test_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """The error contains the name of the wrong file."""
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but quite long enough to be looked at" * 20)

    with pytest.raises(SystemExit, match=r"notes\.txt cannot be used"):
        web.run_app(shop.build_app(shop.Settings(file, "http://127.0.0.1:1")), host="127.0.0.1", port=0, print=None,
                    loop=asyncio.new_event_loop())  # fmt: skip


BAD_INPUT: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("POST", "/api/cart", {"json": {"item_id": "unicorn"}}, 422, "unknown_item"),
    ("POST", "/api/cart", {"json": {}}, 422, "invalid_item"),
    ("POST", "/api/cart", {"json": {"item_id": 7}}, 422, "invalid_item"),
    ("POST", "/api/cart", {"json": {"item_id": "mug'--"}}, 422, "invalid_item"),
    ("POST", "/api/cart", {"json": {"item_id": "\ud800"}}, 422, "invalid_item"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": 0}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": -1}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": 1.5}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": True}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "quantity": 100}}, 422, "invalid_quantity"),
    ("POST", "/api/cart", {"json": {"item_id": "mug", "amount": 1}}, 422, "unknown_field"),
    ("POST", "/api/cart", {"json": ["mug"]}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": b"{", "headers": {"Content-Type": "application/json"}}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": b"[" * 9000, "headers": {"Content-Type": "application/json"}}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": b"9" * 9000, "headers": {"Content-Type": "application/json"}}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": b"\xff", "headers": {"Content-Type": "application/json"}}, 400, "invalid_json"),
    ("POST", "/api/cart", {"data": {"item_id": "mug"}}, 415, "json_needed"),
    ("POST", "/api/cart", {"data": b" " * 20000, "headers": {"Content-Type": "application/json"}}, 413,
     "request_too_large"),
    ("PUT", "/api/cart/mug", {"json": {"quantity": 1}}, 404, "not_in_cart"),
    ("PUT", "/api/cart/mug", {"json": {}}, 422, "invalid_quantity"),
    ("PUT", "/api/cart/mug", {"json": {"quantity": 0}}, 422, "invalid_quantity"),
    ("DELETE", "/api/cart/mug", {}, 404, "not_in_cart"),
    ("DELETE", "/api/cart/..%2Fproducts", {}, 422, "invalid_item"),
    ("POST", "/api/checkout", {}, 409, "cart_empty"),
    ("PATCH", "/api/cart", {}, 405, "method_not_allowed"),
    ("GET", "/api/nothing", {}, 404, "not_found"),
]  # fmt: skip


@pytest.mark.parametrize("method, path, options, status, error", BAD_INPUT)
async def test_wrong_input_is_answered_in_words(
    house: House, method: str, path: str, options: dict[str, Any], status: int, error: str
) -> None:
    """Each invalid request gets its status, a code and a message, and changes nothing."""
    token = await house.token()

    answered, answer, _ = await house.ask(method, path, token, **options)

    assert (answered, answer["error"]) == (status, error)
    assert answer["message"].endswith(".")
    assert (await house.ask("GET", "/api/cart", token))[1] == {"items": [], "total": 0}


async def test_too_many_of_one_product_leave_the_cart_as_it_was(house: House) -> None:
    """The total over several requests is limited too, and the transaction rolled back."""
    token = await house.token()
    await house.ask("POST", "/api/cart", token, json={"item_id": "mug", "quantity": 99})

    status, answer, _ = await house.ask("POST", "/api/cart", token, json={"item_id": "mug"})

    assert (status, answer["error"]) == (422, "too_many")
    assert (await house.ask("GET", "/api/cart", token))[1]["items"][0]["quantity"] == 99


async def test_log_tells_what_arrived(house: House) -> None:
    """One line per request with method, path, and whether it had a token; never the token."""
    token = await house.token()
    await house.ask("GET", "/api/products?page=1", None)
    await house.ask("POST", "/api/cart", token, json={"item_id": "mug"})

    assert house.shop.log is not None
    text = house.shop.log.read_text()
    assert [json.loads(line) for line in text.splitlines()] == [
        {"method": "GET", "path": "/api/products?page=1", "has_token": False},
        {"method": "POST", "path": "/api/cart", "has_token": True},
    ]
    assert token not in text
