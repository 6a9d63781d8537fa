"""The schemas of the tool `http_request`, and its arguments, in both published dialects, decoded into a request.

Raises `Refusal` (`bad-request`) that names the field. URL and headers are interpreted later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeGuard, TypeVar

from gateway.contract.request_bodies import UploadedBody, WrongBody, encode_body
from gateway.errors import Reason, Refusal
from gateway.model import LARGEST_BODY, WEBSOCKET, BodyType, Headers, Json, Redirect, Request

METHODS: Final = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", WEBSOCKET)

PROTOCOLS: Final = "webmcp-gateway-protocols"
"""The header in which a page names the subprotocols of a WebSocket; `sec-` headers are closed to pages."""
CREDENTIALS: Final = ("omit", "same-origin", "include")

_BODY_TYPES: Final[list[Json]] = [kind.value for kind in BodyType]
_STRINGS: Final[dict[str, Json]] = {"type": "object", "additionalProperties": {"type": "string"}}

INPUT_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "Path and query, such as /api/cart?page=1."},
        "method": {"type": "string", "default": "GET", "description": f"One of {', '.join(METHODS)}."},
        "headers": {**_STRINGS, "description": "Header fields; names are case-insensitive."},
        "body": {"description": "As bodyType says."},
        "bodyType": {"type": "string", "enum": _BODY_TYPES, "description": "How the body is written."},
        "redirect": {"type": "string", "enum": [kind.value for kind in Redirect], "default": "follow"},
        "cache": {"type": "string", "description": "As in Fetch; advisory."},
        "credentials": {"type": "string", "enum": [*CREDENTIALS]},
        "timeoutMs": {"type": "integer", "minimum": 1, "description": "Lowers the timeout, never raises it."},
        "stream": {"type": "boolean", "description": "Ask for the body in parts."},
        "_view": {"type": "string", "description": "The proof of a view that it makes the call itself."},
        "_initiator": {"const": "model", "description": "The view says that a model made it do this."},
        "_gesture": {"type": "integer", "description": "The view says how many milliseconds ago a person acted in it."},
    },
    "required": ["url"],
}

OUTPUT_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "status": {"type": "integer", "minimum": 200, "maximum": 599},
        "statusText": {"type": "string"},
        "url": {"type": "string", "description": "Relative to the app."},
        "ok": {"type": "boolean"},
        "redirected": {"type": "boolean"},
        "headers": {**_STRINGS},
        "bodyType": {"type": "string", "enum": _BODY_TYPES},
        "body": {"description": "As bodyType says; absent with none."},
        "stream": {"type": "string", "description": "The id under which http_stream gives the next parts."},
    },
    "required": ["status", "statusText", "url", "ok", "redirected", "headers", "bodyType"],
}


E = TypeVar("E", bound=StrEnum)

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)


def parse_arguments(arguments: Mapping[str, object]) -> Request:
    """Return the request that `arguments` describe, with its encoded body. Keys outside the contract are ignored."""
    method = _method(arguments)
    headers = _headers(arguments)
    body, body_type = b"", BodyType.NONE
    if method not in ("GET", "HEAD", WEBSOCKET):
        body_type = _body_type(arguments)
        body, headers = _body(body_type, arguments.get("body"), headers)
    timeout, stream = arguments.get("timeoutMs"), arguments.get("stream")
    if timeout is not None and not _is_milliseconds(timeout):
        raise _wrong("timeoutMs", "must be a whole number greater than 0")
    if stream is not None and not isinstance(stream, bool):
        raise _wrong("stream", "must be true or false")
    return Request(
        method=method,
        url=_url(arguments),
        headers=headers,
        body=body,
        body_type=body_type,
        redirect=_choice(arguments, "redirect", Redirect, Redirect.FOLLOW),
        send_cookies=_credentials(arguments) != "omit",
        timeout=None if timeout is None else timeout / 1000,
        stream=stream or False,
        protocols=_protocols(headers) if method == WEBSOCKET else (),
    )


def _protocols(headers: Headers) -> tuple[str, ...]:
    named = ",".join(value for name, value in headers if name == PROTOCOLS)
    return tuple(part.strip() for part in named.split(",") if part.strip())


def _url(arguments: Mapping[str, object]) -> str:
    url = arguments.get("url")
    if not isinstance(url, str) or not url:
        raise _wrong("url", "must be a URL such as /api/products?page=1")
    return url


def _method(arguments: Mapping[str, object]) -> str:
    method = arguments.get("method")
    if method is None or method == "GET":
        return "GET"
    if not isinstance(method, str) or not _TOKEN.fullmatch(method) or method.upper() not in METHODS:
        raise _wrong("method", f"must be one of {', '.join(METHODS)}")
    return method.upper()


def _headers(arguments: Mapping[str, object]) -> Headers:
    headers = arguments.get("headers")
    if headers is None:
        return ()
    if not isinstance(headers, Mapping):
        raise _wrong("headers", "must be an object of strings")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise _wrong(f"headers.{str(name)[:64]}", "must be a string")
        if not name.isascii():  # some letters beyond ASCII have an ASCII lower case
            raise _wrong(f"headers.{name[:64]}", "must be named in ASCII")
    return tuple((name.lower(), value) for name, value in headers.items())


def _body_type(arguments: Mapping[str, object]) -> BodyType:
    body = arguments.get("body")
    default = BodyType.JSON
    if body is None:
        default = BodyType.NONE
    elif isinstance(body, str):
        default = BodyType.TEXT
    return _choice(arguments, "bodyType", BodyType, default)


def _body(body_type: BodyType, body: object, headers: Headers) -> tuple[bytes, Headers]:
    if isinstance(body, UploadedBody) and body.data is None:
        raise Refusal(Reason.REQUEST_TOO_LARGE, f"A body may have {LARGEST_BODY} bytes at most.")
    try:
        encoded = encode_body(body_type, body)
    except WrongBody as error:
        raise _wrong(error.field, str(error)) from error
    if body_type is BodyType.FORM_DATA:
        # The client's content type belongs to its own multipart body, with another boundary.
        headers = tuple(field for field in headers if field[0] not in ("content-type", "content-length"))
    if encoded.content_type is not None and not any(name == "content-type" for name, _ in headers):
        headers = (*headers, ("content-type", encoded.content_type))
    return encoded.data, headers


def _credentials(arguments: Mapping[str, object]) -> str:
    credentials = arguments.get("credentials")
    if credentials is not None and credentials not in CREDENTIALS:
        raise _wrong("credentials", f"must be one of {', '.join(CREDENTIALS)}")
    return str(credentials)


def _choice(arguments: Mapping[str, object], field: str, kind: type[E], default: E) -> E:
    value = arguments.get(field)
    if value is None:
        return default
    names = [str(member) for member in kind]
    if not isinstance(value, str) or value not in names:
        raise _wrong(field, f"must be one of {', '.join(names)}")
    return kind(value)


def _is_milliseconds(value: object) -> TypeGuard[int]:
    # Integers above 2^53 are not exact in JSON clients, and huge ones overflow a float of seconds.
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**53


def _wrong(field: str, message: str) -> Refusal:
    return Refusal(Reason.BAD_REQUEST, f"{field}: {message}")
