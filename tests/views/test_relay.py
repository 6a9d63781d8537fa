"""The model's calls of a view that polls for them: taken once, answered once, and reported if no poll comes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.bounds import report_exceeded
from gateway.errors import Refusal
from gateway.model import LOCAL, Initiator
from gateway.ports.approvals import Ask
from gateway.views import forward, relay
from gateway.views.relay import PollAnswer, RelayEvent
from tests.views.asking import DONE, OTHER, House, attach_view, housed, result_text, status
from tests.views.pages import until


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Yield one view of the cart that has reported its two tools."""
    async with housed(tmp_path) as made:
        yield made


async def test_a_poll_that_waits_is_given_the_call_and_the_model_the_answer(house: House) -> None:
    """Once the view takes the call it is tainted; the record is the same as over a bridge."""
    polling = asyncio.create_task(house.view.poll())
    await asyncio.sleep(0)
    assert house.initiator() is Initiator.PAGE
    calling = house.call()
    (event,) = (await polling).events
    assert (event.number, event.tool, event.arguments) == (1, "add", {"n": 1})
    assert house.initiator() is Initiator.MODEL
    house.view.answer(event.call)
    assert result_text(await calling) == "done"
    (outcome,) = house.outcomes()
    assert (outcome["kind"], outcome["tool"], outcome["status"], outcome["view"]) == ("tool", "add", 200, house.view.id)


async def test_a_call_that_nobody_took_does_not_taint(house: House) -> None:
    """While it waits, the page's actions are its own."""
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
    """Only the events of pending calls, and of the last cancelled ones, are kept."""
    monkeypatch.setattr(relay, "MOST_CALLS", 3)

    async def news() -> tuple[RelayEvent, ...]:
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
    """The view learns that its host runs calls concurrently, and a page that polls anew is not delayed."""
    older = asyncio.create_task(house.view.poll())
    await asyncio.sleep(0)
    newer = await house.view.poll(0)
    assert (await older, newer) == (PollAnswer((), overtaken=True), PollAnswer(()))


async def test_a_view_that_is_quiet_leaves_the_call_to_be_collected(house: House) -> None:
    """A host that runs one call at a time would wait for ever otherwise; the answer is collected once."""
    running = await house.call()
    assert (running.is_error, status(running)) == (False, "running")
    call = (running.structured_content or {})["call"]
    event = await house.view.next()
    house.view.answer(event.call)
    assert result_text(await house.forwarder.collect(LOCAL, call)) == "done"
    assert house.outcomes()[0]["status"] == 200
    assert (await house.forwarder.collect(LOCAL, call)).is_error


async def test_a_call_with_an_output_schema_is_told_as_an_error_where_to_collect_it(house: House) -> None:
    """Clients reject structured content that does not fit the schema; the collected answer fits it."""
    total = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
    answer = {**DONE, "structuredContent": {"total": 3}}
    house.view.offer("add", outputSchema=total)
    await until(lambda: house.views.tools(LOCAL, None)[0].output_schema == total)
    running = await house.call()
    assert (running.is_error, running.structured_content) == (True, None)
    call = result_text(running).split('"')[3]
    house.view.answer((await house.view.next()).call, answer)
    collected = await house.forwarder.collect(LOCAL, call)
    assert (collected.is_error, collected.structured_content) == (False, {"total": 3})


async def test_collecting_before_the_end_says_that_it_runs(house: House) -> None:
    """Only the caller may collect it."""
    call = ((await house.call()).structured_content or {})["call"]
    assert (await house.forwarder.collect(OTHER, call)).is_error
    assert status(await house.forwarder.collect(LOCAL, call)) == "running"


async def test_a_call_that_waits_for_a_person_says_so(house: House) -> None:
    """A model that collects repeatedly learns that a person is asked."""
    first = await house.call()
    caller = house.views.caller(LOCAL, None, house.view.proof())
    await house.approvals.park(Ask("Remove it?", "DELETE", "/api/1", "digest", "v1"), caller)
    second = await house.forwarder.collect(LOCAL, (first.structured_content or {})["call"])
    assert "The page has not answered yet" in result_text(first)
    assert "waits for a person" in result_text(second)


async def test_collecting_waits_a_while_for_a_quiet_view(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client that collects in a loop would send hundreds of requests a second while a tab is suspended."""
    monkeypatch.setattr(forward, "ASKED_AGAIN", 60.0)
    call = ((await house.call()).structured_content or {})["call"]
    collecting = asyncio.create_task(house.forwarder.collect(LOCAL, call))
    await asyncio.wait({collecting}, timeout=0.05)
    house.view.answer((await house.view.next()).call)
    assert result_text(await collecting) == "done"


async def test_a_cancelled_call_is_cancelled_in_the_page(house: House) -> None:
    """If the page has it; otherwise the page never receives it."""
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
    """The tool that a person or a model agreed to has changed."""
    monkeypatch.setattr(relay, "LIST_PAUSE", 0.0)
    await until(lambda: not house.views.relay_of(LOCAL, None, house.view.proof()).waits())
    calling = house.call()
    await until(lambda: house.views.waits(house.view.id))
    house.view.offer("add", description="Pays for everything.")
    assert "changed or removed" in result_text(await calling)
    assert (await house.view.poll(0)).events == ()


async def test_a_tool_that_was_told_within_a_second_runs(house: House) -> None:
    """A list takes effect once a second, and at once if a call waits for it."""
    view = await attach_view(house.views)
    view.offer("clear")
    view.offer("clear", "add")
    calling = house.call("add", view=view.id)
    view.answer((await view.next()).call)
    assert result_text(await calling) == "done"


async def test_a_tool_that_asks_a_person_does_so_before_the_view_hears_of_it(house: House) -> None:
    """The rules of a tool hold by relay as over the bridge."""
    calling = house.call("cart_clear")
    await until(lambda: len(house.approvals.open()) == 1)
    assert (await house.view.poll(0)).events == ()
    await house.approvals.answer(house.approvals.open()[0].question.id, False, "console")
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
    """The model gets an error it can understand."""
    calling = house.call()
    house.view.answer((await house.view.next()).call, result)
    assert "not the result of a tool" in result_text(await calling)


async def test_answers_to_unknown_calls_are_refused(house: House) -> None:
    """Unknown ids, calls not yet taken, and second answers."""
    with pytest.raises(Refusal):
        house.view.answer("made up")
    calling = house.call()
    event = await house.view.next()
    house.view.answer(event.call)
    with pytest.raises(Refusal):
        house.view.answer(event.call)
    await calling


async def test_lists_take_effect_once_a_second_the_last_one_too(house: House) -> None:
    """A page that changes its list all the time notifies listeners no more often."""
    told: list[int] = []
    stop = house.views.watch(lambda _: told.append(len(house.views.tools(LOCAL, None))))
    for names in (["add"], ["clear", "add"], ["clear"]):
        house.view.offer(*names)
    await until(lambda: bool(told))
    stop()
    assert told == [1]
    assert [tool.page_name for tool in house.views.tools(LOCAL, None)] == ["clear"]


@pytest.mark.bound("results to be collected")
async def test_no_more_than_so_many_calls_are_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is evicted."""
    monkeypatch.setattr(forward, "MOST_KEPT", 1)
    first = ((await house.call()).structured_content or {})["call"]
    await house.call()
    assert "No call" in result_text(await house.forwarder.collect(LOCAL, first))


@pytest.mark.bound("results to be collected")
async def test_no_more_than_so_many_bytes_of_results_are_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results make room for a later one, the oldest first; the last one is kept at any size."""
    monkeypatch.setattr(forward, "KEPT_BYTES", 10_000)
    calling = [house.call() for _ in range(3)]
    await until(lambda: house.views.waits(house.view.id))
    events = (await house.view.poll()).events
    ids = [((await call).structured_content or {})["call"] for call in calling]
    exceeded: list[str] = []
    with report_exceeded(lambda bound, *_: exceeded.append(bound.what)):
        for event in events:
            house.view.answer(event.call, {"content": [{"type": "text", "text": "x" * 9000}]})
        await until(lambda: bool(exceeded))
    collected = [len(result_text(await house.forwarder.collect(LOCAL, id))) for id in ids]
    assert sorted(collected)[1:] == [9000, 9000]
    assert (exceeded, min(collected) < 200) == (["results to be collected"], True)


@pytest.mark.bound("queued model calls of a view")
async def test_no_more_calls_wait_for_a_view_than_so_many(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is refused, and pending ones stay."""
    monkeypatch.setattr(relay, "MOST_CALLS", 2)
    polling = [house.call(), house.call()]
    await until(lambda: house.views.waits(house.view.id))
    assert "2 calls of this view are under way already" in result_text(await house.call())
    first, second = (await house.view.poll()).events
    for event in (first, second):
        house.view.answer(event.call)
    assert [result_text(await call) for call in polling] == ["done", "done"]


@pytest.mark.bound("polls of a view")
async def test_a_view_that_asks_too_often_is_refused(house: House) -> None:
    """By any host, at more than twice the runtime's rate."""
    asked = house.views.relay_of(LOCAL, None, house.view.proof())
    with pytest.raises(Refusal, match="100 times a second"):  # noqa: PT012  # some of them are let through
        for _ in range(2 * relay.ASKING.count):
            asked.spend()
