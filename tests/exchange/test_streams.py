"""Answers in parts: polled one by one or passed on, in bounded memory, and ended with their reader."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.contract import result
from gateway.errors import Reason, Refusal
from gateway.exchange.streams import BESIDE, IN_ALL, PER_PERSON, PER_VIEW, SILENCE, Stream
from gateway.model import LOCAL, Caller, Headers, Outbound, Part, Principal, Request, Response
from gateway.policy import Retry
from gateway.policy.masks import parse_json_path
from tests.exchange.house import JSON, MODEL, PAGE, House, StreamingShop, building, reason

ITEMS = Request("GET", "/api/items", stream=True)
EVENTS = (("content-type", "text/event-stream"),)
TEXT = (("content-type", "text/plain; charset=utf-8"),)
BYTES = (("content-type", "application/octet-stream"),)
BROKEN = Refusal(Reason.BACKEND_PROTOCOL, "the shop broke off")


@pytest.fixture
async def shop() -> StreamingShop:
    """A shop that answers with plain text."""
    return StreamingShop(lambda request: Response(200, TEXT))


@pytest.fixture
async def house(tmp_path: Path, shop: StreamingShop) -> AsyncIterator[House]:
    """A house whose every route streams."""
    async with building(tmp_path, shop=shop, stream=True) as house:
        yield house


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def begin(house: House, caller: Caller = PAGE) -> tuple[Response, str]:
    """Return the first part, and the id of the stream."""
    first = await house.exchange.run(ITEMS, caller)
    assert first.part is not None, first
    assert not first.part.last
    return first, first.part.stream


async def next_part(house: House, id: str, caller: Caller = PAGE, wait: float = 5.0) -> Response:
    """Return the next part."""
    return await house.exchange.resume(id, caller, wait=wait)


async def test_a_large_body_comes_in_parts(house: House, shop: StreamingShop) -> None:
    """The first comes with the answer, the others one by one; the record closes with the last."""
    shop.put(*[b"x" * 150_000] * 8, None)
    part, id = await begin(house)
    bodies = [part.body]
    while part.part is not None and not part.part.last:
        assert [line["phase"] for line in house.lines()] == ["intent"]
        part = await next_part(house, id)
        bodies.append(part.body)
    assert sum(map(len, bodies)) == 1_200_000
    assert max(map(len, bodies)) <= BESIDE
    assert (house.outcome()["status"], house.outcome()["response_size"]) == (200, 1_200_000)
    assert shop.open == 0


async def test_a_small_body_is_whole(house: House, shop: StreamingShop) -> None:
    """It is one part, whose bytes a page gets as they are, also of JSON."""
    shop.put(b"one ", b"two", None)
    answer = await house.exchange.run(ITEMS, PAGE)
    assert (answer.body, answer.part) == (b"one two", Part("", last=True))
    assert house.outcome()["response_size"] == 7


async def test_a_page_gets_the_text_of_json_as_it_was_sent(house: House, shop: StreamingShop) -> None:
    """White space and the spelling of numbers, at once and after a person has approved."""
    text = " [1, 2.50]\n"
    shop.answer = lambda request: Response(200, JSON, text.encode() if request.method == "DELETE" else b"")
    shop.put(text.encode(), None)
    waiting = await house.exchange.run(Request("DELETE", "/api/carts/tea", stream=True), MODEL)
    id = waiting.header("gateway-pending") or ""
    await house.approvals.answer(id, True, "ann")
    for answer in (await house.exchange.run(ITEMS, PAGE), await house.exchange.resume(id, MODEL, wait=0)):
        assert result(answer)["body"] == text


@pytest.mark.parametrize("headers", [TEXT, BYTES, (("content-type", "text/html"),), JSON, ()], ids=range(5))
async def test_every_body_comes_as_it_is_sent(house: House, shop: StreamingShop, headers: Headers) -> None:
    """The head without waiting for the body, and each part as it arrives, wherever it is cut."""
    shop.answer = lambda request: Response(200, headers, length=12)
    first, id = await begin(house)
    assert (first.status, first.body, first.length) == (200, b"", 12)
    for part in (b"one,", b"\xc3", b"\xa9,", b"\xff"):
        shop.put(part)
        assert (await next_part(house, id)).body == part
    shop.put(None)
    last = await next_part(house, id)
    assert (last.body, last.part is not None and last.part.last) == (b"", True)


async def test_an_event_stream_begins_at_once(house: House, shop: StreamingShop) -> None:
    """The head comes without waiting for an event, each event as it arrives, an empty part if there is none."""
    shop.answer = lambda request: Response(200, EVENTS)
    first, id = await begin(house)
    assert first.body == b""
    assert (await next_part(house, id, wait=0.0)).body == b""
    for event in (b"data: 1\n\n", b"data: 2\n\n"):
        shop.put(event)
        assert (await next_part(house, id)).body == event
    shop.put(None)
    last = await next_part(house, id)
    assert (last.body, last.part is not None and last.part.last) == (b"", True)


async def test_an_event_stream_that_has_ended_is_whole(house: House, shop: StreamingShop) -> None:
    """A page that reconnects after each event must not see a stream open that its backend has closed."""
    shop.answer = lambda request: Response(200, EVENTS)
    shop.put(b"data: 1\n\n", None)
    answer = await house.exchange.run(ITEMS, PAGE)
    assert (answer.body, answer.part) == (b"data: 1\n\n", Part("", last=True))
    assert (house.outcome()["response_size"], shop.open) == (9, 0)


async def test_a_poll_waits_for_the_next_part(house: House, shop: StreamingShop) -> None:
    """It is answered when the part arrives."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    async with asyncio.TaskGroup() as tasks:
        polling = tasks.create_task(next_part(house, id))
        await asyncio.sleep(0.01)
        assert not polling.done()
        shop.put(b"data: 1\n\n")
    assert polling.result().body == b"data: 1\n\n"


async def test_no_more_is_read_than_one_part_ahead(house: House, shop: StreamingShop) -> None:
    """An app that does not poll causes backpressure at the backend, not memory use here."""
    shop.put(*[b"x" * 65_536] * 200, None)
    _, id = await begin(house)
    for _ in range(3):
        taken = shop.given
        for _ in range(50):
            await asyncio.sleep(0)
        assert shop.given - taken <= 2 * BESIDE
        await next_part(house, id)
    assert shop.given < 8 * BESIDE


async def test_cancelling_reaches_the_backend(house: House, shop: StreamingShop) -> None:
    """And the record; afterwards the stream is unknown."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    ended = await house.exchange.resume(id, PAGE, wait=0, cancel=True)
    assert ended.part is not None
    assert ended.part.last
    assert shop.open == 0
    assert house.outcome()["reason"] == Reason.CANCELLED
    assert reason(await next_part(house, id)) == Reason.CONNECTION_LOST


async def test_cancelled_before_the_first_part(house: House, shop: StreamingShop) -> None:
    """The call that opens a stream is cancelled while it waits for the body."""
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(house.exchange.run(ITEMS, PAGE))
        await until(lambda: shop.open == 1)
        call.cancel()
    assert shop.open == 0
    assert house.outcome()["reason"] == Reason.CANCELLED


@pytest.mark.parametrize(
    "other",
    [
        structs.replace(PAGE, view="v2"),
        structs.replace(PAGE, app="notes"),
        structs.replace(PAGE, view=None),
        structs.replace(PAGE, principal=replace(LOCAL, subject="eve")),
    ],
)
async def test_nobody_else_can_read_or_end_it(house: House, shop: StreamingShop, other: Caller) -> None:
    """Nor learn that it exists."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    shop.put(b"data: 1\n\n")
    assert reason(await next_part(house, id, other)) == Reason.CONNECTION_LOST
    assert reason(await house.exchange.resume(id, other, wait=0, cancel=True)) == Reason.CONNECTION_LOST
    assert (await next_part(house, id)).body == b"data: 1\n\n"


async def test_what_is_there_is_read_on(house: House, shop: StreamingShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read at the end, which the next part reports, nor by another caller."""
    monkeypatch.setattr("gateway.exchange.streams.AT_ONCE", 60.0)
    shop.put(*[b"x" * 65_536] * 40)
    first, id = await begin(house)
    other = structs.replace(PAGE, view=None)
    assert await house.exchange.read_on(id, other) == b""
    assert await house.exchange.read_on("stream-unknown", PAGE) == b""
    more = [await house.exchange.read_on(id, PAGE)]
    shop.put(None)
    while more[-1]:
        more.append(await house.exchange.read_on(id, PAGE))
    assert len(first.body) + sum(map(len, more)) == 40 * 65_536
    last = await next_part(house, id)
    assert (last.body, last.part) == (b"", Part(id, last=True))


async def test_what_breaks_off_says_so(house: House, shop: StreamingShop) -> None:
    """The parts received are given, then the reason instead of a last part; it is recorded."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    shop.put(b"data: 1\n\n", BROKEN)
    assert (await next_part(house, id)).body == b"data: 1\n\n"
    broken = await next_part(house, id)
    assert (broken.status, reason(broken), broken.part) == (502, Reason.BACKEND_PROTOCOL, None)
    assert house.outcome()["reason"] == Reason.BACKEND_PROTOCOL
    assert shop.open == 0


async def test_what_breaks_off_in_the_first_part(house: House, shop: StreamingShop) -> None:
    """None of it is given."""
    shop.put(b"some", BROKEN)
    first, id = await begin(house)
    assert first.body == b"some"
    assert reason(await next_part(house, id)) == Reason.BACKEND_PROTOCOL


async def test_who_no_longer_asks_is_gone(house: House, shop: StreamingShop) -> None:
    """The backend's connection is closed, and the record, too."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    house.clock.now += SILENCE
    house.streams.sweep()
    await next_part(house, id, wait=0.0)
    house.clock.now += SILENCE + 1
    house.streams.sweep()
    await until(lambda: shop.open == 0)
    assert house.outcome()["reason"] == Reason.CANCELLED
    assert reason(await next_part(house, id)) == Reason.CONNECTION_LOST


async def test_a_poll_that_waits_keeps_it_alive(house: House, shop: StreamingShop) -> None:
    """However long nothing arrives."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    async with asyncio.TaskGroup() as tasks:
        polling = tasks.create_task(next_part(house, id))
        await asyncio.sleep(0.01)
        house.clock.now += SILENCE + 1
        house.streams.sweep()
        shop.put(b"data: 1\n\n")
    assert polling.result().body == b"data: 1\n\n"


async def test_a_view_takes_its_streams_along(house: House, shop: StreamingShop) -> None:
    """When it is closed; streams of other views continue."""
    shop.answer = lambda request: Response(200, EVENTS)
    await begin(house)
    await begin(house, structs.replace(PAGE, view="v2"))
    house.streams.cancel_view("v1")
    await until(lambda: shop.open == 1)


async def test_a_view_has_so_many(house: House, shop: StreamingShop) -> None:
    """One more endless stream is refused before it is sent, other answers come whole; an ended one frees a place."""
    shop.answer = lambda request: Response(200, EVENTS, b"x" * 300_000)
    ids = [(await begin(house))[1] for _ in range(PER_VIEW)]
    endless = structs.replace(ITEMS, headers=(("Accept", "text/event-stream"),))
    refused = await house.exchange.run(endless, PAGE)
    assert (refused.status, reason(refused)) == (429, Reason.RATE_LIMITED)
    assert len(shop.sent) == PER_VIEW
    whole = await house.exchange.run(ITEMS, PAGE)
    assert (len(whole.body), whole.part) == (300_000, Part("", last=True))
    await begin(house, structs.replace(PAGE, view="v2"))
    await house.exchange.resume(ids[0], PAGE, wait=0, cancel=True)
    await begin(house)


def place(house: House, person: int, view: int) -> ExitStack:
    """Open one more stream of a person in one of their views, each at a separate client; closing it ends the stream."""
    caller = structs.replace(PAGE, principal=Principal("test", f"client-{view}", str(person)), view=f"v{person}.{view}")
    held = ExitStack()
    held.enter_context(house.streams.place(caller))
    return held


@pytest.mark.bound("streamed responses")
async def test_a_person_and_all_together_have_so_many(house: House) -> None:
    """Many views give a person no more than their own share; the refusal names the bound."""
    views = math.ceil(PER_PERSON / PER_VIEW)
    first = [place(house, 0, number % views) for number in range(PER_PERSON)]
    with pytest.raises(Refusal, match=f"{PER_PERSON} streams of this person are open already") as refused:
        place(house, 0, views)
    assert refused.value.reason is Reason.RATE_LIMITED
    place(house, 1, 0).close()
    others = range(1, IN_ALL // PER_PERSON)
    held = [place(house, person, number % views) for person in others for number in range(PER_PERSON)]
    with pytest.raises(Refusal, match=f"{IN_ALL} streams of all callers are open already"):
        place(house, IN_ALL, 0)
    for one in (first.pop(), held.pop()):
        one.close()
        place(house, IN_ALL, 0)


@pytest.mark.parametrize("obligations", [{}, {"stream": True, "mask": (parse_json_path("$..card"),)}])
async def test_other_routes_are_whole(tmp_path: Path, shop: StreamingShop, obligations: dict[str, Any]) -> None:
    """Routes without `stream`, and those with masked values."""
    shop.answer = lambda request: Response(200, TEXT, b"x" * 300_000)
    async with building(tmp_path, shop=shop, **obligations) as house:
        answer = await house.exchange.run(ITEMS, PAGE)
    assert (len(answer.body), answer.part is not None and answer.part.last) == (300_000, True)


async def test_who_does_not_ask_for_parts_gets_the_whole(house: House, shop: StreamingShop) -> None:
    """An app need not stream on a route that can."""
    shop.answer = lambda request: Response(200, TEXT, b"x" * 300_000)
    answer = await house.exchange.run(structs.replace(ITEMS, stream=False), PAGE)
    assert (len(answer.body), answer.part) == (300_000, None)


async def test_a_secret_is_masked_across_parts(house: House, shop: StreamingShop) -> None:
    """A backend echoes the token, cut in two."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    shop.put(b"data: token-num", b"ber-1 is it\n\n", None)
    found = b""
    part = await next_part(house, id)
    found += part.body
    while part.part is not None and not part.part.last:
        part = await next_part(house, id)
        found += part.body
    assert found == b"data: *** is it\n\n"
    assert house.outcome()["masked"] == ["shop-service"]


async def test_a_masked_secret_is_reported_although_the_rest_never_comes(house: House, shop: StreamingShop) -> None:
    """The app cancels the stream right after it."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    shop.put(b"data: token-number-1\n\n")
    assert (await next_part(house, id)).body == b"data: ***\n\n"
    await house.exchange.resume(id, PAGE, wait=0, cancel=True)
    assert (house.outcome()["status"], house.outcome()["masked"]) == (499, ["shop-service"])


async def test_parts_end_between_characters(house: House, shop: StreamingShop) -> None:
    """Each part is valid text, wherever the bytes were cut."""
    text = "näïve € 𝄞 " * 80_000
    data = text.encode()
    shop.put(*(data[start : start + 1021] for start in range(0, len(data), 1021)), None)
    part, id = await begin(house)
    found = [result(part)]
    while part.part is not None and not part.part.last:
        part = await next_part(house, id)
        found.append(result(part))
    assert {str(one["bodyType"]) for one in found} <= {"text", "none"}
    assert "".join(str(one.get("body", "")) for one in found) == text
    assert ["stream" in one for one in found] == [True] * (len(found) - 1) + [False]


async def test_half_a_character_is_no_part(house: House, shop: StreamingShop) -> None:
    """A poll waits for the other half; if it never comes, the half is given at the end."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    shop.put("€".encode()[:2])
    assert (await next_part(house, id, wait=0.01)).body == b""
    shop.put(None)
    last = await next_part(house, id)
    assert last.body == "€".encode()[:2]
    assert result(last)["bodyType"] == "base64"


async def test_other_bytes_are_base64(house: House, shop: StreamingShop) -> None:
    """A body that is not text."""
    shop.answer = lambda request: Response(200, BYTES)
    shop.put(b"\xff" * (BESIDE + 1), None)
    part, _ = await begin(house)
    assert result(part)["bodyType"] == "base64"


async def test_a_retried_stream_lets_the_first_attempt_go(tmp_path: Path, shop: StreamingShop) -> None:
    """Decided on the head; only the last attempt stays open."""
    statuses = [503, 200]
    shop.answer = lambda request: Response(statuses.pop(0), EVENTS)
    retry = Retry(attempts=3, on=frozenset({503}), backoff=0.1)
    async with building(tmp_path, shop=shop, stream=True, retry=retry) as house:
        first, _ = await begin(house)
        assert (first.status, len(shop.sent), shop.open) == (200, 2, 1)


async def test_a_redirected_stream_lets_the_first_hop_go(house: House, shop: StreamingShop) -> None:
    """As with whole answers."""

    def moved(request: Outbound) -> Response:
        if request.url.endswith("/items"):
            return Response(302, (("location", "/v2/api/items/7"),))
        return Response(200, EVENTS)

    shop.answer = moved
    first, _ = await begin(house)
    assert (first.url, first.redirected, shop.open) == ("/api/items/7", True, 1)


async def test_a_door_reads_it_itself(house: House, shop: StreamingShop) -> None:
    """The site passes the parts on; the record closes when it has read them all."""
    shop.put(b"one ", b"two", None)
    stream = await house.exchange.open(ITEMS, PAGE)
    assert isinstance(stream, Stream)
    assert [part async for part in stream] == [b"one ", b"two"]
    await stream.aclose()
    assert (house.outcome()["status"], house.outcome()["response_size"]) == (200, 7)


async def test_a_door_gives_it_up(house: House, shop: StreamingShop) -> None:
    """The browser has disconnected."""
    shop.put(b"one ")
    stream = await house.exchange.open(ITEMS, PAGE)
    assert isinstance(stream, Stream)
    assert await anext(stream) == b"one "
    await stream.aclose()
    assert shop.open == 0
    assert house.outcome()["reason"] == Reason.CANCELLED


async def test_a_backend_without_streams_is_whole(tmp_path: Path) -> None:
    """As backends of plugins may be."""
    async with building(tmp_path, stream=True) as house:
        answer = await house.exchange.run(ITEMS, PAGE)
        assert (answer.body, answer.part) == (b'{"ok": true}', Part("", last=True))


async def test_a_fault_in_a_stream_ends_it_alone(
    house: House, shop: StreamingShop, caplog: pytest.LogCaptureFixture
) -> None:
    """Other streams continue; the reader gets the error, and so does the record."""
    shop.answer = lambda request: Response(200, EVENTS)
    _, id = await begin(house)
    _, other = await begin(house, structs.replace(PAGE, view="v2"))
    shop.put(None, "no bytes")  # type: ignore[arg-type]
    await next_part(house, id)
    assert reason(await next_part(house, other, structs.replace(PAGE, view="v2"))) == Reason.INTERNAL
    assert house.outcome()["reason"] == Reason.INTERNAL
    assert "Traceback" in caplog.text
    await begin(house)


async def test_a_stream_has_the_routes_time_for_each_silence(tmp_path: Path, shop: StreamingShop) -> None:
    """The time of earlier attempts does not shorten it."""
    statuses = [503, 200]
    shop.answer = lambda request: Response(statuses.pop(0), (*EVENTS, ("retry-after", "9")))
    retry = Retry(attempts=2, on=frozenset({503}), backoff=0.1)
    async with building(tmp_path, shop=shop, stream=True, retry=retry, timeout=10.0) as house:
        await begin(house)
        assert [request.timeout for request in shop.sent] == [10.0, 10.0]


async def test_a_refused_token_lets_the_first_answer_go(house: House, shop: StreamingShop) -> None:
    """Only the answer to the new token stays open."""
    statuses = [401, 200]
    shop.answer = lambda request: Response(statuses.pop(0), EVENTS)
    first, _ = await begin(house)
    assert (first.status, len(shop.sent), shop.open) == (200, 2, 1)


async def test_what_a_person_approved_is_answered_whole(house: House, shop: StreamingShop) -> None:
    """Its caller may fetch the answer more than once."""
    shop.answer = lambda request: Response(200, TEXT, b"x" * 300_000)
    waiting = await house.exchange.run(Request("DELETE", "/api/carts/tea", stream=True), MODEL)
    id = waiting.header("gateway-pending") or ""
    await house.approvals.answer(id, True, "ann")
    for _ in range(2):
        answer = await house.exchange.resume(id, MODEL, wait=0)
        assert (answer.status, len(answer.body), answer.part) == (200, 300_000, Part("", last=True))
    assert len(shop.sent) == 1
