"""Authorization servers that present another server's answer as theirs: it must arrive at their own URL (RFC 9700)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import aiohttp
import pytest

from tests.credentials.house import House, house
from tests.oidc.sign_in import sign_in
from tests.world import local_client

EVIL = """credentials:
  evil: {{type: authorization_code, callback: own, issuer: "https://evil.example", client_id: gateway,
    network: private, authorization_endpoint: "{url}/auth", token_endpoint: "{url}/token"}}
"""
CROSSING = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    """A gateway with a hostile server among its accounts; the requests to that are in `resource.seen`."""
    async with house(tmp_path) as running:
        file = tmp_path / "gateway.yaml"
        text = file.read_text("utf-8")
        person = next(line for line in text.splitlines() if line.startswith("  person:"))
        own = f"{person.replace('person: {', 'own: {callback: own, ')}\n"
        file.write_text(text.replace("credentials:\n", EVIL.format(url=running.resource.url) + own), "utf-8")
        await running.restart()
        yield running


async def came_back(home: House, back: str) -> dict[str, str]:
    """The parameters for the console's page after a redirect to `back`."""
    async with home.http.get(back, headers=CROSSING, allow_redirects=False) as answer:
        return dict(parse_qsl(answer.headers["location"].partition("?")[2]))


@pytest.mark.parametrize("good", ["person", "own"])
async def test_an_account_is_connected_at_the_address_of_its_server(home: House, good: str) -> None:
    """Each server has the shared URL, or its own; an answer at any other is refused, whatever it contains."""
    for place in ("", "/own", "/person", "/nobody", "/own%2F"):
        _, begun = await home.api(f"connections/{good}", {})
        async with aiohttp.ClientSession() as pages:
            back = await sign_in(pages, begun["location"], "alice", f"{home.console}/oauth/callback")
        path, _, query = back.removeprefix(home.console).partition("?")
        right = path == f"/oauth/callback{place}"
        told = await came_back(home, f"{home.console}/oauth/callback{place}?{query}&callback={good}")
        await home.provider.events()
        status, _ = await home.api("connections/finish", {"secret": begun["secret"], "answer": told})
        assert (status, bool(await home.provider.events())) == ((200, True) if right else (502, False)), place
    assert path == ("/oauth/callback/own" if good == "own" else "/oauth/callback")


async def test_the_code_of_another_server_is_not_given_away(home: House) -> None:
    """A server redirects to an honest one that does not send `iss`: that one's code is not sent to it."""
    _, begun = await home.api("connections/evil", {})
    asked = dict(parse_qsl(begun["location"].partition("?")[2]))
    assert asked["redirect_uri"] == f"{home.console}/oauth/callback/evil"
    back = f"{home.console}/oauth/callback"
    query = urlencode({**asked, "client_id": "console", "redirect_uri": back, "scope": "openid"})
    async with local_client() as pages:
        sent = await sign_in(pages, f"{home.provider.issuer}/auth?{query}", "alice", back)
    told = await came_back(home, sent)
    del told["iss"]
    assert told["code"]
    status, said = await home.api("connections/finish", {"secret": begun["secret"], "answer": told})
    assert (status, said["type"]) == (502, "urn:webmcp-gateway:credential-failed")
    assert home.resource.seen == []


async def test_servers_that_share_an_address_must_name_themselves(home: House) -> None:
    """This holds with or without announcement in the metadata; the refusal explains how to get a separate URL."""
    file = home.folder / "gateway.yaml"
    file.write_text(
        file.read_text("utf-8").replace(
            "evil: {type: authorization_code, callback: own,", "evil: {type: authorization_code,"
        )
    )
    await home.restart()
    _, begun = await home.api("connections/evil", {})
    asked = dict(parse_qsl(begun["location"].partition("?")[2]))
    assert asked["redirect_uri"] == f"{home.console}/oauth/callback"
    query = urlencode({**asked, "client_id": "console", "scope": "openid"})
    async with local_client() as pages:
        sent = await sign_in(pages, f"{home.provider.issuer}/auth?{query}", "alice", asked["redirect_uri"])
    for issuer in ("kept", "dropped"):
        told = await came_back(home, sent)
        if issuer == "dropped":
            _, begun = await home.api("connections/evil", {})
            told |= {"state": dict(parse_qsl(begun["location"].partition("?")[2]))["state"]}
            del told["iss"]
        status, said = await home.api("connections/finish", {"secret": begun["secret"], "answer": told})
        assert (status, said["type"]) == (502, "urn:webmcp-gateway:credential-failed")
        assert ("callback: own" in said["detail"]) == (issuer == "dropped")
    assert home.resource.seen == []
