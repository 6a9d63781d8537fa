"""What of a backend's answer the app gets: allowed headers, a URL of its own, no secret that the backend echoed, and
no value that the policy masks."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from gateway.exchange.answer import Answer
from gateway.exchange.echo import Echo
from gateway.exchange.leg import Leg
from gateway.exchange.mask import masked
from gateway.model import Response
from gateway.policy import Policy, answer_headers

log = logging.getLogger(__name__)


def filtered(policy: Policy, leg: Leg, answer: Answer, *, redirected: bool) -> Answer:
    """The answer as the app may see it. Raises `Refusal` where it cannot be made so."""
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
    )
    if echo.heard:
        _warn(leg)
    parts = _masked_parts(answer.parts, echo, leg) if answer.parts is not None else None
    return Answer(masked(response, leg.obligations.mask), parts, answer.close, answer.credentialed, answer.secrets)


async def _masked_parts(parts: AsyncIterator[bytes], echo: Echo, leg: Leg) -> AsyncIterator[bytes]:
    async for part in parts:
        if shown := echo.part(part):
            yield shown
    if rest := echo.rest():
        yield rest
    if echo.heard:
        _warn(leg)


def _warn(leg: Leg) -> None:
    log.warning("backend %r echoed what was injected; it is masked", leg.canonical.backend)
