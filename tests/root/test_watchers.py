"""Callbacks that are called at each change."""

from __future__ import annotations

from gateway.watchers import Watchers


def test_watchers_are_called_in_order_until_they_are_unregistered() -> None:
    """With what changed; a second call of what unregisters one does nothing."""
    watchers, seen = Watchers[[int]](), list[tuple[str, int]]()
    stop = watchers.add(lambda number: seen.append(("first", number)))
    watchers.add(lambda number: seen.append(("second", number)))
    watchers.notify(1)
    stop()
    stop()
    watchers.notify(2)
    assert seen == [("first", 1), ("second", 1), ("second", 2)]


def test_one_callback_can_be_registered_twice() -> None:
    """Each registration ends by itself."""
    watchers, seen = Watchers[[int]](), list[int]()
    stop = watchers.add(seen.append)
    watchers.add(seen.append)
    stop()
    watchers.notify(1)
    assert seen == [1]


def test_a_watcher_may_add_and_remove_others_while_it_is_called() -> None:
    """One that is added meanwhile is called at the next change."""
    watchers, seen = Watchers[[]](), list[str]()

    def first() -> None:
        stop()
        watchers.add(lambda: seen.append("later"))

    stop = watchers.add(first)
    watchers.notify()
    assert seen == []
    watchers.notify()
    assert seen == ["later"]
