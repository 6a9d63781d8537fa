"""The shop: products and a cart per customer in an SQLite file, behind OAuth 2.0 access tokens."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import aiohttp
from aiohttp import web
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")

AUDIENCE = "https://shop.example/api"
SCOPE = "cart"
ALGORITHMS = ["ES256", "RS256"]
MOST = 99
KEYS_LIVE = 3600.0

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
class Settings:
    """What the shop is told at its start; `refetch_pause` is the least time in seconds between two looks for keys."""

    database: Path
    issuer: str
    audience: str = AUDIENCE
    log: Path | None = None
    refetch_pause: float = 1.0


class ShopError(Exception):
    """A request that the shop refuses: `error` is for programs, `message` for people."""

    def __init__(self, status: int, error: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.error, self.message, self.headers = status, error, message, headers or {}
        super().__init__(message)


# ── the database ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a cart; `price` is in cents for one piece."""

    item_id: str
    name: str
    price: int
    quantity: int


class Store:
    """The SQLite file. Each method is one transaction; all are called in one thread, so they never overlap."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
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
        """All products in the order of the shelf."""
        rows = self._db.execute("SELECT item_id, name, description, price FROM products ORDER BY place")
        return [dict(zip(("item_id", "name", "description", "price"), row, strict=True)) for row in rows]

    def cart(self, owner: str) -> list[Line]:
        """The cart of `owner`, oldest line first."""
        rows = self._db.execute(
            "SELECT item_id, name, price, quantity FROM cart JOIN products USING (item_id)"
            " WHERE owner = ? ORDER BY line",
            (owner,),
        )
        return [Line(*row) for row in rows]

    def add(self, owner: str, item_id: str, quantity: int) -> list[Line]:
        """Put `quantity` more of a product into the cart."""
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
        """Set how many of a product are in the cart; 0 takes it out."""
        with self._db:
            change = "UPDATE cart SET quantity = :quantity" if quantity else "DELETE FROM cart"
            values = {"owner": owner, "item_id": item_id, "quantity": quantity}
            if not self._db.execute(f"{change} WHERE owner = :owner AND item_id = :item_id", values).rowcount:
                raise ShopError(404, "not_in_cart", f"“{item_id}” is not in the cart.")
        return self.cart(owner)

    def checkout(self, owner: str) -> tuple[int, list[Line]]:
        """Turn the cart into an order and empty it; gives the order's number and its lines."""
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
    """The price of all lines in cents."""
    return sum(line.price * line.quantity for line in lines)


def cart_json(lines: Sequence[Line]) -> dict[str, object]:
    """A cart as the API shows it."""
    items = [{"item_id": at.item_id, "name": at.name, "price": at.price, "quantity": at.quantity} for at in lines]
    return {"items": items, "total": total(lines)}


# ── access tokens ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Issuer:
    """The authorization server's public keys: fetched when first needed, kept, fetched anew for a key not seen yet."""

    def __init__(self, url: str, pause: float, session: aiohttp.ClientSession) -> None:
        self._url, self._pause, self._session = url, pause, session
        self._keys: KeySet | None = None
        self._fetched = 0.0
        self._lock = asyncio.Lock()

    async def keys(self) -> KeySet:
        """The keys, at most an hour old."""
        async with self._lock:
            if self._keys is None or time.monotonic() - self._fetched > KEYS_LIVE:
                self._keys = await self._fetch()
            return self._keys

    async def newer_keys(self, seen: KeySet) -> KeySet:
        """The keys after another look at the issuer, unless that was only a moment ago."""
        async with self._lock:
            if self._keys is seen and time.monotonic() - self._fetched >= self._pause:
                self._keys = await self._fetch()
            return self._keys or seen

    async def _fetch(self) -> KeySet:
        try:
            metadata = await self._get(f"{self._url}/.well-known/oauth-authorization-server")
            if metadata.get("issuer") != self._url:  # RFC 8414, 3.3
                raise ValueError(f"it calls itself {metadata.get('issuer')!r}")
            keys = KeySet.import_key_set({"keys": (await self._get(str(metadata["jwks_uri"])))["keys"]})
        except (aiohttp.ClientError, TimeoutError, JoseError, LookupError, TypeError, ValueError) as error:
            print(f"shop: no keys from {self._url}: {error!r}", file=sys.stderr, flush=True)
            message = "The shop cannot check who you are at the moment. Please try again."
            raise ShopError(503, "issuer_unavailable", message, {"Retry-After": "1"}) from error
        self._fetched = time.monotonic()
        return keys

    async def _get(self, url: str) -> dict[str, Any]:
        async with self._session.get(url, allow_redirects=False) as response:
            response.raise_for_status()
            answer = await response.json(content_type=None)
        if not isinstance(answer, dict):
            raise ValueError(f"{url} is no JSON object")
        return answer


def challenge(status: int, error: str, message: str, scope: str = "") -> ShopError:
    """A refusal with the `WWW-Authenticate` of RFC 6750, section 3; without `error` where no token came."""
    fields = ['realm="shop"']
    if error != "token_needed":
        fields += [f'error="{error}"', f'error_description="{message}"']
    if scope:
        fields.append(f'scope="{scope}"')
    return ShopError(status, error, message, {"WWW-Authenticate": "Bearer " + ", ".join(fields)})


def bearer(request: web.Request) -> str:
    """The access token of the `Authorization` header. Raises `ShopError` where there is none, or not one."""
    values = request.headers.getall("Authorization", [])
    if not values:
        raise challenge(401, "token_needed", "An access token is needed.")
    scheme, _, token = values[0].partition(" ")
    if scheme.lower() != "bearer":
        raise challenge(401, "token_needed", "An access token is needed.")
    if len(values) > 1 or not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token.strip()):
        raise challenge(400, "invalid_request", "The Authorization header holds no bearer token.")
    return token.strip()


async def customer(token: str, issuer: Issuer, settings: Settings) -> str:
    """Whom the token speaks for (`sub`), after the checks of RFC 9068, section 4. Raises `ShopError`."""
    keys = await issuer.keys()
    try:
        try:
            decoded = jwt.decode(token, keys, algorithms=ALGORITHMS)
        except InvalidKeyIdError:
            decoded = jwt.decode(token, await issuer.newer_keys(keys), algorithms=ALGORITHMS)
        jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.audience},
            exp={"essential": True},
            sub={"essential": True},
        ).validate(decoded.claims)
    except (JoseError, ValueError, RecursionError) as error:
        raise challenge(401, "invalid_token", "The access token is not valid here, or no longer.") from error
    if str(decoded.header.get("typ")).lower() not in ("at+jwt", "application/at+jwt"):
        raise challenge(401, "invalid_token", "This is no access token.")
    if SCOPE not in str(decoded.claims.get("scope", "")).split():
        raise challenge(403, "insufficient_scope", f"The access token lacks the scope {SCOPE}.", SCOPE)
    return str(decoded.claims["sub"])


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def read_fields(request: web.Request, known: Collection[str]) -> dict[str, object]:
    """The JSON object of the request. Raises `ShopError` where it is none, or has members that are not `known`."""
    if request.content_type != "application/json":
        raise ShopError(415, "json_needed", "The request must be application/json.")
    try:
        fields = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise ShopError(400, "invalid_json", "The request is no valid JSON.") from error
    if not isinstance(fields, dict):
        raise ShopError(400, "invalid_json", "The request must be a JSON object.")
    if unknown := sorted(fields.keys() - set(known)):
        raise ShopError(422, "unknown_field", f"Unknown field {unknown[0]!r}; known are: {', '.join(known)}.")
    return fields


def checked_item(value: object) -> str:
    """The id of a product, in form. Raises `ShopError`."""
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9-]{1,40}", value):
        raise ShopError(422, "invalid_item", "item_id must be the id of a product, such as “mug”.")
    return value


def checked_quantity(value: object) -> int:
    """A quantity from 1 to the most of one order. Raises `ShopError`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise ShopError(422, "invalid_quantity", f"quantity must be a whole number from 1 to {MOST}.")
    return value


class Shop:
    """The handlers, with what they need."""

    OWNER = web.RequestKey("owner", str)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, "shop-database")
        self._store: Store
        self._issuer: Issuer

    async def lifetime(self, app: web.Application) -> AsyncIterator[None]:
        """Open the database and the connection to the issuer; close both at the end."""
        try:
            self._store = await self._run(lambda: Store(self._settings.database))
        except sqlite3.Error as error:
            raise SystemExit(f"shop: the database {self._settings.database} cannot be used: {error}") from error
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            self._issuer = Issuer(self._settings.issuer, self._settings.refetch_pause, session)
            yield
        await self._run(self._store.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @web.middleware
    async def record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Write down what arrived."""
        if self._settings.log is not None:
            has_token = request.headers.get("Authorization", "").lower().startswith("bearer ")
            line = {"method": request.method, "path": request.raw_path, "has_token": has_token}
            with self._settings.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return await handler(request)

    @web.middleware
    async def explain(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every refusal as JSON."""
        try:
            response = await handler(request)
            response.headers.setdefault("Cache-Control", "no-store")
            return response
        except ShopError as error:
            body = {"error": error.error, "message": error.message}
            return web.json_response(body, status=error.status, headers=error.headers)
        except web.HTTPError as error:
            body = {"error": error.reason.lower().replace(" ", "_"), "message": f"{error.reason}."}
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return web.json_response(body, status=error.status, headers=allow)

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Nothing under /api without a valid token."""
        if request.path.startswith("/api/"):
            request[self.OWNER] = await customer(bearer(request), self._issuer, self._settings)
        return await handler(request)

    async def list_products(self, request: web.Request) -> web.Response:
        """`GET /api/products`."""
        return web.json_response({"currency": "EUR", "products": await self._run(self._store.products)})

    async def show_cart(self, request: web.Request) -> web.Response:
        """`GET /api/cart`."""
        owner = request[self.OWNER]
        return web.json_response(cart_json(await self._run(lambda: self._store.cart(owner))))

    async def add(self, request: web.Request) -> web.Response:
        """`POST /api/cart` with `{"item_id", "quantity"?}`."""
        fields = await read_fields(request, ("item_id", "quantity"))
        owner, item_id = request[self.OWNER], checked_item(fields.get("item_id"))
        quantity = checked_quantity(fields.get("quantity", 1))
        return web.json_response(cart_json(await self._run(lambda: self._store.add(owner, item_id, quantity))))

    async def change(self, request: web.Request) -> web.Response:
        """`PUT /api/cart/{item}` with `{"quantity"}`."""
        fields = await read_fields(request, ("quantity",))
        owner, item_id = request[self.OWNER], checked_item(request.match_info["item"])
        quantity = checked_quantity(fields.get("quantity"))
        return web.json_response(cart_json(await self._run(lambda: self._store.change(owner, item_id, quantity))))

    async def remove(self, request: web.Request) -> web.Response:
        """`DELETE /api/cart/{item}`."""
        owner, item_id = request[self.OWNER], checked_item(request.match_info["item"])
        return web.json_response(cart_json(await self._run(lambda: self._store.change(owner, item_id, 0))))

    async def checkout(self, request: web.Request) -> web.Response:
        """`POST /api/checkout`."""
        owner = request[self.OWNER]
        number, lines = await self._run(lambda: self._store.checkout(owner))
        return web.json_response({"order_number": number, **cart_json(lines)}, status=201)

    async def health(self, request: web.Request) -> web.Response:
        """`GET /healthz`."""
        return web.json_response({"status": "ok"})


def build_app(settings: Settings) -> web.Application:
    """The shop, ready to be served."""
    shop = Shop(settings)
    app = web.Application(client_max_size=16 * 1024, middlewares=[shop.record, shop.explain, shop.admit])
    app.cleanup_ctx.append(shop.lifetime)
    app.router.add_get("/api/products", shop.list_products)
    app.router.add_get("/api/cart", shop.show_cart)
    app.router.add_post("/api/cart", shop.add)
    app.router.add_put("/api/cart/{item}", shop.change)
    app.router.add_delete("/api/cart/{item}", shop.remove)
    app.router.add_post("/api/checkout", shop.checkout)
    app.router.add_get("/healthz", shop.health)
    return app


def read_arguments(arguments: Sequence[str] | None) -> tuple[str, int, Settings]:
    """Host, port and settings from the command line."""
    parser = argparse.ArgumentParser(description="The shop.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on [%(default)s]")
    parser.add_argument("--port", type=int, default=9401, help="[%(default)s]")
    parser.add_argument("--database", type=Path, default=Path("shop.db"), metavar="FILE", help="[%(default)s]")
    parser.add_argument("--issuer", default="http://localhost:9400", help="the authorization server [%(default)s]")
    parser.add_argument("--audience", default=AUDIENCE, help="its name in tokens [%(default)s]")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write one JSON line per request")
    given = parser.parse_args(arguments)
    return given.host, given.port, Settings(given.database, given.issuer, given.audience, given.log)


def main() -> None:
    """Serve until interrupted."""
    host, port, settings = read_arguments(None)
    ready = partial(print, f"shop: ready at http://{host}:{port}", flush=True)
    try:
        web.run_app(build_app(settings), host=host, port=port, access_log=None, print=lambda _: ready())
    except OSError as error:
        raise SystemExit(f"shop: cannot listen: {error.strerror}") from error


if __name__ == "__main__":
    main()
