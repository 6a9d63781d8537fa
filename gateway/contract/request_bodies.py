"""Encodes the body of a request from its arguments."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, assert_never
from urllib.parse import quote_plus

from gateway.jsontext.reading import check_depth, problem_of
from gateway.jsontext.sizes import InvalidJson, is_bulky
from gateway.jsontext.writing import compact_exact, plain_json
from gateway.model import BodyType

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
    written = [(_head(part), _data(part)) for part in parts]
    boundary = _boundary(written)
    body = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head, data) for head, data in written)
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


def _boundary(written: Sequence[tuple[bytes, bytes]]) -> bytes:
    sha = hashlib.sha256()
    for head, data in written:
        sha.update(b"%d:%d:" % (len(head), len(data)))
        sha.update(head)
        sha.update(data)
    boundary = b"----form" + sha.hexdigest()[:40].encode()
    while any(boundary in head or boundary in data for head, data in written):
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
