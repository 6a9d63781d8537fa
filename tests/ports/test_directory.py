"""The port `ViewDirectory`: who has which views with which tools, in order, and who is notified of a change."""

from dataclasses import replace

import pytest

from gateway.crypto import SigningKeys
from gateway.model import LOCAL, Principal, ViewTool
from gateway.ports.views import LiveView, ViewDirectory
from gateway.stores.redis.connection import Redis
from gateway.stores.redis.directory import RedisDirectory
from gateway.stores.redis.members import Members
from gateway.views.memory import MemoryDirectory

EVE = replace(LOCAL, subject="eve")
ADD = ViewTool("cart_add", "add", "Add", "Adds.", {})


@pytest.fixture(params=[MemoryDirectory, RedisDirectory])
def directory(request: pytest.FixtureRequest) -> ViewDirectory:
    """Each implementation, without a view."""
    local = MemoryDirectory()
    if request.param is MemoryDirectory:
        return local
    redis: Redis = request.getfixturevalue("redis")
    return RedisDirectory(redis, Members(redis, "node"), local, SigningKeys((b"k" * 32,)), lambda: "incarnation")


def view(id: str, app: str = "cart", *tools: ViewTool) -> LiveView:
    """Return a live view."""
    return LiveView(id, app, app.title(), 1.0, tools)


def test_views_are_listed_by_principal_and_app_oldest_first(directory: ViewDirectory) -> None:
    """A view that is replaced keeps its place; a principal is the same with other roles."""
    for id, app in (("a", "cart"), ("b", "notes"), ("c", "cart")):
        directory.put(LOCAL, view(id, app))
    directory.put(EVE, view("e"))
    directory.put(replace(LOCAL, roles=frozenset({"staff"})), view("a", "cart", ADD))
    assert [one.id for one in directory.of(LOCAL)] == ["a", "b", "c"]
    assert directory.of(LOCAL, "cart") == (view("a", "cart", ADD), view("c"))
    assert directory.of(EVE) == (view("e"),)
    assert [(owner, one.id) for owner, one in directory.all()] == [(LOCAL, "a"), (LOCAL, "b"), (LOCAL, "c"), (EVE, "e")]


def test_a_removed_view_is_gone_and_comes_back_as_the_newest(directory: ViewDirectory) -> None:
    """A view that was never there, or is another principal's, cannot be removed."""
    for id in "ab":
        directory.put(LOCAL, view(id))
    directory.remove(LOCAL, "unknown")
    directory.remove(EVE, "b")
    directory.remove(LOCAL, "a")
    directory.remove(LOCAL, "a")
    assert [one.id for one in directory.of(LOCAL)] == ["b"]
    directory.put(LOCAL, view("a"))
    assert [one.id for one in directory.of(LOCAL)] == ["b", "a"]
    for id in "ab":
        directory.remove(LOCAL, id)
    assert directory.of(LOCAL) == directory.of(EVE) == ()
    assert list(directory.all()) == []


def test_watchers_learn_whose_views_changed_until_they_unregister(directory: ViewDirectory) -> None:
    """Of a view that comes, changes and goes; not of one that is put as it was. They see the new state."""
    seen: list[tuple[Principal, int]] = []
    stop = directory.watch(lambda whose: seen.append((whose, len(directory.of(whose)))))
    directory.put(LOCAL, view("a"))
    directory.put(LOCAL, view("a"))
    directory.put(EVE, view("e"))
    directory.put(LOCAL, view("a", "cart", ADD))
    directory.remove(LOCAL, "a")
    stop()
    directory.remove(EVE, "e")
    assert seen == [(LOCAL, 1), (EVE, 1), (LOCAL, 1), (LOCAL, 0)]


def test_a_listing_does_not_change_while_it_is_read(directory: ViewDirectory) -> None:
    """Views may close meanwhile."""
    for id in "abc":
        directory.put(LOCAL, view(id))
    for _, one in directory.all():
        directory.remove(LOCAL, one.id)
    assert directory.of(LOCAL) == ()


async def test_the_views_of_a_caller_are_known_after_a_moment(directory: ViewDirectory) -> None:
    """Also when nothing can be learnt of other processes: no caller waits for long, and none twice."""
    directory.put(LOCAL, view("a"))
    waits = directory.learn(LOCAL)
    if waits is not None:
        await waits
    assert directory.of(LOCAL) == (view("a"),)
