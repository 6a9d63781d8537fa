"""Responses become results that every reader interprets alike."""

from __future__ import annotations

import base64
import json

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.contract import (
    OUTPUT_SCHEMA,
    problem,
    result,
    results,
    text_block,
    text_of_json,
    whole_characters,
)
from gateway.errors import STATUS, WORDS, Reason, Refusal
from gateway.jsontext import reading
from gateway.jsontext.reading import exact_json
from gateway.jsontext.sizes import AT_ONCE, InvalidJson
from gateway.model import Part, Response


def _decode(content_type: str, body: bytes) -> tuple[object, object]:
    found = result(Response(200, (("content-type", content_type),), body))
    return found["bodyType"], found.get("body")


def test_whole_result() -> None:
    """The result has everything that an app sees of a response, and nothing else."""
    headers = (("Content-Type", "application/json"), ("Link", "a"), ("link", "b"), ("Set-Cookie", "x=y"))
    response = Response(201, headers, b'{"a": 1}', "/api/x?y=1", True, "Created")
    assert result(response) == {
        "status": 201,
        "statusText": "Created",
        "url": "/api/x?y=1",
        "ok": True,
        "redirected": True,
        "headers": {"content-type": "application/json", "link": "a, b"},
        "bodyType": "json",
        "body": {"a": 1},
    }


@pytest.mark.parametrize("status", [0, 99, 100, 101, 199, 600, 999, -1])
def test_status_outside_of_http(status: int) -> None:
    """Published clients throw outside 200 to 599, so it is a backend's error."""
    with pytest.raises(Refusal) as caught:
        result(Response(status))
    assert caught.value.reason is Reason.BACKEND_PROTOCOL


@pytest.mark.parametrize(("status", "ok"), [(200, True), (299, True), (300, False), (404, False), (599, False)])
def test_ok(status: int, ok: bool) -> None:
    """`ok` is 200 to 299, as in Fetch."""
    assert result(Response(status))["ok"] is ok


@pytest.mark.parametrize("status", [204, 205, 304])
def test_statuses_without_body(status: int) -> None:
    """204, 205 and 304 have no body, even if a backend sends one."""
    found = result(Response(status, (("content-type", "text/plain"),), b"x"))
    assert found["bodyType"] == "none"
    assert "body" not in found


@pytest.mark.parametrize(
    "name",
    [
        "set-cookie",
        "Set-Cookie2",
        "Connection",
        "keep-alive",
        "transfer-encoding",
        "content-length",
        "Content-Encoding",
        "te",
        "trailer",
        "upgrade",
        "proxy-authenticate",
        "a b",
        "a:",
        "",
    ],
)
def test_headers_that_never_appear(name: str) -> None:
    """Cookies, hop-by-hop fields, and invalid names are left out here too."""
    assert result(Response(200, ((name, "x"), ("etag", "y"))))["headers"] == {"etag": "y"}


def test_the_length_of_a_body_that_is_left_out() -> None:
    """The length is kept without a body, and with the first part of a stream, but not beside a whole body."""
    etag, told = (("etag", "x"),), {"etag": "x", "content-length": "5"}
    assert result(Response(200, etag, length=5))["headers"] == told
    assert result(Response(200, etag, b"four", part=Part("stream-1", last=False), length=5))["headers"] == told
    assert result(Response(200, etag, b"four", part=Part("", last=True), length=5))["headers"] == {"etag": "x"}
    assert result(Response(200, etag, b"four", length=5))["headers"] == {"etag": "x"}


def test_broken_header_values() -> None:
    """Values that could inject a header, or have no encoding, are left out; CRLF is removed from the reason."""
    found = result(Response(200, (("a", "x\r\ny"), ("b", "\udc80"), ("c", "é")), reason_phrase="O\r\nK\ud800"))
    assert found["headers"] == {"c": "é"}
    assert found["statusText"] == "OK"


BODIES = [
    ("application/json", b'{"a": [1, 2.5, null, true, "\xc3\xa9"]}', "json", {"a": [1, 2.5, None, True, "é"]}),
    ("Application/JSON; charset=utf-8", b"[]", "json", []),
    ("application/problem+json", b"null", "json", None),
    ("application/json", b'"text"', "json", "text"),
    ("application/json", b'{"__proto__": 1}', "json", {"__proto__": 1}),
    ("application/json", b"9007199254740992", "json", 9007199254740992),
    ("application/json", b"-9007199254740992", "json", -9007199254740992),
    ("application/json", b"1e3", "json", 1000.0),
    ("application/json", b'"1234567890123456789"', "json", "1234567890123456789"),
    ("application/json", b'"\\ud83d\\uded2"', "json", "🛒"),
    ("application/json", b"9007199254740993", "text", "9007199254740993"),
    ("application/json", b'{"id": 12345678901234567890}', "text", '{"id": 12345678901234567890}'),
    ("application/json", b"1e400", "text", "1e400"),
    ("application/json", b"1e17", "text", "1e17"),
    ("application/json", b"1" * 5000, "text", "1" * 5000),
    ("application/json", b"NaN", "text", "NaN"),
    ("application/json", b"-Infinity", "text", "-Infinity"),
    ("application/json", b'{"a": 1, "a": 2}', "text", '{"a": 1, "a": 2}'),
    ("application/json", b'[{"b": {"a": 1, "\\u0061": 2}}]', "text", '[{"b": {"a": 1, "\\u0061": 2}}]'),
    ("application/json", b'"\\ud800"', "text", '"\\ud800"'),
    ("application/json", b"{a: 1}", "text", "{a: 1}"),
    ("application/json", b'{"a": 1} x', "text", '{"a": 1} x'),
    ("application/json", b"[" * 60 + b"]" * 60, "json", None),
    ("application/json", b"[" * 61 + b"]" * 61, "text", "[" * 61 + "]" * 61),
    ("application/json", b"[" * 100_000, "text", "[" * 100_000),
    ("application/json", b"\xff", "base64", "/w=="),
    ("application/x-www-form-urlencoded", b"a=1&b=2", "urlEncoded", "a=1&b=2"),
    ("text/html; charset=ISO-8859-1", b"caf\xe9", "base64", "Y2Fm6Q=="),
    ("text/html; charset=ISO-8859-1", "café".encode(), "text", "café"),
    ('text/plain; charset="windows-1251"', "да".encode("cp1251"), "base64", "5OA="),
    ("text/plain;charset=utf-16le", "é".encode("utf-16-le"), "base64", "6QA="),
    ("text/plain;charset=utf-16le", "a".encode("utf-16-le"), "text", "a\0"),
    ("text/plain", b"\xef\xbb\xbfa", "text", "\ufeffa"),
    ("application/json", b"\xef\xbb\xbf{}", "text", "\ufeff{}"),
    ("application/json; charset=iso-8859-1", '"é"'.encode(), "json", "é"),
    ("text/plain", "é".encode(), "text", "é"),
    ("text/plain", b"\xe9", "base64", "6Q=="),
    ("text/plain; charset=rot13", b"x", "text", "x"),
    ("text/plain; charset=unicode_escape", b"\\u0041", "text", "\\u0041"),
    ("text/plain; charset=utf-7", b"+AGE-", "text", "+AGE-"),
    ("text/event-stream", b"data: x\n\n", "text", "data: x\n\n"),
    ("image/svg+xml", b"<svg/>", "text", "<svg/>"),
    ("application/xml", b"<a/>", "text", "<a/>"),
    ("application/javascript", b"x", "text", "x"),
    ("image/png", b"\x89PNG", "base64", "iVBORw=="),
    ("", b"x", "base64", "eA=="),
    ("nonsense", b"x", "base64", "eA=="),
    ("text/plain", b"", "none", None),
    ("application/json", b"", "none", None),
]


@pytest.mark.parametrize(("content_type", "body", "kind", "value"), BODIES, ids=range(len(BODIES)))
def test_body_types(content_type: str, body: bytes, kind: str, value: object) -> None:
    """JSON is typed as such only if every reader sees the same value; undecodable bytes are base64."""
    found_kind, found = _decode(content_type, body)
    assert found_kind == kind
    assert value is None or found == value


@given(st.binary(max_size=60) | st.text(alphabet='[]{}":,01eE-.9\\ud8naNfltrue ', max_size=40).map(str.encode))
def test_any_json_body(body: bytes) -> None:
    """For any body labelled JSON the bytes or the value are preserved, and the result is JSON."""
    kind, value = _decode("application/json", body)
    if kind == "text":
        assert str(value).encode() == body
    elif kind == "base64":
        assert base64.b64decode(str(value)) == body
    elif kind == "json":
        assert json.loads(body) == value
        assert json.loads(json.dumps(value, allow_nan=False).encode()) == value


_CHARSETS = ["utf-8", "latin1", "utf-16", "utf-16be", "shift_jis", "euc-jp", "iso-2022-jp", "gb18030", "big5", "euc-kr"]


@given(st.sampled_from(_CHARSETS), st.binary(max_size=80))
def test_any_text_body(charset: str, body: bytes) -> None:
    """For any bytes and charset the result can be encoded, and preserves the bytes."""
    found = result(Response(200, (("content-type", f"text/plain; charset={charset}"),), body))
    assert json.loads(text_block(found, False)) == found
    held = str(found.get("body", ""))
    assert (base64.b64decode(held) if found["bodyType"] == "base64" else held.encode()) == body


@given(st.integers(200, 599), st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9))), st.text(), st.text())
def test_any_response(status: int, headers: list[tuple[str, str]], url: str, phrase: str) -> None:
    """Every result fits the published schema, and can be encoded."""
    found = result(Response(status, tuple(headers), b"{}", url, False, phrase))
    jsonschema.validate(found, OUTPUT_SCHEMA)
    assert json.loads(text_block(found, False)) == found


def test_text_block() -> None:
    """Over 64 KiB the text is only the size, once structured content is known to arrive."""
    small = result(Response(200, (("content-type", "text/plain"),), b"x"))
    large = result(Response(200, (("content-type", "text/plain"),), b"x" * 65536))
    assert json.loads(text_block(small, True)) == small
    assert json.loads(text_block(large, False)) == large
    assert len(text_block(large, True)) < 200
    assert "65" in text_block(large, True)


@pytest.mark.parametrize("reason", list(Reason))
def test_problems(reason: Reason) -> None:
    """Every refusal is problem+json with its reason, status and audit id, as an ordinary result."""
    refusal = Refusal(reason, "because of \ud800 é", headers=(("retry-after", "3"),))
    response = problem(refusal, "rec-1", "/x")
    assert response.header("gateway-reason") == reason.value
    assert response.header("content-type") == "application/problem+json"
    assert response.header("retry-after") == "3"
    body = json.loads(response.body)
    assert (body["status"], body["instance"]) == (STATUS[reason], "rec-1")
    assert set(body) == {"type", "title", "status", "detail", "cause", "instance"}
    assert (body["detail"], body["cause"]) == (WORDS[reason], refusal.detail)
    assert result(response)["status"] == STATUS[reason]


def test_output_schema() -> None:
    """The schema itself is valid."""
    jsonschema.Draft202012Validator.check_schema(OUTPUT_SCHEMA)


@pytest.mark.parametrize("text", ["", " ", "01", "1.", "'a'", "[1,]", "\ufeff1", "tru"])
def test_not_json(text: str) -> None:
    """Invalid JSON has no exact value."""
    with pytest.raises(InvalidJson):
        exact_json(text)


@given(st.text(), st.integers(0, 200))
def test_parts_of_text_end_between_characters(text: str, cut: int) -> None:
    """At most three bytes are held back for the next part."""
    data = text.encode()[:cut]
    size = whole_characters(data)
    data[:size].decode()
    assert len(data) - size <= 3


@given(st.binary())
def test_no_bytes_are_held_back_but_a_beginning(data: bytes) -> None:
    """Of other bytes at most three are held back, which could begin a character."""
    held = data[whole_characters(data) :]
    assert len(held) <= 3
    assert not held or held[0] >= 0xC0


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/event-stream", b"data: 1\n\n", ("text", "data: 1\n\n")),
        ("application/json", b'{"half": ', ("text", '{"half": ')),
        ("application/x-ndjson; charset=UTF-8", b"12", ("text", "12")),
        ("text/plain; charset=iso-8859-1", b"\xfc", ("base64", "/A==")),
        ("text/plain; charset=iso-8859-1", b"u", ("text", "u")),
        ("image/png", b"x", ("base64", "eA==")),
        ("text/plain", b"\xff", ("base64", "/w==")),
        ("text/plain", b"", ("none", None)),
    ],
)
def test_a_part_is_text_or_base64(content_type: str, body: bytes, expected: tuple[str, str | None]) -> None:
    """A part is never typed as JSON."""
    response = Response(200, (("content-type", content_type),), body, part=Part("stream-1", last=False))
    found = result(response)
    assert (found["bodyType"], found.get("body")) == expected
    assert found["stream"] == "stream-1"


def test_the_last_part_names_no_stream() -> None:
    """A client thus knows when to stop."""
    assert "stream" not in result(Response(200, (), b"x", part=Part("stream-1", last=True)))


def test_json_of_too_many_parts_is_a_text() -> None:
    """Parsing it would block the event loop; the app parses it itself."""
    text = f"[{'[],' * AT_ONCE}1]"
    assert _decode("application/json", text.encode()) == ("text", text)


@pytest.mark.parametrize("before", range(64))
def test_a_large_number_is_found_wherever_it_stands(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts are searched in slices."""
    monkeypatch.setattr(reading, "_SHORT", 0)
    monkeypatch.setattr(reading, "_SLICE", 24)
    for number in ("9" * 16, "1e17"):
        with pytest.raises(InvalidJson):
            exact_json(f'["{"x" * before}",{number},"{"y" * 40}"]')
    assert exact_json(f'["{"x" * before}",{"1" * 15}]') == ["x" * before, int("1" * 15)]


def _object(members: list[tuple[str, str]]) -> str:
    """JSON with all of these members, also with duplicate names."""
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in members) + "}"


JSON_TEXTS = st.recursive(
    st.one_of(
        st.sampled_from(["null", "true", "-0", "1e5", "1E400", "0.1", "1.", "01", "NaN", "", "9007199254740993.0"]),
        st.integers(-(2**70), 2**70).map(str),
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        st.text('a":,0e\\\ud800é').map(lambda text: json.dumps(text, ensure_ascii=False)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda texts: f"[{', '.join(texts)}]"),
        st.lists(st.tuples(st.text("ab:", max_size=2), inner), max_size=4).map(_object),
    ),
)


@given(JSON_TEXTS)
def test_what_is_quickly_seen_to_be_exact_is(text: str) -> None:
    """The thorough check finds the same value, to the types of its numbers."""
    quick = reading.plainly_exact(text)
    if quick is not None:
        assert repr(quick[0]) == repr((reading._careful if reading._is_careful(text) else reading._plain).read(text))


@pytest.mark.parametrize("others", ["", r',"b":"\u0022\u0022"', r',"b\\":1,"\u0061":3'])
def test_a_key_that_is_there_twice_is_found_however_texts_are_written(others: str) -> None:
    """Quotation marks elsewhere do not compensate for the missing ones."""
    with pytest.raises(InvalidJson, match="key twice"):
        exact_json(f'{{"a":1,"a":2{others}}}')


def test_a_quick_look_finds_what_is_usual() -> None:
    """Most JSON is plain, with white space or without."""
    for text in ('{"a": [1, -2.5, "x\'y", null], "b": {"a": true}}', '[{"id":1},{"id":2}]'):
        value = json.loads(text)
        assert reading.plainly_exact(text) == (value, json.dumps(value, separators=(",", ":")).encode())


@pytest.mark.parametrize("length", range(20))
def test_bytes_in_pieces_are_the_same_base64(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slices are multiples of three."""
    assert results._AT_ONCE % 3 == 0
    monkeypatch.setattr(results, "_AT_ONCE", 6)
    assert base64.b64decode(str(results.in_base64(bytes(range(length)))), validate=True) == bytes(range(length))


@pytest.mark.parametrize("more", [0, 1])
def test_json_that_takes_long_to_read_is_text(more: int) -> None:
    """The page parses it itself."""
    body = b'"' + b"x" * (results.LONGEST_JSON - 2 + more) + b'"'
    found = result(Response(200, (("content-type", "application/json"),), body, "/"))
    assert found["bodyType"] == ("text" if more else "json")
    assert found["body"] == (body.decode() if more else body.decode()[1:-1])


_TEXTS = st.sampled_from(["", "a", "null", "ü", "\x7f", "\x00", '"', "\\", "a/b?c=d", "0.00001", "\ud800"]) | st.text(
    max_size=8
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-(2**60), 2**60) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)
_BODIES = st.builds(
    lambda value, spaced, escaped: json.dumps(value, indent=spaced, ensure_ascii=escaped).encode("utf-8", "replace"),
    _VALUES,
    st.sampled_from([None, 1]),
    st.booleans(),
) | st.sampled_from(
    [b"", b"{", b'{"a":1,"a":2}', b"1e5", b'{"a":0.00001}', b"1" * 20, b"[" * 59 + b"]" * 59, b"[" * 61 + b"]" * 61]
)


@example(b"[]", 200, "application/json", "", "\x7f", "", False)
@given(
    _BODIES,
    st.sampled_from([200, 201, 204, 205, 304, 404, 599]),
    st.sampled_from(["application/json", "Application/Problem+JSON; charset=x", "text/plain", ""]),
    _TEXTS,
    _TEXTS,
    _TEXTS,
    st.booleans(),
)
def test_the_text_of_json_is_that_of_its_result(
    body: bytes, status: int, content_type: str, other: str, url: str, reason: str, redirected: bool
) -> None:
    """The text is the same with or without decoded values, and is the JSON of the result."""
    headers = (("content-type", content_type), ("etag", other))
    response = Response(status, headers, body, url, redirected, reason)
    written = text_of_json(response)
    if written is not None:
        values = result(response)
        assert written == text_block(values, structured_arrives=False)
        assert json.loads(written) == values
        assert written.isascii()


def test_the_text_of_plain_json_is_written_without_its_values() -> None:
    """Typical JSON takes the fast path."""
    headers = (("content-type", "application/json; charset=utf-8"), ("etag", '"1"'))
    response = Response(
        200, headers, b'{"id": 42, "tags": ["a", {"b": [1.5, true]}]}', "/api/items/42", reason_phrase="OK"
    )
    assert text_of_json(response) == text_block(result(response), structured_arrives=False)
    assert text_of_json(response) is not None
    for other in (
        b'{"a": null}',
        b'{"a": "\xc3\xbc"}',
        b'{"a": 1, "a": 2}',
        b'{"a": "\\u00fc"}',
        b"[" * 61 + b"]" * 61,
    ):
        assert text_of_json(Response(200, headers, other)) is None
    assert text_of_json(Response(200, headers, b"1", part=Part("id", last=False))) is None
