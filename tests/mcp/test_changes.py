"""The rate at which listeners are notified, by a clock that tests move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.mcp.standing_streams import Changes
from gateway.model import LOCAL, Principal

ADA = Principal("issuer", "client", "ada")


class Timers:
    """A clock that the test moves, and its pending timers."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        """Return the time."""
        return self.now

    def call_at(self, when: float, callback: Callable[[], None], /) -> object:
        """Add a timer."""
        self.waiting.append((when, callback))
        return callback

    def pass_by(self, seconds: float) -> None:
        """Advance the clock and run the timers that are due."""
        self.now += seconds
        due = [one for one in self.waiting if one[0] <= self.now]
        self.waiting = [one for one in self.waiting if one not in due]
        for _, callback in due:
            callback()


class House:
    """The changes of principals whose tools are numbers."""

    def __init__(self) -> None:
        self.tools: dict[str, int] = {}
        self.timers = Timers()
        self.changes = Changes(lambda principal: self.tools.get(principal.id), 1.0, self.timers)

    def change(self, principal: Principal = LOCAL) -> None:
        """Change the principal's tools."""
        self.tools[principal.id] = self.tools.get(principal.id, 0) + 1
        self.changes.note_change(principal)

    def listener(self) -> list[float]:
        """Return a list of the times at which a listener is notified."""
        told: list[float] = []
        self.changes.listen(LOCAL, lambda: told.append(self.timers.now))
        return told


@pytest.fixture
def house() -> House:
    """A house without listeners."""
    return House()


def test_the_first_change_is_told_at_once_and_the_rest_together(house: House) -> None:
    """A burst causes one notification now and one after a second, for its last change."""
    told = house.listener()
    for _ in range(5):
        house.change()
    assert told == [1000.0]
    house.timers.pass_by(0.9)
    assert told == [1000.0]
    house.timers.pass_by(0.1)
    assert told == [1000.0, 1001.0]
    house.timers.pass_by(5)
    house.change()
    assert told == [1000.0, 1001.0, 1006.0]


def test_a_flood_is_told_once_a_second(house: House) -> None:
    """However many changes there are."""
    told = house.listener()
    for _ in range(100):
        house.change()
        house.timers.pass_by(0.1)
    assert len(told) == 11


def test_what_changes_no_tools_is_not_told(house: House) -> None:
    """A view that opens delays nothing: its page's first tool is notified at once."""
    told = house.listener()
    house.changes.note_change(LOCAL)
    assert told == []
    house.timers.pass_by(0.2)
    house.change()
    assert told == [house.timers.now]


def test_listeners_hear_of_their_own_principal_until_they_stop(house: House) -> None:
    """Another principal's change is not sent, and none after `stop()`, pending ones included."""
    told: list[int] = []
    stop = house.changes.listen(LOCAL, lambda: told.append(1))
    house.change(ADA)
    assert told == []
    house.change()
    house.change()
    stop()
    house.timers.pass_by(1)
    assert told == [1]
    assert not house.changes._feeds


def test_a_listener_that_comes_later_shares_the_pace(house: House) -> None:
    """The interval belongs to the principal, not to each listener."""
    first = house.listener()
    house.change()
    second = house.listener()
    house.change()
    assert second == []
    house.timers.pass_by(1)
    assert (len(first), len(second)) == (2, 1)


def test_other_apps_are_told_to_all(house: House) -> None:
    """For any tools of views."""
    told = house.listener()
    house.changes.changed_for_all()
    assert len(told) == 1
