"""Exports the record as OTLP logs over vetted connections: one per line, with its values as attributes.

A file beside the journal stores the progress (OpenTelemetry Protocol 1.5, OTLP/HTTP, in JSON).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.backends.connect import Connections, Network
from gateway.backends.http import HttpBackend
from gateway.errors import Refusal
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Headers, Json, Outbound, Secret
from gateway.stores.copying import PlacedLine, Position
from gateway.stores.lines import Line

TIMEOUT = 10.0
"""Seconds in which the collector must answer."""
ANSWER = 64 * 1024
"""Bytes of its answer at most."""


@dataclass(frozen=True, slots=True)
class _Spec:
    name: str
    network: Network


class Collector:
    """The OTLP/HTTP collector at `url`; `authorization` returns the value of that header field, or an empty one."""

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


class OtlpLogs:
    """A sink with at-least-once delivery: `line` in each log permits deduplication after an outage."""

    name = "otlp"

    def __init__(self, collector: Collector, place: Path, resource: Json) -> None:
        self._collector = collector
        self._place = place
        self._resource = resource

    async def position(self, chain: str) -> Position | None:
        """Return the progress in the journal `chain`, from the file beside it. Raises OSError."""
        try:
            checkpoint = parse_json(self._place.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            return None  # a power failure truncated it: everything is sent again
        known = isinstance(checkpoint, dict) and checkpoint.get("chain") == chain
        return Position(int(checkpoint["end"]), str(checkpoint["hash"])) if known else None

    async def chains(self) -> Sequence[str]:
        """Return nothing: a collector cannot be queried."""
        return ()

    async def take_over(self, chain: str) -> int:
        """Return 0: only the process that holds the journal sends it, so no fencing is needed."""
        return 0

    async def store(self, chain: str, lines: Sequence[PlacedLine], position: Position, epoch: int) -> None:
        """Send the lines, then store the position. Raises OSError if they are not accepted."""
        records: list[Json] = [_log(one.line) for one in lines]
        scope: Json = {"scope": {"name": "webmcp-gateway.audit"}, "logRecords": records}
        await self._collector.send("logs", {"resourceLogs": [{"resource": self._resource, "scopeLogs": [scope]}]})
        fresh = self._place.with_name(f"{self._place.name}.new")
        with suppress(FileNotFoundError):
            fresh.unlink()  # left by a process that died here
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(plain_json({"chain": chain, "end": position.end, "hash": position.hash}))
        fresh.replace(self._place)


def _log(line: Line) -> dict[str, Json]:
    record = line.record
    time = str(int(record.time * 1e9))
    failed = isinstance(status := record.fields.get("status"), int) and status >= 500
    entry: dict[str, Json] = {
        "timeUnixNano": time,
        "observedTimeUnixNano": time,
        "severityNumber": 17 if failed else 9,
        "severityText": "ERROR" if failed else "INFO",
        "body": {"stringValue": line.text},
        "attributes": _attributes(line),
    }
    trace = record.fields.get("trace")
    return {**entry, "traceId": trace} if isinstance(trace, str) else entry


def _attributes(line: Line) -> list[Json]:
    attributes: list[Json] = [_attribute("audit.id", line.record.id), _attribute("audit.phase", line.record.phase)]
    for name, value in line.record.fields.items():
        if isinstance(value, str | int | float | bool):
            attributes.append(_attribute(f"audit.{name}", value))
    return attributes


def _attribute(name: str, value: str | float | bool) -> Json:
    return {"key": name, "value": otlp_value(value)}


def otlp_value(value: str | float | bool) -> Json:
    """Return a value in OTLP's JSON form."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
