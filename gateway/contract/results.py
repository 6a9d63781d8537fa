"""Encodes a response as the result of `http_request`, and a refusal as a response."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from gateway.caches import cache_by_headers
from gateway.errors import Reason, Refusal
from gateway.jsontext.reading import exact_json, plainly_exact
from gateway.jsontext.sizes import MAX_DEPTH, InvalidJson
from gateway.jsontext.writing import DEL, SIZE, compact, compact_exact, plain_json, quote, write_pieces
from gateway.model import BodyType, Headers, Json, Response

TEXT_BLOCK_LIMIT: Final = 64 * 1024

LONGEST_JSON: Final = 24 * 1024 * 1024
"""Bytes of a body that is returned as JSON; a larger one is text: parsing it would block all others."""

_AT_ONCE: Final = 768 * 1024
"""Bytes encoded as base64 at a time, a multiple of three: other threads run in between."""

_BODILESS: Final = frozenset({204, 205, 304})

Body: TypeAlias = Json | bytes

_HIDDEN: Final = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "set-cookie",
        "set-cookie2",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+", re.ASCII)
_LONGEST_NAME: Final = 128
"""Characters of a header name that is cached."""

_BROKEN_VALUE = re.compile("[\r\n\0\ud800-\udfff]")
_PHRASE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
DEEPEST: Final = MAX_DEPTH - 4
"""Depth of a body that is returned as JSON: an MCP message and a bridge frame enclose it."""

_SCRIPTS: Final = frozenset(
    {
        "application/javascript",
        "application/ecmascript",
        "application/x-javascript",
        "application/xml",
        "application/xml-dtd",
    }
)
_JSON_TYPES: Final = frozenset(
    {"application/json", "application/json-seq", "application/jsonl", "application/x-ndjson"}
)


def in_base64(body: bytes) -> Json:
    """Encode bytes as a JSON string in base64."""
    pieces = (body[start : start + _AT_ONCE] for start in range(0, len(body), _AT_ONCE))
    return "".join(base64.b64encode(piece).decode("ascii") for piece in pieces)


def result(response: Response, encode: Callable[[bytes], Json] = in_base64) -> dict[str, Json]:
    """Return the structured content for `response`; `encode` encodes a body that is not text.

    Raises `Refusal` (`backend-protocol`) for a status outside 200 to 599.
    """
    if not 200 <= response.status <= 599:
        raise Refusal(Reason.BACKEND_PROTOCOL, f"the backend answered with the status {response.status}")
    headers = _headers(response.headers)
    content_type = headers.get("content-type", "")
    body_type, body = _body(response, content_type) if response.part is None else _part(response.body, content_type)
    content: dict[str, Json] = {
        "status": response.status,
        "statusText": _phrase(response.reason_phrase),
        "url": response.url.encode(errors="replace").decode(),
        "ok": response.status < 300,
        "redirected": response.redirected,
        "headers": {**headers},
        "bodyType": str(body_type),
    }
    more = response.part is not None and not response.part.last
    if response.length is not None and (more or body_type is BodyType.NONE):
        content["headers"] = {**headers, "content-length": str(response.length)}
    if body_type is not BodyType.NONE:
        content["body"] = encode(body) if isinstance(body, bytes) else body
    if response.part is not None and more:
        content["stream"] = response.part.stream
    return content


def text_block(content: dict[str, Json], structured_arrives: bool) -> str:
    """Return the result as one text, for hosts that drop structured content.

    Over 64 KiB it only states the size, if structured content is known to reach the view.
    """
    body = content.get("body")
    if isinstance(body, str) and len(body) > SIZE and not structured_arrives:
        return "".join(write_pieces(content, lambda value: compact_exact(value).decode()))
    text = compact_exact(content)
    if len(text) > TEXT_BLOCK_LIMIT and structured_arrives:
        return f"An HTTP response of {len(text)} bytes, status {content['status']}: see the structured content."
    return text.decode()


def text_of_json(response: Response) -> str | None:
    """Return the text block of `result` without parsing for plain JSON in ASCII; None if it might differ.

    It equals the JSON of `result`.
    """
    body = response.body
    around = _around_json(response.headers, response.status, response.reason_phrase, response.redirected)
    if around is None or response.part is not None or len(body) > TEXT_BLOCK_LIMIT:
        return None
    if not body.isascii() or not response.url.isascii() or DEL in response.url:  # `quoted` would escape that
        return None
    body_text = body.decode("ascii")
    value = plainly_exact(body_text) if body_text.count("[") + body_text.count("{") <= DEEPEST else None
    if value is None:
        return None
    text = f"{around[0]}{quote(response.url)}{around[1]}{value[1].decode('ascii')}}}"
    # With either in it, `compact_exact` may use another library for numbers, and ASCII output adds escapes.
    return text if text.isascii() and "null" not in text and DEL not in text else None


def problem(refusal: Refusal, record_id: str, url: str) -> Response:
    """Return a refusal as problem+json (RFC 9457), whose `instance` is the id of the audit record.

    Apps show `detail` to people; `cause`, an extension member, is for developers.
    """
    title = refusal.reason.value.replace("-", " ").capitalize()
    body = {
        "type": f"urn:webmcp-gateway:reason:{refusal.reason.value}",
        "title": title,
        "status": refusal.status,
        "detail": refusal.words,
        "cause": refusal.detail,
        "instance": record_id,
    }
    if refusal.connect_url is not None:
        body["connect_url"] = refusal.connect_url
    headers: Headers = (
        ("content-type", "application/problem+json"),
        ("gateway-reason", refusal.reason.value),
        ("cache-control", "no-store"),
        *refusal.headers,
    )
    # ASCII, so that a detail with outside text is still valid UTF-8.
    return Response(refusal.status, headers, plain_json(body).encode(), url, reason_phrase=title)


@lru_cache(maxsize=64)
def _phrase(body_text: str) -> str:
    return _PHRASE.sub("", body_text)


@cache_by_headers
def _headers(headers: Headers) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    for name, value in headers:
        lower_name = name.lower()
        is_shown = _is_shown(lower_name) if len(lower_name) <= _LONGEST_NAME else _is_shown.__wrapped__(lower_name)
        if not is_shown or not ((value.isascii() and value.isprintable()) or not _BROKEN_VALUE.search(value)):
            continue
        fields[lower_name] = f"{fields[lower_name]}, {value}" if lower_name in fields else value
    return fields


@cache_by_headers
def _around_json(headers: Headers, status: int, reason: str, redirected: bool) -> tuple[str, str] | None:
    """Return the result's JSON before the URL, and from there to the body; None unless the answer is JSON."""
    fields = _headers(headers)
    if not 200 <= status <= 599 or status in _BODILESS or not _says_json(_media_type(fields.get("content-type", ""))):
        return None
    before: dict[str, Json] = {"status": status, "statusText": _phrase(reason)}
    after: dict[str, Json] = {
        "ok": status < 300,
        "redirected": redirected,
        "headers": {**fields},
        "bodyType": str(BodyType.JSON),
    }
    return f'{compact(before).decode()[:-1]},"url":', f',{compact(after).decode()[1:-1]},"body":'


@lru_cache(maxsize=512)
def _is_shown(name: str) -> bool:
    return name not in _HIDDEN and _FIELD_NAME.fullmatch(name) is not None


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _says_json(media_type: str) -> bool:
    return media_type == "application/json" or media_type.endswith("+json")


def _body(response: Response, content_type: str) -> tuple[BodyType, Body]:
    """Return the type and value of a body. An empty one is `none`, as for HEAD."""
    if not response.body or response.status in _BODILESS:
        return BodyType.NONE, None
    media_type = _media_type(content_type)
    if _says_json(media_type):
        return _json(response.body)
    if media_type == "application/x-www-form-urlencoded":
        return _text(response.body, BodyType.URL_ENCODED)
    return _text(response.body, BodyType.TEXT) if _is_text(media_type) else _base64(response.body)


def whole_characters(data: bytes | bytearray) -> int:
    """Return how many leading bytes of `data` end on a UTF-8 character boundary."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if length > back else len(data)
    return len(data)


def _part(body: bytes, content_type: str) -> tuple[BodyType, Body]:
    """Encode a part of a stream: `text` if its type is text and it decodes, else `base64`."""
    if not body:
        return BodyType.NONE, None
    media_type = _media_type(content_type)
    return _text(body, BodyType.TEXT) if _is_text(media_type) or _is_json(media_type) else _base64(body)


def _is_json(media_type: str) -> bool:
    return media_type in _JSON_TYPES or media_type.endswith("+json")


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith("+xml") or media_type in _SCRIPTS


def _json(body: bytes) -> tuple[BodyType, Body]:
    kind, text = _text(body, BodyType.TEXT)
    if len(body) > LONGEST_JSON:
        return kind, text
    if kind is not BodyType.TEXT or not isinstance(text, str):
        return kind, text
    try:
        return BodyType.JSON, exact_json(text, DEEPEST)
    except InvalidJson:
        return kind, text


def _text(body: bytes, kind: BodyType) -> tuple[BodyType, Body]:
    """Decode as UTF-8 regardless of the declared charset, as Fetch does (5.3); else return the bytes."""
    try:
        return kind, body.decode()
    except UnicodeDecodeError:
        return _base64(body)


def _base64(body: bytes) -> tuple[BodyType, Body]:
    return BodyType.BASE64, body
