# ruff: noqa: E501 - one case after the other is easier to read than one on each line
"""Calls of views as clients write them, odd ones and broken ones: the fast path must answer them as the SDK does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.mcp.fakes import ANSWERS, BROKEN, EVENTS, OVERTAKEN

HOST = "gateway.test"
UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
VERSION = "io.modelcontextprotocol/protocolVersion"
INFO = "io.modelcontextprotocol/clientInfo"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META: dict[str, Any] = {VERSION: "2026-07-28", INFO: {"name": "host", "version": "1"}, CAPABILITIES: UI}
ARGUMENTS: dict[str, Any] = {"url": "/api/cart", "_view": "proof"}
HEAD = {
    "host": HOST,
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "http_request",
}
LISTED: dict[str, Any] = {"name": "find", "description": "\u00e9", "inputSchema": {"type": "object"}}
GONE = object()
"""Removes a member."""


@dataclass(frozen=True)
class Case:
    """One request; with `fast` the fast path must take it, otherwise it may."""

    name: str
    head: tuple[tuple[str, str], ...]
    body: bytes
    fast: bool = False
    method: str = "POST"


def message(id: object = 1, arguments: object = GONE, meta: object = GONE, **members: object) -> str:
    """Return a call as JSON; `members` replace those of the message, `params_…` those of its params."""
    params: dict[str, object] = {
        "name": "http_request",
        "arguments": ARGUMENTS if arguments is GONE else arguments,
        "_meta": META if meta is GONE else meta,
    }
    whole: dict[str, object] = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    for name, value in {**members, "id": id}.items():
        place, key = (params, name.removeprefix("params_")) if name.startswith("params_") else (whole, name)
        place[key] = value
        if value is GONE:
            del place[key]
    return json.dumps(whole)


def _fields(**changes: str | None) -> tuple[tuple[str, str], ...]:
    fields: dict[str, str | None] = {**HEAD, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return tuple((name, value) for name, value in fields.items() if value is not None)


def cases() -> Iterator[Case]:
    """Yield all cases."""
    yield from _heads()
    for kind, found in (
        ("id", _ids()),
        ("message", _messages()),
        ("meta", _metas()),
        ("arguments", _arguments()),
        ("answer", _answers()),
        ("text", _texts()),
    ):
        for number, (text, fast) in enumerate(found):
            body = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
            yield Case(f"{kind}-{number}", _fields(), body, fast)
    yield from _relay_calls()


def _heads() -> Iterator[Case]:
    body = message().encode()
    plain = _fields()
    fast: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
        ("plain", plain),
        ("upper", tuple((name.upper(), value) for name, value in plain)),
        ("accept-order", _fields(accept="text/event-stream,application/json")),
        ("accept-quality", _fields(accept="application/json;q=1, text/event-stream;q=0.5, text/plain")),
        ("charset", _fields(content_type="application/json; charset=utf-8")),
        ("own-origin", _fields(origin="http://console.test")),
        ("agent", _fields(user_agent="host/1", accept_language="en", x_other="1")),
    )
    for name, fields in fast:
        yield Case(f"head-{name}", fields, body, True)
    slow = (
        *((f"no-{name}", tuple(field for field in plain if field[0] != name)) for name in HEAD),
        *((f"twice-{name}", (*plain, (name, value))) for name, value in HEAD.items() if name != "host"),
        *((f"twice-other-{name}", (*plain, (name, "other"))) for name in HEAD if name != "host"),
        ("version-old", _fields(mcp_protocol_version="2025-11-25")),
        ("version-unknown", _fields(mcp_protocol_version="2099-01-01")),
        ("version-empty", _fields(mcp_protocol_version="")),
        ("method-other", _fields(mcp_method="tools/list")),
        ("method-case", _fields(mcp_method="Tools/Call")),
        ("name-other", _fields(mcp_name="open_cart")),
        ("name-case", _fields(mcp_name="HTTP_REQUEST")),
        ("name-encoded", _fields(mcp_name="=?base64?aHR0cF9yZXF1ZXN0?=")),
        ("name-broken", _fields(mcp_name="=?base64?%%%?=")),
        ("accept-json", _fields(accept="application/json")),
        ("accept-events", _fields(accept="text/event-stream")),
        ("accept-all", _fields(accept="*/*")),
        ("accept-html", _fields(accept="text/html")),
        ("type-text", _fields(content_type="text/plain")),
        ("type-form", _fields(content_type="application/x-www-form-urlencoded")),
        ("type-more", _fields(content_type="application/json-rpc")),
        ("type-case", _fields(content_type="Application/JSON")),
        ("origin-foreign", _fields(origin="http://evil.test")),
        ("origin-null", _fields(origin="null")),
        ("origin-empty", _fields(origin="")),
        ("host-foreign", _fields(host="evil.test")),
        ("host-case", _fields(host=HOST.upper())),
        ("host-port", _fields(host=f"{HOST}:1")),
        ("host-dot", _fields(host=f"{HOST}.")),
        ("session", _fields(mcp_session_id="0" * 32)),
        ("parameter", _fields(mcp_param_url="/api/cart")),
        ("parameter-other", _fields(mcp_param_url="/api/other")),
        ("last-event", _fields(last_event_id="7")),
    )
    for name, fields in slow:
        yield Case(f"head-{name}", fields, body)
    for method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS"):
        yield Case(f"head-{method}", plain, body, method=method)


def _ids() -> Iterator[tuple[str, bool]]:
    for id in (
        0,
        1,
        -1,
        7,
        2**31,
        2**53,
        -(2**53),
        "a",
        "",
        "1",
        "é",
        "\U0001f600",
        '"',
        "\\",
        "\n",
        "x" * 500,
        "null",
    ):
        yield message(id), True
    for odd in (None, True, False, 1.0, 1.5, [], [1], {}, {"a": 1}, GONE):
        yield message(id=odd), False
    for text in (
        "1e2",
        "01",
        "9223372036854775808",
        "18446744073709551616",
        "1" * 400,
        "NaN",
        '"\\ud800"',
        "1.0",
    ):
        yield message("ID").replace('"ID"', text, 1), False


def _messages() -> Iterator[tuple[str, bool]]:
    changes: dict[str, Any]
    for changes in (
        {"jsonrpc": "1.0"}, {"jsonrpc": 2.0}, {"jsonrpc": None}, {"jsonrpc": GONE}, {"method": "tools/list"},
        {"method": "ping"}, {"method": "nothing/known"}, {"method": ""}, {"method": None}, {"method": GONE},
        {"method": 1}, {"params": GONE}, {"params": None}, {"params": []}, {"params": "x"}, {"params": {}},
        {"extra": 1}, {"result": {}}, {"error": {"code": 1, "message": "x"}},
    ):  # fmt: skip
        yield message(**changes), False
    for changes in (
        {"params_name": "http_stream"}, {"params_name": "open_cart"}, {"params_name": "unknown"},
        {"params_name": "HTTP_REQUEST"}, {"params_name": " http_request"}, {"params_name": ""},
        {"params_name": None}, {"params_name": 1}, {"params_name": GONE}, {"params_arguments": GONE},
        {"params_arguments": None}, {"params_arguments": []}, {"params_arguments": "x"}, {"params_arguments": 1},
        {"params__meta": GONE}, {"params__meta": None}, {"params__meta": []}, {"params__meta": "x"},
        {"params_other": 1}, {"params_inputResponses": {}}, {"params_requestState": "x"}, {"params_task": {"ttl": 1}},
    ):  # fmt: skip
        yield message(**changes), False


def _metas() -> Iterator[tuple[str, bool]]:
    odd: dict[str, Any]
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for more in (
        {"progressToken": 1}, {"progressToken": "p"}, {"traceparent": trace}, {"tracestate": "a=1"}, {"baggage": "a=1"},
        {INFO: None}, {"io.modelcontextprotocol/logLevel": "debug"}, {"other/key": {"a": [1, None, True]}}, {"progressToken": 0, "traceparent": trace},
    ):  # fmt: skip
        yield message(meta={**META, **more}), True
    yield message(meta={key: META[key] for key in (VERSION, CAPABILITIES)}), True
    yield message(meta={**META, CAPABILITIES: {**UI, "elicitation": {}, "sampling": {}, "roots": {}}}), True
    for odd in (
        {"progressToken": None}, {"progressToken": 1.5}, {"progressToken": []}, {"progressToken": True},
        {"traceparent": 1}, {"tracestate": None}, {"baggage": {}},
        {VERSION: "2025-11-25"}, {VERSION: "2099-01-01"}, {VERSION: 1}, {VERSION: None}, {VERSION: ""},
        {INFO: "host"}, {INFO: {}}, {INFO: {"name": 1}}, {INFO: []}, {INFO: {"name": "host"}},
        {CAPABILITIES: {}}, {CAPABILITIES: None}, {CAPABILITIES: []}, {CAPABILITIES: "x"}, {CAPABILITIES: {"extensions": 1}},
        {CAPABILITIES: {"extensions": {}}}, {CAPABILITIES: {"extensions": {"io.modelcontextprotocol/ui": {}}}},
        {CAPABILITIES: {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": "text/html;profile=mcp-app"}}}},
        {CAPABILITIES: {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}}},
        {CAPABILITIES: {"elicitation": 1}}, {"io.modelcontextprotocol/logLevel": "loud"}, {"io.modelcontextprotocol/logLevel": 1},
    ):  # fmt: skip
        yield message(meta={**META, **odd}), False
    yield message(arguments={**ARGUMENTS, "stream": True}, meta={**META, "progressToken": 1}), False
    for missing in (VERSION, CAPABILITIES):
        yield message(meta={key: value for key, value in META.items() if key != missing}), False


def _arguments() -> Iterator[tuple[str, bool]]:
    odd_values: tuple[Any, ...] = (None, True, 1, 1.5, "", "x", [], ["a"], {}, {"a": 1})
    for name in ("url", "method", "headers", "body", "bodyType", "redirect", "credentials", "timeoutMs", "stream"):
        for value in odd_values:
            yield message(arguments={**ARGUMENTS, name: value}), True
    for value in odd_values[3:]:
        yield message(arguments={**ARGUMENTS, "_view": value}), True
        yield message(arguments={**ARGUMENTS, "_gesture": value, "_initiator": value}), True
    for arguments in (
        {}, {"url": "/api/cart"}, {"url": "/api/cart", "_view": "forged.1.x"}, {**ARGUMENTS, "_initiator": "model"},
        {**ARGUMENTS, "_gesture": 10}, {**ARGUMENTS, "method": "TRACE"}, {**ARGUMENTS, "method": "post", "body": {"a": None}},
        {**ARGUMENTS, "url": "/é?ü=\U0001f600"}, {**ARGUMENTS, "url": "x" * 9000}, {**ARGUMENTS, "other": {"deep": [[]]}},
        {**ARGUMENTS, "headers": {"x-a": "b", "X-A": "c"}}, {**ARGUMENTS, "headers": {"é": "b"}},
        {**ARGUMENTS, "method": "POST", "body": "AAA=", "bodyType": "base64"},
        {**ARGUMENTS, "method": "POST", "body": "!", "bodyType": "base64"},
        {**ARGUMENTS, "method": "POST", "body": [{"name": "a", "value": "b"}], "bodyType": "formData"},
        {**ARGUMENTS, "method": "POST", "body": {"a": [1, "b", True]}, "bodyType": "urlEncoded"},
        {**ARGUMENTS, "method": "POST", "body": "\ud800"}, {**ARGUMENTS, "method": "POST", "body": {"n": 2**80}},
        {**ARGUMENTS, "timeoutMs": 2**60}, {**ARGUMENTS, "timeoutMs": 2**80}, {**ARGUMENTS, "other": -(2**80)}, {**ARGUMENTS, "url": 2**80}, {**ARGUMENTS, "method": "POST", "body": "x" * 100_000},
    ):  # fmt: skip
        yield message(arguments=arguments), "_view" in arguments


def _relay_calls() -> Iterator[Case]:
    """Yield polls for a model's calls, and answers to them."""
    odd_tools: tuple[Any, ...] = ([], [LISTED], [LISTED, 1, {}, {"name": 2}], [LISTED] * 300, {}, "x", None)
    odd_results: tuple[Any, ...] = ({}, [], None, "x", {"content": "x"}, {"isError": True})
    polls: tuple[dict[str, Any], ...] = (
        *({"after": after} for after in (*range(len(EVENTS) + 1), BROKEN, OVERTAKEN, -1, 2**53, 1.0, 1.5, True, None, "1", [])),
        *({"wait": wait} for wait in (0, 5, 10**9, -1, 0.5, "1", None)),
        *({name: value} for name in ("hidden", "closing", "leaving") for value in (True, False, None, 1, "true")),
        *({"tools": tools} for tools in odd_tools),
        {"other": 1}, {"stream": True}, {"_view": "wrong"}, {"_view": None}, {"_view": 1}, {"closing": True, "_view": "wrong"},
    )  # fmt: skip
    results: tuple[dict[str, Any], ...] = (
        *({"call": call, "result": {"content": []}} for call in ("call-1", "call-9", "", None, 1, "\u00e9")),
        *({"call": "call-1", "result": result} for result in odd_results),
        {}, {"result": {}}, {"call": "call-1"}, {"call": "call-1", "_view": "wrong"}, {"call": "call-1", "_view": None},
    )  # fmt: skip
    for tool, found in (("webmcp_poll", polls), ("webmcp_result", results)):
        fields = _fields(mcp_name=tool)

        def case(
            name: str, body: str, fast: bool = False, *, tool: str = tool, fields: tuple[tuple[str, str], ...] = fields
        ) -> Case:
            return Case(f"{tool}-{name}", fields, body.encode(), fast)

        for number, more in enumerate(found):
            yield case(str(number), message(arguments={"_view": "proof", **more}, params_name=tool), True)
        arguments: dict[str, Any] = {"_view": "proof", "call": "call-1"}
        named = {"arguments": arguments, "params_name": tool}
        yield case("id", message(id="\u00e9", **named), True)
        yield case("token", message(meta={**META, "progressToken": 1}, **named), True)
        yield case("no-view", message(arguments={"call": "call-1"}, params_name=tool))
        yield case("no-app", message(meta={**META, CAPABILITIES: {}}, **named))
        yield case("other-body", message())
        yield case("other-body-too", message(arguments=arguments, params_name="webmcp_attach"))
        yield case("odd-name", message(arguments=arguments, params_name=["webmcp_poll"]))
        yield Case(f"{tool}-other-head", _fields(), message(**named).encode())
        yield Case(f"{tool}-no-head", _fields(mcp_name=None), message(**named).encode())
    yield Case("webmcp-poll-as-result", _fields(mcp_name="webmcp_result"), message(params_name="webmcp_poll").encode())


def _answers() -> Iterator[tuple[str, bool]]:
    for url in (*ANSWERS, "/bug", "/odd-status", "/internal", "/big"):
        yield message(arguments={**ARGUMENTS, "url": url}), True


def _texts() -> Iterator[tuple[str | bytes, bool]]:
    text = message()
    yield text.replace(" ", ""), True
    posted = message(arguments={**ARGUMENTS, "method": "POST", "body": {"n": 2**80}})
    yield posted.replace('"body"', '"b\\u006fdy"'), False
    yield text.replace('"id": 1', '"id": -0'), True
    yield f"\n\t {text} \r\n", True
    yield message(arguments={**ARGUMENTS, "url": "/é"}).replace("\\u00e9", "é"), True
    yield text.replace('"id": 1', '"id": 1, "id": 2'), True
    yield text.replace('"url": "/api/cart"', '"url": "/api/a", "url": "/api/b"'), True
    for odd in (
        "", " ", "null", "1", '"x"', "[]", f"[{text}]", f"[{text},{text}]", "{}", "{", text[:-1], f"{text}x", f"{text}{text}",
        text.replace('"', "'"), "\ufeff" + text, text.replace("/api/cart", "/api/\x01"), text.replace("/api/cart", "/\\ud800"), text.replace("/api/cart", "/\ud800"),
        message(arguments={**ARGUMENTS, "n": float("nan")}), message(arguments={**ARGUMENTS, "n": float("inf")}),
        "[" * 100_000, '{"jsonrpc":' * 2000, message(arguments="DEEP").replace('"DEEP"', "[" * 5000 + "]" * 5000),
    ):  # fmt: skip
        yield odd, False
    for encoding in ("utf-16", "utf-16-le", "utf-32", "latin-1"):
        yield message(arguments={**ARGUMENTS, "url": "/é"}).replace("\\u00e9", "é").encode(encoding), False
    yield message(arguments={**ARGUMENTS, "url": "/x"}).encode().replace(b"/x", b"/\xff\xc0\xaf"), False
