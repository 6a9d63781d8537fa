"""The large body of a request travels outside its message, byte for byte; everything else stays in place."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from gateway.contract import parse_arguments
from gateway.mcp.middleware import BODY_LIMIT
from gateway.mcp.out_of_band import LONG, taken_out
from tests.mcp.mounts import Mount
from tests.mcp.test_messages import ACCEPT, META, MODERN, fetch_call, open_session, read_messages

LARGE = "QUJD" * (LONG // 3)
UNICODE = "é€\U0001f600" * (LONG // 8)


def message(**arguments: Any) -> dict[str, Any]:
    """Return a call of `http_request`."""
    made = fetch_call(1, "/api")
    made["params"]["arguments"] |= {"method": "POST", **arguments}
    return made


def write_json(value: object) -> bytes:
    """Return the message as JavaScript writes it."""
    return json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("base64", LARGE),
        ("base64", base64.b64encode(bytes(range(256)) * (LONG // 100) + b"x").decode()),
        ("text", LARGE),
        ("text", UNICODE),
        (None, LARGE),
        ("urlEncoded", "a=" + LARGE),
    ],
)
def test_what_is_taken_out_is_what_was_meant(kind: str | None, body: str) -> None:
    """The same bytes with the same content type, for each way of writing the request."""
    whole = message(body=body, bodyType=kind) if kind is not None else message(body=body)
    taken = taken_out(write_json(whole))
    assert taken is not None
    rest, handed = json.loads(taken[0]), taken[1]
    assert len(taken[0]) < 1000
    given = parse_arguments({**rest["params"]["arguments"], "body": handed, "bodyType": "base64"})
    meant = parse_arguments(whole["params"]["arguments"])
    assert (given.body, given.headers) == (meant.body, meant.headers)


def test_the_message_of_another_body_is_another_one() -> None:
    """A repeated call must be the same: the rest identifies the body that it had."""
    said = [taken_out(write_json(message(body=body, bodyType="text"))) for body in (LARGE, LARGE, LARGE + "x")]
    first, again, other = [taken[0] for taken in said if taken is not None]
    assert first == again != other


LEFT: dict[str, Callable[[], bytes]] = {
    "short": lambda: write_json(message(body="x" * (LONG - 100), bodyType="text")),
    "of a type that is a list": lambda: write_json(message(body=LARGE, bodyType=[])),
    "of a type that is an object": lambda: write_json(message(body=LARGE, bodyType={})),
    "JSON": lambda: write_json(message(body=LARGE, bodyType="json")),
    "no base64": lambda: write_json(message(body=LARGE + "!", bodyType="base64")),
    "base64 that goes on after its end": lambda: write_json(message(body="QQ==" + LARGE, bodyType="base64")),
    "an escape": lambda: write_json(message(body=LARGE + "\n", bodyType="text")),
    "a raw control character": lambda: write_json(message(body=LARGE + "HERE", bodyType="text")).replace(
        b"HERE", b"\n"
    ),
    "no UTF-8": lambda: write_json(message(body=LARGE + "HERE", bodyType="text")).replace(b"HERE", b"\xff"),
    "half a character": lambda: write_json(message(body=LARGE + "HERE", bodyType="text")).replace(b"HERE", b"\xc3"),
    "another argument": lambda: write_json(message(other=LARGE, bodyType="text")),
    "another tool": lambda: write_json(message(body=LARGE, bodyType="text")).replace(b'"http_request"', b'"another"'),
    "one of two": lambda: write_json(message(body=LARGE, bodyType="text")).replace(
        b'"bodyType"', b'"body":"","bodyType"'
    ),
    "much else": lambda: write_json(message(body=LARGE, bodyType="text", other="x" * LONG)),
    "space": lambda: write_json(message(body="x", bodyType="text")) + b" " * 2 * LONG + b'"',
    "no message": lambda: write_json(LARGE),
    "no end": lambda: b'{"body":"' + LARGE.encode(),
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("what", [*LEFT])
def test_what_is_anything_else_stays_in_its_message(what: str) -> None:
    """The next reader reports its error."""
    assert taken_out(LEFT[what]()) is None


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("kind", ["text", "base64"])
async def test_a_message_may_be_larger_than_others_by_its_body(era: str, kind: str) -> None:
    """In both eras it arrives whole; as a string with escapes it is too large to parse."""
    large = "QUJD" * (BODY_LIMIT // 4 + 1)
    async with Mount(app="cart", body_limit=3 * BODY_LIMIT).serve() as served, aiohttp.ClientSession() as http:
        fields = dict(MODERN) if era == "modern" else await open_session(http, served.url, more=ACCEPT)
        for body, status in ((large, 200), (large + "\n", 413)):
            sent = message(body=body, bodyType=kind)
            if era == "modern":
                sent["params"]["_meta"] = META
            whole = io.BytesIO(json.dumps(sent).encode())
            headers = {**fields, "content-type": "application/json"}
            async with http.post(served.url, data=whole, headers=headers) as answer:
                assert answer.status == status
                told = (await read_messages(answer))[-1]
            if status == 200:
                arrived = json.loads(told["result"]["content"][0]["text"])["body"]["body"]
                assert arrived == (large if kind == "text" else base64.b64decode(large).decode())
