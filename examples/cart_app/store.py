"""The shop's SQLite file: products, a cart per customer, and orders."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.cart_app.refusals import ShopError

MOST = 99

PRODUCTS = [
    ("mug", "Stoneware mug", "Hand-thrown and speckled. Holds 300 ml, and the warmth.", 1800),
    ("teapot", "Cast iron teapot", "Enamelled inside, with a fine steel strainer. 800 ml.", 4650),
    ("board", "Oak cutting board", "One piece of European oak, oiled. 40 × 24 cm.", 3900),
    ("bowl", "Serving bowl", "Wide and deep, for salad, pasta or all the apples.", 2800),
    ("apron", "Linen apron", "Washed linen with a deep pocket. Softer every year.", 3400),
    ("oil", "Olive oil", "First pressing from Messinia, bottled in November. 500 ml.", 1450),
    ("honey", "Wildflower honey", "From forty hives along one valley. 350 g.", 980),
    ("candle", "Beeswax candle", "Poured by hand. Burns for thirty hours.", 1200),
]

SCHEMA = """
CREATE TABLE IF NOT EXISTS products (item_id TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL,
    price INTEGER NOT NULL, place INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS cart (line INTEGER PRIMARY KEY, owner TEXT NOT NULL, item_id TEXT NOT NULL,
    quantity INTEGER NOT NULL, UNIQUE (owner, item_id));
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL,
    total INTEGER NOT NULL, items TEXT NOT NULL, placed REAL NOT NULL);
"""
FIRST_ORDER = 1001


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a cart; `price` is in cents for one piece."""

    item_id: str
    name: str
    price: int
    quantity: int


class Store:
    """The SQLite file. Each method is one transaction; all run in one thread, so they never overlap."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        try:
            self._fill()
        except sqlite3.Error:
            self.close()
            raise

    def _fill(self) -> None:
        self._db.executescript(SCHEMA)
        with self._db:
            self._db.executemany(
                "INSERT INTO products (item_id, name, description, price, place) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (item_id) DO UPDATE SET name = excluded.name, description = excluded.description,"
                " price = excluded.price, place = excluded.place",
                [(*product, place) for place, product in enumerate(PRODUCTS)],
            )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def products(self) -> list[dict[str, object]]:
        """Return all products in shelf order."""
        rows = self._db.execute("SELECT item_id, name, description, price FROM products ORDER BY place")
        return [dict(zip(("item_id", "name", "description", "price"), row, strict=True)) for row in rows]

    def cart(self, owner: str) -> list[Line]:
        """Return the cart of `owner`, oldest line first."""
        rows = self._db.execute(
            "SELECT item_id, name, price, quantity FROM cart JOIN products USING (item_id)"
            " WHERE owner = ? ORDER BY line",
            (owner,),
        )
        return [Line(*row) for row in rows]

    def add(self, owner: str, item_id: str, quantity: int) -> list[Line]:
        """Add `quantity` of a product to the cart. Raises `ShopError`."""
        with self._db:
            product = self._db.execute("SELECT name FROM products WHERE item_id = ?", (item_id,)).fetchone()
            if product is None:
                raise ShopError(422, "unknown_item", f"There is no product “{item_id}” in this shop.")
            (held,) = self._db.execute(
                "INSERT INTO cart (owner, item_id, quantity) VALUES (?, ?, ?) ON CONFLICT (owner, item_id)"
                " DO UPDATE SET quantity = quantity + excluded.quantity RETURNING quantity",
                (owner, item_id, quantity),
            ).fetchone()
            if held > MOST:
                raise ShopError(422, "too_many", f"At most {MOST} of “{product[0]}” fit into one order.")
        return self.cart(owner)

    def change(self, owner: str, item_id: str, quantity: int) -> list[Line]:
        """Set the quantity of a product in the cart; 0 removes it. Raises `ShopError`."""
        with self._db:
            change = "UPDATE cart SET quantity = :quantity" if quantity else "DELETE FROM cart"
            values = {"owner": owner, "item_id": item_id, "quantity": quantity}
            if not self._db.execute(f"{change} WHERE owner = :owner AND item_id = :item_id", values).rowcount:
                raise ShopError(404, "not_in_cart", f"“{item_id}” is not in the cart.")
        return self.cart(owner)

    def checkout(self, owner: str) -> tuple[int, list[Line]]:
        """Turn the cart into an order and empty it; return the order's number and its lines. Raises `ShopError`."""
        with self._db:
            lines = self.cart(owner)
            if not lines:
                raise ShopError(409, "cart_empty", "The cart is empty. Add something before you check out.")
            number = self._db.execute(
                "INSERT INTO orders (number, owner, total, items, placed)"
                " VALUES ((SELECT coalesce(max(number) + 1, ?) FROM orders), ?, ?, ?, ?) RETURNING number",
                (FIRST_ORDER, owner, total(lines), json.dumps(cart_json(lines)["items"]), time.time()),
            ).fetchone()[0]
            self._db.execute("DELETE FROM cart WHERE owner = ?", (owner,))
        return number, lines


def total(lines: Sequence[Line]) -> int:
    """Return the price of all lines in cents."""
    return sum(line.price * line.quantity for line in lines)


def cart_json(lines: Sequence[Line]) -> dict[str, object]:
    """Return a cart as the API shows it."""
    items = [{"item_id": at.item_id, "name": at.name, "price": at.price, "quantity": at.quantity} for at in lines]
    return {"items": items, "total": total(lines)}
