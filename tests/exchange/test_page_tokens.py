"""The app's own login: its token is passed to its backend alone, or kept from the page behind a handle."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from msgspec import structs

from gateway.exchange.page_tokens import CALLERS, REMEMBERED, PageTokens
from gateway.exchange.sockets import OpenSocket
from gateway.exchange.streams import Stream
from gateway.model import WEBSOCKET, Caller, Headers, Outbound, Principal, Request, Response
from gateway.stores.sealing import KeyFile, KeyRing
from tests.exchange.house import JSON, PAGE, House, StreamingShop, building
from tests.exchange.test_sockets import SocketShop

TOKEN = "tok-1234567890/+=abc"
POLICY = """
version: 1
backends:
  api: {{url: "http://api.test", authorization: {authorization}}}
  other: {{url: "http://other.test", origins: ["http://other.test"], authorization: {authorization}}}
routes:
  - {{path: /login, methods: [POST], backend: api, {vault}}}
  - {{path: /refresh, methods: [POST], backend: api, {vault}}}
  - {{path: /other/**, methods: [GET], backend: other}}
  - {{path: "/asked/{{name:encoded}}", methods: [POST], backend: api, confirm: {{message: "Send {{params.name}}?"}}}}
  - {{path: /chat, methods: [GET], backend: api, websocket: true}}
  - {{path: /denied/**, deny: "not here"}}
  - {{path: /**, methods: [GET, POST], backend: api, stream: true, redirects: same-route}}
"""
VAULT = "vault: [$.access_token, $.refresh_token]"
BOB = structs.replace(PAGE, principal=Principal("local", "local", "bob"))


def policy(authorization: str) -> str:
    return POLICY.format(authorization=authorization, vault=VAULT if authorization == "vault" else "redirects: safe")


def bearer(token: str) -> Headers:
    return (("authorization", f"Bearer {token}"),)


def sent(house: House) -> dict[str, str]:
    return dict(house.shop.sent[-1].headers)


@pytest.fixture
async def passing(tmp_path: Path) -> AsyncIterator[House]:
    """An exchange whose backends get the page's own authorization."""
    async with building(tmp_path, policy("pass")) as house:
        yield house


@pytest.fixture
async def vaulting(tmp_path: Path) -> AsyncIterator[House]:
    """An exchange that keeps the tokens of a login from the page."""
    async with building(tmp_path, policy("vault")) as house:
        yield house


async def login(house: House, token: str = TOKEN, caller: Caller = PAGE, **more: Any) -> dict[str, Any]:
    """Log in, and return what the page gets."""
    body = json.dumps({"access_token": token, "expires_in": 3600, **more}).encode()
    house.shop.answer = lambda _: Response(200, JSON, body)
    answer = await house.exchange.run(Request("POST", "/login", JSON, b'{"password": "x"}'), caller)
    found: dict[str, Any] = json.loads(answer.body)
    return found


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}", TOKEN, "Token abc", "Basic dTpwYXNzd29yZDE="])
async def test_it_is_passed_as_the_page_wrote_it(passing: House, value: str) -> None:
    """In any scheme, and the record contains only that it was."""
    answer = await passing.exchange.run(Request("GET", "/me", (("Authorization", value),)), PAGE)
    assert answer.status == 200
    assert answer.header("gateway-dropped") is None
    assert sent(passing)["authorization"] == value
    assert passing.outcome()["authorization"] == "pass"
    assert TOKEN not in passing.journal.path.read_text("utf-8")


async def test_the_page_gets_back_what_it_holds(passing: House) -> None:
    """Many logins answer with the same token."""
    passing.shop.answer = lambda request: Response(200, JSON, json.dumps({"token": TOKEN}).encode())
    answer = await passing.exchange.run(Request("GET", "/me", bearer(TOKEN)), PAGE)
    assert json.loads(answer.body) == {"token": TOKEN}


@pytest.mark.parametrize(
    "url",
    [f"/me?token={TOKEN}", f"/me?token={quote(TOKEN, safe='')}&a=b", f"/files/{TOKEN[:14]}?t={TOKEN}"],
)
async def test_a_token_in_a_url_is_not_recorded(passing: House, url: str) -> None:
    """The backend gets it as the page wrote it; of another URL everything is recorded."""
    await passing.exchange.run(Request("GET", "/me?token=tok-1&a=%2F", bearer(TOKEN)), PAGE)
    assert passing.outcome()["url"] == "/me?token=tok-1&a=%2F"
    await passing.exchange.run(Request("GET", url), PAGE)
    assert unquote(passing.shop.sent[-1].url).count(TOKEN) == 1
    assert "***" in passing.outcome()["url"]
    written = passing.journal.path.read_text("utf-8")
    assert TOKEN not in written
    assert quote(TOKEN, safe="") not in written


TWICE = quote(quote(TOKEN, safe=""), safe="")
FORMS = (TOKEN, quote(TOKEN, safe=""), quote(TOKEN, safe="").lower(), TWICE, TOKEN.replace("/", "\\/"))


@pytest.mark.parametrize("authorization", ["pass", "drop"])
async def test_a_person_is_asked_without_the_token(tmp_path: Path, authorization: str) -> None:
    """In no form, wherever the page put it, also at its first request; what is sent is what the page wrote."""
    encoded, values = quote(TOKEN, safe=""), ", ".join(f'"a {form} b"' for form in FORMS)
    body = f'{{"{TOKEN}": [{values}]}}'
    url = f"/asked/{encoded}?next={quote(f'/x?token={encoded}', safe='')}&a=%2F"
    headers = (*bearer(TOKEN), *JSON, ("x-copy", TOKEN))
    async with building(tmp_path, policy(authorization)) as house:
        pending = await house.exchange.run(Request("POST", url, headers, body.encode()), PAGE)
        assert pending.status == 202
        (question,) = [one.question for one in house.approvals.open()]
        shown = f"{question} {pending.body.decode()} {pending.url} {house.journal.path.read_text('utf-8')}"
        assert [form for form in FORMS if form in shown] == []
        assert question.message == "Send ***?"
        assert question.target == "/asked/***?next=%2Fx%3Ftoken%3D***&a=%2F"
        assert dict(question.headers)["x-copy"] == "***"
        assert json.loads(question.body) == {"***": ["a *** b"] * len(FORMS)}
        await house.approvals.answer(question.id, True, "a person")
        answer = await house.exchange.resume(question.id, PAGE, wait=60)
        assert answer.status == 200
        assert house.shop.sent[-1].body.decode() == body
        assert unquote(house.shop.sent[-1].url).startswith(f"http://api.test/asked/{TOKEN}?")
        written = house.journal.path.read_text("utf-8")
    assert [form for form in FORMS if form in written] == []


async def test_a_refused_request_is_recorded_without_the_token(passing: House) -> None:
    """Its URL and the text of its refusal, of the first request that has it."""
    answer = await passing.exchange.run(Request("GET", f"/denied/{TOKEN}?t={TWICE}", bearer(TOKEN)), PAGE)
    assert answer.status == 403
    assert passing.outcome()["url"] == "/denied/***?t=***"
    assert TOKEN not in passing.journal.path.read_text("utf-8")


async def test_a_word_in_place_of_a_token_is_none(passing: House) -> None:
    """Scripts write `undefined` before a login, which is no secret of later records."""
    await passing.exchange.run(Request("GET", "/undefined", bearer("undefined")), PAGE)
    assert passing.outcome()["url"] == "/undefined"


async def test_where_it_is_dropped_the_page_is_told(tmp_path: Path) -> None:
    """By a header of the answer, and in the record."""
    async with building(tmp_path, policy("drop")) as house:
        answer = await house.exchange.run(Request("GET", "/me", bearer(TOKEN)), PAGE)
        assert answer.header("gateway-dropped") == "authorization"
        assert "authorization" not in sent(house)
        assert house.outcome()["authorization"] == "dropped"
        plain = await house.exchange.run(Request("GET", "/me"), PAGE)
        assert plain.header("gateway-dropped") is None


@pytest.mark.parametrize("authorization", ["pass", "vault"])
async def test_a_model_sends_no_token(tmp_path: Path, authorization: str) -> None:
    """A call without a view proof."""
    async with building(tmp_path, policy(authorization)) as house:
        handle = (await login(house))["access_token"]
        await house.exchange.run(Request("GET", "/me", bearer(handle)), structs.replace(PAGE, proven=False))
        assert "authorization" not in sent(house)


async def test_two_fields_are_refused(passing: House) -> None:
    """Which of them counts differs between servers."""
    answer = await passing.exchange.run(Request("GET", "/me", bearer("a") + bearer("b")), PAGE)
    assert answer.status == 400
    assert not passing.shop.sent


async def test_a_redirect_to_another_backend_drops_it(passing: House) -> None:
    """One within the backend keeps it, as in browsers."""
    places = iter(["/there", "http://other.test/other/x"])

    def redirect(_: Outbound) -> Response:
        place = next(places, None)
        return Response(302, (("location", place),), b"") if place else Response(200, JSON, b"{}")

    passing.shop.answer = redirect
    await passing.exchange.run(Request("GET", "/me", bearer(TOKEN)), PAGE)
    shown = [dict(request.headers).get("authorization") for request in passing.shop.sent]
    assert shown == [f"Bearer {TOKEN}", f"Bearer {TOKEN}", None]


async def test_the_page_gets_a_handle_that_its_backend_never_sees(vaulting: House) -> None:
    """Numbers at its side stay, and the token is in neither answer nor record."""
    found = await login(vaulting, refresh_token="refresh-me-12345")
    assert found["expires_in"] == 3600
    assert TOKEN not in json.dumps(found)
    assert "refresh-me" not in json.dumps(found)
    vaulting.shop.answer = lambda _: Response(200, JSON, b"{}")
    await vaulting.exchange.run(Request("GET", "/me", bearer(found["access_token"])), PAGE)
    assert sent(vaulting)["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in vaulting.journal.path.read_text("utf-8")


@pytest.mark.parametrize(
    ("type", "write"),
    [
        ("application/json", lambda handle: json.dumps({"refresh_token": handle})),
        ("application/x-www-form-urlencoded", lambda handle: f"grant_type=refresh_token&refresh_token={handle}"),
        ("text/plain", lambda handle: handle),
    ],
)
async def test_a_body_at_the_login_may_hold_a_handle(vaulting: House, type: str, write: Any) -> None:
    """As for a refresh: the backend gets the token, written as the body is."""
    token = 'refresh "me" &/+ 12345'
    handle = (await login(vaulting, refresh_token=token))["refresh_token"]
    await vaulting.exchange.run(Request("POST", "/refresh", (("content-type", type),), write(handle).encode()), PAGE)
    body = vaulting.shop.sent[-1].body.decode()
    assert "wgv1_" not in body
    expected = {
        "application/json": json.dumps({"refresh_token": token}),
        "application/x-www-form-urlencoded": "grant_type=refresh_token&refresh_token=refresh+%22me%22+%26%2F%2B+12345",
        "text/plain": token,
    }[type]
    assert body == expected


async def test_no_other_route_opens_a_handle_in_a_body(vaulting: House) -> None:
    """An echo there would hand the token to the page."""
    handle = (await login(vaulting))["access_token"]
    body = json.dumps({"note": handle}).encode()
    await vaulting.exchange.run(Request("POST", "/notes", JSON, body), PAGE)
    assert vaulting.shop.sent[-1].body == body


async def test_an_echo_is_masked(vaulting: House) -> None:
    """Of the token in the field, also in a stream's parts, in a header, and beside its own place."""
    handle = (await login(vaulting))["access_token"]
    answer = Response(200, (("content-type", "text/plain"), ("link", f"<{TOKEN}>")), f"you sent {TOKEN}".encode())
    vaulting.shop.answer = lambda _: answer
    shown = await vaulting.exchange.run(Request("GET", "/echo", bearer(handle), stream=True), PAGE)
    assert TOKEN.encode() not in shown.body
    assert TOKEN not in str(shown.headers)
    assert vaulting.outcome()["masked"] == ["page authorization"]
    assert TOKEN not in json.dumps(await login(vaulting, other=TOKEN))


async def test_a_token_of_the_vault_is_masked_in_other_answers_too(vaulting: House) -> None:
    """Of its backend, whoever it belongs to alone; a page that sends other values does not change that."""
    handle = (await login(vaulting))["access_token"]
    for number in range(REMEMBERED + 1):
        await vaulting.exchange.run(Request("GET", "/me", bearer(f"other-token-{number}")), PAGE)
    vaulting.shop.answer = lambda _: Response(200, JSON, json.dumps({"session": TOKEN}).encode())
    shown = await vaulting.exchange.run(Request("GET", "/session"), PAGE)
    assert json.loads(shown.body) == {"session": "***"}
    assert vaulting.outcome()["masked"] == ["page authorization"]
    await vaulting.exchange.run(Request("GET", "/me", bearer(handle)), PAGE)
    for caller in (BOB, structs.replace(PAGE, app="copy")):
        another = await vaulting.exchange.run(Request("GET", "/session"), caller)
        assert json.loads(another.body) == {"session": TOKEN}


@pytest.mark.parametrize("first", ["login", "socket"])
async def test_a_token_of_the_vault_comes_by_no_websocket(tmp_path: Path, first: str) -> None:
    """Whether it was opened before the login or after it; a handle that the page sends by it stays one."""
    shop = SocketShop()
    async with building(tmp_path, policy("vault"), shop=shop) as house:
        handle = "" if first == "socket" else (await login(house))["access_token"]
        socket = await house.exchange.open(Request(WEBSOCKET, "/chat", protocols=()), PAGE)
        assert isinstance(socket, OpenSocket)
        handle = handle or (await login(house))["access_token"]
        await socket.send(handle, PAGE)
        (line,) = shop.lines
        assert line.heard == [handle]
        encoded = base64.b64encode(f"<{TOKEN}>".encode()).decode()
        for message in (f"token {TOKEN}", json.dumps([TOKEN]), quote(TOKEN, safe=""), TOKEN.encode(), encoded):
            line.to_page.put_nowait(message)
        said = [await socket.receive() for _ in range(5)]
        await socket.aclose()
        assert house.outcome()["masked"] == ["page authorization"]
    assert said == ["token ***", '["***"]', "***", b"***", said[4]]
    assert TOKEN not in base64.b64decode(str(said[4]).replace("*", "") + "===").decode(errors="replace")


async def test_a_stream_that_is_older_than_the_login_is_masked(tmp_path: Path) -> None:
    """A backend may send the token in an event stream that the page opened before."""
    shop = StreamingShop()
    async with building(tmp_path, policy("vault"), shop=shop) as house:
        stream = await house.exchange.open(
            Request("GET", "/events", (("accept", "text/event-stream"),), stream=True), PAGE
        )
        assert isinstance(stream, Stream)
        shop.put(b"data: one\n\n")
        assert await anext(stream) == b"data: one\n\n"
        await login(house)
        shop.put(f"data: {TOKEN[:9]}".encode(), f"{TOKEN[9:]}\n\n".encode(), None)
        rest = b"".join([part async for part in stream])
        await stream.aclose()
    assert rest == b"data: ***\n\n"


async def test_a_handle_is_good_for_its_person_app_and_backend_alone(vaulting: House) -> None:
    """Elsewhere, or changed, nothing is sent, and the page is told."""
    handle = (await login(vaulting))["access_token"]
    wrong = [
        (BOB, "/me", handle),
        (PAGE, "/me", f"{handle[:-2]}AA"),
        (PAGE, "/me", TOKEN),
        (PAGE, "/other/x", handle),
        (structs.replace(PAGE, app="copy"), "/me", handle),
    ]
    for caller, url, value in wrong:
        answer = await vaulting.exchange.run(Request("GET", url, bearer(value)), caller)
        assert answer.header("gateway-dropped") == "authorization", (caller, url)
        assert "authorization" not in sent(vaulting)


async def test_a_json_web_token_can_still_be_read(vaulting: House) -> None:
    """Pages read when it expires; only its signature is hidden, and no other payload is signed with it."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    token = f"{part({'alg': 'HS256'})}.{part({'sub': 'ann', 'exp': 2})}.c2lnbmF0dXJlLTEyMw"
    handle: str = (await login(vaulting, token))["access_token"]
    header, payload, hidden = handle.split(".")
    assert f"{header}.{payload}" == token.rpartition(".")[0]
    assert "c2lnbmF0dXJl" not in handle
    await vaulting.exchange.run(Request("GET", "/me", bearer(handle)), PAGE)
    assert sent(vaulting)["authorization"] == f"Bearer {token}"
    forged = f"{header}.{part({'sub': 'root'})}.{hidden}"
    await vaulting.exchange.run(Request("GET", "/me", bearer(forged)), PAGE)
    assert "authorization" not in sent(vaulting)


async def test_an_answer_in_which_no_token_can_be_found_is_not_shown(vaulting: House) -> None:
    """It might hold the token in another form."""
    vaulting.shop.answer = lambda _: Response(200, JSON, f'{{"access_token": "{TOKEN}"'.encode())
    answer = await vaulting.exchange.run(Request("POST", "/login"), PAGE)
    assert answer.header("gateway-reason") == "backend-protocol"
    assert TOKEN.encode() not in answer.body


@pytest.mark.bound("tokens of pages that are masked in tool results")
def test_a_few_tokens_of_a_few_callers_are_remembered(tmp_path: Path) -> None:
    """The most recently used ones, for the results of the page's tools."""
    tokens = PageTokens(KeyRing(KeyFile(tmp_path / "gateway.key")))
    for number in range(REMEMBERED + 1):
        tokens.notice(bearer(f"token-number-{number}"), PAGE)
    redact = tokens.redactor(PAGE)
    assert redact is not None
    assert redact("token-number-8 token-number-0") == "*** token-number-0"
    for number in range(CALLERS):
        tokens.notice(bearer("another-token"), structs.replace(PAGE, app=f"app-{number}"))
    assert tokens.redactor(PAGE) is None
