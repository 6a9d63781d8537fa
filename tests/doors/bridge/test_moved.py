"""An open console goes on after a restart: its tokens, its sandbox, and its views as the model's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway import mux
from gateway.crypto import SigningKeys
from gateway.doors.bridge.bridge_state import ResumeTokens
from gateway.model import LOCAL
from gateway.views.view import View
from tests.doors.bridge.test_bridge import connected, console
from tests.world import World

KEYS = SigningKeys((b"new" * 11, b"old" * 11))


async def restart(world: World) -> None:
    """Restart the gateway at its port."""
    await world.gateway.stop()
    await world.start_gateway()


async def test_a_view_goes_on_under_its_id_until_a_gesture_as_the_models(world: World) -> None:
    """The page reconnects with its tokens of before; the former token of the view has been used then."""
    async with console(world) as client:
        async with client.get(f"{world.console}/api/state") as answer:
            state = await answer.json()
        async with connected(world, client) as host:
            opened = await host.open()
            assert (await host.call(opened.view, url="/api/products"))["status"] == 200
        await restart(world)
        async with (
            world.client(headers={"webmcp-gateway-client": "1"}) as plain,
            plain.get(state["apps"][0]["sandbox_url"]) as answer,
        ):
            assert answer.status == 200
        async with connected(world, client) as host:
            await host.say(mux.Resume(opened.view, opened.resume))
            resumed = await host.hear()
            assert isinstance(resumed, mux.Resume)
            assert (await host.call(opened.view, url="/api/cart/none", method="DELETE"))["status"] == 202
            await host.say(mux.Gesture(opened.view, 10))
            assert (await host.call(opened.view, url="/api/cart/other", method="DELETE"))["status"] == 404
            async with connected(world, client) as thief:
                for token in (opened.resume, resumed.token):
                    await thief.say(mux.Resume(opened.view, token))
                    frame = await thief.hear()
                    assert isinstance(frame, mux.ErrorFrame)
                    assert frame.code == "unknown-view"


def test_a_token_moves_the_view_that_it_was_issued_for() -> None:
    """In a later process, for the same principal and page, also after the key was rotated."""
    view = View("view", LOCAL, "cart", proven=True, bridged=True)
    here, old, other = ResumeTokens(KEYS), ResumeTokens(SigningKeys(KEYS.keys[1:])), ResumeTokens(SigningKeys((b"x",)))
    token = old.issue(view, "https://console.example")
    eve = replace(LOCAL, subject="eve")
    assert here.app_of_moved(token, "view", LOCAL, "https://console.example") == "cart"
    for id, principal, origin in (
        ("other", LOCAL, "https://console.example"),
        ("view", eve, "https://console.example"),
        ("view", LOCAL, "https://evil.example"),
        ("view", LOCAL, None),
    ):
        assert here.app_of_moved(token, id, principal, origin) is None
    assert old.app_of_moved(token, "view", LOCAL, "https://console.example") is None
    assert other.app_of_moved(token, "view", LOCAL, "https://console.example") is None


@pytest.mark.parametrize("wrong", [".cart.", ".todo.", "", "."])
def test_a_token_that_was_altered_moves_nothing(wrong: str) -> None:
    """Nor does one that is no token."""
    view = View("view", LOCAL, "cart", proven=True, bridged=True)
    token = ResumeTokens(KEYS).issue(view, None)
    altered = token.replace(".cart.", wrong) if wrong != ".cart." else f"{token[:-1]}{'0' if token[-1] != '0' else '1'}"
    for one in (altered, wrong, "é", token[:-64]):
        assert ResumeTokens(KEYS).app_of_moved(one, "view", LOCAL, None) is None
