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

_ESCAPES: Final = (
    (b"\\", re.compile(rb"\\(?:u00(?P<hex>[0-9A-Fa-f]{2})|(?P<same>.))", re.DOTALL)),
    *((b"%", re.compile(rb"%%%b(?P<hex>[0-9A-Fa-f]{2})(?P<same>(?!))?" % (b"25" * level))) for level in (2, 1, 0)),
)
"""Escaped bytes of JSON, and of URLs, where a URL in a URL is encoded again."""


Place = Callable[[int, int], tuple[int, int]]
"""Returns the positions in a text of those in the text without its escapes."""

_FOR_URLS: Final = bytes.maketrans(b"+/", b"-_")
"""From base64 to base64url."""

_NAMES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}

_REFERENCES: Final = tuple(
    str.maketrans({char: _NAMES.get(char, written % ord(char)) for char in characters})
    for characters in ("&<>", '&<>"', "&<>\"'", "&<>\"'/", "&<>\"'/`=", "&<>\"'+")
    for written in ("&#%d;", "&#x%X;", "&#x%x;", "&#0%d;")
)
"""The character references that templates write, by the characters that they escape."""


NAME: Final = "page authorization"
"""The name for secrets that a page sent itself, among the names of credentials."""


class SecretRedactor:
    """Masks `values`, and those that `later` returns at each text or part; `names` are those that were found."""

    def __init__(self, values: Iterable[str], later: Callable[[], Sequence[str]] = tuple) -> None:
        self._values = tuple(values)
        self._secrets = _search_values(self._values)
        self._later = later
        self._tail = b""
        self.names: set[str] = set()

    def whole(self, data: bytes) -> bytes:
        """Return `data` with every secret masked, in each form of `_forms`, or if it is escaped as in JSON."""
        self._learn()
        for secret in self._secrets:
            masked = data
            if b"\\" in data and secret.replace(b"\\", b"") in _without_escapes(data):
                for plain_secret, bare in _plain_forms(secret):
                    if bare:
                        masked = masked.replace(secret, MASK.encode())  # with its last backslashes
                    masked = _mask_plain(masked, *_unescape(masked, _ESCAPE, bare=bare), plain_secret)
            for form in _forms(secret):
                if form in masked:
                    masked = masked.replace(form, MASK.encode())
            if masked != data:
                self.names.add(secret.decode())
                data = masked
        return data

    def _learn(self) -> None:
        """Take up the values that became known after the others."""
        more = [value for value in self._later() if value not in self._values]
        if more:
            self._values += tuple(more)
            self._secrets = _search_values(self._values)

    def text(self, text: str) -> str:
        """Mask a text as `whole` does."""
        self._learn()
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
        plain, place = _unescape(data, escape)
        for secret in self._secrets:
            if (masked := _mask_plain(data, plain, place, secret)) is not data:
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
        self._learn()
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
        end, spans = len(data), list[tuple[int, int]]()
        for secret in self._secrets:
            for form in _forms(secret):
                end = min(end, len(data) - _beginning(data, form))
                spans += _places(data, form)
        if b"\\" in data:
            end = min(end, self._escaped_end(data, spans))
        before = -1
        while end != before:
            before = end
            for start, stop in sorted(spans, reverse=True):
                if start < end < stop:
                    end = start
            backslashes = end - len(data[:end].rstrip(b"\\"))
            end -= backslashes % 2  # the first half of an escape
        return end

    def _escaped_end(self, data: bytes, spans: list[tuple[int, int]]) -> int:
        """Return where to cut `data` for secrets that are written with escapes; add their places to `spans`."""
        partial = _PARTIAL.search(data)
        whole, end = (data, len(data)) if partial is None else (data[: partial.start()], partial.start())
        quick = _without_escapes(whole)
        for secret in self._secrets:
            if b"\\" not in secret and not (secret in quick or _beginning(quick, secret)):
                continue
            for form, bare in _plain_forms(secret):
                plain, place = _unescape(whole, _ESCAPE, bare=bare)
                spans += (place(*span) for span in _places(plain, form))
                if begun := _beginning(plain, form):
                    end = min(end, place(len(plain) - begun, len(plain))[0])
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


def _unescape(data: bytes, escape: re.Pattern[bytes], *, bare: bool = False) -> tuple[bytes, Place]:
    """Return what `data` is without its escapes, and a function that returns where in `data` a piece of it is.

    `bare`: also without the backslashes that they mean.
    """
    plain, marks, sources, at = bytearray(), array("Q"), array("Q"), 0
    for match in escape.finditer(data):
        plain += data[at : match.start()]
        char = match["same"] or (bytes((int(match["hex"], 16),)) if match["hex"] else b"")
        plain += b"" if bare and char == b"\\" else char
        at = match.end()
        marks.append(len(plain))
        sources.append(at)
    plain += data[at:]

    def source(index: int) -> int:
        before = bisect_right(marks, index) - 1
        return index if before < 0 else sources[before] + index - marks[before]

    def place(start: int, stop: int) -> tuple[int, int]:
        last = source(stop - 1)
        escaped = escape.match(data, last)
        return source(start), last + 1 if escaped is None else escaped.end()

    return bytes(plain), place


def _mask_plain(data: bytes, plain: bytes, place: Place, secret: bytes) -> bytes:
    """Mask in `data` each place of a secret in `plain`, in linear time; return `data` itself if it has none."""
    parts, at = list[bytes](), 0
    for span in _places(plain, secret):
        start, stop = place(*span)
        parts.append(data[at:start])
        at = stop
    return MASK.encode().join([*parts, data[at:]]) if parts else data


_ESCAPE: Final = re.compile(rb"\\(?:u00(?P<hex>[0-9A-Fa-f]{2})|(?!\\u00[0-9A-Fa-f]{2})(?P<same>.)|)", re.DOTALL)
"""An escape of JSON, also one that is itself escaped; or a backslash that begins none."""

_PARTIAL: Final = re.compile(rb"\\(?:u0{0,2}[0-9A-Fa-f]?)?\Z")
"""The beginning of an escape at the end of a part."""


def _plain_forms(secret: bytes) -> list[tuple[bytes, bool]]:
    """Return a secret as it is searched for where escapes are undone, and whether backslashes are left out there.

    Of one that has backslashes, some may be escaped and others not.
    """
    bare = secret.replace(b"\\", b"")
    return [(secret, False), *([(bare, True)] if bare != secret and len(bare) >= SHORTEST else [])]


def _without_escapes(data: bytes) -> bytes:
    """Return what `_unescape` with `bare` returns as the first, in a fraction of its time."""
    if b"\\u00" in data:
        data = re.sub(rb"\\u00([0-9A-Fa-f]{2})", lambda match: bytes((int(match[1], 16),)), data)
    return data.replace(b"\\", b"")


@lru_cache(maxsize=256)
def _forms(secret: bytes) -> tuple[bytes, ...]:
    """Return a secret as it is and as common encoders write it, alone or in a longer text: the longest first.

    These are UTF-16 in both byte orders, percent-encoding (also twice, as in a URL in a URL), the character references
    of HTML and XML, and base64 and base64url at each of the three offsets that a longer text may have.
    """
    text = secret.decode("latin-1")
    forms = {secret, text.encode("utf-16-le"), text.encode("utf-16-be"), secret.replace(b"\\", rb"\\")}
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


_HEAD: Final = 32
"""Bytes of a form by which its beginnings are found."""

_TRIES: Final = 16
"""The number of them that are compared to the end of a part."""


def _beginning(data: bytes, form: bytes) -> int:
    """Return how many bytes at the end of `data` may be the beginning of `form`.

    After `_TRIES` comparisons, which only a text takes that repeats the head of a secret, the rest counts as one: it is
    held back until more arrives. So the time is linear in the secret's length.
    """
    tail, head = data[max(0, len(data) - len(form) + 1) :], form[:_HEAD]
    at, left = tail.find(head), _TRIES
    while at >= 0:
        if not left or form.startswith(tail[at:]):
            return len(tail) - at
        at, left = tail.find(head, at + 1), left - 1
    return next((size for size in range(min(len(head) - 1, len(tail)), 0, -1) if tail.endswith(head[:size])), 0)


def _places(data: bytes, form: bytes) -> Iterator[tuple[int, int]]:
    """Yield where `form` begins and ends in `data`."""
    start = data.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = data.find(form, start + len(form))


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
    echo = SecretRedactor(answer.secrets, answer.later)
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
    names: list[Json] = [*sorted({answer.secrets.get(secret, NAME) for secret in echo.names})]
    if record.fields.get("masked") != names:
        record.note(masked=names)
        log.warning(
            "backend %r echoed what was injected of %s; it is masked",
            decided_request.canonical.backend,
            ", ".join(map(str, names)),
        )
