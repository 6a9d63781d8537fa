"""The steps of one request: the refusals of each step, and what is recorded."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.errors import Reason, Refusal
from gateway.model import BodyType, Outbound, Principal, Redirect, Request, Response
from tests.exchange.house import JSON, MODEL, PAGE, Answer, House, building, reason


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A policy, a shop, a credential, a journal."""
    async with building(tmp_path) as house:
        yield house


async def test_what_is_decided_is_what_is_sent(house: House) -> None:
    """The canonical URL under the backend's own prefix, the app's headers, and the token in place of the app's."""
    request = Request("GET", "/api/%69tems?b=%7e#part", (("x-shop", "1"), ("authorization", "Bearer of-the-app")))
    response = await house.exchange.run(request, PAGE)
    sent = house.shop.sent[0]
    assert (response.status, response.body) == (200, b'{"ok": true}')
    assert sent.url == "http://shop.test/v2/api/items?b=~"
    assert dict(sent.headers)["authorization"] == "Bearer token-number-1"
    assert dict(sent.headers)["x-shop"] == "1"
    assert "token-number" not in house.journal.path.read_text("utf-8")


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request("GET", "/api/%2e%2e/admin"), Reason.POLICY_DENIED),
        (Request("GET", "/api/items%2f..%2fadmin"), Reason.BAD_REQUEST),
        (Request("PUT", "/api/items"), Reason.POLICY_DENIED),
        (Request("TRACE", "/api/items"), Reason.BAD_REQUEST),
        (Request("GET", "http://evil.test/api/items"), Reason.POLICY_DENIED),
        (Request("POST", "/api/items", body=b"x" * 101, body_type=BodyType.TEXT), Reason.REQUEST_TOO_LARGE),
    ],
)
async def test_what_is_refused_is_recorded_and_not_sent(house: House, request_: Request, said: Reason) -> None:
    """No intent, one outcome with the reason, a problem for the caller with the record's id."""
    response = await house.exchange.run(request_, PAGE)
    assert reason(response) in (said, Reason.BAD_REQUEST, Reason.POLICY_DENIED)
    assert house.shop.sent == []
    assert [line["phase"] for line in house.lines()] == ["outcome"]
    assert house.outcome()["reason"] == reason(response)
    assert house.lines()[0]["id"] in json.loads(response.body)["instance"]


async def test_a_rate_is_limited_with_what_to_wait(house: House) -> None:
    """The second is 429, with Retry-After and the RateLimit fields."""
    assert (await house.exchange.run(Request("GET", "/api/rare"), PAGE)).status == 200
    limited = await house.exchange.run(Request("GET", "/api/rare"), PAGE)
    assert (limited.status, reason(limited)) == (429, Reason.RATE_LIMITED)
    assert 0 < int(limited.header("retry-after") or 0) <= 60
    assert limited.header("ratelimit") is not None
    assert len(house.shop.sent) == 1


async def test_the_intent_is_written_before_anything_is_sent(house: House) -> None:
    """It is in the journal when the shop receives the request; the outcome follows with the same id."""
    seen: list[str] = []

    def look(request: Outbound) -> Response:
        seen.extend(line["phase"] for line in house.lines())
        return Response(201, JSON, b"{}")

    house.shop.answer = look
    await house.exchange.run(Request("POST", "/api/items"), PAGE)
    assert seen == ["intent"]
    intent, outcome = house.lines()
    assert (intent["id"], intent["phase"]) == (outcome["id"], "intent")
    assert (outcome["fields"]["status"], outcome["fields"]["credential"]) == (201, "shop-service")
    assert {"decide", "authenticate", "send"} <= set(outcome["fields"]["timing"])


async def test_what_cannot_be_recorded_is_not_sent(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk unsafe requests are refused; reads still work."""

    def full(record: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(house.journal, "append", full)
    refused = await house.exchange.run(Request("POST", "/api/items"), PAGE)
    assert (refused.status, reason(refused)) == (503, Reason.AUDIT_UNAVAILABLE)
    assert house.shop.sent == []
    assert (await house.exchange.run(Request("GET", "/api/items"), PAGE)).status == 200


async def test_a_refused_token_is_renewed_once_for_safe_methods(house: House) -> None:
    """GET is repeated with a new token, POST is not; a backend that refuses every token gets no further retries."""
    house.shop.answer = lambda request: Response(401 if "number-1" in str(request.headers) else 200, JSON, b"{}")
    assert (await house.exchange.run(Request("GET", "/api/items"), PAGE)).status == 200
    assert house.fetched == [1, 2]
    house.shop.answer = lambda request: Response(401, JSON, b"{}")
    house.shop.sent.clear()
    house.clock.now += 10
    assert (await house.exchange.run(Request("POST", "/api/items"), PAGE)).status == 401
    assert len(house.shop.sent) == 1
    for _ in range(3):
        assert (await house.exchange.run(Request("GET", "/api/items"), PAGE)).status == 401
    assert len(house.shop.sent) == 4
    assert house.fetched == [1, 2, 3]


async def test_many_requests_at_once_fetch_one_token(house: House) -> None:
    """Refreshes are single-flight."""
    await asyncio.gather(*(house.exchange.run(Request("GET", "/api/items"), PAGE) for _ in range(20)))
    assert house.fetched == [1]


async def test_an_echoed_token_is_masked(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """In the body or in a header; record, log and metrics contain only the name of its credential."""
    house.shop.answer = lambda request: Response(
        200, (*JSON, ("etag", "token-number-1")), json.dumps(dict(request.headers)).encode()
    )
    response = await house.exchange.run(Request("GET", "/api/items"), PAGE)
    assert b"token-number-1" not in response.body
    assert response.header("etag") == "***"
    told = [house.journal.path.read_text("utf-8"), caplog.text, house.metrics.render().decode()]
    assert house.outcome()["masked"] == ["shop-service"]
    assert "of shop-service; it is masked" in told[1]
    assert 'secrets_masked_total{credential="shop-service"} 1.0' in told[2]
    assert not any("token-number-1" in text for text in told)


async def test_what_echoes_nothing_is_not_reported(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the record nor elsewhere."""
    await house.exchange.run(Request("GET", "/api/items"), PAGE)
    assert "masked" not in house.outcome()
    assert "masked" not in caplog.text
    assert "secrets_masked_total{" not in house.metrics.render().decode()


TOKEN = "token-number-1"
ESCAPED = "".join(f"\\u{ord(char):04X}" for char in TOKEN)


@pytest.mark.parametrize(
    "body",
    [
        f'{{"echo": "{ESCAPED}"}}'.encode(),
        f'{{"echo": "{ESCAPED[:30]}{TOKEN[5:]}"}}'.encode(),
        json.dumps({"echo": TOKEN}).encode("utf-16"),
        TOKEN.encode("utf-16-be"),
    ],
)
async def test_a_disguised_token_is_masked_too(house: House, body: bytes) -> None:
    """Escaped as in JSON, in part or whole, or in another encoding."""
    house.shop.answer = lambda request: Response(200, JSON, body)
    response = await house.exchange.run(Request("GET", "/api/items"), PAGE)
    shown = response.body.decode("utf-8", "replace") + response.body.decode("utf-16", "replace")
    assert b"***" in response.body
    assert TOKEN not in shown
    assert ESCAPED[:30] not in shown


async def test_a_token_in_the_reason_phrase_is_masked(house: House) -> None:
    """No part of an answer is left out."""
    house.shop.answer = lambda request: Response(200, JSON, b"{}", reason_phrase=f"OK {TOKEN}")
    assert (await house.exchange.run(Request("GET", "/api/items"), PAGE)).reason_phrase == "OK ***"


@pytest.mark.parametrize("token", [TOKEN, TOKEN.replace("-", "%2D"), TOKEN.replace("t", "%74")])
async def test_a_redirect_does_not_carry_a_token_on(house: House, token: str) -> None:
    """It reaches neither the new place, nor the app, nor the record."""
    house.shop.answer = lambda request: Response(302, (("location", f"/v2/api/items/7?t={token}"),))
    response = await house.exchange.run(Request("GET", "/api/items"), PAGE)
    assert reason(response) == Reason.REDIRECT_DENIED
    assert len(house.shop.sent) == 1
    assert TOKEN not in house.journal.path.read_text("utf-8")


@pytest.mark.parametrize("location", ["http:///v2/api/items/7", "///v2/api/items/7", "https:v2/api/items/7"])
async def test_a_location_that_browsers_read_otherwise_is_refused(house: House, location: str) -> None:
    """Browsers read what looks like a path as a host."""
    house.shop.answer = lambda request: Response(302, (("location", location),))
    assert reason(await house.exchange.run(Request("GET", "/api/items"), PAGE)) == Reason.REDIRECT_DENIED


async def test_headers_that_are_not_for_apps_are_dropped(house: House) -> None:
    """Cookies, connection headers and our own names are dropped; caching is private."""
    headers = (
        *JSON,
        ("set-cookie", "a=1"),
        ("gateway-reason", "spoof"),
        ("x-internal", "1"),
        ("cache-control", "public"),
    )
    house.shop.answer = lambda request: Response(200, headers, b"{}")
    response = await house.exchange.run(Request("GET", "/api/items"), PAGE)
    assert {name for name, _ in response.headers} == {"content-type", "cache-control"}
    assert "private" in str(response.header("cache-control"))
    assert "public" not in str(response.header("cache-control"))


async def test_a_redirect_is_a_new_decision(house: House) -> None:
    """Inside the policy it is followed with a newly chosen credential; outside it is refused."""

    def moved(location: str) -> Answer:
        return lambda request: (
            Response(302, (("location", location),)) if request.url.endswith("/items") else Response(200, JSON, b"{}")
        )

    house.shop.answer = moved("/v2/api/items/7")
    followed = await house.exchange.run(Request("GET", "/api/items"), PAGE)
    assert (followed.status, followed.redirected, followed.url) == (200, True, "/api/items/7")
    for outside in ("/v2/api/admin", "/api/items/7", "http://evil.test/", "/v2/api/guarded", "\\\\evil", ""):
        house.shop.answer = moved(outside)
        house.shop.sent.clear()
        refused = await house.exchange.run(Request("GET", "/api/items"), PAGE)
        assert refused.status in (302, 403, 502), outside
        assert len(house.shop.sent) == 1, outside


@pytest.mark.parametrize("location", ["http:items/7", "HTTP:/v2/api/items/7", "items/7", "http:"])
async def test_a_location_of_the_same_scheme_alone_is_relative(house: House, location: str) -> None:
    """URL Standard 4.4, the state "special relative or authority": no host is named, so the rest is a reference."""
    moved = Response(302, (("location", location),))
    house.shop.answer = lambda request: moved if len(house.shop.sent) == 1 else Response(200, JSON, b"{}")
    followed = await house.exchange.run(Request("GET", "/api/items"), PAGE)
    assert (followed.status, followed.url) == (200, "/api/items" if location == "http:" else "/api/items/7")


async def test_a_redirect_loop_ends(house: House) -> None:
    """After 20 hops (Fetch)."""
    house.shop.answer = lambda request: Response(302, (("location", "/v2/api/items"),))
    assert reason(await house.exchange.run(Request("GET", "/api/items"), PAGE)) == Reason.REDIRECT_BROKEN
    assert len(house.shop.sent) == 21


@pytest.mark.parametrize(
    "location", ["mailto:a@b.test", "data:,x", "about:blank", "blob:x", "javascript:1", "ftp://a/", "http://"]
)
async def test_a_location_that_is_no_http_url_is_broken(house: House, location: str) -> None:
    """As in browsers; only an app that wants no redirects at all gets that error."""
    house.shop.answer = lambda request: Response(302, (("location", location),))
    assert reason(await house.exchange.run(Request("GET", "/api/items"), PAGE)) == Reason.REDIRECT_BROKEN
    error = await house.exchange.run(Request("GET", "/api/items", redirect=Redirect.ERROR), PAGE)
    assert reason(error) == Reason.REDIRECT_DENIED


async def test_redirects_as_the_app_wants_them(house: House) -> None:
    """`manual` returns the redirect, `error` refuses it, an unsafe method is never repeated."""
    house.shop.answer = lambda request: Response(307, (("location", "/v2/api/items/7"),))
    manual = await house.exchange.run(Request("GET", "/api/items", redirect=Redirect.MANUAL), PAGE)
    assert (manual.status, manual.header("location")) == (307, "/api/items/7")
    error = await house.exchange.run(Request("GET", "/api/items", redirect=Redirect.ERROR), PAGE)
    assert reason(error) == Reason.REDIRECT_DENIED
    assert reason(await house.exchange.run(Request("DELETE", "/api/items"), PAGE)) == Reason.REDIRECT_DENIED


async def test_a_models_call_waits_and_a_pages_does_not(house: House) -> None:
    """The proven view gets a pending answer; once a person approves, its request is sent, once."""
    request = Request("DELETE", "/api/carts/tea")
    assert (await house.exchange.run(request, PAGE)).status == 200
    waiting = await house.exchange.run(request, MODEL)
    told = json.loads(waiting.body)
    assert (waiting.status, waiting.header("gateway-pending")) == (202, told["id"])
    assert (told["message"], told["url"]) == ("Remove tea?", f"http://console.test/approvals/{told['id']}")
    assert len(house.shop.sent) == 1
    assert (await house.exchange.resume(told["id"], MODEL, wait=0)).status == 202
    await house.approvals.answer(told["id"], True, "ann")
    assert (await house.exchange.resume(told["id"], MODEL, wait=0)).status == 200
    assert (await house.exchange.resume(told["id"], MODEL, wait=0)).status == 200
    assert len(house.shop.sent) == 2
    assert (house.outcome()["approval"], house.outcome()["answered_by"]) == (told["id"], "ann")


async def test_two_who_ask_at_once_share_one_run(house: House) -> None:
    """The view joined its own question: the request runs once, and both get its answer."""
    request = Request("DELETE", "/api/carts/tea")
    first = json.loads((await house.exchange.run(request, MODEL)).body)["id"]
    assert json.loads((await house.exchange.run(request, MODEL)).body)["id"] == first
    await house.approvals.answer(first, True, "ann")
    answers = await asyncio.gather(*(house.exchange.resume(first, MODEL, wait=1) for _ in range(2)))
    assert [answer.status for answer in answers] == [200, 200]
    assert len(house.shop.sent) == 1


async def test_a_cancelled_question_runs_nothing(house: House) -> None:
    """Even if a person says yes afterwards."""
    id = json.loads((await house.exchange.run(Request("DELETE", "/api/carts/tea"), MODEL)).body)["id"]
    assert reason(await house.exchange.resume(id, MODEL, wait=0, cancel=True)) == Reason.APPROVAL_EXPIRED
    await house.approvals.answer(id, True, "ann")
    assert reason(await house.exchange.resume(id, MODEL, wait=0)) == Reason.APPROVAL_EXPIRED
    assert house.shop.sent == []


async def test_another_view_cannot_take_the_question_up(house: House) -> None:
    """Nor learn that it exists."""
    id = json.loads((await house.exchange.run(Request("DELETE", "/api/carts/tea"), MODEL)).body)["id"]
    await house.approvals.answer(id, True, "ann")
    stolen = await house.exchange.resume(id, replace(MODEL, view="v2"), wait=0)
    assert reason(stolen) == Reason.APPROVAL_EXPIRED
    assert house.shop.sent == []


async def test_an_approved_call_is_not_sent_for_claims_that_the_last_look_found_changed(tmp_path: Path) -> None:
    """The credential still holds, and its new claims, which are known only now, no longer admit the caller."""
    admitted = [True]

    async def still(_: Principal) -> bool:
        admitted[0] = False
        return True

    async with building(tmp_path, admits=lambda _, __: admitted[0], still=still) as house:
        told = json.loads((await house.exchange.run(Request("DELETE", "/api/carts/tea"), MODEL)).body)
        await house.approvals.answer(told["id"], True, "ann")
        answer = await house.exchange.resume(told["id"], MODEL, wait=5)
        assert (reason(answer), admitted) == (Reason.CONNECTION_LOST, [False])
        assert house.shop.sent == []


async def test_a_call_that_waits_in_itself_ends_with_its_caller(house: House) -> None:
    """Cancelled while it waits: the question is void."""
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(house.exchange.run(Request("DELETE", "/api/carts/tea"), MODEL, wait=60))
        while not (found := house.approvals.open()):
            await asyncio.sleep(0)
        question = found[0].question
        call.cancel()
    await house.approvals.answer(question.id, True, "ann")
    assert house.approvals.open() == []
    assert house.shop.sent == []


async def test_cancelling_reaches_the_backend_and_the_record(house: House) -> None:
    """No intent is left without an outcome."""
    house.shop.hold = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(house.exchange.run(Request("POST", "/api/items"), PAGE))
        while not house.shop.sent:
            await asyncio.sleep(0)
        call.cancel()
    assert [line["phase"] for line in house.lines()] == ["intent", "outcome"]
    assert house.outcome()["reason"] == Reason.CANCELLED


async def test_a_backend_that_fails_is_a_problem(house: House) -> None:
    """The refusal of the backend is the answer, with the record's id."""

    def fail(request: Outbound) -> Response:
        raise Refusal(Reason.BACKEND_UNREACHABLE, "backend 'shop' refuses connections")

    house.shop.answer = fail
    response = await house.exchange.run(Request("GET", "/api/items"), PAGE)
    assert (response.status, reason(response)) == (502, Reason.BACKEND_UNREACHABLE)
    assert house.outcome()["reason"] == Reason.BACKEND_UNREACHABLE


@pytest.mark.parametrize("fault", [ZeroDivisionError, SystemExit])
async def test_a_fault_of_a_plugin_is_an_answer(
    house: House, caplog: pytest.LogCaptureFixture, fault: type[BaseException]
) -> None:
    """For any exception of a backend the caller gets a problem with the record's id, and the record an outcome."""

    def fail(request: Outbound) -> Response:
        raise fault("a fault of a plugin")

    house.shop.answer = fail
    response = await house.exchange.run(Request("POST", "/api/items"), PAGE)
    assert (response.status, reason(response)) == (500, Reason.INTERNAL)
    assert [line["phase"] for line in house.lines()] == ["intent", "outcome"]
    assert json.loads(response.body)["instance"] == house.lines()[1]["id"]
    assert "a fault of a plugin" not in response.body.decode()
    assert fault.__name__ in caplog.text


async def test_what_nobody_waits_for_is_refused_with_a_record(house: House) -> None:
    """An unknown id is refused with a reason and the id of its record."""
    response = await house.exchange.resume("nothing", PAGE, wait=0)
    assert reason(response) == house.outcome()["reason"] == Reason.APPROVAL_EXPIRED
    assert json.loads(response.body)["instance"] == house.lines()[-1]["id"]
