"""The context of the current request: its trace (W3C Trace Context, OpenTelemetry), and facts for the logs.

Each door sets these, and tasks inherit them. A trace reaches from the model's call to the backend's answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from opentelemetry import context
from opentelemetry import trace as otel

from gateway.crypto import Randomness

_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE_LONGEST: Final = 512
_ANYWHERE: Final = nullcontext()
_STATE: Final = re.compile(r"[\x20-\x7e]*")


class Trace(Struct, frozen=True):
    """A position in a trace: `id` of the trace, `span` of the current span, in hex. `state` is of other systems."""

    id: str
    span: str
    sampled: bool = False
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The value of the header `traceparent`."""
        return f"00-{self.id}-{self.span}-{'01' if self.sampled else '00'}"

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the header fields that propagate it."""
        state = (("tracestate", self.state),) if self.state else ()
        return (("traceparent", self.traceparent), *state)


def read_trace(traceparent: object, tracestate: object = None) -> Trace | None:
    """Parse a caller's trace context; None if it is invalid (W3C Trace Context, 3.2)."""
    match = _PARENT.fullmatch(traceparent) if isinstance(traceparent, str) and len(traceparent) < 256 else None
    if match is None or (match[4] and traceparent[:2] == "00"):  # type: ignore[index]  # a match means it is a string
        return None
    state = tracestate if isinstance(tracestate, str) and _STATE.fullmatch(tracestate) else ""
    return Trace(match[1], match[2], bool(int(match[3], 16) & 1), state if len(state) <= _STATE_LONGEST else "")


def continue_trace(fields: Mapping[str, object] | None) -> AbstractContextManager[None]:
    """Run the block in the trace of `traceparent` and `tracestate` of `fields`, if they are valid."""
    came = read_trace(fields.get("traceparent"), fields.get("tracestate")) if fields else None
    return _within(came) if came is not None else _ANYWHERE


@contextmanager
def _within(came: Trace) -> Iterator[None]:
    token = context.attach(_context(came))
    try:
        yield
    finally:
        context.detach(token)


def current() -> Trace | None:
    """Return the current trace: from `continue_trace`, or from the program that embeds the gateway."""
    if not context.get_current():
        return None
    span_context = otel.get_current_span().get_span_context()
    return _trace(span_context) if span_context.is_valid else None


class Span:
    """One span, open until `end`. Its `trace` exists even without a recorder: then `span` is None.

    `wanted` means that it is recorded, or that its caller named a trace.
    """

    def __init__(self, tracer: otel.Tracer, span: otel.Span | None, trace: Trace, *, wanted: bool) -> None:
        self.trace = trace
        self._tracer = tracer
        self._span = span
        self._child: otel.Span | None = None
        self.wanted = wanted

    @property
    def recording(self) -> bool:
        """True if it is recorded."""
        return self._span is not None

    def note(self, fields: Mapping[str, object]) -> None:
        """Add attributes; values other than strings, numbers and booleans are ignored."""
        if self._span is not None:
            for name, value in fields.items():
                if isinstance(value, str | int | float | bool):
                    self._span.set_attribute(name, value)

    def step(self, name: str, seconds: float) -> None:
        """Add a step that ends now and took `seconds`."""
        if self._span is None:
            return
        now = time.time_ns()
        child, self._child = self._child, None
        if child is None:
            around = otel.set_span_in_context(self._span)
            child = self._tracer.start_span(name, around, start_time=now - int(seconds * 1e9))
        child.end(now)

    def going_out(self, name: str) -> Trace:
        """Start the step `name`, which calls another server; return the trace to propagate to it."""
        if self._span is None:
            return self.trace
        around = otel.set_span_in_context(self._span)
        self._child = self._tracer.start_span(name, around, kind=otel.SpanKind.CLIENT)
        return _trace(self._child.get_span_context())

    def end(self, failed: bool) -> None:
        """End the span."""
        if self._child is not None:
            self._child.end()
        if self._span is not None:
            if failed:
                self._span.set_status(otel.StatusCode.ERROR)
            self._span.end()


class Tracer:
    """Starts spans with `provider`, by default that of the program that embeds the gateway, if it has one."""

    def __init__(self, provider: otel.TracerProvider | None = None, randomness: Randomness | None = None) -> None:
        self._tracer = otel.get_tracer("webmcp-gateway", tracer_provider=provider)
        self._provided = provider is not None
        self._look_at = 0.0
        self._randomness = randomness or Randomness()

    def start(self, name: str, parent: Trace | None) -> Span:
        """Start a span below `parent`, or at the root of a new trace."""
        if self._is_provided():
            around = _context(parent) if parent is not None else context.Context()
            span = self._tracer.start_span(name, around, kind=otel.SpanKind.SERVER)
            if span.is_recording():
                return Span(self._tracer, span, _trace(span.get_span_context()), wanted=True)
        return Span(self._tracer, None, self._unrecorded_trace(parent), wanted=parent is not None)

    def _is_provided(self) -> bool:
        """Return whether spans may be recorded. The embedding program may start later: check once a second.

        Asking the library each time costs as much as everything else here.
        """
        if not self._provided and (now := time.monotonic()) >= self._look_at:
            self._look_at = now + 1.0
            self._provided = not isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider)
        return self._provided

    def _unrecorded_trace(self, parent: Trace | None) -> Trace:
        """Return an unrecorded position in the trace of `parent`, or in a new one."""
        if parent is None:
            digits = self._randomness.hex(24)
            return Trace(digits[:32], digits[32:])
        return Trace(parent.id, self._randomness.hex(8), parent.sampled, parent.state)


def _trace(context: otel.SpanContext) -> Trace:
    ids = (otel.format_trace_id(context.trace_id), otel.format_span_id(context.span_id))
    return Trace(*ids, context.trace_flags.sampled, context.trace_state.to_header())


def _context(place: Trace) -> context.Context:
    flags = otel.TraceFlags(otel.TraceFlags.SAMPLED if place.sampled else otel.TraceFlags.DEFAULT)
    state = otel.TraceState.from_header([place.state]) if place.state else None
    span_context = otel.SpanContext(int(place.id, 16), int(place.span, 16), True, flags, state)
    return otel.set_span_in_context(otel.NonRecordingSpan(span_context), context.Context())


CLIENT: Final[ContextVar[str | None]] = ContextVar("client", default=None)
"""The client address; None outside a request, or if a trusted proxy does not name its client."""


@dataclass(slots=True)
class RequestFacts:
    """The facts of a request for the access log; the exchange adds its app and trace. `since` is monotonic.

    `mask` returns what masks the tokens of its caller's pages.
    """

    client: str | None
    since: float
    app: str | None = None
    trace: str | None = None
    mask: Callable[[], Callable[[str], str] | None] = lambda: None


SEEN: Final[ContextVar[RequestFacts | None]] = ContextVar("seen", default=None)
"""None if the request is not logged."""
