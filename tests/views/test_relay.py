"""The model's calls of a view that asks for them itself: taken once, answered once, and clear when nobody asks."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent, Tool

from gateway.errors import Refusal
from gateway.exchange.approve import Ask
from gateway.model import LOCAL, Initiator, Principal
from gateway.policy import parse_policy
from gateway.views import later, relay
from gateway.views.registry import Views
from gateway.views.relay import Event, Handed
from tests.views.pages import until
from tests.views.rooms import Rooms, rooms

POLICY = parse_policy(
    """
version: 1
backends: {shop: {url: "http://shop.test"}}
routes: [{path: /api, methods: [GET]}]
tools:
  add: {}
  clear: {confirm: {when: always, message: "Clear?"}}
""",
    "policy.yaml",
)
OTHER = Principal("issuer", "client", "another")
DONE = {"content": [{"type": "text", "text": "done"}]}


@dataclass
class Asking:
    """A view that asks for its calls, by hand."""

    views: Views
    id: str
    key: bytes
    after: int = 0
    count: int = 0

    def proof(self) -> str:
        """The next proof."""
        self.count += 1
        signed = hmac.digest(self.key, str(self.count).encode(), hashlib.sha256)
        return f"{self.id}.{self.count}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"

    async def poll(self, wait: float = 5.0, *, hidden: bool = False) -> Handed:
        """Ask, and remember what came."""
        handed = await self.views.relayed(LOCAL, None, self.proof()).poll(self.after, wait, hidden=hidden)
        self.after = max([self.after, *(event.number for event in handed.events)])
        return handed

    async def next(self) -> Event:
        """The next event."""
        (event,) = (await self.poll()).events
        return event

    def offer(self, *names: str, **definition: Any) -> None:
        """Tell the page's tools."""
        tools = [Tool.model_validate({"name": name, "inputSchema": {"type": "object"}, **definition}) for name in names]
        self.views.relayed(LOCAL, None, self.proof()).list(tools)

    def answer(self, call: str, result: dict[str, Any] | None = None) -> None:
        """Answer a call."""
        self.views.relayed(LOCAL, None, self.proof()).answer(call, result or DONE)


@dataclass(slots=True, kw_only=True)
class House(Rooms):
    """A forwarder, its rooms, and one view."""

    view: Asking
    tasks: list[asyncio.Task[CallToolResult]] = field(default_factory=list)

    def call(self, name: str = "cart_add", **options: Any) -> asyncio.Task[CallToolResult]:
        """The model begins a call."""
        task = asyncio.create_task(self.forwarder.call(LOCAL, name, {"n": 1}, **{"app": None, **options}))
        self.tasks.append(task)
        return task

    def initiator(self) -> Initiator:
        """Who causes what the view does now."""
        return self.views.caller(LOCAL, None, self.view.proof()).initiator


def attached(views: Views) -> Asking:
    """A new proven view of the cart."""
    launch = views.open(LOCAL, "cart").launch.reveal()
    answer = views.attach(LOCAL, None, launch, {})
    return Asking(views, answer.view, base64.urlsafe_b64decode(answer.key + "="))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """One view of the cart that has told its two tools."""
    async with rooms(tmp_path, POLICY) as made:
        view = attached(made.views)
        view.offer("add", "clear", "unknown")
        await until(lambda: len(made.views.tools(LOCAL, None)) == 2)
        house = House(made.forwarder, made.views, made.approvals, made.journal, view=view)
        yield house
        for task in house.tasks:
            task.cancel()
        await asyncio.gather(*house.tasks, return_exceptions=True)


def said(result: CallToolResult) -> str:
    """The text of a result."""
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def status(result: CallToolResult) -> Any:
    """What the structured content says of how it stands."""
    return (result.structured_content or {}).get("status")


async def test_a_poll_that_waits_is_given_the_call_and_the_model_the_answer(house: House) -> None:
    """From the moment at which the view takes the call it is the model's; the record says the same as over a bridge."""
    polling = asyncio.create_task(house.view.poll())
    await asyncio.sleep(0)
    assert house.initiator() is Initiator.PAGE
    calling = house.call()
    (event,) = (await polling).events
    assert (event.number, event.tool, event.arguments) == (1, "add", {"n": 1})
    assert house.initiator() is Initiator.MODEL
    house.view.answer(event.call)
    assert said(await calling) == "done"
    (outcome,) = house.outcomes()
    assert (outcome["kind"], outcome["tool"], outcome["status"], outcome["view"]) == ("tool", "add", 200, house.view.id)


async def test_a_call_that_nobody_took_does_not_taint(house: House) -> None:
    """It waits; what the page does meanwhile is its own."""
    house.call()
    await until(lambda: house.views.waits(house.view.id))
    assert house.initiator() is Initiator.PAGE


async def test_what_was_told_is_told_again_until_the_view_says_that_it_arrived(house: House) -> None:
    """A host may lose the answer to a poll; the number of the event keeps the view from running it twice."""
    calling = house.call()
    first = await house.view.next()
    house.view.after = 0
    again = await house.view.next()
    assert first == again
    house.view.answer(first.call)
    await calling
    assert (await house.view.poll(0)).events == ()


async def test_little_is_kept_for_a_view_that_never_says_what_arrived(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told again of the calls that go on, and of the last that were cancelled; the others are over."""
    monkeypatch.setattr(relay, "MOST_CALLS", 3)

    async def news() -> tuple[Event, ...]:
        await until(lambda: house.views.waits(house.view.id))
        house.view.after = 0
        return (await house.view.poll(0)).events

    for _ in range(5):
        calling = house.call()
        (event,) = await news()
        house.view.answer(event.call)
        await calling
    for _ in range(5):
        calling = house.call()
        assert (await news())[-1].tool == "add"
        calling.cancel()
        assert (await news())[-1].tool is None
    house.call()
    assert [(event.number, event.tool) for event in await news()] == [(11, None), (13, None), (15, None), (16, "add")]


async def test_the_newest_poll_ends_the_one_before(house: House) -> None:
    """So a view learns that its host runs calls side by side, and one that changed its mind is not held up."""
    older = asyncio.create_task(house.view.poll())
    await asyncio.sleep(0)
    newer = await house.view.poll(0)
    assert (await older, newer) == (Handed((), overtaken=True), Handed(()))


async def test_a_view_that_is_quiet_leaves_the_call_to_be_collected(house: House) -> None:
    """A host that runs one call at a time would wait for ever otherwise; the answer is collected once."""
    running = await house.call()
    assert (running.is_error, status(running)) == (False, "running")
    call = (running.structured_content or {})["call"]
    event = await house.view.next()
    house.view.answer(event.call)
    assert said(await house.forwarder.collect(LOCAL, call)) == "done"
    assert house.outcomes()[0]["status"] == 200
    assert (await house.forwarder.collect(LOCAL, call)).is_error


async def test_collecting_before_the_end_says_that_it_runs(house: House) -> None:
    """And only who made the call may ask."""
    call = ((await house.call()).structured_content or {})["call"]
    assert (await house.forwarder.collect(OTHER, call)).is_error
    assert status(await house.forwarder.collect(LOCAL, call)) == "running"


async def test_a_call_that_waits_for_a_person_says_so(house: House) -> None:
    """A model that collects again and again can tell whom it waits for."""
    first = await house.call()
    caller = house.views.caller(LOCAL, None, house.view.proof())
    house.approvals.park(Ask("Remove it?", "DELETE", "/api/1", "digest", "v1"), caller)
    second = await house.forwarder.collect(LOCAL, (first.structured_content or {})["call"])
    assert "The page has not answered yet" in said(first)
    assert "waits for a person" in said(second)


async def test_collecting_waits_a_while_for_a_quiet_view(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who collects again and again would else ask some hundred times a second while a tab sleeps."""
    monkeypatch.setattr(later, "ASKED_AGAIN", 60.0)
    call = ((await house.call()).structured_content or {})["call"]
    collecting = asyncio.create_task(house.forwarder.collect(LOCAL, call))
    await asyncio.wait({collecting}, timeout=0.05)
    house.view.answer((await house.view.next()).call)
    assert said(await collecting) == "done"


async def test_a_call_that_is_not_asked_for_has_not_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sleeping tab: the model is told so, and the tab does not run it when it wakes."""
    monkeypatch.setattr(relay, "UNTAKEN", 0.05)
    result = await house.call()
    assert "has not run: its view did not ask" in said(result)
    assert (await house.view.poll(0)).events == ()


async def test_the_tools_of_a_silent_view_are_not_offered_until_it_asks_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not tell them again."""
    monkeypatch.setattr(relay, "LOST", 0.05)
    await house.view.poll(0)
    await until(lambda: house.views.tools(LOCAL, None) == ())
    assert "No open view offers" in said(await house.call())
    polling = asyncio.create_task(house.view.poll())
    await until(lambda: len(house.views.tools(LOCAL, None)) == 2)
    await house.view.poll(0)
    await polling


async def test_a_hidden_tab_may_be_silent_for_longer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Browsers let it act once a minute: its tools stay, and a call waits for it; shown again it must speak sooner."""
    monkeypatch.setattr(relay, "LOST", 0.0)
    await house.view.poll(0, hidden=True)
    await asyncio.sleep(0)
    calling = house.call()
    await until(lambda: house.views.waits(house.view.id))
    (event,) = (await house.view.poll(0, hidden=True)).events
    house.view.answer(event.call)
    assert said(await calling) == "done"
    await house.view.poll(0)
    await until(lambda: house.views.tools(LOCAL, None) == ())


async def test_a_call_fails_when_its_view_is_lost(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not taken, so it has not run; the model is told what to do."""
    monkeypatch.setattr(relay, "LOST", 1.0)
    await house.view.poll(0)
    result = await house.call()
    assert result.is_error
    assert "has not run: its view did not ask for calls" in said(result)
    assert "Ask the person to bring the app to the front" in said(result)


async def test_a_lost_view_does_not_stand_in_the_way_of_another(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two views that ask must be told apart; one that fell silent need not."""
    second = attached(house.views)
    second.offer("add")
    await second.poll(0)
    assert "Several views" in said(await house.call())
    monkeypatch.setattr(relay, "LOST", 0.05)
    await house.view.poll(0)
    monkeypatch.undo()
    await until(lambda: len(house.views.tools(LOCAL, None)) == 1)
    calling = house.call()
    second.answer((await second.next()).call)
    assert said(await calling) == "done"


async def test_a_view_that_fell_silent_makes_way_soon_for_one_that_comes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tab may have been closed without a word, while its poll waits; one that is there asks anew."""
    monkeypatch.setattr(relay, "DOUBTED", 0.2)
    silent, there = asyncio.create_task(house.view.poll()), attached(house.views)
    there.offer("add")
    polling = asyncio.create_task(there.poll())
    await asyncio.sleep(0)
    come = attached(house.views)
    assert (await silent, await polling) == (Handed(()), Handed(()))
    polling = asyncio.create_task(there.poll())
    come.offer("add")
    asking = asyncio.create_task(come.poll())
    assert "Several views" in said(await house.call())
    await until(lambda: not house.views.find(house.view.id, LOCAL).tools)  # type: ignore[union-attr]  # it is open
    await asyncio.sleep(0.3)
    assert len([view for view in house.views.live(LOCAL) if view.tools]) == 2
    house.views.left(LOCAL, None, there.proof())
    await polling
    calling = house.call()
    (event,) = (await asking).events
    come.answer(event.call)
    assert said(await calling) == "done"


async def test_a_view_that_may_be_silent_is_there_also_where_another_one_comes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tab is hidden, or it runs a call."""
    monkeypatch.setattr(relay, "DOUBTED", 0.0)
    hidden = attached(house.views)
    hidden.offer("add")
    await hidden.poll(0, hidden=True)
    calling = house.call(view=house.view.id)
    event = await house.view.next()
    attached(house.views)
    await asyncio.sleep(0.1)
    assert len([view for view in house.views.live(LOCAL) if view.tools]) == 2
    house.view.answer(event.call)
    assert said(await calling) == "done"


async def test_a_reload_ends_what_runs_and_what_waits(house: House) -> None:
    """What was taken may have run, what was not has not; the old page's key is void."""
    launch = house.views.open(LOCAL, "cart").launch.reveal()
    first = house.views.attach(LOCAL, None, launch, {})
    old = Asking(house.views, first.view, base64.urlsafe_b64decode(first.key + "="))
    old.offer("add")
    await old.poll(0)
    taken = house.call(view=old.id)
    await old.next()
    waiting = house.call(view=old.id)
    await until(lambda: house.views.waits(old.id))
    house.views.attach(LOCAL, None, launch, {})
    assert "may have run" in said(await taken)
    assert "has not run" in said(await waiting)
    with pytest.raises(Refusal):
        await old.poll(0)


async def test_a_view_that_says_goodbye_is_gone(house: House) -> None:
    """Its waiting poll ends too."""
    polling = asyncio.create_task(house.view.poll())
    await asyncio.sleep(0)
    house.views.left(LOCAL, None, house.view.proof())
    assert (await polling).overtaken
    assert "Open its app" in said(await house.call())


async def test_a_view_whose_page_goes_stands_in_nobodys_way(house: House) -> None:
    """What runs and what waits ends, its tools go, another view needs no handle; if it stays, it has them again."""
    second = attached(house.views)
    taken = house.call(view=house.view.id)
    await house.view.next()
    polling = asyncio.create_task(house.view.poll())
    await asyncio.sleep(0)
    house.views.left(LOCAL, None, house.view.proof(), for_good=False)
    assert (await polling).overtaken
    assert "may have run" in said(await taken)
    assert "Open its app" in said(await house.call())
    second.offer("add")
    await second.poll(0)
    calling = house.call()
    second.answer((await second.next()).call)
    assert said(await calling) == "done"
    await house.view.poll(0)
    await until(lambda: bool(house.views.find(house.view.id, LOCAL).tools))  # type: ignore[union-attr]  # it is open
    calling = house.call(view=house.view.id)
    house.view.answer((await house.view.next()).call)
    assert said(await calling) == "done"


async def test_a_cancelled_call_is_cancelled_in_the_page(house: House) -> None:
    """Where the page has it; before that it never hears of it."""
    calling = house.call()
    event = await house.view.next()
    calling.cancel()
    told = await house.view.next()
    assert (told.call, told.tool) == (event.call, None)
    with pytest.raises(Refusal):
        house.view.answer(event.call)
    unheard = house.call()
    await until(lambda: house.views.waits(house.view.id))
    unheard.cancel()
    await until(lambda: len(house.outcomes()) == 2)
    assert (await house.view.poll(0)).events == ()
    assert [outcome["status"] for outcome in house.outcomes()] == [499, 499]


async def test_a_tool_that_changed_before_it_was_taken_does_not_run(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person or a model agreed to is no longer what it was."""
    monkeypatch.setattr(relay, "LIST_PAUSE", 0.0)
    await until(lambda: not house.views.relayed(LOCAL, None, house.view.proof()).waits())
    calling = house.call()
    await until(lambda: house.views.waits(house.view.id))
    house.view.offer("add", description="Pays for everything.")
    assert "changed or removed" in said(await calling)
    assert (await house.view.poll(0)).events == ()


async def test_a_tool_that_was_told_within_a_second_runs(house: House) -> None:
    """Its list has its time, and at once where a call waits for it."""
    view = attached(house.views)
    view.offer("clear")
    view.offer("clear", "add")
    calling = house.call("add", view=view.id)
    view.answer((await view.next()).call)
    assert said(await calling) == "done"


async def test_a_tool_that_asks_a_person_does_so_before_the_view_hears_of_it(house: House) -> None:
    """The rules of a tool hold by relay as over the bridge."""
    calling = house.call("cart_clear")
    await until(lambda: len(house.approvals.open_questions()) == 1)
    assert (await house.view.poll(0)).events == ()
    house.approvals.answer(house.approvals.open_questions()[0].id, False, "console")
    assert (await calling).is_error


@pytest.mark.parametrize(
    "result",
    [
        {"content": 7},
        {"isError": True},
        {"content": [{"type": "text"}]},
        {"content": [], "structuredContent": []},
        {"content": [], "structuredContent": json.loads('{"a":' * 64 + "{}" + "}" * 64)},
    ],
)
async def test_an_answer_that_is_none_is_an_error(house: House, result: dict[str, Any]) -> None:
    """Never the model's problem to understand."""
    calling = house.call()
    house.view.answer((await house.view.next()).call, result)
    assert "no result of a tool" in said(await calling)


async def test_answers_to_unknown_calls_are_refused(house: House) -> None:
    """Made up, not yet told, and given twice."""
    with pytest.raises(Refusal):
        house.view.answer("made up")
    calling = house.call()
    event = await house.view.next()
    house.view.answer(event.call)
    with pytest.raises(Refusal):
        house.view.answer(event.call)
    await calling


async def test_lists_take_effect_once_a_second_the_last_one_too(house: House) -> None:
    """A page that changes its list all the time bothers nobody more often."""
    told: list[int] = []
    stop = house.views.watch(lambda _: told.append(len(house.views.tools(LOCAL, None))))
    for names in (["add"], ["clear", "add"], ["clear"]):
        house.view.offer(*names)
    await until(lambda: bool(told))
    stop()
    assert told == [1]
    assert [tool.page_name for tool in house.views.tools(LOCAL, None)] == ["clear"]


async def test_no_more_than_so_many_calls_are_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes."""
    monkeypatch.setattr(later, "MOST_KEPT", 1)
    first = ((await house.call()).structured_content or {})["call"]
    await house.call()
    assert "No call" in said(await house.forwarder.collect(LOCAL, first))


async def test_no_more_calls_wait_for_a_view_than_so_many(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is refused, and those that wait go on."""
    monkeypatch.setattr(relay, "MOST_CALLS", 2)
    polling = [house.call(), house.call()]
    await until(lambda: house.views.waits(house.view.id))
    assert "2 calls of this view are under way already" in said(await house.call())
    first, second = (await house.view.poll()).events
    for event in (first, second):
        house.view.answer(event.call)
    assert [said(await call) for call in polling] == ["done", "done"]


async def test_a_view_that_asks_too_often_is_refused(house: House) -> None:
    """However its host carries that: more than twice what the runtime does."""
    asked = house.views.relayed(LOCAL, None, house.view.proof())
    with pytest.raises(Refusal, match="100 times a second"):  # noqa: PT012  # some of them are let through
        for _ in range(2 * relay.ASKING.count):
            asked.spend()
