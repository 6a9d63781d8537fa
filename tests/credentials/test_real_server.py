"""Tests of credentials against a real authorization server, through a whole gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from yarl import URL

from tests.credentials.house import SECRET, House, house


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as running:
        yield running


def grants(events: list[dict[str, str]]) -> list[tuple[str, str, str | None]]:
    """The events of grants at the server: granted or refused."""
    return [(e["event"], e["grant"], e["error"]) for e in events if e["event"].startswith("grant.") and e["grant"]]


@pytest.mark.parametrize("kind", ["secret", "post", "key"])
async def test_a_client_of_its_own(home: House, kind: str) -> None:
    """The gateway authenticates, by each method, and its token is redacted in answers."""
    status, seen = await home.get(kind)
    assert status == 200
    assert seen["authorization"] == "Bearer ***"
    assert home.resource.seen[0]["authorization"].startswith("Bearer ")
    assert grants(await home.provider.events()) == [("grant.success", "client_credentials", None)]


@pytest.mark.parametrize(("kind", "field"), [("header", "x-api-key"), ("basic", "authorization")])
async def test_what_never_changes(home: House, kind: str, field: str) -> None:
    """A header and a password are sent to the backend only."""
    status, seen = await home.get(kind)
    assert status == 200
    assert seen[field].endswith("***")
    assert not home.resource.seen[0][field].endswith("***")


async def test_500_calls_with_an_expired_token_ask_for_one(tmp_path: Path) -> None:
    """The token has expired, and its renewal is delayed at the server while the other calls come."""
    async with house(tmp_path) as home:
        assert (await home.connect())[0] == 200
        for kind, grant in (("secret", "client_credentials"), ("person", "refresh_token")):
            assert (await home.get(kind))[0] == 200
            await home.expire(kind)
            await home.provider.events()
            await home.provider.hold()
            calls = [asyncio.create_task(home.get(kind)) for _ in range(500)]
            await home.provider.held()
            await home.provider.release()
            assert {status for status, _ in await asyncio.gather(*calls)} == {200}
            assert grants(await home.provider.events()) == [("grant.success", grant, None)]


async def test_two_gateways_on_one_database_ask_for_one(tmp_path: Path) -> None:
    """Both have calls that need the expired token of a person; the refresh token is used once."""
    async with house(tmp_path) as home:
        assert (await home.connect())[0] == 200
        await home.expire("person")
        await home.provider.events()
        async with home.twin() as twin:
            await home.provider.hold()
            calls = [asyncio.create_task(one.get("person")) for one in (home, twin) for _ in range(50)]
            await home.provider.held()
            await home.provider.release()
            assert {status for status, _ in await asyncio.gather(*calls)} == {200}
        assert grants(await home.provider.events()) == [("grant.success", "refresh_token", None)]
        assert len({fields["authorization"] for fields in home.resource.seen}) == 1


async def test_500_calls_without_a_token_ask_for_one(tmp_path: Path) -> None:
    """After a restart there is no request for a token: it is stored."""
    async with house(tmp_path) as home:
        answers = await asyncio.gather(*(home.get("secret") for _ in range(500)))
        assert {status for status, _ in answers} == {200}
        assert len(grants(await home.provider.events())) == 1
        await home.restart()
        assert (await home.get("secret"))[0] == 200
        assert grants(await home.provider.events()) == []


@pytest.mark.parametrize("nonce", [False, True])
async def test_dpop(tmp_path: Path, nonce: bool) -> None:
    """The token is bound to a key; each request carries a new proof; a nonce is used if the server requires one."""
    async with house(tmp_path, dpop_nonce=nonce) as home:
        assert (await home.get("bound", "one"))[0] == 200
        assert (await home.get("bound", "two"))[0] == 200
        assert (await home.provider.events())[-1]["event"] == "grant.success"
        first, second = home.resource.seen
        assert first["authorization"].startswith("DPoP ")
        assert first["authorization"] == second["authorization"]
        assert first["dpop"] != second["dpop"]


async def test_a_person_connects_uses_and_disconnects(home: House) -> None:
    """The first answer is 401 with connect_url; after the provider's login pages the person's account is used."""
    status, told = await home.get("person")
    assert (status, told["type"]) == (401, "urn:webmcp-gateway:reason:credential-needed")
    assert told["connect_url"].startswith(f"{home.console}/connect/person?for=")
    status, connected = await home.connect("alice")
    assert (status, connected["account"]) == (200, "alice@example.com")
    assert (await home.get("person"))[0] == 200
    _, listed = await home.api("connections")
    (one,) = listed["connections"]
    assert (one["credential"], one["title"], one["account"]) == ("person", "The shop", "alice@example.com")
    assert await home.api("connections/person/disconnect", {}) == (200, {"revoked": True})
    assert (await home.get("person"))[0] == 401
    kinds = [line for line in home.written() if line.endswith(".journal")]
    assert kinds


async def test_refresh_rotates(tmp_path: Path) -> None:
    """An expired token is renewed with the refresh token, each of which is used once, for many concurrent calls."""
    async with house(tmp_path, ttl={"AccessToken": 1}) as home:
        assert (await home.connect())[0] == 200
        await home.provider.events()
        for _ in range(2):
            await asyncio.sleep(1.1)
            answers = await asyncio.gather(*(home.get("person") for _ in range(20)))
            assert {status for status, _ in answers} == {200}
        found = grants(await home.provider.events())
        assert set(found) == {("grant.success", "refresh_token", None)}
        assert len({fields["authorization"] for fields in home.resource.seen}) == len(found)


async def test_a_refresh_token_that_was_used_before_ends_the_connection(tmp_path: Path) -> None:
    """An attacker used it: the server revokes the grant, and the person must connect again."""
    async with house(tmp_path, ttl={"AccessToken": 1}) as home:
        await home.connect()
        database = tmp_path / "gateway.db"
        await home.gateway.stop()
        stolen = database.read_bytes()
        await home.start()
        await asyncio.sleep(1.1)
        assert (await home.get("person"))[0] == 200  # this uses the refresh token
        await home.gateway.stop()
        for leftover in ("gateway.db-wal", "gateway.db-shm"):
            (tmp_path / leftover).unlink(missing_ok=True)
        database.write_bytes(stolen)
        await home.start()
        await asyncio.sleep(1.1)
        status, told = await home.get("person")
        assert (status, told["title"]) == (401, "Credential needed")
        assert "invalid_grant" in told["cause"]
        assert any(event["event"] == "grant.revoked" for event in await home.provider.events())
        assert (await home.connect())[0] == 200
        assert (await home.get("person"))[0] == 200


async def test_a_dead_server_is_told(home: House) -> None:
    """After its recovery calls work again."""
    await home.provider.set_down(True)
    answers = await asyncio.gather(*(home.get("secret") for _ in range(20)))
    assert {(status, told["type"].rpartition(":")[2]) for status, told in answers} == {(502, "credential-failed")}
    await home.provider.set_down(False)
    assert (await home.get("secret"))[0] == 200


async def test_keys_of_the_server_that_rotate_do_no_harm(home: House) -> None:
    """Tokens are opaque to the gateway; a login during a rotation works."""
    assert (await home.connect())[0] == 200
    await home.provider.rotate_keys()
    assert (await home.get("person"))[0] == 200
    assert (await home.connect("bob"))[1]["account"] == "bob@example.com"


async def test_no_secret_is_written_anywhere(home: House, caplog: pytest.LogCaptureFixture) -> None:
    """Configured secrets, tokens and login data are absent from database, journal, log and answers."""
    caplog.set_level("DEBUG")
    answers: list[object] = [await home.connect()]
    for kind in ("secret", "post", "key", "bound", "person", "header", "basic"):
        answers.append(await home.get(kind))
    await home.provider.set_down(True)
    await home.restart()
    answers += [await home.get("person"), await home.api("connections"), await home.api("audit?limit=100")]
    shown = [fields.get("authorization", "").split(" ")[-1] for fields in home.resource.seen]
    secrets = {SECRET, *(value for value in shown if value)}
    await home.gateway.stop()
    places = {**home.written(), "log": caplog.text.encode(), "answers": repr(answers).encode()}
    assert len(secrets) > 5
    leaks = [(where, secret[:6]) for where, data in places.items() for secret in secrets if secret.encode() in data]
    assert leaks == []
    assert b"PRIVATE KEY" not in b"".join(places.values())


async def test_a_login_belongs_to_the_window_that_began_it(home: House) -> None:
    """Another secret, another state, and a second use of a valid one are refused."""
    _, begun = await home.api("connections/person", {})
    for answer in ({}, {"state": "unknown", "code": "x"}):
        assert (await home.api("connections/finish", {"secret": begun["secret"], "answer": answer}))[0] == 400
    state = dict(part.split("=") for part in begun["location"].partition("?")[2].split("&"))["state"]
    told = {"secret": "of-another-window", "answer": {"state": state, "code": "x"}}
    assert (await home.api("connections/finish", told))[0] == 403
    told["secret"] = begun["secret"]
    assert (await home.api("connections/finish", told))[0] == 400  # it was used up


async def test_an_answer_that_belongs_to_no_login_connects_nothing(home: House) -> None:
    """A foreign code, a foreign `iss`, an error, or invalid values each use the login up; the next one works."""
    another = (await home.consented("mallory"))["answer"]
    wrong: list[tuple[dict[str, str], int]] = [
        ({"code": another["code"]}, 502),  # issued for another login: its verifier does not match
        ({"iss": "https://evil.example"}, 502),
        ({"iss": ""}, 502),
        ({"iss": home.provider.issuer + "/"}, 502),
        ({"code": ""}, 502),
        ({"code": "x" * 4097}, 502),
        ({"code": "a\r\nb"}, 502),
        ({"error": "access_denied"}, 401),
        ({"error": "<script>EVIL</script>"}, 401),
    ]
    for more, expected in wrong:
        told = await home.consented()
        status, said = await home.api("connections/finish", {**told, "answer": {**told["answer"], **more}})
        assert (status, "EVIL" in str(said)) == (expected, False), more
        assert (await home.api("connections/finish", told))[0] == 400, more
    told = await home.consented()
    del told["answer"]["iss"]  # a server that announces `iss` always sends it
    assert (await home.api("connections/finish", told))[0] == 502
    assert (await home.get("person"))[0] == 401
    told = await home.consented("bob")
    ends = await asyncio.gather(*(home.api("connections/finish", told) for _ in range(5)))
    assert sorted(status for status, _ in ends) == [200, 400, 400, 400, 400]
    assert (await home.get("person"))[0] == 200


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("code=a&state=b&to=https://evil.example/&redirect_uri=//evil.example&next=x", {"code": "a", "state": "b"}),
        (
            "code=a%26secret%3DEVIL%26state%3DEVIL&state=%23%2F..%2Fx",
            {"code": "a&secret=EVIL&state=EVIL", "state": "#/../x"},
        ),
        ("code=a%2Bb%2F%25%3D&state=b+c", {"code": "a+b/%=", "state": "b c"}),
        ("code=a&code=EVIL&state=b&state=EVIL", {"code": "a", "state": "b"}),
        (
            "code=%0d%0alocation:%20https://evil.example&iss=%00",
            {"code": "\r\nlocation: https://evil.example", "iss": "\0"},
        ),
        (f"error={'a' * 6000}", {"error": "a" * 4096}),
    ],
    ids=["elsewhere", "more", "odd", "twice", "line", "long"],
)
async def test_the_way_back_leads_to_the_console_alone(home: House, query: str, said: dict[str, str]) -> None:
    """The redirect leads to the page that finishes a login, with the parameters of an answer, unchanged."""
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    place = URL(f"{home.console}/oauth/callback?{query}", encoded=True)
    async with home.http.get(place, headers=headers, allow_redirects=False) as answer:
        page, _, told = answer.headers["location"].partition("?")
    assert (answer.status, page) == (303, "/#/connected")
    assert parse_qsl(told) == [*said.items()]


async def test_a_link_of_somebody_else_starts_nothing(home: House) -> None:
    """The link may be another person's, or of a credential that is not per person."""
    status, told = await home.api("connections/person", {"for": "0123456789abcdef"})
    assert (status, told["type"]) == (403, "urn:webmcp-gateway:other-person")
    assert (await home.api("connections/secret", {}))[0] == 404
