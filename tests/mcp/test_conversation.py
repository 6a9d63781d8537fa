"""One end of a conversation with an upstream that does not behave."""

import asyncio
from collections.abc import Mapping

from gateway.mcp.upstreams.conversation import MAX_REPLIES, Conversation, Message, Receive


class Deaf:
    """Carries to an upstream that asks a thousand times whether anybody is there, and takes no answer."""

    def __init__(self) -> None:
        self.begun = 0
        self.asked = asyncio.Event()

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        """For ever."""
        self.begun += 1
        await asyncio.Event().wait()

    async def abandon(self, id: int) -> bool:
        """Nothing is given up."""
        return False

    async def run(self, receive: Receive) -> None:
        """It asks at once."""
        for number in range(1000):
            receive({"jsonrpc": "2.0", "id": number, "method": "ping"}, None, 0)
        self.asked.set()
        await asyncio.Event().wait()


async def test_answers_that_nobody_takes_do_not_pile_up() -> None:
    """What is asked beyond those that wait has none."""
    upstream = Deaf()
    async with Conversation(upstream, patience=1, most=1, heard=lambda *_: None):
        await upstream.asked.wait()
        assert upstream.begun == MAX_REPLIES
