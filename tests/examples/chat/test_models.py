"""The models of the demo chat against endpoints that speak the real wire formats, also awkwardly."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.chat_host.models.anthropic import AnthropicModel
from examples.chat_host.models.base import (
    AssistantText,
    CallDelta,
    CallStarted,
    Entry,
    Finished,
    Model,
    ModelError,
    Part,
    TextDelta,
    Tool,
    ToolCall,
    ToolNames,
    ToolResult,
    UserText,
)
from examples.chat_host.models.openai import OpenAIModel
from examples.chat_host.models.scripted import ScriptedModel, read_script
from examples.chat_host.models.sse import LARGEST_EVENT, EventReader
from tests.examples.chat.endpoints import Call, Endpoint, Format, Reply, endpoint, sse

FORMATS: list[Format] = ["openai", "anthropic"]
KEY = "sk-of-these-tests"
CITY = Tool("weather.of city", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})


def model_at(server: Endpoint, http: aiohttp.ClientSession) -> Model:
    """Return the model of an endpoint."""
    made = OpenAIModel if server.format == "openai" else AnthropicModel
    return made(http, server.base_url, "m", KEY, "Be brief.")


async def ask(server: Endpoint, entries: list[Entry] | None = None, tools: list[Tool] | None = None) -> list[Part]:
    """Return the parts of one answer."""
    async with aiohttp.ClientSession() as http:
        stream = model_at(server, http).answer(entries or [UserText("Hi")], tools or [])
        return [part async for part in stream]


def joined(parts: list[Part]) -> tuple[str, dict[str, tuple[str, str]], str]:
    """Return the text, the calls with their arguments by id, and the end."""
    calls: dict[str, tuple[str, str]] = {}
    for part in parts:
        if isinstance(part, CallStarted):
            calls[part.id] = (part.name, "")
        if isinstance(part, CallDelta):
            name, so_far = calls[part.id]
            calls[part.id] = (name, so_far + part.json)
    end = parts[-1]
    assert isinstance(end, Finished)
    return "".join(part.text for part in parts if isinstance(part, TextDelta)), calls, end.reason


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("format", FORMATS)
async def test_text_and_parallel_calls_arrive_whole_however_the_bytes_are_cut(format: Format, size: int) -> None:
    """Characters, lines and events are split between pieces; the arguments of two calls arrive in many deltas."""
    first = Call("weather_of_city", json.dumps({"city": "Köln 🌧"}, ensure_ascii=False), "a", 9)
    second = Call("weather_of_city", '{"city": "Rom"}', "b", 4)

    async with endpoint(format, Reply(["Größer als 東京 🗼.", first, second], size=size)) as server:
        text, calls, end = joined(await ask(server, tools=[CITY]))

    assert text == "Größer als 東京 🗼."
    assert {id: (name, json.loads(written)) for id, (name, written) in calls.items()} == {
        "a": ("weather.of city", {"city": "Köln 🌧"}),
        "b": ("weather.of city", {"city": "Rom"}),
    }
    assert end == "calls"


@pytest.mark.parametrize("format", FORMATS)
async def test_a_conversation_is_sent_as_the_format_wants_it(format: Format) -> None:
    """Roles, calls with their results, names that the format accepts, the key in its header."""
    entries: list[Entry] = [
        UserText("One"), UserText("Two"), AssistantText("Well."), ToolCall("a", CITY.name, {"city": "Rom"}),
        ToolCall("b", CITY.name, {}), ToolResult("a", "rain"), ToolResult("b", "no city", True), UserText("Thanks"),
    ]  # fmt: skip
    async with endpoint(format, Reply(["Bye"])) as server:
        await ask(server, entries, [CITY])
        [body], [headers] = server.requests, server.headers

    assert body["stream"] is True
    name = "weather_of_city"
    if format == "openai":
        assert headers["authorization"] == f"Bearer {KEY}"
        assert body["tools"][0]["function"]["name"] == name
        system, user, assistant, *results, last = body["messages"]
        assert system == {"role": "system", "content": "Be brief."}
        assert user == {"role": "user", "content": "One\n\nTwo"}
        assert assistant["content"] == "Well."
        assert [one["function"]["arguments"] for one in assistant["tool_calls"]] == ['{"city": "Rom"}', "{}"]
        assert [(one["role"], one["tool_call_id"], one["content"]) for one in results] == [
            ("tool", "a", "rain"), ("tool", "b", "no city"),
        ]  # fmt: skip
        assert last == {"role": "user", "content": "Thanks"}
    else:
        assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")
        assert body["system"] == "Be brief."
        assert (body["tools"][0]["name"], body["max_tokens"] > 0) == (name, True)
        assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user"]
        assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "tool_use", "tool_use"]
        results = body["messages"][2]["content"]
        assert [block["type"] for block in results] == ["tool_result", "tool_result", "text"]
        assert [block["is_error"] for block in results[:2]] == [False, True]


def error(kind: str, event: str | None = None) -> Reply:
    """Return a stream with an error of this type."""
    return Reply(raw=sse({"type": "error", "error": {"type": kind, "message": "boom"}}, event))


ODD: list[dict[str, Any]] = [
    {"choices": 5},
    {"choices": ["x", {"delta": "x"}, {"delta": {"tool_calls": 7, "content": 7}}]},
    {"choices": [{"delta": {"tool_calls": ["x", {"function": "f", "index": []}]}, "finish_reason": "tool_calls"}]},
    {"type": "content_block_start", "index": [], "content_block": {"type": "tool_use", "name": 5}},
    {"type": "content_block_delta", "index": {}, "delta": {"type": "input_json_delta", "partial_json": "{"}},
    {"type": "content_block_delta", "delta": "x"},
    {"type": 5},
]
"""Events whose members have other types than documented, in either format."""

RATE = {"type": "rate_limit_error", "message": f"slow down, {KEY}"}
REFUSALS: list[tuple[Reply, str, float | None]] = [
    (Reply(status=401, body=json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}})), "key", None),
    (Reply(status=403, body="<html>no"), "key", None),
    (Reply(status=404, body=json.dumps({"error": {"message": "model m"}})), "not-found", None),
    (Reply(status=429, body=json.dumps({"error": RATE}), headers={"retry-after": "7"}), "rate-limited", 7.0),
    (Reply(status=429, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}), "rate-limited", 0.0),
    (Reply(status=429, headers={"retry-after": "soon"}), "rate-limited", None),
    (Reply(status=529, body="{}"), "overloaded", None),
    (Reply(status=400, body=json.dumps({"error": {"code": "context_length_exceeded"}})), "too-long", None),
    (Reply(status=400, body='{"error": "what?"}'), "refused", None),
    (Reply(status=307, headers={"location": "http://elsewhere.test/"}), "not-found", None),
    (Reply(["Hello"], cut=300), "broken", None),
    (Reply(["Hello"], cut=0), "broken", None),
    (Reply(raw=sse("{nonsense")), "broken", None),
    (Reply(raw=sse("[" * 100_000)), "broken", None),
    (Reply(raw=sse("[1]")), "broken", None),
    (Reply(raw=b""), "broken", None),
    *((Reply(raw=sse(odd)), "broken", None) for odd in ODD),
    (error("overloaded_error", "error"), "overloaded", None),
    (error("insufficient_quota"), "rate-limited", None),
    (error("server_error"), "broken", None),
]  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
async def test_every_failure_has_its_reason_and_never_the_key(format: Format) -> None:
    """A refusal, a stream that breaks off, an error inside of it, something that is not JSON."""
    async with endpoint(format, *(reply for reply, _, _ in REFUSALS)) as server:
        for reply, kind, wait in REFUSALS:
            with pytest.raises(ModelError) as caught:
                await ask(server)
            assert (caught.value.kind, caught.value.retry_after) == (kind, wait), reply
            assert kind not in ("key", "rate-limited") or KEY not in caught.value.text
    with pytest.raises(ModelError) as down:
        await ask(server)  # it is stopped
    assert (down.value.kind, str(server.server.port) in down.value.text) == ("unreachable", True)


@pytest.mark.parametrize(
    ("format", "end", "reason"),
    [
        ("openai", "length", "length"),
        ("openai", "content_filter", "filtered"),
        ("openai", "something_new", "stop"),
        ("anthropic", "max_tokens", "length"),
        ("anthropic", "refusal", "filtered"),
        ("anthropic", "stop_sequence", "stop"),
    ],
)
async def test_the_reason_of_the_end_is_told(format: Format, end: str, reason: str) -> None:
    """Also one that is not known."""
    async with endpoint(format, Reply(["So"], end=end)) as server:
        assert joined(await ask(server)) == ("So", {}, reason)


def chunk(delta: dict[str, Any] | None, reason: str | None = None, **more: Any) -> bytes:
    """Return a chunk of an endpoint that is only compatible with OpenAI's."""
    return sse({"choices": [{"delta": delta, "finish_reason": reason}], **more})


COMPATIBLE = {
    "no index, the id once": [
        chunk({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x"'}}]}),
        chunk({"tool_calls": [{"function": {"arguments": ": 1}"}}]}),
        chunk({}, "tool_calls"),
    ],
    "all at once, and stop": [
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}]}, "stop"),
    ],
    "arguments as an object": [
        chunk({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}, "tool_calls"),
    ],
    "the id with each delta, choices null or missing": [
        sse({"choices": None}),
        sse({"usage": {}}),
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": '}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "", "arguments": "1}"}}]}),
        chunk(None, "tool_calls"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", COMPATIBLE)
async def test_endpoints_that_are_only_compatible_are_read_too(kind: str) -> None:
    """They leave out and repeat members."""
    async with endpoint("openai", Reply(raw=b"".join(COMPATIBLE[kind]))) as server:  # without [DONE], too
        text, calls, end = joined(await ask(server))
    assert (text, end, calls["a"][0], json.loads(calls["a"][1])) == ("", "calls", "f", {"x": 1})


@given(st.binary(max_size=200), st.lists(st.integers(1, 9), max_size=30))
@settings(max_examples=60, deadline=None)
def test_events_are_the_same_however_they_are_cut(noise: bytes, sizes: list[int]) -> None:
    """One piece, or pieces of any size, with any bytes between two events."""
    whole = sse("é🗼", "one") + noise + b"\n\n" + b"data: a\ndata: b\r\rdata:c\r\n\r\n"
    reader, events = EventReader(), []
    rest = whole
    for size in sizes:
        events += reader.feed(rest[:size])
        rest = rest[size:]
    events += reader.feed(rest)
    assert events == EventReader().feed(whole)
    assert [event.data for event in events[-2:]] == ["a\nb", "c"]


def test_an_event_without_end_is_refused() -> None:
    """Memory is bounded."""
    reader = EventReader()
    reader.feed(b"data: " + b"x" * (LARGEST_EVENT - 1024))
    with pytest.raises(ValueError, match="too large"):
        reader.feed(b"x" * 1024)


def test_names_stay_distinct() -> None:
    """Two names that differ in a character that no API accepts, and one that is too long."""
    names = ToolNames()
    made = [names.encode(name) for name in ("a.b", "a b", "a_b", "x" * 90, "x" * 91)]
    assert len(set(made)) == 5
    assert all(len(name) <= 64 for name in made)
    assert [names.decode(name) for name in made] == ["a.b", "a b", "a_b", "x" * 90, "x" * 91]


async def test_the_script_opens_the_shop_before_it_adds() -> None:
    """With the tool of the page there it adds at once; numbers in words count; a failure is told."""
    model = ScriptedModel(read_script(), pace=0)
    opened = Tool("open_cart", "", {})
    add = Tool("cart_add_to_cart", "", {})
    said: list[Entry] = [UserText("Please add two jars of honey")]

    first = joined([part async for part in model.answer(said, [opened])])
    then = [*said, ToolCall("1", "open_cart", {}), ToolResult("1", "open")]
    second = joined([part async for part in model.answer(then, [opened, add])])
    at_once = joined([part async for part in model.answer(said, [opened, add])])
    failed = [*said, ToolCall("1", "cart_add_to_cart", {}), ToolResult("1", "sold out", True)]
    third = joined([part async for part in model.answer(failed, [opened, add])])

    assert [call[0] for call in first[1].values()] == ["open_cart"]
    assert [(name, json.loads(text)) for name, text in second[1].values()] == [
        ("cart_add_to_cart", {"item_id": "honey", "quantity": 2})
    ]
    assert [call[0] for call in at_once[1].values()] == ["cart_add_to_cart"]
    assert ("sold out" in third[0], third[2]) == (True, "stop")
