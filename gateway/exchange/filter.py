"""Filters a backend's answer for the app: headers, own URL, injected secrets, and values that the policy masks."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import secrets
from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from gateway.caches import cache_by_headers
from gateway.errors import Reason, Refusal
from gateway.exchange.decided_request import LONG, BackendAnswer, DecidedRequest
from gateway.exchange.record import Record
from gateway.jsontext.reading import Numbers, Reader, text_of
from gateway.jsontext.sizes import MOST, is_bulky, why
from gateway.jsontext.writing import compact_json
from gateway.model import Headers, Json, Response
from gateway.policy import JsonPath, Policy, answer_headers

MASK: Final = "***"

SHORTEST: Final = 8
"""Characters of the shortest injected value that is searched for: shorter ones occur in any text."""

_WIDEST: Final = len(r"\u0041")
"""Bytes of the longest form of a byte, in JSON; a byte in a URL in a URL, `%2541`, is shorter."""

_ESCAPES: Final = (
    (b"\\", re.compile(rb"\\(?:u00(?P<hex>[0-9A-Fa-f]{2})|(?P<same>.))", re.DOTALL)),
    *((b"%", re.compile(rb"%%%b(?P<hex>[0-9A-Fa-f]{2})(?P<same>(?!))?" % (b"25" * level))) for level in (2, 1, 0)),
)
"""Escaped bytes of JSON, and of URLs, where a URL in a URL is encoded again."""


_FOR_URLS: Final = bytes.maketrans(b"+/", b"-_")
"""From base64 to base64url."""

_NAMES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}

_REFERENCES: Final = tuple(
    str.maketrans({char: _NAMES.get(char, written % ord(char)) for char in characters})
    for characters in ("&<>", '&<>"', "&<>\"'", "&<>\"'/", "&<>\"'/`=", "&<>\"'+")
    for written in ("&#%d;", "&#x%X;", "&#x%x;", "&#0%d;")
)
"""The character references that templates write, by the characters that they escape."""


class SecretRedactor:
    """Masks `values`; `names` are those that were found."""

    def __init__(self, values: Iterable[str]) -> None:
        self._secrets = _search_values(tuple(values))
        self._tail = b""
        self.names: set[str] = set()

    def whole(self, data: bytes) -> bytes:
        """Return `data` with every secret masked, in each form of `_forms`, or if it is escaped as in JSON."""
        for secret in self._secrets:
            masked = data
            if b"\\" in data and _may_be_escaped(data, secret):
                masked = _mask_plain(masked, *_unescape(masked, _ESCAPE), secret)
                if _may_be_escaped(masked, secret):
                    masked = _disguise(secret).sub(MASK.encode(), masked)
            for form in _forms(secret):
                if form in masked:
                    masked = masked.replace(form, MASK.encode())
            if masked != data:
                self.names.add(secret.decode())
                data = masked
        return data

    def text(self, text: str) -> str:
        """Mask a text as `whole` does."""
        if not self._secrets or len(text) < SHORTEST:  # no form of a secret is shorter than it
            return text
        return self.whole(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def for_people(self, text: str) -> str:
        """Mask a text for people and records, also where it is escaped as in JSON or percent-encoded.

        In time that is linear in its length, whatever the secrets are: these are chosen by pages.
        """
        data = text.encode("utf-8", "surrogateescape")
        for mark, escape in _ESCAPES:
            if mark in data:
                data = self._mask_escaped(data, escape)
        for secret in self._secrets:
            for form in _forms(secret):
                data = data.replace(form, MASK.encode())
        return data.decode("utf-8", "surrogateescape")

    def _mask_escaped(self, data: bytes, escape: re.Pattern[bytes]) -> bytes:
        """Mask the secrets in what `data` is without its escapes, in time that is linear in its length."""
        plain, source = _unescape(data, escape)
        for secret in self._secrets:
            if (masked := _mask_plain(data, plain, source, secret)) is not data:
                return self._mask_escaped(masked, escape)  # anew: the escapes of the rest have moved
        return data

    def headers(self, headers: Headers) -> Headers:
        """Mask the values of header fields."""
        # Secrets are rare here: one search in all values together is fast.
        if not self._secrets or not _may_hold(headers, self._secrets):
            return headers
        return tuple((name, self.whole(value.encode("latin-1")).decode("latin-1")) for name, value in headers)

    def part(self, data: bytes) -> bytes:
        """Mask the next part of a stream; hold back its end if a secret may begin there."""
        if not self._secrets:
            return data
        data = self._tail + data
        end = self._end(data)
        self._tail = data[end:]
        return self.whole(data[:end])

    def rest(self) -> bytes:
        """Return what was held back, once the stream has ended."""
        data, self._tail = self._tail, b""
        return self.whole(data)

    def _end(self, data: bytes) -> int:
        """Return where to cut `data`, so that no secret crosses the cut and none may begin before it and end later."""
        end, before = len(data) - max(_beginning(data, secret) for secret in self._secrets), -1
        while end != before:
            before = end
            for secret in self._secrets:
                near = _disguise(secret).finditer(
                    data, max(0, end - max(_WIDEST * len(secret), len(_forms(secret)[0])))
                )
                end = next((match.start() for match in near if match.start() < end < match.end()), end)
        return end


@lru_cache(maxsize=64)
def _search_values(values: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the values to search for, longest first."""
    secret_values = {value.encode() for value in values if len(value) >= SHORTEST}
    return tuple(sorted(secret_values, key=len, reverse=True))


@cache_by_headers
def _may_hold(headers: Headers, secrets: tuple[bytes, ...]) -> bool:
    """Return whether the values of `headers` may contain a secret."""
    data = "\n".join([value for _, value in headers]).encode("latin-1")
    return b"\\" in data or any(form in data for secret in secrets for form in _forms(secret))


@lru_cache(maxsize=64)
def _disguise(secret: bytes) -> re.Pattern[bytes]:
    """Match a secret whose characters may be escaped as in JSON (`\\u0041`, `\\/`), or another of its forms."""
    text = secret.decode("latin-1")
    escaped = b"".join(rb"(?:\\u(?i:%04x)|\\?%b)" % (ord(char), re.escape(char.encode())) for char in text)
    return re.compile(b"|".join((escaped, *map(re.escape, _forms(secret)))))


def _unescape(data: bytes, escape: re.Pattern[bytes]) -> tuple[bytes, Callable[[int], int]]:
    """Return what `data` is without its escapes, and a function that returns where in `data` a byte of it begins."""
    plain, marks, sources, at = bytearray(), array("Q"), array("Q"), 0
    for match in escape.finditer(data):
        plain += data[at : match.start()]
        plain += match["same"] or bytes((int(match["hex"], 16),))
        at = match.end()
        marks.append(len(plain))
        sources.append(at)
    plain += data[at:]

    def source(index: int) -> int:
        before = bisect_right(marks, index) - 1
        return index if before < 0 else sources[before] + index - marks[before]

    return bytes(plain), source


def _mask_plain(data: bytes, plain: bytes, source: Callable[[int], int], secret: bytes) -> bytes:
    """Mask in `data` each place of a secret in `plain`, in time that is linear; `data` itself if there is none."""
    parts, at, start = list[bytes](), 0, plain.find(secret)
    while start >= 0:
        parts.append(data[at : source(start)])
        at = source(start + len(secret))
        start = plain.find(secret, start + len(secret))
    return MASK.encode().join([*parts, data[at:]]) if parts else data


_ESCAPE: Final = re.compile(rb"\\(?:u00(?P<hex>[0-9A-Fa-f]{2})|(?!\\u00[0-9A-Fa-f]{2})(?P<same>.))", re.DOTALL)
"""An escape of JSON, also one that is itself escaped."""


def _may_be_escaped(data: bytes, secret: bytes) -> bool:
    """Return False if `data` surely does not hold the secret with escapes of JSON: most data have others."""
    if b"\\u00" in data:
        data = re.sub(rb"\\u00([0-9A-Fa-f]{2})", lambda match: bytes((int(match[1], 16),)), data)
    return secret.replace(b"\\", b"") in data.replace(b"\\", b"")


@lru_cache(maxsize=256)
def _forms(secret: bytes) -> tuple[bytes, ...]:
    """Return a secret as it is and as common encoders write it, alone or in a longer text: the longest first.

    These are UTF-16 in both byte orders, percent-encoding (also twice, as in a URL in a URL), the character references
    of HTML and XML, and base64 and base64url at each of the three offsets that a longer text may have.
    """
    text = secret.decode("latin-1")
    forms = {secret, text.encode("utf-16-le"), text.encode("utf-16-be")}
    for safe in ("", "/", "!'()*", "!'()*/:;,?@&=+$#"):  # of forms, of paths, of encodeURIComponent and of encodeURI
        once = quote(secret, safe=safe)
        forms |= {form.encode() for form in (once, quote(once, safe=""), once.replace("%20", "+"))}
    forms |= {re.sub(rb"%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in forms}
    for table in _REFERENCES:
        forms.add(text.translate(table).encode("latin-1"))
    for offset in range(3):
        coded = base64.b64encode(bytes(offset) + secret)
        # Without the characters that hold bits of what is before or behind it.
        whole = coded[-(-offset * 8 // 6) : (offset + len(secret)) * 8 // 6]
        forms |= {whole, whole.translate(_FOR_URLS), whole.replace(b"/", b"\\/")}
    return tuple(sorted(forms, key=len, reverse=True))


def _longest(secret: bytes) -> int:
    """Return how many bytes a secret has at most in the data."""
    return max(_WIDEST * len(secret), len(_forms(secret)[0]))


@lru_cache(maxsize=256)
def _starts(secret: bytes) -> re.Pattern[bytes]:
    """Match the bytes with which a form of a secret begins."""
    first = b"".join(sorted({re.escape(form[:1]) for form in _forms(secret)}))
    return re.compile(b"[%b\\\\]" % first)


_STEPS: Final = 4
"""Characters of escaped secrets that are compared for each byte of a part's end: ordinary text needs fewer than one."""


def _beginning(data: bytes, secret: bytes) -> int:
    """Return how many bytes at the end of `data` may be the beginning of `secret`, in any form that is masked.

    After `_STEPS` comparisons for each byte, which only a text takes that nearly repeats a periodic secret, the rest
    counts as its beginning: that part is held back until more arrives. So the time is linear in the secret's length.
    """
    tail = data[-(_longest(secret) - 1) :]
    left = iter(range(_STEPS * len(tail)))
    starts_found = (
        match.start() for match in _starts(secret).finditer(tail) if _may_begin(tail, match.start(), secret, left)
    )
    return len(tail) - next(starts_found, len(tail))


def _may_begin(tail: bytes, start: int, secret: bytes, left: Iterator[int]) -> bool:
    """Return whether `tail` from `start` is a beginning of `secret`: in one of its forms, or escaped as in JSON.

    Also if it takes more steps than are `left`.
    """
    forms = _forms(secret)
    if len(tail) - start <= len(forms[0]) and any(form.startswith(tail[start:]) for form in forms):
        return True
    ends = {start}
    for byte in secret:
        if next(left, None) is None:
            return True
        escapes = (b"%c" % byte, b"\\%c" % byte, b"\\u%04x" % byte)
        pairs = [(at, form, tail[at : at + len(form)]) for at in ends for form in escapes]
        if any(len(piece) < len(form) and form.startswith(_lower(piece)) for _, form, piece in pairs):
            return True
        ends = {at + len(form) for at, form, piece in pairs if form == _lower(piece)}
        if not ends:
            break
    return False


def _lower(piece: bytes) -> bytes:
    """Lower the hexadecimal digits of an escape."""
    return piece.lower() if piece.startswith(b"\\u") else piece


_BEFORE = b" \t\r\n\0\xef\xbb\xbf\xff\xfe"
_NO_JSON = ("image/", "audio/", "video/", "font/", "text/html", "text/css", "application/pdf")


def mask_values(response: Response, paths: Sequence[JsonPath]) -> Response:
    """Return the response with `paths` masked in its JSON body. Raises as `replace_values` does."""
    return replace_values(response, paths, lambda _: MASK, numbers=True)


def replace_values(
    response: Response, paths: Sequence[JsonPath], change: Callable[[Json], Json], *, numbers: bool = False
) -> Response:
    """Return the response with the values at `paths` changed; one that can hold no JSON object is unchanged.

    With `numbers`, numbers are changed, too.

    Raises `Refusal` (`backend-protocol`, `response-too-large`) for one that may hold JSON, but cannot be read as one
    JSON value.
    """
    if not paths or not response.body or _holds_no_object(response):
        return response
    try:
        return replace(response, body=_change_body(response.body, paths, change, numbers=numbers))
    except (ValueError, RecursionError) as error:
        detail = "The backend's answer may hold JSON, but cannot be read, so that nothing in it can be masked."
        raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error


def _change_body(body: bytes, paths: Sequence[JsonPath], change: Callable[[Json], Json], *, numbers: bool) -> bytes:
    reading = _JsonWithPlaceholders()
    value = value_read = reading.parse_body(body)
    for path in paths:
        value = path.replace(value, lambda one: change(one) if numbers or not reading.is_number(one) else one)
    return body if value is value_read and not reading.doubled else reading.write(value)


class _JsonWithPlaceholders:
    """Reads JSON with placeholders for numbers, which a float might round. `doubled`: an object had a duplicate key."""

    def __init__(self) -> None:
        self.doubled = False
        self._token = secrets.token_hex(16)
        self._numbers: list[str] = []

    def parse_body(self, body: bytes) -> Json:
        """Return the value of `body`; of duplicate keys the last one counts. Raises ValueError."""
        text = text_of(body)
        if is_bulky(text, MOST):
            many = why(MOST)
            raise Refusal(Reason.RESPONSE_TOO_LARGE, f"The backend's answer has {many}: nothing in it can be masked.")
        value: Json = Reader(Numbers(self._number, self._number), self._object).read(text)
        return value

    def is_number(self, value: Json) -> bool:
        """Return whether a value of `parsed` is a number."""
        return isinstance(value, str) and value.startswith(self._token)

    def write(self, value: Json) -> bytes:
        """Return `value` as ASCII JSON, which is the same in every charset."""
        text = compact_json(value)
        return re.sub(f'"{self._token}([0-9]+)"', lambda match: self._numbers[int(match[1])], text).encode()

    def _object(self, pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        members = dict(pairs)
        self.doubled |= len(members) != len(pairs)
        return members

    def _number(self, text: str) -> str:
        self._numbers.append(text)
        return f"{self._token}{len(self._numbers) - 1}"


def _holds_no_object(response: Response) -> bool:
    """Decide by the media type, or by the absence of `{` and `[`; otherwise the body must be parsed."""
    media_type = (response.header("content-type") or "").partition(";")[0].strip().lower()
    if media_type in ("application/json", "text/json") or media_type.endswith("+json"):
        return False
    begins = response.body.lstrip(_BEFORE)[:1]
    if media_type.startswith(_NO_JSON) and begins not in (b"{", b"["):
        return True
    return not (b"{" in response.body or b"[" in response.body)


log = logging.getLogger(__name__)


def filter_answer(
    policy: Policy, decided_request: DecidedRequest, answer: BackendAnswer, record: Record, *, redirected: bool
) -> BackendAnswer:
    """Return the answer as the app may see it; `record` lists the secrets that it echoed."""
    echo = SecretRedactor(answer.secrets)
    backend_response = answer.response
    headers = answer_headers(
        policy,
        decided_request.canonical,
        decided_request.obligations,
        backend_response.headers,
        credentialed=answer.credentialed,
    )
    response = Response(
        backend_response.status,
        echo.headers(headers),
        echo.whole(backend_response.body),
        decided_request.canonical.url,
        redirected,
        echo.text(backend_response.reason_phrase),
        # The length of a masked body would reveal the length of what is hidden.
        length=None if decided_request.obligations.mask else backend_response.length,
    )
    if answer.dropped:
        response = replace(response, headers=(*response.headers, ("gateway-dropped", "authorization")))
    if answer.page:
        response = replace(response, headers=(*response.headers, *echo.headers(answer.page)))
    report_echo(echo, answer, decided_request, record)
    parts = _masked_parts(answer, answer.parts, echo, decided_request, record) if answer.parts is not None else None
    return BackendAnswer(response, answer.secrets, parts, answer.close, answer.credentialed)


async def mask_answer(answer: BackendAnswer, paths: Sequence[JsonPath]) -> BackendAnswer:
    """Return the answer with `paths` masked, in a thread if it is large. Raises `Refusal` as `mask_values` does."""
    response = answer.response
    long = len(response.body) > LONG
    return replace(
        answer, response=await asyncio.to_thread(mask_values, response, paths) if long else mask_values(response, paths)
    )


async def _masked_parts(
    answer: BackendAnswer,
    parts: AsyncIterator[bytes],
    echo: SecretRedactor,
    decided_request: DecidedRequest,
    record: Record,
) -> AsyncIterator[bytes]:
    async for part in parts:
        visible = echo.part(part)
        report_echo(echo, answer, decided_request, record)  # at once: the rest may never come
        if visible:
            yield visible
    if rest := echo.rest():
        yield rest


def report_echo(echo: SecretRedactor, answer: BackendAnswer, decided_request: DecidedRequest, record: Record) -> None:
    """Name in record and log which secrets a backend echoed, without their values."""
    if not echo.names:
        return
    names: list[Json] = [*sorted({answer.secrets[secret] for secret in echo.names})]
    if record.fields.get("masked") != names:
        record.note(masked=names)
        log.warning(
            "backend %r echoed what was injected of %s; it is masked",
            decided_request.canonical.backend,
            ", ".join(map(str, names)),
        )
