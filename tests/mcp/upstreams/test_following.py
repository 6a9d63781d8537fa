"""The followers of an upstream, and each one's queue of changes."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
from mcp import MCPError

from gateway.bounds import report_exceeded
from gateway.mcp.upstreams.changes import following
from gateway.mcp.upstreams.changes.feed import KINDS, UPDATED
from gateway.mcp.upstreams.changes.following import BACKLOG, MOST, ListenStreams, News
from gateway.model import LOCAL

TOOLS = KINDS["toolsListChanged"]


async def test_no_change_of_a_list_or_a_resource_is_lost() -> None:
    """Each is queued once, however many there are; other notifications are bounded."""
    news = News()
    uris = [f"test://{number}" for number in range(2 * BACKLOG)]
    for _ in range(2):
        for _ in range(BACKLOG):
            news.tell("notifications/other", {})
        for uri in uris:
            news.tell(UPDATED, {"uri": uri})
        for method in KINDS.values():
            news.tell(method, {"uri": []})  # which the protocol does not define
    told = [await news.get() for _ in range(BACKLOG + len(uris) + len(KINDS))]
    assert [params["uri"] for method, params in told if method == UPDATED] == uris
    assert [method for method, _ in told[-len(KINDS) :]] == list(KINDS.values())


@pytest.mark.bound("queued notifications for a client")
async def test_ever_other_parts_of_a_resource_have_a_limit() -> None:
    """Queued ones are still updated."""
    news = News()
    for number in range(MOST + 1):
        news.tell(UPDATED, {"uri": f"test://{number}"})
    news.tell(UPDATED, {"uri": "test://0", "again": True})
    assert (await news.get())[1] == {"uri": "test://0", "again": True}
    news.tell(UPDATED, {"uri": "test://last"})
    assert [params["uri"] for _, params in [await news.get() for _ in range(MOST)]][-2:] == [
        f"test://{MOST - 1}",
        "test://last",
    ]


@pytest.mark.bound("queued notifications for a client")
async def test_what_is_queued_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is dropped, and what is taken makes room; the news of a list is always queued."""
    monkeypatch.setattr(following, "QUEUED", 1000)
    news = News()
    reports: list[str] = []
    with report_exceeded(lambda bound, *_: reports.append(bound.what)):
        for number in range(4):
            news.tell("notifications/other", {"number": number, "more": "x" * 300})
    assert reports == ["queued notifications for a client"]
    news.tell(UPDATED, {"uri": "a"})
    news.tell(TOOLS, {})
    assert [(await news.get())[1].get("number") for _ in range(3)] == [0, 1, 2]
    news.tell(UPDATED, {"uri": "a", "more": "x" * 900})
    assert [await news.get(), await news.get()] == [(UPDATED, {"uri": "a", "more": "x" * 900}), (TOOLS, {})]
    news.tell("notifications/other", {"more": "x" * 985})
    news.tell(TOOLS, {})
    assert [(await news.get())[0], (await news.get())[0]] == ["notifications/other", TOOLS]
    news.tell("notifications/other", {"more": "x" * 980})
    assert (await news.get())[1] == {"more": "x" * 980}


@pytest.mark.bound("change streams of an upstream")
def test_nobody_takes_the_streams_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded for each principal and in all; an ended one frees its place."""
    monkeypatch.setattr(following, "STREAMS_EACH", 2)
    monkeypatch.setattr(following, "MAX_STREAMS", 3)
    streams, ann, bob = ListenStreams(), replace(LOCAL, subject="ann"), replace(LOCAL, subject="bob")
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(streams.one(ann))
        with pytest.raises(MCPError), streams.one(ann):
            pass
        with streams.one(bob), pytest.raises(MCPError), streams.one(LOCAL):
            pass
        stack.enter_context(streams.one(bob))
