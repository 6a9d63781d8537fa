"""Several issuers at which people log in: none receives the code of another (RFC 9700, 4.4; RFC 9207)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import aiohttp
import pytest
from aiohttp import web

from gateway.callers.people import issuer_names
from tests.callers.people import CROSSING, NAVIGATION, Town, get, town
from tests.oidc.sign_in import sign_in
from tests.world import serving


@dataclass(slots=True)
class Evil:
    """An issuer without `iss` in its answers; `seen` are the forms that its token endpoint received."""

    url: str
    seen: list[dict[str, str]]


@dataclass(slots=True)
class Two:
    """A gateway with an honest and a malicious issuer."""

    place: Town
    evil: Evil

    async def begun(self, browser: aiohttp.ClientSession, issuer: int) -> str:
        """Begin a login; return where the browser is redirected."""
        start = f"{self.place.world.console}/login?issuer={issuer}&to=/"
        async with browser.get(start, headers=NAVIGATION, allow_redirects=False) as got:
            assert got.status == 302, await got.text()
            return got.headers["location"]

    async def came_back(self, browser: aiohttp.ClientSession, back: str) -> tuple[int, str]:
        """Return the gateway's answer to the browser that was redirected back."""
        async with browser.get(back, headers=CROSSING) as got:
            return got.status, await got.text()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    """Yield both issuers; the malicious one is the second."""
    evil = Evil("", [])

    async def metadata(_: web.Request) -> web.Response:
        ends = {f"{name}_endpoint": f"{evil.url}/{name}" for name in ("authorization", "token")}
        return web.json_response({"issuer": evil.url, "jwks_uri": f"{evil.url}/keys", **ends})

    async def token(request: web.Request) -> web.Response:
        evil.seen.append({name: str(value) for name, value in (await request.post()).items()})
        return web.json_response({}, status=400)

    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", metadata)
    app.router.add_post("/token", token)
    async with serving(app) as port, town(tmp_path) as place:
        evil.url = f"http://127.0.0.1:{port}"
        file = tmp_path / "gateway.yaml"
        entry = f"  - {{type: oauth, issuer: '{evil.url}', client_id: us, network: private}}\nroles: {{user:"
        file.write_text(file.read_text("utf-8").replace("roles: {user:", entry), "utf-8")
        await place.world.gateway.stop()
        await place.world.start_gateway()
        yield Two(place, evil)


async def test_an_issuer_that_names_itself_leads_to_the_shared_address(two: Two) -> None:
    """An answer logs in only if it contains `iss`, which only the issuer's metadata announced."""
    console = two.place.world.console
    for change, status in (("", 200), ("iss", 403)):
        async with two.place.world.client() as browser, aiohttp.ClientSession() as pages:
            back = await sign_in(pages, await two.begun(browser, 0), "alice", f"{console}/login/back")
            path, _, query = back.partition("?")
            assert path == f"{console}/login/back"
            told = urlencode([(name, value) for name, value in parse_qsl(query) if name != change])
            assert (await two.came_back(browser, f"{path}?{told}"))[0] == status
            assert (await get(browser, f"{console}/api/state"))[0] == (200 if status == 200 else 401)


async def test_an_issuer_that_does_not_name_itself_has_an_address_of_its_own(two: Two) -> None:
    """Its answer is redeemed there with that redirect URI, and nowhere else."""
    console, (own,) = two.place.world.console, issuer_names([two.evil.url])
    async with two.place.world.client() as browser:
        asked = dict(parse_qsl((await two.begun(browser, 1)).partition("?")[2]))
        assert asked["redirect_uri"] == f"{console}/login/back/{own}"
        query = urlencode({"code": "c", "state": asked["state"]})
        await two.came_back(browser, f"{console}/login/back/{own}?{query}")
    assert [(form["code"], form["redirect_uri"]) for form in two.evil.seen] == [("c", asked["redirect_uri"])]


ELSEWHERE = [(place, issuer) for place in ("", "/honest", "/evil", "/nobody") for issuer in ("kept", "dropped")]
ELSEWHERE.remove(("/evil", "dropped"))  # the honest issuer never redirects there: it does not know that address


@pytest.mark.parametrize(("place", "issuer"), ELSEWHERE)
async def test_the_code_of_another_issuer_is_not_given_away(two: Two, place: str, issuer: str) -> None:
    """The malicious issuer redirects the person to the honest one, whose answer carries the malicious login's state."""
    console = two.place.world.console
    honest, evil = issuer_names([two.place.provider.issuer, two.evil.url])
    async with two.place.world.client() as browser, aiohttp.ClientSession() as pages:
        asked = dict(parse_qsl((await two.begun(browser, 1)).partition("?")[2]))
        back = f"{console}/login/back"
        query = urlencode({**asked, "client_id": "console", "redirect_uri": back})
        sent = await sign_in(pages, f"{two.place.provider.issuer}/auth?{query}", "alice", back)
        told = [one for one in parse_qsl(sent.partition("?")[2]) if issuer == "kept" or one[0] != "iss"]
        assert dict(told)["code"]
        address = back + place.replace("honest", honest).replace("evil", evil)
        status, _ = await two.came_back(browser, f"{address}?{urlencode(told)}")
    assert status == 403
    assert two.evil.seen == []


def test_each_issuer_has_a_name_of_its_own() -> None:
    """Also if their URLs differ in punctuation alone."""
    told = issuer_names(
        ["https://login.example.com/realms/main", "https://a.example/b", "https://a.example-b", "https://Ä"]
    )
    assert told == ["login-example-com-realms-main", "a-example-b", "a-example-b-2", "issuer"]


async def test_a_person_chooses_the_issuer_by_a_link(two: Two) -> None:
    """The page to log in has a link to each, which leads on to where the person wanted to go."""
    async with two.place.world.client() as browser:
        async with browser.get(f"{two.place.world.console}/login?to=/%23a", headers=NAVIGATION) as got:
            links = re.findall('href="(/login[^"]+)">([^<]+)<', await got.text())
        assert [label for _, label in links] == [two.place.provider.issuer, two.evil.url]
        for link, label in links:
            url = f"{two.place.world.console}{unescape(link)}"
            async with browser.get(url, headers=NAVIGATION, allow_redirects=False) as got:
                assert got.headers["location"].startswith(label), link
            assert "to=%2F%23a" in url
