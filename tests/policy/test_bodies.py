"""A body that a rule reads has one meaning for every parser, and is sent as it was parsed."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Reason, Refusal
from gateway.jsontext.sizes import MOST
from gateway.model import LOCAL, BodyType, Caller, CanonicalRequest, Door, Effect, Initiator, Json, Request
from gateway.policy import canonicalise, decide, parse_policy

POLICY = parse_policy(
    """
version: 1
backends: {shop: {url: https://shop.example.com}}
routes:
  - {path: /checkout, methods: [POST], when: request.body.total <= 500}
  - path: /order
    methods: [POST]
    confirm: {when: model, message: "Pay {request.body.total}, {request.body.to.0.name}?"}
  - {path: /bulk, methods: [POST], when: request.body.total <= 500, request: 8MiB}
  - {path: /cart, methods: [POST]}
""",
    "p.yaml",
)
PAGE = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "", view="v1", proven=True)
JSON_TYPE = "application/json"


def canonical_request(
    body: bytes, media: str = JSON_TYPE, body_type: BodyType = BodyType.JSON, url: str = "/checkout"
) -> CanonicalRequest:
    """Return the canonical request of a body."""
    headers = (("content-type", media),) if media else ()
    return canonicalise(POLICY, Request("POST", url, headers, body, body_type))


def test_our_own_writing_is_sent() -> None:
    """The parsed value is serialized again, however it was written."""
    request = canonical_request(
        b' { "total" :  1e2 , "s":"\\u00e9\\/" } ', "Application/JSON; Charset=UTF-8", BodyType.TEXT
    )
    assert (request.json, request.body) == ({"total": 100.0, "s": "é/"}, '{"total":100.0,"s":"é/"}'.encode())
    assert canonical_request(b"[1]", "application/vnd.api+json", BodyType.BASE64).body_type is BodyType.JSON


def test_bodies_that_no_rule_reads_are_left_alone() -> None:
    """On other routes the bytes pass as they are."""
    request = canonical_request(b'{ "a":1, "a":2 }', url="/cart")
    assert (request.body, request.json) == (b'{ "a":1, "a":2 }', None)


@pytest.mark.parametrize(
    ("body", "media", "body_type", "message"),
    [
        (b'{"total":1,"total":501}', JSON_TYPE, BodyType.JSON, "a key twice"),
        (b'{"total":1,"Total":501}', JSON_TYPE, BodyType.JSON, "differ only in case"),
        (b'{"a":[{"b":{"x":1,"\\u0058":2}}]}', JSON_TYPE, BodyType.JSON, "differ only in case"),
        (b'{"stra\xc3\x9fe":1,"STRASSE":2}', JSON_TYPE, BodyType.JSON, "differ only in case"),
        (b'{"total":NaN}', JSON_TYPE, BodyType.JSON, "NaN is not JSON"),
        (b'{"total":-Infinity}', JSON_TYPE, BodyType.JSON, "-Infinity is not JSON"),
        (b'{"total":1e400}', JSON_TYPE, BodyType.JSON, "beyond 2^53"),
        (b'{"total":9007199254740993}', JSON_TYPE, BodyType.JSON, "beyond 2^53"),
        (b'{"total":' + b"9" * 5000 + b"}", JSON_TYPE, BodyType.JSON, "beyond 2^53"),
        (b'{"total":"\\ud800"}', JSON_TYPE, BodyType.JSON, "lone surrogate"),
        (b'{"\\ud800":1}', JSON_TYPE, BodyType.JSON, "lone surrogate"),
        (b'{"total":"\xff"}', JSON_TYPE, BodyType.JSON, "not UTF-8"),
        (b'\xef\xbb\xbf{"total":1}', JSON_TYPE, BodyType.JSON, "not JSON"),
        (b'{"total":1} x', JSON_TYPE, BodyType.JSON, "not JSON"),
        (b"total=1", JSON_TYPE, BodyType.JSON, "not JSON"),
        (b"[" * 66 + b"]" * 66, JSON_TYPE, BodyType.JSON, "nested deeper"),
        (b"[" * 100_000, JSON_TYPE, BodyType.JSON, "nested deeper"),
        (b'{"total":1}', "text/plain", BodyType.TEXT, "send JSON"),
        (b'{"total":1}', "", BodyType.TEXT, "send JSON"),
        (b'{"total":1}', "application/x-www-form-urlencoded", BodyType.JSON, "send JSON"),
        (b'{"total":1}', "application/json, text/plain", BodyType.JSON, "send JSON"),
        (b'{"total":1}', "application/json; charset=utf-7", BodyType.JSON, "in UTF-8"),
        (b'{"total":1}', "application/json; charset=utf-8; charset=utf-16", BodyType.JSON, "in UTF-8"),
        (b'{"total":1}', JSON_TYPE, BodyType.URL_ENCODED, "do not agree"),
        (b'{"total":1}', JSON_TYPE, BodyType.FORM_DATA, "do not agree"),
    ],
)  # fmt: skip
def test_ambiguous_bodies_are_refused(body: bytes, media: str, body_type: BodyType, message: str) -> None:
    """A body that two parsers could read differently never reaches a decision."""
    with pytest.raises(Refusal) as caught:
        canonical_request(body, media, body_type)
    assert caught.value.reason is Reason.BAD_REQUEST
    assert message in caught.value.detail


def test_encoded_bodies_are_refused() -> None:
    """A body that is serialized again cannot keep its content-encoding."""
    headers = (("content-type", JSON_TYPE), ("content-encoding", "gzip"))
    with pytest.raises(Refusal, match="without content-encoding"):
        canonicalise(POLICY, Request("POST", "/checkout", headers, b"{}", BodyType.JSON))


def test_large_bodies_are_not_parsed() -> None:
    """A body over the limit of its route is refused before it is parsed."""
    with pytest.raises(Refusal) as caught:
        canonical_request(b"[" * 2_000_000)
    assert caught.value.reason is Reason.REQUEST_TOO_LARGE


def test_bodies_of_too_many_parts_are_not_parsed() -> None:
    """If the route allows that size: parsing would block the event loop. Where no rule reads the body, it passes."""
    many = b"[" + b"[]," * MOST + b"1]"
    with pytest.raises(Refusal, match="commas and brackets") as caught:
        canonical_request(many, url="/bulk")
    assert caught.value.reason is Reason.REQUEST_TOO_LARGE
    assert canonical_request(many, url="/cart").body == many


def test_deciding_on_the_body() -> None:
    """The condition sees the parsed body, and denies if there is none."""
    assert decide(POLICY, canonical_request(b'{"total": 500}'), PAGE).effect is Effect.ALLOW
    assert "it is false" in decide(POLICY, canonical_request(b'{"total": 501}'), PAGE).reasons[0]
    assert "is not there" in decide(POLICY, canonical_request(b"", ""), PAGE).reasons[0]
    assert decide(POLICY, canonical_request(b'{"total": 500}'), PAGE).obligations.reads_body


def test_the_question_shows_the_body() -> None:
    """A message may contain values of the body, list items too."""
    request = canonical_request(b'{"total": 12.5, "to": [{"name": "Ann\\u202e"}]}', url="/order")
    model = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.MODEL, "", view="v1", proven=True)
    assert decide(POLICY, request, model).obligations.confirm == "Pay 12.5, Ann⟨U+202E⟩?"
    assert decide(POLICY, canonical_request(b"", "", url="/order"), model).obligations.confirm == "Pay (none), (none)?"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
)


@given(_JSON, st.booleans())
def test_canonical_bodies_are_idempotent(value: Json, ascii_only: bool) -> None:
    """A canonical body stays unchanged, byte for byte, and has the meaning that was decided on."""
    try:
        once = canonical_request(json.dumps(value, ensure_ascii=ascii_only, indent=1).encode("utf-8", "surrogatepass"))
    except Refusal:
        return
    again = canonical_request(once.body)
    assert (again.body, again.json) == (once.body, once.json)
    assert json.loads(once.body) == once.json
    assert again.digest == once.digest


@given(st.binary(max_size=40), st.sampled_from(list(BodyType)), st.sampled_from([JSON_TYPE, "text/json", ""]))
def test_nothing_but_refusals(body: bytes, body_type: BodyType, media: str) -> None:
    """No bytes raise anything but `Refusal`."""
    with contextlib.suppress(Refusal):
        decide(POLICY, canonical_request(body, media, body_type), PAGE)
