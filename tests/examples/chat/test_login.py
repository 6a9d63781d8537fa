"""The demo chat's sign-in: its back end against the demo's issuer, and what people see of each other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from joserfc.jwk import ECKey

from examples.chat_host import issuer
from examples.chat_host.login import Login, LoginError
from examples.chat_host.seats import Seats
from examples.chat_host.server import SEATS, build_app
from examples.chat_host.settings import SettingsError, read_settings
from tests.examples.chat.running import settings_for
from tests.examples.chat.world import chat_world, issuer_for, login_settings
from tests.world import Server, local_client


@dataclass(frozen=True, slots=True)
class Signing:
    """A running chat and the issuer of its people; without a gateway unless one is said."""

    url: str
    issuer: issuer.Issuer
    seats: Seats

    async def begin(self, http: aiohttp.ClientSession) -> str:
        """Begin a sign-in; return the address at the issuer."""
        async with http.get(f"{self.url}/sign-in", allow_redirects=False) as response:
            assert response.status == 303
            return response.headers["location"]

    async def pick(self, http: aiohttp.ClientSession, address: str, person: str) -> str:
        """Pick a person at the issuer; return the address to which it leads."""
        async with http.post(address, data={"person": person}, allow_redirects=False) as response:
            assert response.status == 303
            return response.headers["location"]

    async def end(self, http: aiohttp.ClientSession, address: str) -> int:
        """Come back to the chat; return the status."""
        async with http.get(address, allow_redirects=False) as response:
            return response.status

    async def sign_in(self, http: aiohttp.ClientSession, person: str) -> None:
        """Sign a person in."""
        assert await self.end(http, await self.pick(http, await self.begin(http), person)) == 303

    async def post(self, http: aiohttp.ClientSession, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Post to the chat's back end; return the JSON of its answer, or the status of a refusal."""
        async with http.post(f"{self.url}/api/{path}", json=body or {}) as response:
            return await response.json() if response.ok else response.status


@asynccontextmanager
async def signing(folder: Path) -> AsyncIterator[Signing]:
    """A chat with a login, whose gateway cannot be reached."""
    people, door = Server(), Server()
    made = issuer_for(people.port, door.port, 9)
    more: dict[str, Any] = {**login_settings(people.port)}
    app = build_app(settings_for(folder, door.port, "http://localhost:9", **more))
    try:
        await people.start(issuer.build_app(made))
        await door.start(app)
        yield Signing(f"http://localhost:{door.port}", made, app[SEATS])
    finally:
        await door.stop()
        await people.stop()


async def test_a_person_signs_in_and_out(tmp_path: Path) -> None:
    """Without a session nothing is answered; its cookie is out of the reach of scripts and of other sites."""
    async with signing(tmp_path) as chat, local_client() as http:
        for path in ("conversations", "token", "sign-out", f"conversations/{'x' * 22}/messages"):
            assert await chat.post(http, path, {"text": "x"}) == 401
        back = await chat.pick(http, await chat.begin(http), "alice")
        async with http.get(back, allow_redirects=False) as response:
            assert (response.status, response.headers["location"]) == (303, "/")
            [cookie] = [one for one in response.headers.getall("set-cookie") if one.startswith("parlour=")]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        id = (await chat.post(http, "conversations"))["id"]

        kept = {one.key: one.value for one in http.cookie_jar}
        async with aiohttp.ClientSession(cookies=kept) as same:
            assert "id" in await chat.post(same, "conversations")
        async with http.get(f"{chat.url}/api/conversations/{id}/events") as stream:
            assert b'"person": "Alice Ferreira"' in await stream.content.readline()
            assert await chat.post(http, "sign-out") == {}
            async with asyncio.timeout(30):
                await stream.read()  # it ends
        assert await chat.post(http, f"conversations/{id}/messages", {"text": "x"}) == 401
        async with aiohttp.ClientSession(cookies=kept) as thief:  # the cookie of before
            assert await chat.post(thief, "conversations") == 401

        await chat.sign_in(http, "alice")
        async with http.get(f"{chat.url}/api/conversations/{id}/events") as stream:
            assert stream.status == 200  # what she has said is hers again


async def test_people_see_only_their_own_conversations(tmp_path: Path) -> None:
    """One cannot read, write or stop what is the other's, even with its id; a second browser of hers can."""
    async with signing(tmp_path) as chat, local_client() as hers, local_client() as his, local_client() as second:
        for http, person in ((hers, "alice"), (his, "bob"), (second, "alice")):
            await chat.sign_in(http, person)
        id = (await chat.post(hers, "conversations"))["id"]
        for path in ("messages", "context", "skip", "stop", "retry"):
            assert await chat.post(his, f"conversations/{id}/{path}", {"text": "x"}) == 404
        for http, status in ((his, 404), (second, 200)):
            async with http.get(f"{chat.url}/api/conversations/{id}/events") as stream:
                assert stream.status == status
        assert await chat.post(his, "sign-out") == {}
        assert await chat.post(second, "conversations") != 401


def other(address: str, **query: str | None) -> str:
    """Return the address with other parameters; None removes one."""
    parts = urlsplit(address)
    changed = {**{name: values[0] for name, values in parse_qs(parts.query).items()}, **query}
    return parts._replace(query=urlencode({name: one for name, one in changed.items() if one is not None})).geturl()


@pytest.mark.parametrize(
    "change",
    [
        {"state": "another"},
        {"state": None},
        {"iss": "http://localhost:1"},
        {"iss": None},
        {"code": "another"},
        {"code": None, "error": "access_denied"},
    ],
    ids=lambda change: "-".join(f"{name}={value}" for name, value in change.items()),
)
async def test_a_wrong_answer_signs_nobody_in(tmp_path: Path, change: dict[str, str | None]) -> None:
    """The attempt is used up by it, so that the right answer comes too late."""
    async with signing(tmp_path) as chat, local_client() as http:
        back = await chat.pick(http, await chat.begin(http), "alice")
        assert await chat.end(http, other(back, **change)) == 400
        assert await chat.end(http, back) == 400
        assert await chat.post(http, "conversations") == 401


async def test_an_answer_counts_once_and_in_its_own_browser(tmp_path: Path) -> None:
    """Nobody can sign another browser in as themselves."""
    async with signing(tmp_path) as chat, local_client() as http, local_client() as victim:
        back = await chat.pick(http, await chat.begin(http), "bob")
        assert await chat.end(victim, back) == 400  # it has begun nothing
        await chat.begin(victim)
        assert await chat.end(victim, back) == 400  # it has begun another one
        assert await chat.end(http, back) == 303
        assert await chat.end(http, back) == 400
        assert await chat.post(victim, "conversations") == 401


async def test_a_new_sign_in_replaces_the_session(tmp_path: Path) -> None:
    """The former person of the browser is out, with their cookie."""
    async with signing(tmp_path) as chat, local_client() as http:
        await chat.sign_in(http, "alice")
        id, kept = (await chat.post(http, "conversations"))["id"], {one.key: one.value for one in http.cookie_jar}
        await chat.sign_in(http, "bob")
        assert await chat.post(http, f"conversations/{id}/stop") == 404
        async with aiohttp.ClientSession(cookies=kept) as former:
            assert await chat.post(former, "conversations") == 401


@pytest.mark.parametrize("claim", ["nonce", "aud", "iss", "exp", "key"])
async def test_an_id_token_of_something_else_signs_nobody_in(
    tmp_path: Path, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another nonce, client or issuer, expired, or signed by another key."""
    async with signing(tmp_path) as chat, local_client() as http:
        back = await chat.pick(http, await chat.begin(http), "alice")
        sign = issuer.Issuer._sign

        def other_sign(made: issuer.Issuer, claims: dict[str, object], type: str) -> str:
            if claim == "key":
                forger = issuer.Issuer(made.url, made.audience, made.clients)
                forger.key = ECKey.generate_key("P-256", {"kid": str(made.key.kid)})
                return sign(forger, claims, type)
            wrong: dict[str, object] = {"exp": 1}
            return sign(made, {**claims, claim: wrong.get(claim, "another")}, type)

        monkeypatch.setattr(issuer.Issuer, "_sign", other_sign)
        async with http.get(back) as response:
            assert response.status == 400
            assert "does not prove who you are" in await response.text()
        assert await chat.post(http, "conversations") == 401


async def test_a_session_ends_with_the_persons_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream of the page ends, too."""
    monkeypatch.setattr(issuer, "TOKEN_LIFETIME", 2)
    async with signing(tmp_path) as chat, local_client() as http:
        await chat.sign_in(http, "alice")
        id = (await chat.post(http, "conversations"))["id"]
        async with http.get(f"{chat.url}/api/conversations/{id}/events") as stream, asyncio.timeout(60):
            assert stream.status == 200
            await stream.read()
        assert await chat.post(http, "conversations") == 401


async def test_the_issuer_gives_codes_to_its_clients_only(tmp_path: Path) -> None:
    """Not to another redirect URI, not without a proof key, and tokens only for the right secret and verifier."""
    async with signing(tmp_path) as chat, local_client() as http:
        address = await chat.begin(http)
        for change in ({"redirect_uri": "http://evil.test/signed-in"}, {"client_id": "another"}):
            async with http.get(other(address, **change), allow_redirects=False) as response:
                assert response.status == 400
        wrong: list[dict[str, str | None]] = [
            {"code_challenge": None},
            {"code_challenge_method": "plain"},
            {"response_type": "token"},
        ]
        for query in wrong:
            async with http.post(other(address, **query), data={"person": "alice"}, allow_redirects=False) as response:
                assert "error=invalid_request" in response.headers["location"]
        assert "error=access_denied" in await chat.pick(http, address, "mallory")
        async with http.get(address) as response:
            assert re.findall(r'value="(\w+)"', await response.text()) == list(issuer.PEOPLE)
        code = parse_qs(urlsplit(await chat.pick(http, address, "alice")).query)["code"][0]
        client = chat.issuer.clients["parlour"]
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": client.redirect_uri}
        tries = [("parlour", "wrong", 401), ("another", client.secret, 401), ("parlour", client.secret, 400)]
        for id, secret, status in tries:
            with_client = {**form, "client_id": id, "client_secret": secret, "code_verifier": "guessed"}
            async with http.post(f"{chat.issuer.url}/token", data=with_client) as response:
                assert response.status == status


async def test_an_issuer_that_is_away_or_another_is_told(tmp_path: Path) -> None:
    """Before anybody is led anywhere; and settings that lack a client are refused."""
    async with signing(tmp_path) as chat, local_client() as http:
        settings = chat.seats.settings
        for wrong, words in (
            ("http://localhost:9", "cannot be reached"),
            (settings.issuer.replace("localhost", "127.0.0.1"), "describe itself"),
        ):
            changed = settings_for(tmp_path, 1, "http://localhost:9", issuer=wrong, login_id="parlour")
            with pytest.raises(LoginError, match=words):
                await Login(http, changed).begin()
    with pytest.raises(SettingsError, match="CHAT_LOGIN_ID"):
        read_settings({"CHAT_ISSUER": "http://localhost:9403"}, tmp_path)


async def test_each_person_has_a_token_of_their_own_for_the_page(tmp_path: Path) -> None:
    """The gateway gives each of them another one, and no page gets the person's own."""
    async with chat_world(tmp_path, login=True) as world, local_client() as hers, local_client() as his:
        url = world.chat.settings.url
        tokens = []
        for http, person in ((hers, "alice"), (his, "bob")):
            async with http.get(f"{url}/sign-in", allow_redirects=False) as begun:
                address = begun.headers["location"]
            async with http.post(address, data={"person": person}) as response:
                assert response.status == 200
            for _ in range(2):
                async with http.post(f"{url}/api/token", json={}) as response:
                    assert response.status == 200, await response.text()
                    tokens.append((await response.json())["token"])
        assert [tokens[0] == tokens[1], tokens[2] == tokens[3], tokens[0] == tokens[2]] == [True, True, False]
        assert all(token.startswith("wmh_") for token in tokens)
