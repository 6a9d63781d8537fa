"""The shop's HTTP API, for access tokens of its issuer."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import aiohttp
from aiohttp import web

from examples.cart_app.refusals import ShopError
from examples.cart_app.store import MOST, Store, cart_json
from examples.cart_app.tokens import Issuer, bearer, customer

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")

AUDIENCE = "https://shop.example/api"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the shop; `refetch_pause` is the minimum time in seconds between two fetches of keys."""

    database: Path
    issuer: str
    audience: str = AUDIENCE
    log: Path | None = None
    refetch_pause: float = 1.0


async def read_fields(request: web.Request, known: Collection[str]) -> dict[str, object]:
    """Parse the JSON object of the request. Raises `ShopError` if it is invalid, or has members not in `known`."""
    if request.content_type != "application/json":
        raise ShopError(415, "json_needed", "The request must be application/json.")
    try:
        fields = json.loads(await request.read())
    except web.HTTPRequestEntityTooLarge as error:
        raise ShopError(413, "request_too_large", "The request is too large.") from error
    except (ValueError, RecursionError) as error:
        raise ShopError(400, "invalid_json", "The request is no valid JSON.") from error
    if not isinstance(fields, dict):
        raise ShopError(400, "invalid_json", "The request must be a JSON object.")
    if unknown := sorted(fields.keys() - set(known)):
        raise ShopError(422, "unknown_field", f"Unknown field {unknown[0]!r}; known are: {', '.join(known)}.")
    return fields


def checked_item(value: object) -> str:
    """Return a valid product id. Raises `ShopError`."""
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9-]{1,40}", value):
        raise ShopError(422, "invalid_item", "item_id must be the id of a product, such as “mug”.")
    return value


def checked_quantity(value: object) -> int:
    """Return a quantity from 1 to the maximum of one order. Raises `ShopError`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise ShopError(422, "invalid_quantity", f"quantity must be a whole number from 1 to {MOST}.")
    return value


class Shop:
    """The handlers and their dependencies."""

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
        """Log the request."""
        if self._settings.log is not None:
            has_token = request.headers.get("Authorization", "").lower().startswith("bearer ")
            line = {"method": request.method, "path": request.raw_path, "has_token": has_token}
            with self._settings.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return await handler(request)

    @web.middleware
    async def explain(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Return every refusal as JSON."""
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
        """Require a valid token under /api."""
        if request.path.startswith("/api/"):
            request[self.OWNER] = await customer(bearer(request), self._issuer, self._settings.audience)
        return await handler(request)

    async def list_products(self, request: web.Request) -> web.Response:
        """Answer `GET /api/products`."""
        return web.json_response({"currency": "EUR", "products": await self._run(self._store.products)})

    async def show_cart(self, request: web.Request) -> web.Response:
        """Answer `GET /api/cart`."""
        owner = request[self.OWNER]
        return web.json_response(cart_json(await self._run(lambda: self._store.cart(owner))))

    async def add(self, request: web.Request) -> web.Response:
        """Answer `POST /api/cart` with `{"item_id", "quantity"?}`."""
        fields = await read_fields(request, ("item_id", "quantity"))
        owner, item_id = request[self.OWNER], checked_item(fields.get("item_id"))
        quantity = checked_quantity(fields.get("quantity", 1))
        return web.json_response(cart_json(await self._run(lambda: self._store.add(owner, item_id, quantity))))

    async def change(self, request: web.Request) -> web.Response:
        """Answer `PUT /api/cart/{item}` with `{"quantity"}`."""
        fields = await read_fields(request, ("quantity",))
        owner, item_id = request[self.OWNER], checked_item(request.match_info["item"])
        quantity = checked_quantity(fields.get("quantity"))
        return web.json_response(cart_json(await self._run(lambda: self._store.change(owner, item_id, quantity))))

    async def remove(self, request: web.Request) -> web.Response:
        """Answer `DELETE /api/cart/{item}`."""
        owner, item_id = request[self.OWNER], checked_item(request.match_info["item"])
        return web.json_response(cart_json(await self._run(lambda: self._store.change(owner, item_id, 0))))

    async def checkout(self, request: web.Request) -> web.Response:
        """Answer `POST /api/checkout`."""
        owner = request[self.OWNER]
        number, lines = await self._run(lambda: self._store.checkout(owner))
        return web.json_response({"order_number": number, **cart_json(lines)}, status=201)

    async def health(self, request: web.Request) -> web.Response:
        """Answer `GET /healthz`."""
        return web.json_response({"status": "ok"})


def build_app(settings: Settings) -> web.Application:
    """Return the shop as an application."""
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
    """Read host, port and settings from the command line."""
    parser = argparse.ArgumentParser(prog="shop", description="The shop.")
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
