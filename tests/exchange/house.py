"""An exchange with all its collaborators, and a shop behind it that answers as the test sets it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from gateway.callers.entitlements import Admits, admit_all
from gateway.credentials import Token
from gateway.errors import Refusal
from gateway.exchange.approval_step import ApprovalStep, RequestApprovals
from gateway.exchange.approvals import MemoryApprovals, MemoryGrants, Still
from gateway.exchange.authenticate import Authenticator
from gateway.exchange.backend_protection import Circuits
from gateway.exchange.decided_request import Idempotency
from gateway.exchange.limit import Limiter, MemoryRates
from gateway.exchange.oauth_tokens import OAuthTokens, Ownership
from gateway.exchange.page_tokens import PageTokens
from gateway.exchange.pipeline import Exchange, ExchangeApp
from gateway.exchange.record import OnFailure, Recorder
from gateway.exchange.send import Retries, Sender
from gateway.exchange.streams import Streams
from gateway.hooks import Hooks
from gateway.model import LOCAL, Arriving, Caller, Door, Initiator, Outbound, Principal, Response, Secret
from gateway.policy import Policy, parse_policy
from gateway.policy.policy import Routes
from gateway.policy.rules import Route
from gateway.stores.cookie_jars import DatabaseCookieJars
from gateway.stores.journal import Journal
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sql import Database
from gateway.stores.tokens import TokenStore
from gateway.stores.usage import DatabaseQuotas, IdempotencyKeys
from gateway.telemetry import Metrics

POLICY = """
version: 1
backends:
  shop: {url: "http://shop.test/v2", credential: shop-service}
limits: {request: 100B}
routes:
  - {path: /api/items, methods: [GET, POST, DELETE]}
  - {path: "/api/items/{item}", methods: [GET]}
  - {path: /api/rare, methods: [GET], rate: 1/minute per principal}
  - {path: "/api/carts/{item}", methods: [DELETE], confirm: {when: model, message: "Remove {params.item}?"}}
  - {path: /api/guarded, methods: [GET], confirm: always}
"""
PAGE = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "no-gesture", view="v1", proven=True)
MODEL = structs.replace(PAGE, initiator=Initiator.MODEL, evidence="model-call")
JSON = (("content-type", "application/json"),)

ONE_ACCOUNT = Ownership(account="cart")

Answer = Callable[[Outbound], Response]


class Clock:
    """A clock that advances only when the test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds


@dataclass
class Shop:
    """A backend that keeps the requests it received, and answers as the test sets it."""

    answer: Answer = lambda request: Response(200, JSON, b'{"ok": true}')
    sent: list[Outbound] = field(default_factory=list)
    hold: asyncio.Event | None = None

    async def send(self, request: Outbound) -> Response:
        """Answer, once `hold` is set."""
        self.sent.append(request)
        if self.hold is not None:
            await self.hold.wait()
        return self.answer(request)

    async def close(self) -> None:
        """Nothing to close."""


@dataclass
class StreamingShop(Shop):
    """A shop whose answers come in parts that the test puts into `parts`: None is the end, a refusal an error."""

    parts: asyncio.Queue[bytes | Refusal | None] = field(default_factory=asyncio.Queue)
    given: int = 0
    open: int = 0

    @asynccontextmanager
    async def stream(self, request: Outbound) -> AsyncIterator[Arriving]:
        """Yield the head that `answer` gives, then the parts until the context ends."""
        self.sent.append(request)
        if self.hold is not None:
            await self.hold.wait()
        self.open += 1
        try:
            yield Arriving(structs.replace(self.answer(request), body=b""), self._given())
        finally:
            self.open -= 1

    def put(self, *parts: bytes | Refusal | None) -> None:
        """Add the next parts."""
        for part in parts:
            self.parts.put_nowait(part)

    async def _given(self) -> AsyncIterator[bytes]:
        while (part := await self.parts.get()) is not None:
            if isinstance(part, Refusal):
                raise part
            self.given += len(part)
            yield part


@dataclass
class House:
    """An exchange with all its collaborators."""

    exchange: Exchange
    shop: Shop
    approvals: MemoryApprovals
    journal: Journal
    database: Database
    streams: Streams
    fetched: list[int]
    clock: Clock
    metrics: Metrics
    tokens: TokenStore
    recorder: Recorder

    def lines(self) -> list[dict[str, Any]]:
        """Return the record so far, without the journal's own lines."""
        found = [json.loads(line) for line in self.journal.path.read_text("utf-8").splitlines()]
        return [line for line in found if line["phase"] != "note"]

    def outcome(self) -> dict[str, Any]:
        """Return the fields of the last outcome."""
        fields: dict[str, Any] = [line for line in self.lines() if line["phase"] == "outcome"][-1]["fields"]
        return fields

    async def database_counts(self) -> dict[int, int]:
        """Return the used amount of quotas by the length of their windows in seconds (hours and days)."""
        async with self.database.connect() as connection:
            rows = await connection.exec_driver_sql("SELECT bucket, used FROM quotas")
            lengths = {"hour": 3600, "day": 86400}
            return {lengths[row.bucket.split("\n")[2]]: row.used for row in rows}


@asynccontextmanager
async def building(
    folder: Path,
    policy: Policy | str = POLICY,
    *,
    shop: Shop | None = None,
    ownership: Ownership = ONE_ACCOUNT,
    admits: Admits = admit_all,
    still: Still | None = None,
    jars_in_database: bool = False,
    **obligations: Any,
) -> AsyncIterator[House]:
    """Build a policy, a shop, a credential and a journal; `obligations` replace those of every route."""
    fetched: list[int] = []
    clock = Clock()

    async def obtain(principal: Principal, before: Token | None, now: float) -> Token:
        fetched.append(len(fetched) + 1)
        return Token(Secret(f"token-number-{fetched[-1]}"), "Bearer", now + 300)

    shop = shop or Shop()
    if isinstance(policy, str):
        policy = parse_policy(policy, "policy.yaml")
    async with (
        Journal(folder / "journal.jsonl") as journal,
        Database(f"sqlite:///{folder / 'gateway.db'}") as database,
        Streams(clock) as streams,
    ):
        hooks, metrics = Hooks([], folder), Metrics()
        tokens = TokenStore(database, KeyRing(KeyFile(folder / "gateway.key")))
        source = OAuthTokens("shop-service", obtain, tokens, ownership, now=clock)
        approvals = MemoryApprovals(120, still=still)
        recorder = Recorder(journal, hooks, OnFailure.REFUSE_UNSAFE, metrics)
        page_tokens = PageTokens(KeyRing(KeyFile(folder / "gateway.key")))
        recorder.redactor = page_tokens.redactor
        app = ExchangeApp(with_obligations(policy, **obligations), dict.fromkeys(policy.backends, shop))
        exchange = Exchange(
            {"cart": app, "copy": app},
            limiter=Limiter(MemoryRates(clock), DatabaseQuotas(database), now=clock),
            idempotency=Idempotency(IdempotencyKeys(database), now=clock),
            waiting=RequestApprovals(ApprovalStep(approvals, MemoryGrants(), "http://console.test/approvals/")),
            recorder=recorder,
            sender=Sender(
                Authenticator({"shop-service": source}),
                DatabaseCookieJars(database, KeyRing(KeyFile(folder / "gateway.key"))) if jars_in_database else None,
                circuits=Circuits(clock),
                retries=Retries(clock, clock.sleep, clock, chance=lambda: 1.0),
                page_tokens=page_tokens,
            ),
            streams=streams,
            admits=admits,
            hooks=hooks,
            now=clock,
        )
        yield House(exchange, shop, approvals, journal, database, streams, fetched, clock, metrics, tokens, recorder)


def with_obligations(policy: Policy, **obligations: Any) -> Policy:
    """Return the policy with other obligations on every route."""

    def with_them(route: Route) -> Route:
        new = replace(route.decision.obligations, **obligations)
        return replace(route, decision=replace(route.decision, obligations=new))

    return replace(policy, routes=Routes([with_them(route) for route in policy.routes.all]))


def reason(response: Response) -> str | None:
    """Return the reason of an answer that the gateway itself gave."""
    return response.header("gateway-reason")


async def ends_when_cancelled(waits: Coroutine[Any, Any, object], come: Callable[[], object], turns: int) -> None:
    """Check that a waiter is cancelled even if the cancellation comes `turns` turns of the loop after its event."""
    waiting = asyncio.create_task(waits)
    await asyncio.sleep(0)
    come()
    for _ in range(turns):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled() is not done
