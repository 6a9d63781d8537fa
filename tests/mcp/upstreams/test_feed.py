"""Subscriptions at an upstream for all followers: in order, once for all, and no more than needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from gateway.mcp.upstreams.changes import feed as module
from gateway.mcp.upstreams.changes.feed import ACKNOWLEDGED, LONGEST, ChangeListener, Feed
from gateway.mcp.upstreams.transport.notifications import LARGEST_CHANGE

A, B = "a://1", "b://1"


class Upstream:
    """An upstream that keeps its requests, and answers once `go` is set; it refuses those in `refused`.

    It leaves those in `untold` out of its acknowledgment; with `silent` it sends no acknowledgment.
    """

    def __init__(self, *, modern: bool) -> None:
        self.asked: list[tuple[str, object]] = []
        self.refused: set[object] = set()
        self.untold: set[str] = set()
        self.silent = False
        self.go = asyncio.Event()
        self.go.set()
        self.streams: list[asyncio.Future[None]] = []
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.now: Any = self.connected(modern=modern)

    def connected(self, *, modern: bool) -> Any:
        """Return a connection to it."""
        conversation = SimpleNamespace(request=self._request, over=self.ended)
        version = "2026-07-28" if modern else "2025-11-25"
        return SimpleNamespace(terms=SimpleNamespace(modern=modern, version=version), conversation=conversation)

    async def session(self) -> Any:
        """Return its current connection."""
        return self.now

    async def _request(self, method: str, params: dict[str, Any], *, hear: Any = None, **_: object) -> dict[str, Any]:
        listens = method == "subscriptions/listen"
        wanted: list[str] = params["notifications"].get("resourceSubscriptions", []) if listens else [params["uri"]]
        self.asked.append((method.rpartition("/")[2], sorted(wanted) if listens else wanted[0]))
        await self.go.wait()
        if not self.refused.isdisjoint(wanted):
            raise MCPError(-32602, "No")
        if listens:
            if not self.silent:
                hear(
                    ACKNOWLEDGED,
                    {"notifications": {"resourceSubscriptions": [uri for uri in wanted if uri not in self.untold]}},
                )
            self.streams.append(asyncio.get_running_loop().create_future())
            await self.streams[-1]
        return {}

    @property
    def open(self) -> int:
        """Return the number of open streams."""
        return sum(not stream.done() for stream in self.streams)


async def turns() -> None:
    """Run the event loop for some turns."""
    for _ in range(20):
        await asyncio.sleep(0)


def follows(feed: Feed) -> ChangeListener:
    """Return a follower of lists."""
    follower = ChangeListener(lambda _, __: None)
    feed.add(follower)
    return follower


Made = Callable[[bool], tuple[Any, Feed]]


@pytest.fixture
async def made() -> Any:
    """Return a function that makes an upstream, modern or not, and its feed."""
    tasks: list[asyncio.Task[None]] = []

    def spawn(coroutine: Any) -> asyncio.Task[None]:
        tasks.append(asyncio.ensure_future(coroutine))
        return tasks[-1]

    yield lambda modern: (Upstream(modern=modern), Feed(spawn))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.bound("subscribed resources of an upstream")
@pytest.mark.parametrize("modern", [True, False])
async def test_a_principal_follows_so_many_resources(
    made: Made, monkeypatch: pytest.MonkeyPatch, *, modern: bool
) -> None:
    """Counted over all of its clients; others have separate bounds, and an ended or refused one frees its place."""
    monkeypatch.setattr(module, "MAX_URIS", 2)
    upstream, feed = made(modern)
    mine, too, other = (ChangeListener(lambda _, __: None, owner) for owner in ("ada", "ada", "bob"))
    for one in (mine, too, other):
        feed.add(one)
    await feed.subscribe(upstream, mine, A)
    await feed.subscribe(upstream, too, A)
    with pytest.raises(MCPError, match="Too many"):
        await feed.subscribe(upstream, mine, B)
    await feed.subscribe(upstream, other, A, B)
    await feed.unsubscribe(upstream, too, A)
    await feed.subscribe(upstream, mine, B)
    assert (mine.uris, too.uris, other.uris) == ({A, B}, set(), {A, B})
    await feed.remove(upstream, mine)
    await feed.subscribe(upstream, too, A, B)


@pytest.mark.bound("subscribed resources of an upstream")
@pytest.mark.parametrize("modern", [True, False])
async def test_a_resource_with_a_long_address_is_not_followed(made: Made, *, modern: bool) -> None:
    """Beside others it is left out; alone it is an error, and the upstream never sees it."""
    upstream, feed = made(modern)
    one, long = follows(feed), "a://" + "x" * LONGEST
    with pytest.raises(MCPError, match="at most 4096 characters"):
        await feed.subscribe(upstream, one, long)
    await feed.subscribe(upstream, one, A, long)
    await feed.unsubscribe(upstream, one, long)
    assert one.uris == {A}
    assert long not in str(upstream.asked)


async def test_a_large_notification_is_not_passed_to_every_follower(made: Made) -> None:
    """It would be queued for each of them."""
    _, feed = made(True)
    told: list[tuple[str, dict[str, Any]]] = []
    feed.add(ChangeListener(lambda *given: told.append(given)))
    for amount in (LARGEST_CHANGE - 20, LARGEST_CHANGE):
        feed.pass_on("notifications/other", {"more": "x" * amount})
    assert [len(params["more"]) for _, params in told] == [LARGEST_CHANGE - 20]


async def test_what_is_asked_of_one_resource_keeps_its_order(made: Made) -> None:
    """If the unsubscription arrived last, the upstream would send no updates to any follower."""
    upstream, feed = made(False)
    one, other = follows(feed), follows(feed)
    await feed.subscribe(upstream, one, A)
    upstream.go.clear()
    left = asyncio.ensure_future(feed.unsubscribe(upstream, one, A))
    await turns()
    again = [asyncio.ensure_future(feed.subscribe(upstream, who, A)) for who in (other, one)]
    await turns()
    assert upstream.asked == [("subscribe", A), ("unsubscribe", A)]
    upstream.go.set()
    await asyncio.gather(left, *again)
    assert upstream.asked[2:] == [("subscribe", A)]
    assert one.uris == other.uris == {A}


@pytest.mark.parametrize("modern", [True, False])
async def test_who_asks_twice_at_once_hears_twice_that_it_is_refused(made: Made, modern: bool) -> None:
    """The second does not rely on the first's result."""
    upstream, feed = made(modern)
    upstream.refused.add(A)
    one = follows(feed)
    upstream.go.clear()
    both = [asyncio.ensure_future(feed.subscribe(upstream, one, A)) for _ in range(2)]
    await turns()
    upstream.go.set()
    found = await asyncio.gather(*both, return_exceptions=True)
    assert [type(error) for error in found] == [MCPError, MCPError]
    assert one.uris == set()


async def test_who_is_gone_follows_nothing(made: Made) -> None:
    """A pending subscription of theirs is not sent any more."""
    upstream, feed = made(False)
    one, other = follows(feed), follows(feed)
    upstream.go.clear()
    asks = [asyncio.ensure_future(feed.subscribe(upstream, who, A)) for who in (one, other)]
    await turns()
    gone = [asyncio.ensure_future(feed.remove(upstream, who)) for who in (one, other)]
    upstream.go.set()
    await asyncio.gather(*asks, *gone)
    assert upstream.asked == [("subscribe", A), ("unsubscribe", A)]
    assert one.uris == other.uris == set()


async def test_a_stream_is_opened_anew_only_for_other_things(made: Made) -> None:
    """For the same, and for no followers, it stays; for others, or on another connection, the old one ends."""
    upstream, feed = made(True)
    await feed.listen(upstream.now)
    assert upstream.asked == []
    one, other = follows(feed), follows(feed)
    await feed.subscribe(upstream, one, A)
    await feed.subscribe(upstream, other, A)
    await feed.listen(upstream.now)
    assert upstream.asked == [("listen", [A])]
    await feed.subscribe(upstream, other, B)
    await turns()
    assert (upstream.asked[1:], upstream.open) == ([("listen", [A, B])], 1)
    await feed.unsubscribe(upstream, other, B)
    upstream.now = upstream.connected(modern=True)
    await feed.listen(upstream.now)
    await turns()
    assert (upstream.asked[2:], upstream.open) == ([("listen", [A]), ("listen", [A])], 1)


async def test_a_stream_that_stands_outlasts_one_that_is_refused(made: Made) -> None:
    """Its followers still get their updates, and the client that wanted more gets the reason."""
    upstream, feed = made(True)
    one, other = follows(feed), follows(feed)
    await feed.subscribe(upstream, one, A)
    first = upstream.streams[0]
    upstream.refused.add(B)
    with pytest.raises(MCPError):
        await feed.subscribe(upstream, other, B)
    await turns()
    assert (first.done(), upstream.open, other.uris) == (False, 1, set())
    await feed.listen(upstream.now)
    assert upstream.asked == [("listen", [A]), ("listen", [A, B])]


async def test_who_follow_at_once_are_told_on_one_stream(made: Made) -> None:
    """The second waits for the first, whose stream may already cover it."""
    upstream, feed = made(True)
    upstream.go.clear()
    both = [asyncio.ensure_future(feed.subscribe(upstream, follows(feed), uri)) for uri in (A, B)]
    await turns()
    upstream.go.set()
    await asyncio.gather(*both)
    assert upstream.asked == [("listen", [A, B])]


async def test_what_an_upstream_did_not_tell_of_is_asked_for_again(made: Made) -> None:
    """By the next follower; resources that are covered meanwhile need no new stream."""
    upstream, feed = made(True)
    upstream.untold.add(A)
    one, other = follows(feed), follows(feed)
    await feed.subscribe(upstream, one, A, B)
    await feed.listen(upstream.now)
    assert (upstream.asked, one.uris) == ([("listen", [A, B])], {B})
    with pytest.raises(MCPError, match="does not tell"):
        await feed.subscribe(upstream, other, A)
    upstream.untold.clear()
    await feed.subscribe(upstream, other, A)
    assert (upstream.asked[1:], other.uris) == ([("listen", [A, B])] * 2, {A})


async def test_who_is_refused_a_resource_hears_of_lists(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no earlier stream is left, a new one is opened without the refused resource."""
    monkeypatch.setattr(module, "FIRST_WAIT", 0.01)
    upstream, feed = made(True)
    upstream.refused.add(A)
    with pytest.raises(MCPError):
        await feed.subscribe(upstream, follows(feed), A)
    async with asyncio.timeout(60):
        while not upstream.open:
            await asyncio.sleep(0.01)
    assert (upstream.asked[0], upstream.asked[-1]) == (("listen", [A]), ("listen", []))


async def test_a_stream_whose_beginning_is_not_said_is_waited_for_a_while(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And accepted all the same: its coverage is unknown, so the next listen opens a new one."""
    monkeypatch.setattr(module, "ANSWER_TIMEOUT", 0.01)
    upstream, feed = made(True)
    upstream.silent = True
    one = follows(feed)
    await feed.subscribe(upstream, one, A)
    assert (upstream.open, one.uris) == (1, {A})
    await feed.listen(upstream.now)
    await turns()
    assert (upstream.asked, upstream.open) == ([("listen", [A]), ("listen", [A])], 1)
