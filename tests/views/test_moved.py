"""Views of an earlier process: their latest page attaches again, as the model's unless it is known not to be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.crypto import SigningKeys
from gateway.errors import Reason, Refusal
from gateway.model import LOCAL, Initiator
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sql import Database
from gateway.stores.view_state import DatabaseLaunches
from gateway.views.memory import Launches, MemoryDirectory
from gateway.views.registry import Views
from gateway.views.view import AppRules
from tests.views.rules import EVE, POLICY, proof

RULES = {"cart": AppRules("Cart", POLICY)}


@asynccontextmanager
async def process(folder: Path) -> AsyncIterator[Views]:
    """Yield the views of one process, which ends well."""
    ring = KeyRing(KeyFile(folder / "key"))
    async with Database(f"sqlite:///{folder}/gateway.db") as database:
        launches = Launches(store=DatabaseLaunches(database, ring))
        async with Views(RULES, launches=launches, directory=MemoryDirectory(), keys=ring.derive("views")) as views:
            yield views


async def reason(views: Views, given: str, principal: object = LOCAL) -> Reason | None:
    """Return the reason why a call with this proof is refused, None if it is not."""
    assert principal in (LOCAL, EVE)
    who = EVE if principal == EVE else LOCAL
    try:
        views.caller(who, "cart", given)
    except Refusal as refusal:
        return (await views.explain(refusal, who, given)).reason
    return None


async def test_the_latest_page_attaches_again_under_a_new_key(tmp_path: Path) -> None:
    """An older page with the same value, another principal and an altered proof stay refused."""
    async with process(tmp_path) as views:
        opened = await views.open(LOCAL, "cart")
        older, latest = [await views.attach(LOCAL, "cart", opened.launch.reveal(), {}) for _ in range(2)]
        assert older.key != latest.key
    async with process(tmp_path) as views:
        assert await reason(views, proof(latest, 1)) is Reason.VIEW_MOVED
        for given, principal in ((proof(older, 1), LOCAL), (proof(latest, 1), EVE), (f"{proof(latest, 1)}x", LOCAL)):
            assert await reason(views, given, principal) is Reason.VIEW_UNPROVEN
        with pytest.raises(Refusal):
            await views.attach(EVE, "cart", opened.launch.reveal(), {})
        again = await views.attach(LOCAL, "cart", opened.launch.reveal(), {}, proof(latest, 2))
        assert (again.view, again.proven) == (opened.view, True)
        assert again.key not in (older.key, latest.key)
        assert await reason(views, proof(again, 1)) is None
        for given in (proof(latest, 3), proof(older, 1)):
            assert await reason(views, given) is Reason.VIEW_UNPROVEN


@pytest.mark.parametrize("reported", [False, True])
async def test_after_a_stop_a_view_is_as_tainted_as_before(tmp_path: Path, reported: bool) -> None:
    """The former process stored that no model had called it."""
    async with process(tmp_path) as views:
        value = (await views.open(LOCAL, "cart")).launch.reveal()
        attached = await views.attach(LOCAL, "cart", value, {})
        if reported:
            views.caller(LOCAL, "cart", proof(attached, 1), reported_model=True)
    async with process(tmp_path) as views:
        again = await views.attach(LOCAL, "cart", value, {})
        caller = views.caller(LOCAL, "cart", proof(again, 1))
        assert (caller.initiator, caller.evidence) == (
            (Initiator.MODEL, "view-moved") if reported else (Initiator.PAGE, "no-gesture")
        )


async def test_after_a_crash_every_view_is_the_models_until_a_gesture(tmp_path: Path) -> None:
    """Also one of another launch value of the same principal and app; attaching again ends nothing."""
    ring = KeyRing(KeyFile(tmp_path / "key"))
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        killed = Launches(store=DatabaseLaunches(database, ring))
        value = (await killed.give(LOCAL, "cart", chosen=False)).launch.reveal()
        await killed.attach(value)
    async with process(tmp_path) as views:
        for launch in (value, value, (await views.open(LOCAL, "cart")).launch.reveal()):
            attached = await views.attach(LOCAL, "cart", launch, {})
            caller = views.caller(LOCAL, "cart", proof(attached, 1))
            assert (caller.initiator, caller.evidence) == (Initiator.MODEL, "view-moved")


async def test_a_view_without_a_launch_value_attaches_again(tmp_path: Path) -> None:
    """Nothing about it is stored; in its own process, a closed one stays closed."""
    async with process(tmp_path) as views:
        attached = await views.attach(LOCAL, "cart", None, {})
        view = views.find(attached.view, LOCAL)
        assert view is not None
        views.close(view)
        assert await reason(views, proof(attached, 1)) is Reason.VIEW_UNPROVEN
    async with process(tmp_path) as views:
        assert await reason(views, proof(attached, 1), EVE) is Reason.VIEW_UNPROVEN
        assert await reason(views, proof(attached, 1)) is Reason.VIEW_MOVED
        assert not (await views.attach(LOCAL, "cart", None, {}, proof(attached, 1))).proven


async def test_keys_of_another_gateway_prove_nothing() -> None:
    """They are derived from a secret of the gateway."""
    keys = [SigningKeys((name * 32,)).secrets("view", "id", LOCAL.id, "1") for name in (b"a", b"b")]
    assert keys[0] != keys[1]
