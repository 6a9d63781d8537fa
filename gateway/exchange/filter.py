"""What of a backend's answer the app gets: allowed headers, a URL of its own, and no secret that the backend echoed."""

from __future__ import annotations

import logging

from gateway.model import CanonicalRequest, Headers, Response
from gateway.policy import Decision, Policy, answer_headers

MASK = "***"
SHORTEST = 8
"""Characters of the shortest injected value that is looked for: shorter ones stand in any text."""

log = logging.getLogger(__name__)


def filtered(
    policy: Policy,
    canonical: CanonicalRequest,
    decision: Decision,
    response: Response,
    *,
    credentials: Headers,
    redirected: bool,
) -> Response:
    """The answer as the app may see it."""
    headers = answer_headers(policy, canonical, decision.obligations, response.headers, credentialed=bool(credentials))
    body = response.body
    for secret in _secrets(credentials):
        if secret.encode() in body or any(secret in value for _, value in headers):
            log.warning("backend %r echoed the credential that was injected; it is masked", canonical.backend)
            body = body.replace(secret.encode(), MASK.encode())
            headers = tuple((name, value.replace(secret, MASK)) for name, value in headers)
    return Response(response.status, headers, body, canonical.url, redirected, response.reason_phrase)


def _secrets(credentials: Headers) -> list[str]:
    values = [value.split(" ", 1)[-1] for _, value in credentials]
    return [value for value in values if len(value) >= SHORTEST]
