"""Views that stop polling, come anew, or close: the fate of their calls and tools."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.errors import Refusal
from gateway.model import LOCAL
from gateway.views import relay
from gateway.views.relay import PollAnswer
from tests.views.asking import Asking, House, attach_view, housed, result_text
from tests.views.pages import until


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Yield one view of the cart that has reported its two tools."""
    async with housed(tmp_path) as made:
        yield made


async def test_a_call_that_is_not_asked_for_has_not_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a suspended tab: the model learns that, and the tab does not run the call when it wakes."""
    monkeypatch.setattr(relay, "UNTAKEN", 0.05)
    result = await house.call()
    assert "has not run: its view has not polled" in result_text(result)
    assert (await house.view.poll(0)).events == ()


async def test_the_tools_of_a_silent_view_are_not_offered_until_it_asks_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not report them again."""
    monkeypatch.setattr(relay, "LOST", 0.05)
    await house.view.poll(0)
    await until(lambda: house.views.tools(LOCAL, None) == ())
    assert "No open view offers" in result_text(await house.call())
    polling = asyncio.create_task(house.view.poll())
    await until(lambda: len(house.views.tools(LOCAL, None)) == 2)
    await house.view.poll(0)
    await polling


async def test_a_hidden_tab_may_be_silent_for_longer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Browsers run it once a minute: its tools stay, and calls wait for it; a visible tab must poll sooner."""
    monkeypatch.setattr(relay, "LOST", 0.0)
    await house.view.poll(0, hidden=True)
    await asyncio.sleep(0)
    calling = house.call()
    await until(lambda: house.views.waits(house.view.id))
    (event,) = (await house.view.poll(0, hidden=True)).events
    house.view.answer(event.call)
    assert result_text(await calling) == "done"
    await house.view.poll(0)
    await until(lambda: house.views.tools(LOCAL, None) == ())


async def test_a_call_fails_when_its_view_is_lost(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not taken, so it has not run; the model gets the remedy."""
    monkeypatch.setattr(relay, "LOST", 1.0)
    await house.view.poll(0)
    result = await house.call()
    assert result.is_error
    assert "has not run: its view has not polled for calls" in result_text(result)
    assert "Ask the person to bring the app to the front" in result_text(result)


async def test_a_lost_view_does_not_stand_in_the_way_of_another(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two polling views are ambiguous; one that fell silent does not count."""
    second = await attach_view(house.views)
    second.offer("add")
    await second.poll(0)
    assert "Several views" in result_text(await house.call())
    monkeypatch.setattr(relay, "LOST", 0.05)
    await house.view.poll(0)
    monkeypatch.undo()
    await until(lambda: len(house.views.tools(LOCAL, None)) == 1)
    calling = house.call()
    second.answer((await second.next()).call)
    assert result_text(await calling) == "done"


async def test_a_view_that_fell_silent_makes_way_soon_for_one_that_comes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tab may have been closed without notice during a poll; an open one polls again."""
    monkeypatch.setattr(relay, "DOUBTED", 0.2)
    silent, there = asyncio.create_task(house.view.poll()), await attach_view(house.views)
    there.offer("add")
    polling = asyncio.create_task(there.poll())
    await asyncio.sleep(0)
    come = await attach_view(house.views)
    assert (await silent, await polling) == (PollAnswer(()), PollAnswer(()))
    polling = asyncio.create_task(there.poll())
    come.offer("add")
    asking = asyncio.create_task(come.poll())
    assert "Several views" in result_text(await house.call())
    await until(lambda: not house.views.find(house.view.id, LOCAL).tools)  # type: ignore[union-attr]  # it is open
    await asyncio.sleep(0.3)
    assert len([view for view in house.views.live(LOCAL) if view.tools]) == 2
    house.views.leave(LOCAL, None, there.proof())
    await polling
    calling = house.call()
    (event,) = (await asking).events
    come.answer(event.call)
    assert result_text(await calling) == "done"


async def test_a_view_that_may_be_silent_is_there_also_where_another_one_comes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tab is hidden, or it runs a call."""
    monkeypatch.setattr(relay, "DOUBTED", 0.0)
    hidden = await attach_view(house.views)
    hidden.offer("add")
    await hidden.poll(0, hidden=True)
    calling = house.call(view=house.view.id)
    event = await house.view.next()
    await attach_view(house.views)
    await asyncio.sleep(0.1)
    assert len([view for view in house.views.live(LOCAL) if view.tools]) == 2
    house.view.answer(event.call)
    assert result_text(await calling) == "done"


async def test_a_reload_ends_what_runs_and_what_waits(house: House) -> None:
    """A call that was taken may have run, one that was not has not; the old page's key is void."""
    launch = (await house.views.open(LOCAL, "cart")).launch.reveal()
    first = await house.views.attach(LOCAL, None, launch, {})
    old = Asking(house.views, first.view, base64.urlsafe_b64decode(first.key + "="))
    old.offer("add")
    await old.poll(0)
    taken = house.call(view=old.id)
    await old.next()
    waiting = house.call(view=old.id)
    await until(lambda: house.views.waits(old.id))
    await house.views.attach(LOCAL, None, launch, {})
    assert "may have run" in result_text(await taken)
    assert "has not run" in result_text(await waiting)
    with pytest.raises(Refusal):
        await old.poll(0)


async def test_a_view_that_says_goodbye_is_gone(house: House) -> None:
    """Its pending poll ends too."""
    polling = asyncio.create_task(house.view.poll())
    await asyncio.sleep(0)
    house.views.leave(LOCAL, None, house.view.proof())
    assert (await polling).overtaken
    assert "Open its app" in result_text(await house.call())


async def test_a_view_whose_page_goes_stands_in_nobodys_way(house: House) -> None:
    """Its calls end, its tools are removed, and another view needs no handle; if it stays, it gets them back."""
    second = await attach_view(house.views)
    taken = house.call(view=house.view.id)
    await house.view.next()
    polling = asyncio.create_task(house.view.poll())
    await asyncio.sleep(0)
    house.views.leave(LOCAL, None, house.view.proof(), for_good=False)
    assert (await polling).overtaken
    assert "may have run" in result_text(await taken)
    assert "Open its app" in result_text(await house.call())
    second.offer("add")
    await second.poll(0)
    calling = house.call()
    second.answer((await second.next()).call)
    assert result_text(await calling) == "done"
    await house.view.poll(0)
    await until(lambda: bool(house.views.find(house.view.id, LOCAL).tools))  # type: ignore[union-attr]  # it is open
    calling = house.call(view=house.view.id)
    house.view.answer((await house.view.next()).call)
    assert result_text(await calling) == "done"
