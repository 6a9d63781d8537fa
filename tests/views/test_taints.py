"""Only a person's gesture ends the model's taint: not closing, attaching, waiting, eviction or a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client

from gateway.errors import Refusal
from gateway.model import LOCAL, Door, Initiator
from gateway.ports.views import StoredTaint
from gateway.stores.sql import Database
from gateway.stores.view_state import DatabaseTaints
from gateway.views import initiator, memory
from gateway.views.initiator import GRACE, MOVED, Taint
from gateway.views.memory import LIFE
from gateway.views.registry import IDLE, QUIET, Views
from gateway.views.view import AppRules, AttachResult, View
from tests.approvals.page import show_cart
from tests.clock import Clock
from tests.views.memory import views_of
from tests.views.pages import Page, connect
from tests.views.rules import EVE, POLICY, proof
from tests.whole.test_main_job import UI, answer_next, person
from tests.world import World

RULES = {
    "cart": AppRules("Cart", POLICY, trust_view_gestures=True),
    "notes": AppRules("Notes", POLICY, trust_view_gestures=True),
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DatabaseTaints]:
    """The store that survives a restart."""
    async with Database(f"sqlite:///{tmp_path / 'gateway.db'}") as database:
        yield DatabaseTaints(database)


@pytest.fixture
async def views(clock: Clock, store: DatabaseTaints) -> AsyncIterator[Views]:
    """Views, none open."""
    async with views_of(RULES, clock, each=4, taints=store) as opened:
        yield opened


class Tab:
    """A page that a host shows, as a client of the gateway."""

    def __init__(self, views: Views, launch: str, attached: AttachResult, app: str) -> None:
        self.views = views
        self.app = app
        self.launch = launch
        self.attached = attached
        self.count = 0

    def proof(self) -> str:
        """Return the next proof."""
        self.count += 1
        return proof(self.attached, self.count)

    @property
    def view(self) -> View:
        """Return its view."""
        found = self.views.find(self.attached.view, LOCAL)
        assert found is not None
        return found

    def asks(self, gesture: float | None = None, *, model: bool = False) -> Initiator:
        """Return the initiator of a request of the page."""
        return self.views.caller(LOCAL, self.app, self.proof(), gesture=gesture, reported_model=model).initiator

    def run(self, id: str = "call-1") -> None:
        """Run a whole call of the model."""
        self.views.taints.start_call(self.view, id)
        self.views.taints.end_call(self.view, id)

    def close(self) -> None:
        """Report that the page is being closed."""
        self.views.leave(LOCAL, self.app, self.proof())


async def tab_of(views: Views, launch: str | None = None, *, app: str = "cart") -> Tab:
    """Open a page, with a new launch value or again with `launch`."""
    launch = (await views.open(LOCAL, app)).launch.reveal() if launch is None else launch
    return Tab(views, launch, await views.attach(LOCAL, app, launch, {}), app)


def bridged_initiator(views: Views) -> Initiator:
    """Return the initiator of a new view in a host page of the gateway."""
    return views.caller_of(views.open_bridged(LOCAL, "cart"), Door.BRIDGE).initiator


@pytest.mark.parametrize("seconds", [0.0, 61.5, LIFE - 1])
async def test_closing_and_attaching_with_the_same_launch_value(views: Views, clock: Clock, seconds: float) -> None:
    """After any time."""
    tab = await tab_of(views)
    assert tab.asks() is Initiator.PAGE
    tab.run()
    tab.close()
    clock.now += seconds
    assert (await tab_of(views, tab.launch)).asks() is Initiator.MODEL


async def reattach(views: Views, clock: Clock, tab: Tab) -> Initiator:
    """With the same launch value, which revokes the former view."""
    return (await tab_of(views, tab.launch)).asks()


async def another_launch(views: Views, clock: Clock, tab: Tab) -> Initiator:
    """With a launch value that the host received later."""
    tab.close()
    return (await tab_of(views)).asks()


async def opened_again(views: Views, clock: Clock, tab: Tab) -> Initiator:
    """In a second tab, beside the first."""
    return (await tab_of(views)).asks()


async def in_our_host(views: Views, clock: Clock, tab: Tab) -> Initiator:
    """On the console, after it was closed elsewhere."""
    tab.close()
    return bridged_initiator(views)


async def idle(views: Views, clock: Clock, tab: Tab) -> Initiator:
    """After so long a silence that it counted as closed."""
    clock.now += IDLE + 1
    assert views.of(LOCAL) == []
    return (await tab_of(views)).asks()


async def crowded_out(views: Views, clock: Clock, tab: Tab) -> Initiator:
    """After it was evicted by others."""
    clock.now += QUIET + 1
    for _ in range(4):
        await tab_of(views, app="notes")
    assert views.find(tab.attached.view, LOCAL) is None
    clock.now += QUIET + 1
    return (await tab_of(views)).asks()


async def by_way_of_an_unproven_view(views: Views, clock: Clock, tab: Tab) -> Initiator:
    """From a page without launch value, which then receives one."""
    tab.close()
    unproven = await views.attach(LOCAL, "cart", None, {})
    launch = (await views.open(LOCAL, "cart")).launch.reveal()
    again = await views.attach(LOCAL, "cart", launch, {}, unproven.view)
    return views.caller(LOCAL, "cart", proof(again, 1)).initiator


async def lost_in_our_host(views: Views, clock: Clock, tab: Tab) -> Initiator:
    """In the view that is opened while the disconnected one waits for its resumption."""
    view = views.open_bridged(LOCAL, "cart")
    views.caller_of(view, Door.BRIDGE, reported_model=True)
    views.disconnect(view)
    return bridged_initiator(views)


Way = Callable[[Views, Clock, Tab], Awaitable[Initiator]]
WAYS: list[Way] = [
    reattach, another_launch, opened_again, in_our_host, idle, crowded_out, by_way_of_an_unproven_view,
    lost_in_our_host,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_no_way_to_another_view_ends_it(views: Views, clock: Clock, way: Way) -> None:
    """For this app only; other apps and other persons are not affected."""
    tab = await tab_of(views)
    tab.run()
    assert await way(views, clock, tab) is Initiator.MODEL
    clock.now += QUIET + 1
    assert (await tab_of(views, app="notes")).asks() is Initiator.PAGE
    eve = await views.attach(EVE, "cart", (await views.open(EVE, "cart")).launch.reveal(), {})
    assert views.caller(EVE, "cart", proof(eve, 1)).initiator is Initiator.PAGE


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_nor_does_a_restart_after_it(clock: Clock, store: DatabaseTaints, way: Way) -> None:
    """After a graceful stop."""
    async with views_of(RULES, clock, each=4, taints=store) as views:
        tab = await tab_of(views)
        tab.run()
        assert await way(views, clock, tab) is Initiator.MODEL
    async with views_of(RULES, Clock(), each=4, taints=store) as views:
        assert (await tab_of(views)).asks() is Initiator.MODEL
        assert bridged_initiator(views) is Initiator.MODEL
        with pytest.raises(Refusal, match="not known here"):
            await tab_of(views, tab.launch)


async def test_a_gateway_that_is_killed_forgets_nothing(clock: Clock, store: DatabaseTaints) -> None:
    """The taint is in the database before the model's call goes out."""
    killed = views_of(RULES, clock, taints=store)
    async with asyncio.TaskGroup() as tasks:
        killed._sessions = tasks
        view = killed.open_bridged(LOCAL, "cart")
        await killed.taints.begin_call(view, "call-1")
    async with views_of(RULES, clock, taints=store) as views:
        caller = views.caller_of(views.open_bridged(LOCAL, "cart"), Door.BRIDGE)
        assert (caller.initiator, caller.evidence, caller.cause) == (Initiator.MODEL, "model-call", "call-1")


async def test_a_gesture_ends_it_for_the_views_that_come_then(clock: Clock, store: DatabaseTaints) -> None:
    """Also for those after a restart; a gesture within the grace time does not."""
    async with views_of(RULES, clock, taints=store) as views:
        tab = await tab_of(views)
        tab.run()
        tab.close()
        tab = await tab_of(views, tab.launch)
        clock.now += GRACE
        assert tab.asks(gesture=0.5) is Initiator.MODEL
        clock.now += GRACE
        assert tab.asks(gesture=0.5) is Initiator.PERSON
        assert (await tab_of(views)).asks() is Initiator.PAGE
    async with views_of(RULES, clock, taints=store) as views:
        assert (await tab_of(views)).asks() is Initiator.PAGE


async def test_processes_know_of_each_others_calls(clock: Clock, store: DatabaseTaints) -> None:
    """A page that opens at another process is as tainted as one that opens beside; a person's gesture there ends it."""
    async with (
        views_of(RULES, clock, taints=store, shared=True) as here,
        views_of(RULES, clock, taints=store, shared=True) as there,
    ):
        tab = await tab_of(here)
        assert (await tab_of(there)).asks() is Initiator.PAGE
        await here.taints.begin_call(tab.view, "call-1")
        tab.run()
        other = await tab_of(there)
        assert other.asks() is Initiator.MODEL
        clock.now += GRACE + 1
        assert other.asks(gesture=0.0) is Initiator.PERSON
        await there.taints.taints.flush()
        tab.close()
        assert (await tab_of(here)).asks() is Initiator.PAGE


async def test_a_gesture_at_another_process_does_not_end_a_later_call(clock: Clock, store: DatabaseTaints) -> None:
    """Its taint is stored again, also if an earlier one was stored; then the process is killed."""
    async with (
        views_of(RULES, clock, taints=store, shared=True) as killed,
        views_of(RULES, clock, taints=store, shared=True) as there,
    ):
        tab = await tab_of(killed)
        await killed.taints.begin_call(tab.view, "call-1")
        tab.run("call-1")
        other = await tab_of(there)
        await killed.taints.begin_call(tab.view, "call-2")
        clock.now += GRACE + 1
        assert other.asks(gesture=0.0) is Initiator.PERSON
        await there.taints.taints.flush()
        assert await store.find((LOCAL.id, "cart")) == StoredTaint("model-call", "call-2")
        async with views_of(RULES, clock, taints=store, shared=True) as again:
            assert (await tab_of(again)).asks() is Initiator.MODEL


async def test_without_the_database_a_view_of_several_processes_is_tainted(tmp_path: Path, clock: Clock) -> None:
    """Nobody knows whether a model has called it; and no call enters a page unknown to the others."""
    database = Database(f"sqlite:///{tmp_path / 'gateway.db'}")
    async with database, views_of(RULES, clock, taints=DatabaseTaints(database), shared=True) as views:
        tab = await tab_of(views)
        engine, database._engine = database._engine, None
        assert (await tab_of(views)).asks() is Initiator.MODEL
        with pytest.raises(Refusal, match="state-unavailable"):
            await views.taints.begin_call(tab.view, "call-1")
        views.taints.end_call(tab.view, "call-1")
        database._engine = engine


async def test_a_taint_that_is_stored_while_a_page_opens_is_kept(
    clock: Clock, store: DatabaseTaints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for one that a person has ended at another process, though it is read before it is there."""
    key = (LOCAL.id, "cart")
    async with views_of(RULES, clock, taints=store, shared=True) as views:
        taints, find = views.taints.taints, store.find
        writing: list[asyncio.Task[bool]] = []

        async def find_before_it_is_stored(key: tuple[str, str]) -> StoredTaint | None:
            stored = await find(key)
            writing.append(asyncio.create_task(taints.flush()))
            await asyncio.wait(writing, timeout=0.2)
            return stored

        monkeypatch.setattr(store, "find", find_before_it_is_stored)
        taints.leave(key, Taint(tainted=MOVED, ended_at=clock()))
        await taints.learn(key)
        await asyncio.gather(*writing)
        assert taints.before(key) is not None


async def test_a_call_that_never_began_leaves_nothing(clock: Clock, store: DatabaseTaints) -> None:
    """Its taint is removed from the database."""
    async with views_of(RULES, clock, taints=store) as views:
        view = (await tab_of(views)).view
        await views.taints.begin_call(view, "call-1")
        await views.taints.taints.flush()
        assert (LOCAL.id, "cart") in await store.all(9)
        views.taints.end_call(view, "call-1")
        await views.taints.taints.flush()
        assert await store.all(9) == {}


async def test_a_gesture_in_one_tab_ends_nothing_in_another(views: Views, clock: Clock) -> None:
    """A gesture counts for its own page, after that page's calls; a page closed since then is another one."""
    first, second = await tab_of(views), await tab_of(views)
    views.taints.start_call(first.view, "call-1")
    assert (first.asks(), second.asks()) == (Initiator.MODEL, Initiator.MODEL)
    third = await tab_of(views)
    clock.now += GRACE + 1
    assert [tab.asks(gesture=0.0) for tab in (second, third)] == [Initiator.MODEL] * 2  # it still runs
    views.taints.end_call(first.view, "call-1")
    clock.now += GRACE + 1
    assert [tab.asks(gesture=0.0) for tab in (second, third)] == [Initiator.PERSON] * 2
    assert first.asks() is Initiator.MODEL
    first.close()
    assert second.asks(gesture=0.0) is Initiator.PERSON
    assert (await tab_of(views)).asks() is Initiator.MODEL


async def test_a_page_in_our_host_does_not_answer_for_one_that_loads(views: Views, clock: Clock) -> None:
    """A tab that was open before is independent of the one that was closed."""
    beside, tainted = views.open_bridged(LOCAL, "cart"), views.open_bridged(LOCAL, "cart")
    views.caller_of(tainted, Door.BRIDGE, reported_model=True)
    assert views.caller_of(beside, Door.BRIDGE).initiator is Initiator.PAGE
    views.close(tainted)
    clock.now += GRACE + 1
    views.taints.attest_gesture(beside, 0.0)
    assert views.caller_of(beside, Door.BRIDGE).initiator is Initiator.PERSON
    assert bridged_initiator(views) is Initiator.MODEL


async def test_what_a_model_chose_reaches_pages_that_are_there(views: Views, clock: Clock) -> None:
    """A host may pass it to the page that it already shows, which need not report it."""
    tab = await tab_of(views)
    await views.open(LOCAL, "cart", chosen=True)
    assert tab.asks() is Initiator.MODEL


async def test_what_a_model_chose_taints_the_page_that_attaches_with_an_older_launch_value(
    views: Views, clock: Clock
) -> None:
    """A page keeps launch values, and decides with which one it attaches; each chosen view counts."""
    old = await tab_of(views)
    old.close()
    for _ in range(2):
        await views.open(LOCAL, "cart", chosen=True)
    for _ in range(2):
        clock.now += GRACE + 1
        again = await tab_of(views, old.launch)
        assert again.asks() is Initiator.MODEL
        clock.now += GRACE + 1
        assert again.asks(gesture=0.0) is Initiator.PERSON
        again.close()


async def test_what_a_model_chose_outlives_its_launch_value(tmp_path: Path, clock: Clock) -> None:
    """A restart forgets the launch values, not that the next page may show what a model chose."""
    async with Database(f"sqlite:///{tmp_path / 'gateway.db'}") as database:
        async with views_of(RULES, clock, taints=DatabaseTaints(database)) as views:
            await views.open(LOCAL, "cart", chosen=True)
        async with views_of(RULES, clock, taints=DatabaseTaints(database)) as views:
            assert (await tab_of(views)).asks() is Initiator.MODEL


async def test_launch_values_that_are_forgotten_open_nothing(
    views: Views, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused, and the next one is as tainted."""
    monkeypatch.setattr(memory, "EACH", 2)
    tab = await tab_of(views)
    tab.run()
    for _ in range(3):
        await views.open(LOCAL, "cart")
    with pytest.raises(Refusal, match="not known here"):
        await tab_of(views, tab.launch)
    assert (await tab_of(views)).asks() is Initiator.MODEL


@pytest.mark.bound("tainted apps of principals without an open view")
async def test_taints_that_do_not_fit_make_every_new_view_the_models(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taints cannot be evicted by making many."""
    monkeypatch.setattr(initiator, "MOST", 2)
    for name in ("a", "b", "c"):
        someone = replace(LOCAL, subject=name)
        view = views.open_bridged(someone, "cart")
        views.caller_of(view, Door.BRIDGE, reported_model=True)
        views.close(view)
    for someone in (replace(LOCAL, subject="c"), EVE):
        caller = views.caller_of(views.open_bridged(someone, "cart"), Door.BRIDGE)
        assert caller.initiator is Initiator.MODEL


async def test_a_database_that_is_down_holds_up_no_call(tmp_path: Path, clock: Clock) -> None:
    """The taint is written once the database is up again."""
    database = Database(f"sqlite:///{tmp_path / 'gateway.db'}")
    store = DatabaseTaints(database)
    async with database, views_of(RULES, clock, taints=store) as views:
        view = views.open_bridged(LOCAL, "cart")
        engine, database._engine = database._engine, None
        await views.taints.begin_call(view, "call-1")
        views.taints.start_call(view, "call-1")
        views.taints.end_call(view, "call-1")
        assert not await views.taints.taints.flush()
        database._engine = engine
        assert await views.taints.taints.flush()
        assert await store.all(9)


async def test_a_view_that_is_resumed_is_as_tainted(views: Views) -> None:
    """Its connection broke, and it was resumed with the view's token."""
    page = Page()
    view = connect(views, LOCAL, page)
    views.caller_of(view, Door.BRIDGE, reported_model=True)
    views.disconnect(view)
    views.connect(view, page.hear)
    assert views.caller_of(view, Door.BRIDGE).initiator is Initiator.MODEL


async def test_over_mcp(world: World) -> None:
    """A page reports a model's action, closes its view by the relay, and attaches with the same launch value."""
    async with person(world) as ann, Client(f"{world.url}/mcp/cart", extensions=UI) as host:
        opened = await host.call_tool("open_cart", {})
        launch = {"launch": (opened.meta or {})["webmcp-gateway/launch"]}

        async def attached() -> AttachResult:
            told = (await host.call_tool("webmcp_attach", launch)).structured_content
            assert told is not None
            return AttachResult(told["view"], told["key"], told["proven"], ())

        first = await attached()
        wanted = {"url": "/api/cart/tea", "method": "DELETE"}
        await host.call_tool("http_request", {"url": "/api/cart", "_view": proof(first, 1), "_initiator": "model"})
        assert not (await host.call_tool("webmcp_poll", {"closing": True, "_view": proof(first, 2)})).is_error
        again = await host.call_tool("http_request", {**wanted, "_view": proof(await attached(), 1)})
        assert again.structured_content is not None
        assert "gateway-pending" in again.structured_content["headers"]
        question = await answer_next(ann, world, "decline")
        assert question["initiator"] == "model"
    assert [line for line in world.arrived() if line["method"] == "DELETE"] == []


async def test_a_real_restart(world: World) -> None:
    """A model's call, a restart, the page opened again: its DELETE is the model's, and the person is asked."""
    async with person(world) as ann, show_cart(world, ann) as page, Client(f"{world.url}/mcp") as model:
        assert not (await model.call_tool("cart_get_cart", {})).is_error
        assert page.ran == ["get_cart"]
    await world.gateway.stop()
    await world.start_gateway()
    async with person(world) as ann, show_cart(world, ann) as page, asyncio.TaskGroup() as tasks:
        removing = tasks.create_task(page.fetch(url="/api/cart/tea", method="DELETE"))
        question = await answer_next(ann, world, "decline")
        assert (question["initiator"], question["evidence"]) == ("model", "model-call")
        assert (await removing)["headers"]["gateway-reason"] == "approval-declined"


async def test_views_on_one_dedicated_origin_have_one_taint(clock: Clock) -> None:
    """Their pages can script each other: a call in one taints all, also later ones, and a gesture in any ends it."""
    rules = {
        "cart": AppRules("Cart", POLICY, dedicated=True),
        "notes": AppRules("Notes", POLICY, dedicated=True),
    }
    async with views_of(rules, clock) as views:
        one, two = views.open_bridged(LOCAL, "cart"), views.open_bridged(LOCAL, "cart")
        apart = [views.open_bridged(LOCAL, "notes"), views.open_bridged(EVE, "cart")]
        views.taints.start_call(one, "call-1")
        views.taints.end_call(one, "call-1")
        three = views.open_bridged(LOCAL, "cart")

        def initiators() -> list[Initiator]:
            return [views.caller_of(view, Door.BRIDGE).initiator for view in (two, three, *apart)]

        assert initiators() == [Initiator.MODEL, Initiator.MODEL, Initiator.PAGE, Initiator.PAGE]
        views.close(one)
        assert initiators()[:2] == [Initiator.MODEL, Initiator.MODEL]
        clock.now += GRACE + 1
        views.taints.attest_gesture(three, 0.0)
        assert initiators() == [Initiator.PERSON, Initiator.PERSON, Initiator.PAGE, Initiator.PAGE]
        views.taints.start_call(two, "call-2")
        views.close(two)
        views.close(three)
        assert views.caller_of(views.open_bridged(LOCAL, "cart"), Door.BRIDGE).initiator is Initiator.MODEL


async def test_views_on_opaque_origins_have_each_their_own_taint(clock: Clock) -> None:
    """None can reach another."""
    async with views_of({"cart": AppRules("Cart", POLICY)}, clock) as views:
        one, two = views.open_bridged(LOCAL, "cart"), views.open_bridged(LOCAL, "cart")
        views.taints.start_call(one, "call-1")
        assert views.caller_of(two, Door.BRIDGE).initiator is Initiator.PAGE
