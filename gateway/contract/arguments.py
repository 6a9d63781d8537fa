"""The arguments of `http_request`: their schemas in both published dialects, decoded into a request with its body.

Raises `Refusal` (`bad-request`) that names the field. URL and headers are interpreted later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeGuard, TypeVar, assert_never
from urllib.parse import quote_plus

from gateway.errors import Reason, Refusal
from gateway.jsontext.reading import check_depth, problem_of
from gateway.jsontext.sizes import InvalidJson, is_bulky
from gateway.jsontext.writing import compact_exact, plain_json
from gateway.model import LARGEST_BODY, WEBSOCKET, BodyType, Headers, Json, Redirect, Request

MEDIA_TYPE: Final = re.compile(
    r"""[A-Za-z0-9!#$&^_.+\-]{1,127}/[A-Za-z0-9!#$&^_.+\-]{1,127}(?:;[\x20-\x7e]{0,200})?""", re.ASCII
)

_NEWLINE = re.compile(r"\r\n|\r|\n")
_NEWLINE_BYTES = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class FormPart:
    """One entry of a form; a file if it has a `filename`."""

    name: str
    data: bytes
    filename: str | None = None
    content_type: str | None = None


def write_multipart(parts: Sequence[FormPart]) -> tuple[bytes, str]:
    """Return the body and its content type. The boundary is a hash of the parts, so equal forms are equal bytes."""
    encoded_parts = [(_head(part), _data(part)) for part in parts]
    boundary = _boundary(encoded_parts)
    body = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head, data) for head, data in encoded_parts)
    return body + b"--%b--\r\n" % boundary, f"multipart/form-data; boundary={boundary.decode()}"


def _head(part: FormPart) -> bytes:
    disposition = f'Content-Disposition: form-data; name="{_escape(_crlf(part.name))}"'
    media_type = part.content_type
    if part.filename is not None:
        disposition = f'{disposition}; filename="{_escape(part.filename)}"'
        media_type = media_type or "application/octet-stream"
    return (f"{disposition}\r\nContent-Type: {media_type}" if media_type else disposition).encode()


def _data(part: FormPart) -> bytes:
    return part.data if part.filename is not None else _NEWLINE_BYTES.sub(b"\r\n", part.data)


def _crlf(text: str) -> str:
    return _NEWLINE.sub("\r\n", text)


def _escape(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _boundary(encoded_parts: Sequence[tuple[bytes, bytes]]) -> bytes:
    sha = hashlib.sha256()
    for head, data in encoded_parts:
        sha.update(b"%d:%d:" % (len(head), len(data)))
        sha.update(head)
        sha.update(data)
    boundary = b"----form" + sha.hexdigest()[:40].encode()
    while any(boundary in head or boundary in data for head, data in encoded_parts):
        sha.update(boundary)
        boundary = b"----form" + sha.hexdigest()[:40].encode()
    return boundary


class WrongBody(ValueError):
    """A body does not fit its `bodyType`; `field` names the place."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class UploadedBody:
    """A body whose bytes were sent beside the arguments; None if they exceeded the limit.

    `content_type` is the default if the app sets none.
    """

    data: bytes | None = field(repr=False)
    content_type: str | None = None


class EncodedBody(NamedTuple):
    """Bytes, and their default content type if the app sets none."""

    data: bytes
    content_type: str | None


def encode_body(body_type: BodyType, body: object) -> EncodedBody:
    """Encode `body`. Raises `WrongBody`."""
    if isinstance(body, UploadedBody) and body.data is not None:
        return EncodedBody(body.data, body.content_type)
    match body_type:
        case BodyType.NONE:
            if body is not None:
                raise WrongBody("body", 'must be left out with bodyType "none"')
            return EncodedBody(b"", None)
        case BodyType.JSON:
            return EncodedBody(_json(body), default_type(body_type))
        case BodyType.TEXT:
            return EncodedBody(_utf8("body", _string("body", body)), default_type(body_type))
        case BodyType.URL_ENCODED:
            return EncodedBody(_encode_form(body), default_type(body_type))
        case BodyType.BASE64:
            data = body.get("data") if isinstance(body, Mapping) else body
            return EncodedBody(_base64("body", data), None)
        case BodyType.FORM_DATA:
            return EncodedBody(*write_multipart(_parts(body)))
        case _:
            assert_never(body_type)


def default_type(body_type: BodyType) -> str | None:
    """Return the default content type of a body type."""
    match body_type:
        case BodyType.JSON:
            return "application/json"
        case BodyType.TEXT:
            return "text/plain;charset=UTF-8"
        case BodyType.URL_ENCODED:
            return "application/x-www-form-urlencoded"
        case _:
            return None


def _json(body: object) -> bytes:
    """Encode JSON. A string is JSON text and is sent unchanged: the backend parses it, or a rule of the policy."""
    if isinstance(body, str):
        # Text too bulky to parse is sent without a check, like any other text.
        if not is_bulky(body) and (wrong := problem_of(body)) is not None:
            raise WrongBody("body", f'must be JSON text or a JSON value with bodyType "json" ({wrong})')
        return _utf8("body", body)
    try:
        check_depth(body)
        return compact_exact(body)
    except InvalidJson as error:
        raise WrongBody("body", str(error)) from error


def _encode_form(body: object) -> bytes:
    if isinstance(body, str):
        return _utf8("body", body)
    if not isinstance(body, Mapping):
        raise WrongBody("body", 'must be a string or an object with bodyType "urlEncoded"')
    pairs = [(str(name), value) for name, values in body.items() for value in _values(f"body.{name}", values)]
    return "&".join(f"{_form(name, name)}={_form(name, value)}" for name, value in pairs).encode()


def _values(field: str, values: object) -> list[str]:
    return [_scalar(field, value) for value in values] if isinstance(values, list) else [_scalar(field, values)]


def _scalar(field: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return plain_json(value)
    raise WrongBody(field[:80], "must be a string, a number, a boolean, or a list of these")


def _form(name: str, text: str) -> str:
    try:
        return quote_plus(text, safe="*")
    except UnicodeEncodeError:
        raise WrongBody(f"body.{ascii(name)[1:-1][:64]}", "has a lone surrogate") from None


def _parts(body: object) -> list[FormPart]:
    if not isinstance(body, Sequence) or isinstance(body, str | bytes):
        raise WrongBody("body", 'must be a list of {name, value} with bodyType "formData"')
    return [_part(f"body[{place}]", entry) for place, entry in enumerate(body)]


def _part(field: str, entry: object) -> FormPart:
    if not isinstance(entry, Mapping):
        raise WrongBody(field, "must be {name, value} or {name, data, filename, contentType}")
    name = _string(f"{field}.name", entry.get("name"))
    filename = entry.get("filename")
    if filename is not None:
        filename = _string(f"{field}.filename", filename)
    media_type = entry.get("contentType") or None
    if media_type is not None and not MEDIA_TYPE.fullmatch(_string(f"{field}.contentType", media_type)):
        raise WrongBody(f"{field}.contentType", "must be a media type such as image/png")
    data, is_file = _content(field, entry)
    if is_file and filename is None:
        filename = "blob"
    for key, text in (("name", name), ("filename", filename or "")):
        _utf8(f"{field}.{key}", text)
    return FormPart(name, data, filename, str(media_type) if media_type else None)


def _content(field: str, entry: Mapping[str, object]) -> tuple[bytes, bool]:
    """Return the bytes of one entry, and whether it is a file."""
    if "data" in entry:
        return _base64(f"{field}.data", entry["data"]), True
    value = _string(f"{field}.value", entry.get("value"))
    encoding = entry.get("encoding")
    if encoding == "base64":
        return _base64(f"{field}.value", value), True
    if encoding not in (None, "text"):
        raise WrongBody(f"{field}.encoding", "must be text or base64")
    return _utf8(f"{field}.value", value), False


def _string(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise WrongBody(field, "must be a string")
    return value


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise WrongBody(field, "has a lone surrogate") from None


def _base64(field: str, text: object) -> bytes:
    try:
        return base64.b64decode(_string(field, text), validate=True)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, WrongBody):
            raise
        raise WrongBody(field, f"must be standard base64 ({error})") from error


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
    protocols = ",".join(value for name, value in headers if name == PROTOCOLS)
    return tuple(part.strip() for part in protocols.split(",") if part.strip())


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
