"""Filters a backend's answer for the app: headers, own URL, injected secrets, and values that the policy masks."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from gateway.errors import Reason, Refusal
from gateway.exchange.decided_request import LONG, BackendAnswer, Leg
from gateway.exchange.record import Record
from gateway.exchange.redact_secrets import Echo
from gateway.jsontext.reading import Numbers, Reader, text_of
from gateway.jsontext.sizes import MOST, is_bulky, why
from gateway.jsontext.writing import compact_json
from gateway.model import Json, Response
from gateway.policy import JsonPath, Policy, answer_headers

_BEFORE = b" \t\r\n\0\xef\xbb\xbf\xff\xfe"
_NO_JSON = ("image/", "audio/", "video/", "font/", "text/html", "text/css", "application/pdf")


def masked(response: Response, paths: Sequence[JsonPath]) -> Response:
    """Return the response with `paths` masked in its JSON body; one that can hold no JSON object is unchanged.

    Raises `Refusal` (`backend-protocol`, `response-too-large`) for one that may hold JSON, but cannot be read as one
    JSON value.
    """
    if not paths or not response.body or _holds_no_object(response):
        return response
    try:
        return replace(response, body=_hidden(response.body, paths))
    except (ValueError, RecursionError) as error:
        detail = "The backend's answer may hold JSON, but cannot be read, so that nothing in it can be masked."
        raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error


def _hidden(body: bytes, paths: Sequence[JsonPath]) -> bytes:
    reading = _Reading()
    value = found = reading.parsed(body)
    for path in paths:
        value = path.masked(value)
    return body if value is found and not reading.doubled else reading.written(value)


class _Reading:
    """Reads JSON with placeholders for numbers, which a float might round. `doubled`: an object had a duplicate key."""

    def __init__(self) -> None:
        self.doubled = False
        self._token = secrets.token_hex(16)
        self._numbers: list[str] = []

    def parsed(self, body: bytes) -> Json:
        """Return the value of `body`; of duplicate keys the last one counts. Raises ValueError."""
        text = text_of(body)
        if is_bulky(text, MOST):
            many = why(MOST)
            raise Refusal(Reason.RESPONSE_TOO_LARGE, f"The backend's answer has {many}: nothing in it can be masked.")
        value: Json = Reader(Numbers(self._number, self._number), self._object).read(text)
        return value

    def written(self, value: Json) -> bytes:
        """Return `value` as ASCII JSON, which is the same in every charset."""
        text = compact_json(value)
        return re.sub(f'"{self._token}([0-9]+)"', lambda found: self._numbers[int(found[1])], text).encode()

    def _object(self, pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        found = dict(pairs)
        self.doubled |= len(found) != len(pairs)
        return found

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


def filtered(policy: Policy, leg: Leg, answer: BackendAnswer, record: Record, *, redirected: bool) -> BackendAnswer:
    """Return the answer as the app may see it; `record` lists the secrets that it echoed."""
    echo = Echo(answer.secrets)
    found = answer.response
    headers = answer_headers(policy, leg.canonical, leg.obligations, found.headers, credentialed=answer.credentialed)
    response = Response(
        found.status,
        echo.headers(headers),
        echo.whole(found.body),
        leg.canonical.url,
        redirected,
        echo.text(found.reason_phrase),
        # The length of a masked body would reveal the length of what is hidden.
        length=None if leg.obligations.mask else found.length,
    )
    _report(echo, answer, leg, record)
    parts = _masked_parts(answer, answer.parts, echo, leg, record) if answer.parts is not None else None
    return BackendAnswer(response, answer.secrets, parts, answer.close, answer.credentialed)


async def hidden(answer: BackendAnswer, paths: Sequence[JsonPath]) -> BackendAnswer:
    """Return the answer with `paths` masked, in a thread if it is large. Raises `Refusal` as `masked` does."""
    response = answer.response
    long = len(response.body) > LONG
    return replace(
        answer, response=await asyncio.to_thread(masked, response, paths) if long else masked(response, paths)
    )


async def _masked_parts(
    answer: BackendAnswer, parts: AsyncIterator[bytes], echo: Echo, leg: Leg, record: Record
) -> AsyncIterator[bytes]:
    async for part in parts:
        shown = echo.part(part)
        _report(echo, answer, leg, record)  # at once: the rest may never come
        if shown:
            yield shown
    if rest := echo.rest():
        yield rest


def _report(echo: Echo, answer: BackendAnswer, leg: Leg, record: Record) -> None:
    """Name in record and log which secrets a backend echoed, without their values."""
    if not echo.heard:
        return
    names: list[Json] = [*sorted({answer.secrets[secret] for secret in echo.heard})]
    if record.fields.get("masked") != names:
        record.note(masked=names)
        log.warning(
            "backend %r echoed what was injected of %s; it is masked", leg.canonical.backend, ", ".join(map(str, names))
        )
