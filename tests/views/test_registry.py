"""Live views: opened, attached, proven, listed, closed."""

import asyncio
from dataclasses import replace

import mcp_types as mcp
import pytest

from gateway.errors import Reason, Refusal, ViewMoves
from gateway.model import LOCAL, Door, Initiator
from gateway.views import memory
from gateway.views.initiator import GRACE
from gateway.views.memory import LIFE, Launches
from gateway.views.registry import IDLE, LIVE, QUIET, Views
from gateway.views.relay import LONGEST_POLL, PollAnswer
from gateway.views.view import OPENING, AppRules, AttachResult, View
from tests.clock import Clock
from tests.views.memory import views_of
from tests.views.pages import Page, connect
from tests.views.rules import EVE, POLICY, proof


async def test_a_launched_view_is_proven(views: Views) -> None:
    """The launch value proves that it is the view that was opened; its calls are the page's own."""
    opened = await views.open(LOCAL, "cart")
    attached = await views.attach(LOCAL, "cart", opened.launch.reveal(), {})
    assert (attached.view, attached.proven, attached.free) == (opened.view, True, ("add",))
    caller = views.caller(LOCAL, "cart", proof(attached, 1))
    assert (caller.view, caller.proven, caller.initiator) == (opened.view, True, Initiator.PAGE)


async def test_a_call_has_the_roles_that_its_principal_has_now(views: Views) -> None:
    """Not those of the token with which its view was opened."""
    before, now = (replace(LOCAL, roles=frozenset(roles)) for roles in ({"admin"}, {"guest"}))
    attached = await views.attach(before, "cart", (await views.open(before, "cart")).launch.reveal(), {})
    for number, principal in enumerate((before, now, before), 1):
        assert views.caller(principal, "cart", proof(attached, number)).principal.roles == principal.roles


async def test_a_call_that_fails_ends_nothing_but_itself(views: Views) -> None:
    """Its error is its caller's; the views, and the gateway with them, go on."""

    async def fail() -> mcp.CallToolResult:
        raise ViewMoves

    with pytest.raises(ViewMoves):
        await views.spawn(fail())
    await asyncio.sleep(0)
    assert (await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {})).proven


async def test_who_begins_to_ask_for_calls_while_the_gateway_stops_waits_for_none(views: Views) -> None:
    """Like earlier polls: waiting would delay the stop."""
    asking, new = [
        await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {}) for _ in range(2)
    ]
    before = asyncio.create_task(views.relay_of(LOCAL, "cart", proof(asking, 1)).poll(0, LONGEST_POLL))
    await asyncio.sleep(0)
    views.drain()
    async with asyncio.timeout(LONGEST_POLL / 2):
        assert await before == PollAnswer(())
        for number in (1, 2):
            assert await views.relay_of(LOCAL, "cart", proof(new, number)).poll(0, LONGEST_POLL) == PollAnswer(())


async def test_a_view_that_a_model_gave_something_is_the_models(views: Views) -> None:
    """The model determines its actions until a person acts."""
    attached = await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart", chosen=True)).launch.reveal(), {})
    caller = views.caller(LOCAL, "cart", proof(attached, 1))
    assert (caller.proven, caller.initiator) == (True, Initiator.MODEL)


async def test_one_view_of_ours_shows_an_app(views: Views) -> None:
    """It receives the model's input, which taints it unless empty; of two views, none does."""
    told: list[str] = []

    async def tell(message: dict[str, object]) -> None:
        told.append(str(message["method"]))

    async def send(_: dict[str, object]) -> None:
        """Ignore requests for the page's tools."""

    assert views.find_shown(LOCAL, "cart") is None
    view = views.open_bridged(LOCAL, "cart")
    views.connect(view, send, tell)
    shown = views.find_shown(LOCAL, "cart")
    assert shown is not None
    await shown.call({}, {"content": []})
    assert views.caller_of(view, Door.BRIDGE).initiator is Initiator.PAGE
    await shown.call({"input": {}}, {"content": []})
    assert views.caller_of(view, Door.BRIDGE).initiator is Initiator.MODEL
    assert told == ["ui/notifications/tool-input", "ui/notifications/tool-result"] * 2
    assert views.find_shown(EVE, "cart") is None
    views.connect(views.open_bridged(LOCAL, "cart"), send, tell)
    assert views.find_shown(LOCAL, "cart") is None


async def test_a_call_goes_on_in_the_view_that_comes_in_the_place_of_the_one_before(views: Views) -> None:
    """The host page opens a new view in its place: that is tainted from its beginning, and gets the result."""
    told: list[tuple[str, str]] = []

    async def send(_: dict[str, object]) -> None:
        """Ignore requests for the page's tools."""

    def shown_in(view: View) -> None:
        async def tell(message: dict[str, object]) -> None:
            told.append((view.id, str(message["method"]).rpartition("/")[2]))
            if view is first:
                asyncio.get_running_loop().call_soon(renew)

        views.connect(view, send, tell)

    def renew() -> None:
        views.close(first)
        asyncio.get_running_loop().call_soon(lambda: shown_in(views.open_bridged(LOCAL, "cart")))

    first = views.open_bridged(LOCAL, "cart")
    shown_in(first)
    shown = views.find_shown(LOCAL, "cart")
    assert shown is not None
    await shown.call({"input": {}}, lambda handle: {"structuredContent": {"view": handle}})
    (second,) = views.of(LOCAL, "cart")
    assert told == [(first.id, "tool-input"), (second.id, "tool-result")]
    assert shown.id == second.id
    assert views.caller_of(second, Door.BRIDGE).initiator is Initiator.MODEL


async def test_a_call_that_is_given_up_is_told(views: Views) -> None:
    """The view does not wait for its result."""
    told: list[str] = []
    arrived = asyncio.Event()

    async def tell(message: dict[str, object]) -> None:
        told.append(str(message["method"]))
        if len(told) == 1:
            arrived.set()
            await asyncio.Event().wait()

    async def send(_: dict[str, object]) -> None:
        """Ignore requests for the page's tools."""

    views.connect(views.open_bridged(LOCAL, "cart"), send, tell)
    shown = views.find_shown(LOCAL, "cart")
    assert shown is not None
    call = asyncio.ensure_future(shown.call({}, {"content": []}))
    await arrived.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert told == ["ui/notifications/tool-input", "ui/notifications/tool-cancelled"]


async def test_a_proof_is_good_once(views: Views) -> None:
    """A replay is refused."""
    attached = await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {})
    views.caller(LOCAL, "cart", proof(attached, 1))
    with pytest.raises(Refusal) as refused:
        views.caller(LOCAL, "cart", proof(attached, 1))
    assert refused.value.reason is Reason.VIEW_UNPROVEN


async def test_the_newest_attach_wins(views: Views) -> None:
    """Hosts show old results again: the older view is revoked."""
    launch = (await views.open(LOCAL, "cart")).launch.reveal()
    older = await views.attach(LOCAL, "cart", launch, {})
    newer = await views.attach(LOCAL, "cart", launch, {})
    assert older.view == newer.view
    with pytest.raises(Refusal):
        views.caller(LOCAL, "cart", proof(older, 1))
    assert views.caller(LOCAL, "cart", proof(newer, 1)).proven


async def test_a_launch_value_is_bound(views: Views, clock: Clock) -> None:
    """To its principal and its app, for a day."""
    launch = (await views.open(LOCAL, "cart")).launch.reveal()
    for principal, app in ((EVE, "cart"), (LOCAL, "notes")):
        with pytest.raises(Refusal):
            await views.attach(principal, app, launch, {})
    clock.now += LIFE + 1
    with pytest.raises(Refusal):
        await views.attach(LOCAL, "cart", launch, {})


@pytest.mark.bound("unused launch values")
async def test_launch_values_of_one_principal_are_bounded(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of them is evicted; another principal's stays."""
    monkeypatch.setattr(memory, "EACH", 2)
    other = (await views.open(EVE, "cart")).launch.reveal()
    mine = [(await views.open(LOCAL, "cart")).launch.reveal() for _ in range(3)]
    with pytest.raises(Refusal):
        await views.attach(LOCAL, None, mine[0], {})
    assert [(await views.attach(LOCAL, None, launch, {})).proven for launch in mine[1:]] == [True, True]
    assert (await views.attach(EVE, None, other, {})).proven


async def test_a_view_whose_launch_value_expired_is_awaited_no_more(views: Views, clock: Clock) -> None:
    """Its page no longer comes."""
    view = (await views.open(LOCAL, "cart")).view
    assert await views.launches.is_awaited(view, LOCAL, None)
    clock.now += LIFE + 1
    assert not await views.launches.is_awaited(view, LOCAL, None)


async def test_another_principal_cannot_use_a_proof(views: Views) -> None:
    """Nor can another app's mount."""
    attached = await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {})
    for principal, app in ((EVE, "cart"), (LOCAL, "notes")):
        with pytest.raises(Refusal):
            views.caller(principal, app, proof(attached, 1))


async def test_without_proof_it_is_the_models_or_nothing(views: Views) -> None:
    """By the app's setting; with several apps the request must name one."""
    caller = views.caller(LOCAL, "cart", None)
    assert (caller.initiator, caller.proven, caller.view) == (Initiator.MODEL, False, None)
    for app in ("notes", None):
        with pytest.raises(Refusal):
            views.caller(LOCAL, app, None)


async def test_a_view_without_launch_value_stays_unproven(views: Views) -> None:
    """Its key proves which view it is, not that the gateway opened it."""
    attached = await views.attach(LOCAL, "cart", None, {})
    caller = views.caller(LOCAL, "cart", proof(attached, 1))
    assert (attached.proven, caller.proven, caller.initiator) == (False, False, Initiator.MODEL)


async def test_a_page_whose_launch_value_comes_late_is_one_view(views: Views) -> None:
    """Its former unproven view is closed; others stay: of another app or principal, and proven ones."""

    async def launched(app: str, former: AttachResult | None = None) -> AttachResult:
        return await relaunch(views, app, former.view if former else None)

    was, other = [await views.attach(LOCAL, "cart", None, {}) for _ in range(2)]
    eves = await views.attach(EVE, "cart", None, {})
    proven = await launched("cart")
    now = [await launched("cart", former) for former in (was, eves, proven)]
    now.append(await launched("notes", other))
    left = {view.id for principal in (LOCAL, EVE) for view in views.of(principal)}
    assert left == {attached.view for attached in (other, eves, proven, *now)}


async def test_a_page_with_another_launch_value_is_one_view(views: Views) -> None:
    """A valid proof of the former view closes that, once; a wrong, foreign or used one does not."""
    was = await relaunch(views, "cart", None)
    wrong = [proof(was, 1)[:-1], proof(was, 1) + "x", proof(was, 2).replace(".2.", ".3."), was.view + ".."]
    others = [await relaunch(views, "cart", former) for former in wrong]
    views.caller(LOCAL, "cart", proof(was, 4))
    others += [await relaunch(views, "cart", proof(was, 4)), await relaunch(views, "notes", proof(was, 5))]
    await views.attach(EVE, "cart", (await views.open(EVE, "cart")).launch.reveal(), {}, proof(was, 6))
    assert views.find(was.view, LOCAL)
    now = await relaunch(views, "cart", proof(was, 7))
    assert {view.id for view in views.of(LOCAL)} == {attached.view for attached in (*others, now)}


async def relaunch(views: Views, app: str, former: str | None) -> AttachResult:
    """Return the view of a page of `LOCAL` with a new launch value, which names its former view."""
    return await views.attach(LOCAL, app, (await views.open(LOCAL, app)).launch.reveal(), {}, former)


async def test_where_unproven_views_are_denied_none_gets_in(clock: Clock) -> None:
    """Neither by attaching without a launch value, nor with an earlier key, for requests and for calls alike."""
    rules = {"cart": AppRules("Cart", POLICY)}
    async with views_of(rules, clock) as views:
        before = await views.attach(LOCAL, "cart", None, {})
        rules["cart"] = AppRules("Cart", POLICY, unproven="deny")
        with pytest.raises(Refusal, match="does not prove"):
            await views.attach(LOCAL, "cart", None, {})
        with pytest.raises(Refusal, match="does not prove"):
            views.caller(LOCAL, "cart", proof(before, 1))
        with pytest.raises(Refusal, match="does not prove"):
            views.relay_of(LOCAL, "cart", proof(before, 2))


async def test_a_report_of_the_model_is_believed(views: Views) -> None:
    """And stays in effect: a later call without the report is tainted too."""
    attached = await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {})
    for number, reported in ((1, True), (2, False)):
        caller = views.caller(LOCAL, "cart", proof(attached, number), reported_model=reported)
        assert caller.initiator is Initiator.MODEL


async def test_a_views_own_gesture_counts_where_its_app_is_trusted(clock: Clock) -> None:
    """It makes the call the person's, and the evidence names the view as the source."""
    rules = {"cart": AppRules("Cart", POLICY, trust_view_gestures=True), "notes": AppRules("Notes", POLICY)}
    async with views_of(rules, clock) as views:
        attached = await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {})
        caller = views.caller(LOCAL, "cart", proof(attached, 1), gesture=0.2)
        assert (caller.initiator, caller.evidence) == (Initiator.PERSON, "view-gesture")
        clock.now += 60.0
        assert views.caller(LOCAL, "cart", proof(attached, 2)).initiator is Initiator.PAGE
        other = await views.attach(LOCAL, "notes", (await views.open(LOCAL, "notes")).launch.reveal(), {})
        assert views.caller(LOCAL, "notes", proof(other, 1), gesture=0.2).initiator is Initiator.PAGE


async def test_a_views_own_gesture_does_not_count_against_a_model(clock: Clock) -> None:
    """Not from an unproven view, not while the view itself reports a model, not from before the call ended."""
    async with views_of({"cart": AppRules("Cart", POLICY, trust_view_gestures=True)}, clock) as views:
        unproven = await views.attach(LOCAL, "cart", None, {})
        assert views.caller(LOCAL, "cart", proof(unproven, 1), gesture=0.0).initiator is Initiator.MODEL
        attached = await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {})
        for number, reported, age in ((1, True, 0.0), (2, False, 0.0), (3, False, 4.0)):
            signed = proof(attached, number)
            caller = views.caller(LOCAL, "cart", signed, reported_model=reported, gesture=age)
            assert caller.initiator is Initiator.MODEL
            clock.now += 1.5
        assert views.caller(LOCAL, "cart", proof(attached, 4), gesture=0.0).initiator is Initiator.PERSON


async def test_a_closed_view_speaks_no_more(views: Views) -> None:
    """Its proof and its WebSocket are refused."""
    view = views.open_bridged(LOCAL, "cart")
    assert views.caller_of(view, Door.BRIDGE).proven
    views.close(view)
    with pytest.raises(Refusal):
        views.caller_of(view, Door.BRIDGE)


@pytest.mark.bound("opened views")
async def test_a_principal_opens_so_many_views_a_minute(views: Views, clock: Clock) -> None:
    """Although it closes them again; another principal is not affected."""
    for _ in range(OPENING.count):
        views.close(views.open_bridged(LOCAL, "cart"))
    with pytest.raises(Refusal, match="Wait a moment") as refused:
        views.open_bridged(LOCAL, "cart")
    assert refused.value.reason is Reason.RATE_LIMITED
    views.open_bridged(EVE, "cart")
    clock.now += OPENING.period
    views.open_bridged(LOCAL, "cart")


async def test_expired_launch_values_are_forgotten(clock: Clock) -> None:
    """Also those of principals that open no more, checking one principal at a time."""
    given = Launches(clock)
    for number in range(50):
        await given.give(replace(LOCAL, subject=f"{number}"), "cart", chosen=False)
    clock.now += LIFE + 1
    for _ in range(60):
        await given.give(EVE, "cart", chosen=False)
    assert len(given) == 60


@pytest.mark.bound("live views")
async def test_views_of_one_principal_are_bounded(views: Views) -> None:
    """One that only attached is evicted; if all are connected, no more are opened. Others are not affected."""
    idle = await views.attach(LOCAL, "cart", None, {})
    for _ in range(LIVE):
        connect(views, LOCAL, Page())
    assert views.find(idle.view, LOCAL) is None
    with pytest.raises(Refusal) as refused:
        views.open_bridged(LOCAL, "cart")
    assert refused.value.reason is Reason.RATE_LIMITED
    views.open_bridged(EVE, "cart")


async def test_a_proven_view_is_nobodys_victim(views: Views) -> None:
    """Clients that attach endlessly evict each other, not a launched view."""
    proven = await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {})
    for _ in range(2 * LIVE):
        await views.attach(LOCAL, "cart", None, {})
    assert views.caller(LOCAL, "cart", proof(proven, 1)).proven


async def test_proven_views_that_are_quiet_give_their_places(views: Views, clock: Clock) -> None:
    """Hosts do not report a closed page: a person whose chat once showed many can still open the app."""
    first, *others = [
        await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {}) for _ in range(LIVE)
    ]
    clock.now += QUIET
    with pytest.raises(Refusal, match="are open already"):
        views.open_bridged(LOCAL, "cart")
    clock.now += 1
    views.caller(LOCAL, "cart", proof(first, 1))
    views.open_bridged(LOCAL, "cart")
    assert [views.find(one.view, LOCAL) is None for one in (first, *others[:2])] == [False, True, False]


async def test_a_view_that_came_over_mcp_and_is_silent_is_gone(views: Views, clock: Clock) -> None:
    """A view over MCP may close unnoticed; one on a bridge is closed by its connection."""
    attached = await views.attach(LOCAL, "cart", (await views.open(LOCAL, "cart")).launch.reveal(), {})
    bridged = views.open_bridged(LOCAL, "cart")
    clock.now += IDLE - 1
    views.caller(LOCAL, "cart", proof(attached, 1))
    clock.now += IDLE - 1
    assert [view.id for view in views.of(LOCAL)] == [attached.view, bridged.id]
    clock.now += 2
    assert [view.id for view in views.of(LOCAL)] == [bridged.id]


async def test_attaching_again_does_not_wash_the_model_off(views: Views) -> None:
    """A page that reloads during the grace time is still tainted."""
    launch = (await views.open(LOCAL, "cart")).launch.reveal()
    views.caller(LOCAL, "cart", proof(await views.attach(LOCAL, "cart", launch, {}), 1), reported_model=True)
    again = await views.attach(LOCAL, "cart", launch, {})
    assert views.caller(LOCAL, "cart", proof(again, 1)).initiator is Initiator.MODEL


async def test_no_way_of_loading_again_washes_the_model_off(views: Views, clock: Clock) -> None:
    """Closed or lost, whatever else was closed or opened meanwhile, and however long ago."""
    tainted = connect(views, LOCAL, Page())
    views.caller_of(tainted, Door.BRIDGE, reported_model=True)
    other = connect(views, LOCAL, Page())
    assert views.caller_of(other, Door.BRIDGE).initiator is Initiator.PAGE
    views.disconnect(tainted)
    assert views.caller_of(views.open_bridged(LOCAL, "cart"), Door.BRIDGE).initiator is Initiator.MODEL
    views.close(tainted)
    views.close(other)
    for _ in range(2):
        assert views.caller_of(views.open_bridged(LOCAL, "cart"), Door.BRIDGE).initiator is Initiator.MODEL
    assert views.caller_of(views.open_bridged(EVE, "cart"), Door.BRIDGE).initiator is Initiator.PAGE
    assert views.caller_of(views.open_bridged(LOCAL, "notes"), Door.BRIDGE).initiator is Initiator.PAGE
    for seconds in (60.0, 1e6):
        for view in views.of(LOCAL):
            views.close(view)
        clock.now += seconds
        last = views.open_bridged(LOCAL, "cart")
        assert views.caller_of(last, Door.BRIDGE).initiator is Initiator.MODEL
    clock.now += GRACE + 1
    views.taints.attest_gesture(last, 0.0)
    assert views.caller_of(last, Door.BRIDGE).initiator is Initiator.PERSON
    assert views.caller_of(views.open_bridged(LOCAL, "cart"), Door.BRIDGE).initiator is Initiator.PAGE
