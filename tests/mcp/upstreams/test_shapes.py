"""Results that a client's SDK cannot parse are reported with the path; other members are not checked."""

from __future__ import annotations

import threading
from typing import Any

import mcp_types as types
import pytest
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from gateway.mcp.upstreams.calls.client import cacheable, legacy_result
from gateway.mcp.upstreams.catalog import shapes
from gateway.mcp.upstreams.catalog.shapes import MANY, fault, read_result, readable, without_nulls

VERSIONS = ["2025-11-25", "2026-07-28"]
TEXT = {"type": "text", "text": "x", "later": 1}
ASKS = {"resultType": "input_required"}
SCHEMA = {"type": "object"}
FORM = {"mode": "form", "message": "x", "requestedSchema": {}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({}, "content: it is missing"),
        ({"content": "x"}, "content: no list"),
        ({"content": [TEXT, 7]}, "content[1].type: 'None' is not known"),
        ({"content": [{"type": "video"}]}, "content[0].type: 'video' is not known"),
        ({"content": [{"type": ["text"]}]}, "content[0].type: \"['text']\" is not known"),
        ({"content": [{"type": "text"}]}, "content[0].text: Field required"),
        ({"content": [{"type": "image", "data": "eA=="}]}, "content[0].mimeType: Field required"),
        ({"content": [{"type": "resource", "resource": {"uri": "a://b"}}]}, "content[0].resource.text: Field required"),
        ({"content": [TEXT | {"annotations": {"priority": 3}}]}, "content[0].annotations.priority: "),
        ({"content": [], "isError": "yes"}, "isError: "),
        ({"content": [], "isError": None}, "isError: "),
        ({"content": [], "_meta": 7}, "_meta: "),
    ],
)
def test_calls(result: dict[str, Any], why: str, version: str) -> None:
    """Results are refused that the SDK's own client would refuse, or misread."""
    assert str(fault("tools/call", result, version, extended=False)).startswith(why)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "result",
    [
        {"content": []},
        {"content": [TEXT], "isError": True, "structuredContent": {"a": 1}, "_meta": {"a/b": 1}, "other": [1]},
        {"content": [], "structuredContent": None, "_meta": None},
        {"content": [{"type": "resource", "resource": {"uri": "a://b", "blob": "eA=="}}]},
    ],
)
def test_calls_that_can_be_read(result: dict[str, Any], version: str) -> None:
    """By the SDK's own client, too."""
    assert fault("tools/call", result, version, extended=False) is None
    assert isinstance(
        parse_server_result("tools/call", version, {"resultType": "complete"} | result), types.CallToolResult
    )


NULLS = {"_meta": None, "annotations": None}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("method", "result", "plain"),
    [
        ("tools/call", {"content": [], "isError": None, "_meta": None}, {"content": []}),
        ("tools/call", {"content": [TEXT | NULLS], "other": None}, {"content": [TEXT], "other": None}),
        (
            "resources/read",
            {"contents": [{"uri": "a://b", "text": "x", "mimeType": None}]},
            {"contents": [{"uri": "a://b", "text": "x"}]},
        ),
        (
            "prompts/get",
            {"description": None, "messages": [{"role": "user", "content": TEXT | NULLS}]},
            {"messages": [{"role": "user", "content": TEXT}]},
        ),
        ("tools/list", {"tools": [], "nextCursor": None}, {"tools": []}),
    ],
)
async def test_what_may_be_left_out_and_is_null_is_left_out(
    method: str, result: dict[str, Any], plain: dict[str, Any], version: str
) -> None:
    """Servers in several languages write null, and clients in others fail at it."""
    whole: dict[str, Any] = {"resultType": "complete"}
    made = await read_result(method, cacheable(method, whole | result), version, extended=False)
    assert made == cacheable(method, whole | plain)
    assert await read_result(method, made, version, extended=False) is made


async def test_only_structured_content_of_this_era_may_be_null() -> None:
    """There it is any value; before, an object."""
    result: dict[str, Any] = {"content": [], "structuredContent": None}
    assert await read_result("tools/call", result, VERSIONS[1], extended=False) is result
    assert await read_result("tools/call", result, VERSIONS[0], extended=False) == {"content": []}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("method", "plain", "nulls"),
    [
        ("tools/list", {"name": "a", "inputSchema": SCHEMA | {"default": None}}, {"title": None, "outputSchema": None}),
        ("resources/list", {"uri": "a://b", "name": "b"}, {"size": None, "icons": None}),
        ("prompts/list", {"name": "a"}, {"arguments": None}),
    ],
)
async def test_nulls_are_left_out_of_lists_too(
    method: str, plain: dict[str, Any], nulls: dict[str, Any], version: str
) -> None:
    """A null within a schema has a meaning, and stays."""
    assert await readable(method, [plain | NULLS | nulls], version) == [plain]


def test_only_clients_of_this_era_read_what_is_no_object() -> None:
    """For one of the handshake it is left out; it is repeated in the content."""
    result = {"content": [], "structuredContent": [1], "resultType": "complete"}
    assert fault("tools/call", result, VERSIONS[1], extended=False) is None
    assert fault("tools/call", result, VERSIONS[0], extended=False) == "structuredContent: no object"
    assert legacy_result(result) == {"content": []}


async def test_many_parts_are_looked_at_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks run meanwhile."""
    threads: list[int] = []
    checked = shapes._check

    def noted(model: Any, value: object) -> str | None:
        threads.append(threading.get_ident())
        return checked(model, value)

    monkeypatch.setattr(shapes, "_check", noted)
    for count, own in ((1, True), (MANY + 1, False)):
        threads.clear()
        assert await read_result("tools/call", {"content": [TEXT] * count}, VERSIONS[0], extended=False)
        assert (len(threads), {one == threading.get_ident() for one in threads}) == (count, {own})


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"content": [], "resultType": 7}, "resultType: '7' is not known"),
        ({"content": [], "resultType": "task"}, "resultType: 'task' is not known"),
        ({**ASKS, "inputRequests": {"a": {"method": "tools/list"}}}, "inputRequests.a.method: "),
        ({**ASKS, "inputRequests": {"a": {}}}, "inputRequests.a.method: Field required"),
        (
            {**ASKS, "inputRequests": {"a": {"method": "elicitation/create", "params": FORM}}},
            "inputRequests.a.params.requestedSchema.properties: Field required",
        ),
        (ASKS, ": Value error, InputRequiredResult requires"),
    ],
)
def test_only_clients_of_this_era_know_types_of_results(result: dict[str, Any], why: str) -> None:
    """To one of the handshake it is just another member."""
    assert str(fault("tools/call", result, VERSIONS[1], extended=False)).startswith(why)
    assert fault("tools/call", {**result, "content": []}, VERSIONS[0], extended=False) is None
    assert fault("tools/call", ASKS, VERSIONS[0], extended=False) == "content: it is missing"


def test_a_type_of_result_of_an_extension_is_for_who_knows_extensions() -> None:
    """Such clients check it themselves."""
    assert fault("tools/call", {"resultType": "task", "task": {}}, VERSIONS[1], extended=True) is None
    assert (
        fault("resources/list", {"resultType": "task", "task": {}}, VERSIONS[1], extended=True) == "resources: no list"
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("method", "result", "why"),
    [
        ("resources/read", {"contents": [{"uri": "a://b"}]}, "contents[0].text: Field required"),
        ("prompts/get", {"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages[0].content.text: "),
        ("completion/complete", {"completion": {"values": [1]}}, "completion.values[0]: "),
        ("tools/list", {"tools": None}, "tools: no list"),
        ("resources/list", {}, "resources: no list"),
        ("resources/list", {"resources": [], "_meta": 7}, "_meta: no object"),
        ("prompts/list", {**ASKS, "requestState": "x"}, "prompts: no list"),
        ("completion/complete", {**ASKS, "requestState": "x"}, "completion: Field required"),
    ],
)
def test_other_results(method: str, result: dict[str, Any], why: str, version: str) -> None:
    """The same for other methods."""
    assert str(fault(method, cacheable(method, result), version, extended=False)).startswith(why)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("method", "good", "bad"),
    [
        ("tools/list", {"name": "a", "inputSchema": SCHEMA}, {"name": "a", "inputSchema": SCHEMA, "icons": "x"}),
        ("tools/list", {"name": "a", "inputSchema": SCHEMA}, {"name": "a", "inputSchema": SCHEMA, "execution": 7}),
        ("resources/list", {"uri": "a://b", "name": "b", "more": 1}, {"uri": "a://b"}),
        ("resources/templates/list", {"uriTemplate": "a://{b}", "name": "b"}, {"uriTemplate": 7, "name": "b"}),
        ("prompts/list", {"name": "a", "arguments": [{"name": "b"}]}, {"name": "a", "arguments": [{}]}),
        ("prompts/list", {"name": "größe 1"}, {"name": "a\u202eb"}),
    ],
)
async def test_one_bad_thing_spoils_no_list(
    method: str, good: dict[str, Any], bad: dict[str, Any], version: str
) -> None:
    """It is left out, and the others stay unchanged."""
    assert await readable(method, [good, bad, None, 7, good], version) == [good, good]


async def test_a_tool_whose_output_is_no_object_is_one_for_both_eras() -> None:
    """Clients of the handshake do not accept such an output schema."""
    tool = {"name": "a", "inputSchema": SCHEMA, "outputSchema": {"type": "array"}}
    assert await readable("tools/list", [tool], VERSIONS[1]) == [tool]
    [older] = await readable("tools/list", [tool], VERSIONS[0])
    assert older == {"name": "a", "inputSchema": SCHEMA}
    with pytest.raises(ValidationError):
        parse_server_result("tools/list", VERSIONS[0], {"tools": [tool]})


@pytest.mark.parametrize("said", [{}, {"ttlMs": -1, "cacheScope": "public"}, {"ttlMs": 1.5, "cacheScope": "public"}])
def test_a_list_that_does_not_say_how_long_it_may_be_kept_is_not_kept(said: dict[str, Any]) -> None:
    """The SDK's client would fail at it."""
    listed = cacheable("tools/list", {"tools": [], **said})
    assert isinstance(parse_server_result("tools/list", VERSIONS[1], listed), types.ListToolsResult)
    assert listed == {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def test_what_is_nested_deeper_than_the_protocol_nests_is_not_looked_through() -> None:
    """A deeply nested result cannot exhaust the gateway's stack."""
    deep: dict[str, Any] = {"_meta": None}
    for _ in range(5000):
        deep = {"content": [deep]}
    assert without_nulls(deep) is deep
