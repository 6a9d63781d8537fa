"""Values that no app may see, masked in JSON answers of every shape; echoed secrets, masked across stream parts."""

import base64
import html
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.errors import Reason, Refusal
from gateway.exchange.filter import SecretRedactor, mask_values
from gateway.jsontext.sizes import MOST
from gateway.model import Request, Response
from gateway.policy.masks import parse_json_path
from tests.exchange.house import JSON, PAGE, building, reason

CARD = (parse_json_path("$..card"), parse_json_path("$.customer.email"))
BODY = b'{"customer": {"email": "ann@test", "name": "Ann"}, "orders": [{"card": 4111, "sum": 1}]}'


def filtered_body(body: bytes, content_type: str = "application/json") -> bytes:
    """Return the body that the app gets."""
    return mask_values(Response(200, (("content-type", content_type),), body), CARD).body


async def test_masked_values_do_not_reach_the_app(tmp_path: Path) -> None:
    """For any status; the rest of the answer stays."""
    async with building(tmp_path, mask=CARD) as house:
        for status in (200, 404):
            house.shop.answer = lambda request, status=status: Response(status, JSON, BODY)  # type: ignore[misc]
            response = await house.exchange.run(Request("GET", "/api/items"), PAGE)
            assert json.loads(response.body) == {
                "customer": {"email": "***", "name": "Ann"},
                "orders": [{"card": "***", "sum": 1}],
            }


@pytest.mark.parametrize("number", ["1e400", "12345678901234567890", "1.0", "0.1000", "-0", "1E+2", "9" * 5000])
def test_numbers_stay_as_they_were_written(number: str) -> None:
    """Also those that a float would round or overflow."""
    body = f'{{"card": 1, "sum": {number}, "more": [{number}]}}'.encode()
    assert filtered_body(body) == f'{{"card":"***","sum":{number},"more":[{number}]}}'.encode()


def test_what_holds_nothing_to_mask_is_not_touched() -> None:
    """Byte for byte."""
    body = b'{ "sum" : 1.50, "name":"\xc3\xbc" }'
    assert filtered_body(body) == body


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"card":"4111"}', "application/json; charset=utf-8"),
        (b'{"card":"4111"}', "application/hal+json"),
        (b'{"card":"4111"}', "text/plain"),
        (b' [{"card":"4111"}]', "text/html"),
        (b'\xef\xbb\xbf{"card":"4111"}', "application/json"),
        ('{"card":"4111"}'.encode("utf-16"), "application/json"),
        ('{"card":"4111"}'.encode("utf-32-le"), "application/json"),
        (b'{"card":"4111","card":null}', "application/json"),
        (b'{"a":{"card":"4111"},"a":1}', "application/json"),
        (b'{"c\\u0061rd":"4111"}', "application/json"),
        (b'{"\\ud800":1,"card":"4111"}', "application/json"),
    ],
)
def test_no_spelling_gets_by(body: bytes, content_type: str) -> None:
    """Other types, encodings, duplicate keys, and escapes."""
    assert b"4111" not in filtered_body(body, content_type).replace(b"\0", b"")


@pytest.mark.parametrize("body", [b'{"card":', b'{"card":NaN}', b"\xff\xfe\xfd", b"[" * 100_000, b'{"card":"\xff"}'])
def test_json_that_cannot_be_read_is_refused(body: bytes) -> None:
    """A body that cannot be parsed cannot be masked."""
    with pytest.raises(Exception, match="cannot be read") as refused:
        filtered_body(body)
    assert refused.value.reason is Reason.BACKEND_PROTOCOL  # type: ignore[attr-defined]


def test_json_of_too_many_parts_is_refused() -> None:
    """Searching it for masked values would block the event loop."""
    with pytest.raises(Refusal) as refused:
        filtered_body(b'{"card":"4111","all":[' + b"[]," * MOST + b"1]}")
    assert refused.value.reason is Reason.RESPONSE_TOO_LARGE


JSON_LINES = b'{"card":"4111"}\n{"card":"4112"}\n'


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (JSON_LINES, "application/x-ndjson"),
        (JSON_LINES, "text/plain"),
        (JSON_LINES, "text/html"),
        (b'data: {"card":"4111"}\n\n', "text/event-stream"),
        (b')]}\',\n{"card":"4111"}', "text/plain"),
        (b'callback({"card":"4111"})', "application/javascript"),
        (b'{"card":"4111"} and more', "text/plain"),
        (b'{"card":"4111","x":NaN}', "text/plain"),
    ],
)
def test_what_may_hold_json_and_cannot_be_read_is_refused(body: bytes, content_type: str) -> None:
    """With any content type: a mask that does not hold is worse than none."""
    with pytest.raises(Refusal, match="cannot be read"):
        filtered_body(body, content_type)


@pytest.mark.parametrize("body", [b"<p>card</p>", b"\x89PNG", b"", b"<p>{not json}</p>"])
def test_other_answers_stay_as_they_are(body: bytes) -> None:
    """Pages and images have no JSON paths."""
    assert filtered_body(body, "text/html") == body


async def test_no_piece_of_a_masked_answer_can_be_asked_for(tmp_path: Path) -> None:
    """A byte range of JSON cannot be parsed, and so not masked."""
    asking = (("range", "bytes=5-20"), ("if-range", '"1"'), ("accept", "application/json"))
    async with building(tmp_path, mask=CARD) as house:
        await house.exchange.run(Request("GET", "/api/items", asking), PAGE)
        assert {"range", "if-range"}.isdisjoint(dict(house.shop.sent[0].headers))
        assert dict(house.shop.sent[0].headers)["accept"] == "application/json"


async def test_an_unreadable_answer_is_recorded(tmp_path: Path) -> None:
    """With its reason, and nothing of it in the answer."""
    async with building(tmp_path, mask=CARD) as house:
        house.shop.answer = lambda request: Response(200, JSON, b'{"card": 4111')
        response = await house.exchange.run(Request("GET", "/api/items"), PAGE)
        assert (response.status, reason(response)) == (502, Reason.BACKEND_PROTOCOL)
        assert b"4111" not in response.body
        assert house.outcome()["reason"] == "backend-protocol"


@given(before=st.binary(max_size=30), after=st.binary(max_size=30), cuts=st.lists(st.integers(0, 80), max_size=6))
def test_a_secret_is_masked_wherever_the_parts_are_cut(before: bytes, after: bytes, cuts: list[int]) -> None:
    """The parts together equal the masked whole; also if the secret is written in another form."""
    secret = "abcabcab/"
    for written in (secret.encode(), rb"abc\u0061bc\u0061b\/", rb"\a\b\c\a\u0062cab\u002F", secret.encode("utf-16-be")):
        data = before + written + after
        echo = SecretRedactor([secret])
        places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        out = b"".join(echo.part(data[start:end]) for start, end in pairwise(places)) + echo.rest()
        assert out == SecretRedactor([secret]).whole(data)
        assert written not in out


@pytest.mark.parametrize("secret", ["uu0041-x", "\\\\user\\x", "ends-in-u", "ends-in-\\"])
def test_a_secret_may_look_like_an_escape(secret: str) -> None:
    """Each of its characters may be written as one, too, wherever the parts are cut."""
    for written in (secret, json.dumps(secret)[1:-1], "".join(f"\\u{ord(char):04X}" for char in secret)):
        data = written.encode()
        for at in range(len(data)):
            echo = SecretRedactor([secret])
            assert echo.part(data[:at]) + echo.part(data[at:]) + echo.rest() == b"***"


def _in_base64(secret: str) -> dict[str, str]:
    """The secret in a longer text in base64, at each offset."""
    found = {}
    for before in ("", "u", "us"):
        coded = base64.b64encode(f"{before}{secret}".encode()).decode()
        found[f"base64 behind {len(before)}"] = coded
        found[f"base64url behind {len(before)}"] = coded.replace("+", "-").replace("/", "_").rstrip("=")
    return found


ENCODED: dict[str, Callable[[str], str]] = {
    "a form": quote_plus,
    "a path": quote,
    "a component": lambda secret: quote(secret, safe="!'()*~"),
    "lower case": lambda secret: re.sub("%..", lambda found: found[0].lower(), quote(secret, safe="")),
    "a URL in a URL": lambda secret: quote(quote(secret, safe=""), safe=""),
    "HTML": html.escape,
    "a template of JavaScript": lambda secret: html.escape(secret).replace("/", "&#x2F;").replace("=", "&#x3D;"),
    "JSON in HTML": lambda secret: re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", secret),
    "JSON of PHP": lambda secret: secret.replace("/", "\\/"),
}


@pytest.mark.parametrize("secret", ["hunter2+/=?&x'y z", "t0k<en>~-_.!*()", "eyJhbGciOi.JIUzI1NiJ9-x_y"])
def test_a_secret_is_masked_as_common_encoders_write_it(secret: str) -> None:
    """Wherever the parts are cut; in base64 as a part of a longer text, too, as of a pair of name and password."""
    forms = {name: encode(secret) for name, encode in ENCODED.items()} | _in_base64(secret)
    for name, written in forms.items():
        data = f'<a href="?q={written}">'.encode()
        whole = SecretRedactor([secret])
        assert b"***" in whole.whole(data), name
        assert whole.names == {secret}, name
        core = written.rstrip("=")[4:-4].encode()
        for at in range(len(data)):
            echo = SecretRedactor([secret])
            parts = echo.part(data[:at]) + echo.part(data[at:]) + echo.rest()
            assert parts == SecretRedactor([secret]).whole(data), (name, at)
            assert core not in parts, name


@given(st.text("ab\\\\/&é1", min_size=8, max_size=12), st.text("a1%/&", max_size=6), st.integers(0, 3))
def test_what_people_see_has_no_secret_however_it_is_encoded(secret: str, around: str, times: int) -> None:
    """Percent-encoded up to three times, by an encoder that leaves some characters; or as in JSON."""
    encoded = secret
    for _ in range(times):
        encoded = quote(encoded, safe="/")
    assume(secret not in around)
    for written in (encoded, json.dumps(secret, ensure_ascii=False)[1:-1]):
        assert SecretRedactor([secret]).for_people(f"x={written}&y") == "x=***&y"
    assert SecretRedactor([secret]).for_people(around) == around


def test_a_periodic_secret_is_searched_for_once() -> None:
    """A page chooses its token: it must not make the search quadratic, which here would take minutes."""
    redactor = SecretRedactor(["a" * 8000 + "b"])
    text = "a" * 2**20
    assert [redactor.for_people(text + end) for end in ("\\\\", "%")] == [text + "\\\\", text + "%"]


def test_a_periodic_secret_is_searched_for_once_in_an_answer() -> None:
    """A backend echoes it escaped among near misses: a quadratic search would take minutes."""
    secret = "ab" * 2000
    near = (b"ab" * 1999 + b"x") * 500
    escaped = b"\\u0061" + secret[1:].encode()
    assert SecretRedactor([secret]).whole(near + escaped + near) == near + b"***" + near


NEAR_MISSES = {
    "plain": b"ab" * 2**16,
    "escaped": rb"\u0061b" * 2**13,
    "its head again and again": (b"ab" * 20 + b"c") * 2**13,
    "backslashes": b"\\" * 2**17,
}


@pytest.mark.parametrize("near", NEAR_MISSES)
def test_a_long_secret_is_searched_for_once_in_each_part(near: str) -> None:
    """Of a stream whose parts nearly are the secret: a quadratic search would take minutes; nothing is lost."""
    secret = "ab" * 8000 + "/z"
    echo = SecretRedactor([secret])
    parts = [NEAR_MISSES[near], *[NEAR_MISSES[near][:100]] * 50, secret[:9000].encode(), secret[9000:].encode(), b"."]
    out = b"".join([*(echo.part(part) for part in parts), echo.rest()])
    assert out == b"".join(parts[:-3]) + b"***."


@pytest.mark.parametrize("secret", ["\\" * 40, "a\\" * 20, "\\" * 9 + "user"])
def test_a_secret_of_backslashes_is_masked(secret: str) -> None:
    """As it is and as JSON, wherever the parts are cut; its near misses are no work."""
    for written in (secret, json.dumps(secret)[1:-1]):
        data = f"<{written}>".encode()
        for at in range(len(data)):
            echo = SecretRedactor([secret])
            out = echo.part(data[:at]) + echo.part(data[at:]) + echo.rest()
            assert out.replace(b"\\", b"") == b"<***>", (written, at)
    assert len(SecretRedactor([secret]).whole((secret[:-1] + "x").encode() * 1000)) > 1000


@pytest.mark.parametrize("longer", ["token-number-1-and-more", "another-token-number-1", "number-1-token-number-2"])
def test_of_secrets_that_share_a_piece_none_is_cut(longer: str) -> None:
    """One may begin with another, end with it, or overlap with it: nothing of the longer one gets out."""
    for written in (longer, json.dumps(longer)[1:-1], "".join(f"\\u{ord(char):04x}" for char in longer)):
        data = f"<{written}>".encode()
        for at in range(len(data)):
            echo = SecretRedactor(["token-number-1", longer])
            assert echo.part(data[:at]) + echo.part(data[at:]) + echo.rest() == b"<***>"


def test_nothing_is_held_back_without_need() -> None:
    """An event is sent as it comes, unless a secret could begin at its end."""
    echo = SecretRedactor(["token-number-1"])
    assert echo.part(b"data: 1\n\n") == b"data: 1\n\n"
    assert echo.part(b"data: tok") == b"data: "
    assert echo.part(b"en\n\n") == b"token\n\n"
    assert not echo.names


def test_a_text_that_nearly_repeats_a_periodic_secret_is_given_up_comparing() -> None:
    """Its end is held back, nothing is lost, and the secret behind it is masked, also where it is escaped or cut."""
    secret = "ab" * 256
    near = b"ab" * 1024 + b"c\\"
    redactor = SecretRedactor([secret])
    first = redactor.part(near)
    assert len(first) < len(near) - 2
    parts = [first, redactor.part(b"n"), redactor.part(secret[:300].encode()), redactor.part(secret[300:].encode())]
    whole = b"".join([*parts, redactor.part(b"\\u0061\\u0062" * 256), redactor.rest()])
    assert whole == SecretRedactor([secret]).whole(near + b"n" + secret.encode() + b"\\u0061\\u0062" * 256)
    assert b"abab" not in whole
