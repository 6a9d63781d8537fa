"""Who waits to go on, by the turns of an event loop."""

from __future__ import annotations

import asyncio
from functools import partial

from gateway.backends.in_turn import InTurn


async def test_one_goes_on_in_each_turn() -> None:
    """However many wait: all of them by turns, and whoever fails keeps nobody from theirs."""
    waiting, went = InTurn(), list[str]()
    failed = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, said: failed.append(str(said["exception"])))

    def go_on(name: str, left: int) -> None:
        went.append(name)
        if left:
            waiting.add(partial(go_on, name, left - 1))
        if name == "b":
            raise ValueError(name)

    for name in "abc":
        waiting.add(partial(go_on, name, 2))
    for turn in range(9):
        assert len(went) == turn
        await asyncio.sleep(0)
    assert went == [*"abcabcabc"]
    assert failed == ["b"] * 3
