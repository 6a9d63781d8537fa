"""The doors of host pages: every wrong access token as a subject token, and an exchanged token at every other door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.callers.token_exchange import ACCESS_TOKEN, GRANT
from tests.attacks.corpus import family
from tests.attacks.test_access_tokens import make_token
from tests.callers.doors import answer, knocks
from tests.callers.issuer import Issuer, issuer
from tests.world import World, running

CHAT, SECRET = "http://chat.localhost:7777", "the secret of the chat"
SETTINGS = f"""
hosts:
  - {{{{origin: '{CHAT}', apps: [cart], issuer: '{{issuer}}', client_id: chat, client_secret: '{SECRET}'}}}}
auth:
  - {{{{type: oauth, issuer: '{{issuer}}', network: private, introspection: true, client_id: g, client_secret: g}}}}
roles: {{{{approver: [ops], admin: [ops]}}}}
"""
OPEN = {"console", "links", "downloads", "tickets", "bodies"}
"""The doors of the console at which a page of the chat may knock."""


@pytest.fixture
async def evil() -> AsyncIterator[Issuer]:
    """A hostile issuer."""
    async with issuer() as started:
        yield started


async def exchange(world: World, token: str) -> tuple[int, dict[str, Any]]:
    """Exchange a token as the chat's back end."""
    form = {"grant_type": GRANT, "subject_token": token, "subject_token_type": ACCESS_TOKEN}
    who = {**form, "client_id": "chat", "client_secret": SECRET}
    async with aiohttp.ClientSession() as http, http.post(f"{world.url}/oauth/token", data=who) as got:
        return got.status, await got.json()


def allowed(headers: dict[str, str]) -> str | None:
    """The origin that may read an answer."""
    return next((value for name, value in headers.items() if name.lower() == "access-control-allow-origin"), None)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
async def test_no_wrong_token_is_exchanged_and_no_exchanged_one_opens_another_door(
    tmp_path: Path, evil: Issuer, fast: bool
) -> None:
    """Each case of the corpus; the token for a page reaches no backend, no issuer, and no door but those of pages."""
    async with running(tmp_path, extra=SETTINGS.format(issuer=evil.url), fast_path=fast) as world:
        wrong = []
        for case in family("access-tokens") if fast else ():
            status, told = await exchange(world, make_token(case, evil, world))
            expected = (200, None) if case["expect"] == "open" else (400, "invalid_request")
            if (status, told.get("error")) != expected:
                wrong.append(f"{case['id']} ({case['why']}): {status} {told}")
        assert not wrong, "\n".join(wrong)
        assert "/introspect" not in evil.asked or fast
        status, told = await exchange(world, evil.sign(evil.claims(world.url, roles=["ops"])))
        assert status == 200
        before = len(world.arrived()), evil.asked.get("/introspect", 0)
        token = {"authorization": f"Bearer {told['access_token']}"}
        page = {**token, "origin": CHAT, "sec-fetch-site": "cross-site"}
        for name, knock in knocks(world).items():
            assert (await answer(knock, token))[0] == 401, name
            status, headers, _ = await answer(knock, page)
            assert (status != 403) is (name in OPEN), (name, status)
            assert allowed(headers) == (CHAT if name in OPEN else None), name
            status, headers, _ = await answer(knock, {**page, "origin": "https://evil.example"})
            assert (status, allowed(headers)) == (403, None), name
        assert (len(world.arrived()), evil.asked.get("/introspect", 0)) == before
