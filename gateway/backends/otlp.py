"""The client of an OTLP/HTTP collector: JSON over vetted connections (OpenTelemetry Protocol 1.5, OTLP/HTTP)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.backends.connect import Connections, Network
from gateway.backends.http import HttpBackend
from gateway.errors import Refusal
from gateway.jsontext.writing import plain_json
from gateway.model import Headers, Json, Outbound, Secret

TIMEOUT = 10.0
ANSWER = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Spec:
    name: str
    network: Network


class Collector:
    """The collector at the base URL `url`; `authorization` returns the value of that header field, or an empty one."""

    def __init__(
        self, url: str, authorization: Callable[[], Secret], network: Network, connections: Connections
    ) -> None:
        self._url = url
        self._authorization = authorization
        self._backend = HttpBackend(_Spec("collector", network), connections)

    async def send(self, signal: str, body: Json) -> None:
        """Send `body` as `signal`, `traces` or `logs`. Raises OSError if it is not accepted."""
        headers: Headers = (("content-type", "application/json"),)
        if authorization := self._authorization().reveal():
            headers = (*headers, ("authorization", authorization))
        request = Outbound(
            "POST", f"{self._url}/v1/{signal}", headers, plain_json(body).encode(), TIMEOUT, response_limit=ANSWER
        )
        try:
            answer = await self._backend.send(request)
        except Refusal as refusal:
            raise OSError(f"the collector cannot be reached: {refusal.detail}") from refusal
        if not 200 <= answer.status < 300:
            raise OSError(f"the collector answered {answer.status}")
