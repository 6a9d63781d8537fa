"""How often listeners are told."""

import asyncio

from gateway.mcp.changes import Changes
from gateway.model import LOCAL, Principal

ADA = Principal("issuer", "client", "ada")


async def test_the_first_change_is_told_at_once_and_the_rest_together() -> None:
    """A burst is one notice now and one after the interval, for the last of it."""
    changes, told = Changes(interval=0.1), list[int]()
    changes.listen(LOCAL, lambda: told.append(1))
    for _ in range(5):
        changes.changed(LOCAL)
    assert len(told) == 1
    await asyncio.sleep(0.25)
    assert len(told) == 2
    changes.changed(LOCAL)
    assert len(told) == 3


async def test_listeners_hear_of_their_own_principal_until_they_stop() -> None:
    """Another principal's change is not told, and neither is one after `stop()`, waiting ones included."""
    changes, told = Changes(interval=0.05), list[int]()
    stop = changes.listen(LOCAL, lambda: told.append(1))
    changes.changed(ADA)
    assert told == []
    changes.changed(LOCAL)
    changes.changed(LOCAL)
    stop()
    await asyncio.sleep(0.1)
    assert len(told) == 1
    assert not changes._feeds


async def test_a_listener_that_comes_later_shares_the_pace() -> None:
    """The interval belongs to the principal, not to each listener."""
    changes, first, second = Changes(interval=0.1), list[int](), list[int]()
    changes.listen(LOCAL, lambda: first.append(1))
    changes.changed(LOCAL)
    changes.listen(LOCAL, lambda: second.append(1))
    changes.changed(LOCAL)
    assert second == []
    await asyncio.sleep(0.2)
    assert (len(first), len(second)) == (2, 1)
