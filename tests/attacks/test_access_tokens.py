"""Every case of an invalid access token is refused at every door, and reaches no backend."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from gateway.doors.issuers import EARLY_FETCH_SPACING, EARLY_FETCHES
from tests.attacks.corpus import family
from tests.callers.doors import knocks, statuses
from tests.callers.issuer import Issuer, issuer, plain
from tests.world import World, running

AUTH = """
auth:
  - {{type: oauth, issuer: "{issuer}", network: private}}
"""
OPENED = {"mcp", "mcp of an app", "mcp on the console's host", "console", "events", "record", "site", "site's api"}


@pytest.fixture
async def evil() -> AsyncIterator[Issuer]:
    """A hostile issuer."""
    async with issuer() as started:
        yield started


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
async def guarded(tmp_path: Path, evil: Issuer, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The cart behind a gateway that accepts tokens of that issuer, with `server.fast_path` on and off."""
    async with running(tmp_path, extra=AUTH.format(issuer=evil.url), fast_path=request.param) as world:
        yield world


async def test_only_a_right_token_opens_a_door(guarded: World, evil: Issuer) -> None:
    """The cases run at each door; the shop receives requests with a valid token only."""
    wrong, began = [], time.monotonic()
    for case in family("access-tokens"):
        shown = {"authorization": f"Bearer {make_token(case, evil, guarded)}"}
        before = len(guarded.arrived())
        found = await statuses(guarded, shown)
        opened = {name for name, status in found.items() if status == 200}
        if case["expect"] == "open":
            if opened != OPENED:
                wrong.append(f"{case['id']} ({case['why']}): {found}")
        elif set(found.values()) != {401} or len(guarded.arrived()) > before:
            wrong.append(f"{case['id']} ({case['why']}): {found}")
    assert not wrong, "\n".join(wrong)
    assert set(evil.asked) == {"/.well-known/oauth-authorization-server", "/jwks"}
    assert evil.asked["/jwks"] <= 1 + EARLY_FETCHES + (time.monotonic() - began) // EARLY_FETCH_SPACING
    assert set(knocks(guarded)) >= OPENED


def make_token(case: dict[str, Any], evil: Issuer, world: World) -> str:
    """The token that a case describes."""
    places = {"issuer": evil.url, "public": world.url}
    claims = evil.claims(world.url, **_fill_places(case.get("claims", {}), places))
    header = _fill_places(case.get("header", {}), places)
    match case.get("made"):
        case {"unsigned": unsigned}:
            return f"{plain(unsigned)}.{plain(claims)}."
        case "public":
            return evil.sign_with_public(claims)
        case "embedded":
            own = evil.keys["rsa-other"]
            assert isinstance(own, RSAKey)
            return evil.sign(claims, "rsa-other", jwk=own.as_dict(private=False))
        case "cut":
            return evil.sign(claims)[:-8]
        case "nothing":
            return f"{evil.sign(claims).rpartition('.')[0]}."
        case "changed":
            head, _, signature = evil.sign(claims).split(".")
            return f"{head}.{plain({**claims, 'sub': 'mallory'})}.{signature}"
        case "resigned":
            return f"{evil.sign(claims).rpartition('.')[0]}.{evil.sign(claims, 'rsa-other').rpartition('.')[2]}"
        case _:
            return evil.sign(claims, case.get("key", "rsa"), **header)


def _fill_places(value: Any, places: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {_fill_places(name, places): _fill_places(part, places) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill_places(part, places) for part in value]
    if not isinstance(value, str):
        return value
    moment = re.fullmatch(r"@now([+-]\d+)?@", value)
    if moment is not None:
        return int(time.time()) + int(moment[1] or 0)
    return re.sub(r"@(\w+)@", lambda match: places[match[1]], value)
