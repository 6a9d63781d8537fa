"""Send a decided request to its backend, and once more with a new token where the first was refused."""

from __future__ import annotations

from dataclasses import replace

from gateway.exchange.authenticate import Authenticator
from gateway.model import Backend, CanonicalRequest, Headers, Outbound, Response
from gateway.policy import SAFE_METHODS, BackendSpec, Decision, without


def outbound(spec: BackendSpec, canonical: CanonicalRequest, decision: Decision, credentials: Headers) -> Outbound:
    """The request as it goes out: the bytes that were decided on, and the injected fields, which win over the app's."""
    limits = decision.obligations
    return Outbound(
        method=canonical.method,
        url=spec.target(canonical),
        headers=without(canonical.headers, [name for name, _ in credentials]) + credentials,
        body=canonical.body,
        timeout=limits.timeout,
        response_limit=limits.response_limit,
    )


async def send(
    backend: Backend, request: Outbound, credentials: Headers, authenticator: Authenticator, credential: str | None
) -> Response:
    """The backend's answer. A safe request that is answered 401 is repeated once, with a new token.

    Raises `Refusal` where there is no answer.
    """
    response = await backend.send(request)
    if response.status != 401 or credential is None or request.method not in SAFE_METHODS:
        return response
    authenticator.forget(credential, credentials)
    renewed = await authenticator.headers(credential)
    kept = request.headers[: len(request.headers) - len(credentials)]
    return await backend.send(replace(request, headers=kept + renewed))
