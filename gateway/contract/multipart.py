"""Encodes `multipart/form-data` (RFC 7578) as browsers do (HTML Standard, 4.10.21.7)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
    disposition = f'Content-Disposition: form-data; name="{_escaped(_crlf(part.name))}"'
    media_type = part.content_type
    if part.filename is not None:
        disposition = f'{disposition}; filename="{_escaped(part.filename)}"'
        media_type = media_type or "application/octet-stream"
    return (f"{disposition}\r\nContent-Type: {media_type}" if media_type else disposition).encode()


def _data(part: FormPart) -> bytes:
    return part.data if part.filename is not None else _NEWLINE_BYTES.sub(b"\r\n", part.data)


def _crlf(text: str) -> str:
    return _NEWLINE.sub("\r\n", text)


def _escaped(text: str) -> str:
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
