"""Arguments of both dialects become requests; invalid ones are refused with the name of the field."""

from __future__ import annotations

import base64
import contextlib
import json
from email import message_from_bytes
from email.policy import HTTP

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contract import INPUT_SCHEMA, parse_arguments
from gateway.errors import Reason, Refusal
from gateway.jsontext.sizes import AT_ONCE
from gateway.model import BodyType, Redirect, Request


def _deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def _post(**arguments: object) -> Request:
    return parse_arguments({"url": "/x", "method": "POST", **arguments})


def test_defaults() -> None:
    """Only the URL is needed."""
    assert parse_arguments({"url": "/api?x=1#f"}) == Request("GET", "/api?x=1#f")


def test_everything() -> None:
    """Each field is read; unknown keys and the view proof are ignored."""
    found = parse_arguments(
        {
            "url": "https://app.example/x",
            "method": "patch",
            "headers": {"X-A": "1", "Content-Type": "application/merge-patch+json"},
            "body": {"a": 1},
            "bodyType": "json",
            "redirect": "manual",
            "cache": "no-store",
            "credentials": "omit",
            "timeoutMs": 1500,
            "stream": True,
            "_view": "v.1.x",
            "other": object(),
        }
    )
    assert found == Request(
        method="PATCH",
        url="https://app.example/x",
        headers=(("x-a", "1"), ("content-type", "application/merge-patch+json")),
        body=b'{"a":1}',
        body_type=BodyType.JSON,
        redirect=Redirect.MANUAL,
        send_cookies=False,
        timeout=1.5,
        stream=True,
    )


BODIES: list[tuple[dict[str, object], bytes, str | None]] = [
    ({}, b"", None),
    ({"body": None}, b"", None),
    ({"body": "hi é"}, "hi é".encode(), "text/plain;charset=UTF-8"),
    ({"body": {"a": [1, 2.5, None, "é"]}}, '{"a":[1,2.5,null,"é"]}'.encode(), "application/json"),
    ({"body": False}, b"false", "application/json"),
    ({"body": None, "bodyType": "json"}, b"null", "application/json"),
    ({"body": ' {"a" : 1} ', "bodyType": "json"}, b' {"a" : 1} ', "application/json"),
    ({"body": {"__proto__": 1}, "bodyType": "json"}, b'{"__proto__":1}', "application/json"),
    ({"body": "a=1&b=%20", "bodyType": "urlEncoded"}, b"a=1&b=%20", "application/x-www-form-urlencoded"),
    (
        {"body": {"a": "x y&=é", "b": ["1", 2], "c": True}, "bodyType": "urlEncoded"},
        b"a=x+y%26%3D%C3%A9&b=1&b=2&c=true",
        "application/x-www-form-urlencoded",
    ),
    ({"body": "AAEC/w==", "bodyType": "base64"}, b"\x00\x01\x02\xff", None),
    ({"body": {"data": "AAEC"}, "bodyType": "base64"}, b"\x00\x01\x02", None),
    ({"body": "", "bodyType": "text"}, b"", "text/plain;charset=UTF-8"),
    ({"bodyType": "none"}, b"", None),
]


@pytest.mark.parametrize(("arguments", "data", "content_type"), BODIES, ids=range(len(BODIES)))
def test_bodies(arguments: dict[str, object], data: bytes, content_type: str | None) -> None:
    """Each body type gives its bytes, and a content type unless the app sets one."""
    found = _post(**arguments)
    assert (found.body, dict(found.headers).get("content-type")) == (data, content_type)


def test_content_type_of_the_app_wins() -> None:
    """The app's own content type is kept."""
    found = _post(body={"a": 1}, headers={"CONTENT-TYPE": "application/vnd.api+json"})
    assert found.headers == (("content-type", "application/vnd.api+json"),)


@pytest.mark.parametrize("method", ["GET", "HEAD", "get"])
def test_get_drops_the_body(method: str) -> None:
    """GET and HEAD have no body, whatever is given."""
    found = parse_arguments({"url": "/x", "method": method, "body": [1], "bodyType": "base64"})
    assert (found.body, found.body_type) == (b"", BodyType.NONE)


FORMS: list[list[dict[str, object]]] = [
    [
        {"name": "a", "value": "1\n2"},
        {"name": "f", "data": "AAE=", "filename": "x.png", "contentType": "image/png"},
        {"name": "g", "data": "AAE="},
    ],
    [
        {"name": "a", "value": "1\r\n2", "encoding": "text"},
        {"name": "f", "value": "AAE=", "encoding": "base64", "filename": "x.png", "contentType": "image/png"},
        {"name": "g", "value": "AAE=", "encoding": "base64"},
    ],
]


@pytest.mark.parametrize("form", FORMS, ids=["dialect A", "dialect B"])
def test_forms(form: list[dict[str, object]]) -> None:
    """Both dialects give the same form; an outdated multipart content type and length are replaced."""
    stale = {"Content-Type": "multipart/form-data; boundary=stale", "Content-Length": "7", "x-a": "1"}
    found = _post(body=form, bodyType="formData", headers=stale)
    assert [name for name, _ in found.headers] == ["x-a", "content-type"]
    content_type = dict(found.headers)["content-type"]
    parsed = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + found.body, policy=HTTP)
    parts = [
        (part.get_param("name", header="content-disposition"), part.get_filename(), part.get_content_type())
        for part in parsed.iter_parts()
    ]
    assert parts == [
        ("a", None, "text/plain"),
        ("f", "x.png", "image/png"),
        ("g", "blob", "application/octet-stream"),
    ]
    assert b"\r\n\r\n1\r\n2\r\n" in found.body
    assert found.body.count(b"\r\n\r\n\x00\x01\r\n") == 2


def test_form_names_cannot_break_out() -> None:
    """Quotes and line breaks in names are escaped as in browsers."""
    found = _post(body=[{"name": 'a"\r\nX: y', "data": "", "filename": 'b"\n.txt'}], bodyType="formData")
    assert b'name="a%22%0D%0AX: y"; filename="b%22%0A.txt"\r\n' in found.body
    assert b"\r\nX:" not in found.body


def test_a_field_keeps_its_type() -> None:
    """A part that is not a file may have a content type (RFC 7578 4.4)."""
    found = _post(body=[{"name": "meta", "value": "{}", "contentType": "application/json"}], bodyType="formData")
    assert b'; name="meta"\r\nContent-Type: application/json\r\n\r\n{}\r\n' in found.body


def test_equal_forms_are_equal_bytes() -> None:
    """The boundary is derived from the content, so that a digest of the body is stable."""
    assert _post(body=FORMS[0], bodyType="formData") == _post(body=FORMS[0], bodyType="formData")


WRONG: list[tuple[str, dict[str, object]]] = [
    ("url", {"url": None}),
    ("url", {"url": ""}),
    ("url", {"url": 7}),
    ("url", {"url": ["/x"]}),
    ("method", {"method": "TRACE"}),
    ("method", {"method": "CONNECT"}),
    ("method", {"method": "TRACK"}),
    ("method", {"method": "GE T"}),
    ("method", {"method": "POST\r\n"}),
    ("method", {"method": ""}),
    ("method", {"method": 1}),
    ("method", {"method": "PO\u017fT"}),
    ("method", {"method": "PROPFIND"}),
    ("headers", {"headers": "x"}),
    ("headers", {"headers": [["a", "b"]]}),
    ("headers.a", {"headers": {"a": 1}}),
    ("headers.a", {"headers": {"a": ["x"]}}),
    ("headers.a", {"headers": {"a": None}}),
    ("bodyType", {"body": "x", "bodyType": "xml"}),
    ("bodyType", {"body": "x", "bodyType": 1}),
    ("body", {"body": "x", "bodyType": "none"}),
    ("body", {"body": 1, "bodyType": "text"}),
    ("body", {"bodyType": "text"}),
    ("body", {"body": "a\ud800", "bodyType": "text"}),
    ("body", {"body": "{a: 1}", "bodyType": "json"}),
    ("body", {"body": "", "bodyType": "json"}),
    ("body", {"body": "NaN", "bodyType": "json"}),
    ("body", {"body": "[" * 50_000 + "]" * 49_999, "bodyType": "json"}),
    ("body", {"body": '["\ud800"]', "bodyType": "json"}),
    ("body", {"body": [float("inf")], "bodyType": "json"}),
    ("body", {"body": "[" * 100_000, "bodyType": "json"}),
    ("body", {"body": _deep(65)}),
    ("body", {"body": _deep(10_000)}),
    ("body", {"body": [float("nan")]}),
    ("body", {"body": [float("inf")]}),
    ("body", {"body": {"a": "\ud800"}}),
    ("body", {"body": {"\udfff": 1}}),
    ("body", {"body": [1], "bodyType": "urlEncoded"}),
    ("body.a", {"body": {"a": {"b": 1}}, "bodyType": "urlEncoded"}),
    ("body.a", {"body": {"a": None}, "bodyType": "urlEncoded"}),
    ("body.a", {"body": {"a": "\ud800"}, "bodyType": "urlEncoded"}),
    ("body", {"body": "AAE", "bodyType": "base64"}),
    ("body", {"body": "A A=", "bodyType": "base64"}),
    ("body", {"body": "-_-_", "bodyType": "base64"}),
    ("body", {"body": "é", "bodyType": "base64"}),
    ("body", {"body": 1, "bodyType": "base64"}),
    ("body", {"body": {"date": ""}, "bodyType": "base64"}),
    ("body", {"body": "a=b", "bodyType": "formData"}),
    ("body", {"body": {"a": "b"}, "bodyType": "formData"}),
    ("body[0]", {"body": ["a"], "bodyType": "formData"}),
    ("body[1].name", {"body": [{"name": "a", "value": ""}, {"value": "x"}], "bodyType": "formData"}),
    ("body[0].value", {"body": [{"name": "a"}], "bodyType": "formData"}),
    ("body[0].value", {"body": [{"name": "a", "value": 1}], "bodyType": "formData"}),
    ("body[0].data", {"body": [{"name": "a", "data": "!"}], "bodyType": "formData"}),
    ("body[0].encoding", {"body": [{"name": "a", "value": "x", "encoding": "hex"}], "bodyType": "formData"}),
    ("body[0].filename", {"body": [{"name": "a", "data": "", "filename": 1}], "bodyType": "formData"}),
    ("body[0].name", {"body": [{"name": "\ud800", "value": ""}], "bodyType": "formData"}),
    (
        "body[0].contentType",
        {"body": [{"name": "a", "data": "", "contentType": "a/b\r\nX: y"}], "bodyType": "formData"},
    ),
    ("redirect", {"redirect": "always"}),
    ("credentials", {"credentials": "all"}),
    ("credentials", {"credentials": 1}),
    ("timeoutMs", {"timeoutMs": 0}),
    ("timeoutMs", {"timeoutMs": -1}),
    ("timeoutMs", {"timeoutMs": 1.5}),
    ("timeoutMs", {"timeoutMs": True}),
    ("timeoutMs", {"timeoutMs": "5"}),
    ("timeoutMs", {"timeoutMs": 10**400}),
    ("stream", {"stream": "yes"}),
]


@pytest.mark.parametrize(("field", "arguments"), WRONG, ids=range(len(WRONG)))
def test_wrong_arguments(field: str, arguments: dict[str, object]) -> None:
    """A value of the wrong shape is a bad request that names the field."""
    with pytest.raises(Refusal) as caught:
        _post(**arguments)
    assert caught.value.reason is Reason.BAD_REQUEST
    assert caught.value.detail.startswith(f"{field}: ")


def test_depth_64_passes() -> None:
    """The limit is exactly 64 levels of values."""
    assert _post(body=_deep(64)).body == b"[" * 64 + b"1" + b"]" * 64


@pytest.mark.parametrize(
    "text",
    [
        "[" * 65 + "]" * 65,
        "[" * 50_000 + "]" * 50_000,
        '{"s":"\\ud83d"}',
        "[1e400,-1e400]",
        "9" * 5000,
        '{"a":1, "a":2, "A":-0}\r\n',
        "[1.0,1E2,9007199254740993]",
        '"\ufeff\\u0000\x7f"',
    ],
    ids=range(8),
)
def test_json_text_is_sent_as_it_stands(text: str) -> None:
    """Ambiguous JSON is not rewritten: the decision checks the parts that a rule reads."""
    assert _post(body=text, bodyType="json").body == text.encode()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
_NAMES = st.sampled_from(["url", "method", "headers", "body", "bodyType", "redirect", "timeoutMs", "stream", "x"])


@given(st.dictionaries(_NAMES, _JSON | st.sampled_from(["POST", "/x", *BodyType])))
def test_any_arguments(arguments: dict[str, object]) -> None:
    """No arguments raise anything but `Refusal`; accepted ones also fit the published schema."""
    with contextlib.suppress(Refusal):
        found = parse_arguments(arguments)
        assert isinstance(found.body, bytes)


@given(_JSON)
def test_json_bodies_arrive(value: object) -> None:
    """An accepted JSON value arrives as the same value."""
    with contextlib.suppress(Refusal):
        found = _post(body=value, bodyType="json")
        expected = json.loads(value) if isinstance(value, str) else value
        assert json.loads(found.body) == expected


@given(st.binary(max_size=200), st.text(st.characters(codec="utf-8"), max_size=20))
def test_form_data_arrives(data: bytes, name: str) -> None:
    """Bytes of a file arrive unchanged, and the form has exactly one part."""
    found = _post(body=[{"name": name, "data": base64.b64encode(data).decode()}], bodyType="formData")
    boundary = dict(found.headers)["content-type"].partition("boundary=")[2].encode()
    _, part, end = found.body.split(b"--" + boundary)
    assert part.partition(b"\r\n\r\n")[2] == data + b"\r\n"
    assert end == b"--\r\n"


def test_input_schema() -> None:
    """The schema is valid, and accepts the contract's example."""
    jsonschema.Draft202012Validator.check_schema(INPUT_SCHEMA)
    jsonschema.validate({"url": "/x", "method": "POST", "body": {"a": 1}, "bodyType": "json", "more": 1}, INPUT_SCHEMA)


def test_json_text_of_too_many_parts_is_sent_unread() -> None:
    """A page could send it as text, too."""
    text = f"[{'[],' * AT_ONCE}"
    arguments: dict[str, object] = {"url": "/", "method": "POST", "bodyType": "json", "body": text}
    assert parse_arguments(arguments).body == text.encode()
