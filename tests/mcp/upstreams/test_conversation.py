"""One end of a conversation with an upstream that misbehaves, or is silent."""

import asyncio
from collections.abc import Mapping
from functools import partial

import pytest

from gateway.mcp.upstreams.transport import conversation as conversations
from gateway.mcp.upstreams.transport.conversation import (
    MAX_ASKED,
    MAX_REPLIES,
    Message,
    Receive,
    UpstreamConversation,
    is_answer,
)
from gateway.mcp.upstreams.transport.notifications import ASKED, LARGEST_CHANGE, MESSAGES, Flood


class Deaf:
    """A transport to an upstream that sends a thousand pings, and reads no answer."""

    def __init__(self) -> None:
        self.begun = 0
        self.asked = asyncio.Event()

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        """Block for ever."""
        self.begun += 1
        await asyncio.Event().wait()

    async def abandon(self, id: int) -> bool:
        """Cancel nothing."""
        return False

    async def run(self, receive: Receive) -> None:
        """Ping at once."""
        for number in range(1000):
            receive({"jsonrpc": "2.0", "id": number, "method": "ping"}, None, 0)
        self.asked.set()
        await asyncio.Event().wait()


async def test_answers_that_nobody_takes_do_not_pile_up() -> None:
    """Pings beyond the bound of pending answers get none."""
    upstream = Deaf()
    async with UpstreamConversation(upstream, timeout=1, most=1, on_notification=lambda *_: None):
        await upstream.asked.wait()
        assert upstream.begun == MAX_REPLIES


async def test_of_a_large_change_is_told_what_changed() -> None:
    """The rest of it would be written to every follower."""
    told: list[Message] = []
    method, params = "notifications/resources/updated", {"uri": "a://b", "more": 1}
    async with UpstreamConversation(
        Deaf(), timeout=1, most=1, on_notification=lambda _, said: told.append(said)
    ) as conversation:
        for size in (LARGEST_CHANGE, LARGEST_CHANGE + 1):
            conversation.receive({"jsonrpc": "2.0", "method": method, "params": params}, None, size)
        listed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"more": 1}}
        conversation.receive(listed, None, LARGEST_CHANGE + 1)
    assert told == [params, {"uri": "a://b"}, {}]


class Asking(Deaf):
    """A transport to an upstream that pings without end; `asks` counts the pings accepted."""

    asks = 0

    async def run(self, receive: Receive) -> None:
        """Ping until it is cut off."""
        while True:
            receive({"jsonrpc": "2.0", "id": 1, "method": "ping"}, None, 0)
            self.asks += 1


async def test_who_asks_is_cut_off_sooner_than_who_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request costs the gateway an answer."""
    monkeypatch.setattr(conversations, "Flood", partial(Flood, lambda: 0.0))  # in passing time, more are allowed
    upstream = Asking()
    async with UpstreamConversation(upstream, timeout=1, most=1, on_notification=lambda *_: None) as conversation:
        assert "too many unsolicited messages" in await conversation.end
    assert upstream.asks == MESSAGES / ASKED


class Near:
    """A transport to an upstream that the test plays: `sent` are the gateway's messages, `say` sends one to it."""

    def __init__(self) -> None:
        self.sent = asyncio.Queue[Message]()
        self._said = asyncio.Queue[Message]()

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        """Queue the message."""
        self.sent.put_nowait(message)

    async def abandon(self, id: int) -> bool:
        """Cancel nothing."""
        return False

    async def run(self, receive: Receive) -> None:
        """Pass the messages on, one by one."""
        while True:
            receive(await self._said.get(), None, 0)

    def say(self, **message: object) -> None:
        """Send a message to the gateway."""
        self._said.put_nowait({"jsonrpc": "2.0", **message})


class Client:
    """A client `one`, which answers requests of the kinds that it `takes`."""

    who = "one"
    owner = "person"

    def __init__(self, *takes: str) -> None:
        self._takes = takes

    def takes(self, method: str) -> bool:
        """Return whether it accepts this method."""
        return method in self._takes

    async def ask(self, method: str, params: Message) -> Message:
        """Answer with the accepted methods."""
        return {"takes": [*self._takes]}

    async def tell(self, method: str, params: Message) -> None:
        """Ignore the notification."""


async def test_who_can_answer_is_asked() -> None:
    """Of one client's calls, if the request does not name one: the newest that accepts it."""
    upstream, more = Near(), ("roots/list", "sampling/createMessage")
    async with (
        UpstreamConversation(upstream, timeout=60, most=9, on_notification=lambda *_: None) as conversation,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        for client in (Client(*more), Client(more[0]), Client()):
            tasks.create_task(conversation.request("tools/call", {}, asker=client))
        calls = [(await upstream.sent.get())["id"] for _ in range(3)]
        for method, takes in ((more[1], [*more]), (more[0], [more[0]]), ("elicitation/create", [])):
            upstream.say(id="x", method=method)
            assert (await upstream.sent.get())["result"] == {"takes": takes}
        for call in calls:
            upstream.say(id=call, result={})


async def test_nobody_is_asked_on_account_of_another_client() -> None:
    """If calls of two clients are pending, and the request names neither; with one client left, it is asked again."""
    upstream, other = Near(), Client("roots/list")
    other.who = "other"
    async with (
        UpstreamConversation(upstream, timeout=60, most=9, on_notification=lambda *_: None) as conversation,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        first, _ = (
            tasks.create_task(conversation.request("tools/call", {}, asker=client))
            for client in (Client("roots/list"), other)
        )
        calls = [(await upstream.sent.get())["id"] for _ in range(2)]
        upstream.say(id="x", method="roots/list")
        assert "No client is known" in (await upstream.sent.get())["error"]["message"]
        upstream.say(id=calls[0], result={})
        await first
        upstream.say(id="y", method="roots/list")
        assert (await upstream.sent.get())["result"] == {"takes": ["roots/list"]}
        upstream.say(id=calls[1], result={})


class Slow(Client):
    """A client that answers once the test lets it."""

    def __init__(self) -> None:
        super().__init__("roots/list")
        self.go = asyncio.Event()

    async def ask(self, method: str, params: Message) -> Message:
        """Wait for `go`, then answer."""
        await self.go.wait()
        return await super().ask(method, params)


@pytest.mark.bound("requests of an upstream to its clients")
async def test_a_client_is_asked_so_much_at_a_time() -> None:
    """Requests beyond the bound are refused at once."""
    upstream, client = Near(), Slow()
    async with (
        UpstreamConversation(upstream, timeout=60, most=9, on_notification=lambda *_: None) as conversation,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(conversation.request("tools/call", {}, asker=client))
        call = (await upstream.sent.get())["id"]
        for number in range(MAX_ASKED + 1):
            upstream.say(id=number, method="roots/list")
        refused = await upstream.sent.get()
        assert (refused["id"], "Too many requests" in refused["error"]["message"]) == (MAX_ASKED, True)
        client.go.set()
        assert {(await upstream.sent.get())["id"] for _ in range(MAX_ASKED)} == {*range(MAX_ASKED)}
        upstream.say(id=call, result={})


class Late(Client):
    """A client that takes a while to handle a notification."""

    def __init__(self) -> None:
        super().__init__("roots/list")
        self.heard: list[str] = []

    async def tell(self, method: str, params: Message) -> None:
        """Take ten turns of the loop."""
        for _ in range(10):
            await asyncio.sleep(0)
        self.heard.append(method)

    async def ask(self, method: str, params: Message) -> Message:
        """Answer at once."""
        self.heard.append(method)
        return {}


async def test_a_client_has_heard_what_it_was_told_before_it_is_asked() -> None:
    """Its stream may end with the request; notifications after the answer reach it as well."""
    upstream, client, progress = Near(), Late(), "notifications/progress"
    async with (
        UpstreamConversation(upstream, timeout=60, most=9, on_notification=lambda *_: None) as conversation,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        meta = {"_meta": {"progressToken": "t"}}
        tasks.create_task(conversation.request("tools/call", meta, asker=client))
        call = (await upstream.sent.get())["id"]
        for id in ("x", "y"):
            for step in range(2):
                upstream.say(method=progress, params={"progressToken": call, "progress": step})
            upstream.say(id=id, method="roots/list")
            assert (await upstream.sent.get())["id"] == id
        upstream.say(id=call, result={})
    assert client.heard == 2 * [progress, progress, "roots/list"]


@pytest.mark.parametrize("other", [True, "1", [1], 1.5, 0, None])
async def test_an_answer_has_the_number_of_its_request(other: object) -> None:
    """A similar value does not match; `1.0` is the same number."""
    upstream = Near()
    async with (
        UpstreamConversation(upstream, timeout=60, most=9, on_notification=lambda *_: None) as conversation,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        asked = tasks.create_task(conversation.request("tools/call", {}))
        assert (await upstream.sent.get())["id"] == 1
        upstream.say(id=other, result={"of": "another"})
        upstream.say(id=1.0, result={"of": "this"})
        assert await asked == {"of": "this"}
    assert not is_answer({"id": other}, 1)
    assert is_answer({"id": 1.0}, 1)
    assert not is_answer({"id": None}, None)


async def test_who_tells_of_its_progress_has_more_time() -> None:
    """For any request, also a list: the timeout restarts with each sign of progress."""
    upstream, timeout = Near(), 1.0
    async with (
        UpstreamConversation(upstream, timeout=timeout, most=9, on_notification=lambda *_: None) as conversation,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        asked = tasks.create_task(conversation.request("tools/list", {"_meta": {"progressToken": "t"}}))
        call = (await upstream.sent.get())["id"]
        for step in range(4):
            await asyncio.sleep(timeout / 2)
            upstream.say(method="notifications/progress", params={"progressToken": call, "progress": step})
        upstream.say(id=call, result={"tools": []})
        assert await asked == {"tools": []}
