"""Filters a backend's answer for the app: headers, own URL, injected secrets, and values that the policy masks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from gateway.exchange.answer import BackendAnswer
from gateway.exchange.decided_request import LONG, Leg
from gateway.exchange.mask import masked
from gateway.exchange.record import Record
from gateway.exchange.redact_secrets import Echo
from gateway.model import Json, Response
from gateway.policy import JsonPath, Policy, answer_headers

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
