"""Which calls hang together, from the model's call to the backend's answer (W3C Trace Context, OpenTelemetry)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from msgspec import Struct
from opentelemetry import context
from opentelemetry import trace as otel

from gateway.randomness import Randomness

_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE_LONGEST: Final = 512
_ANYWHERE: Final = nullcontext()
_STATE: Final = re.compile(r"[\x20-\x7e]*")


class Trace(Struct, frozen=True):
    """A place in a trace: `id` of the whole, `span` of the one that is meant, in hex. `state` is of other systems."""

    id: str
    span: str
    sampled: bool = False
    state: str = ""

    @property
    def traceparent(self) -> str:
        """As the header of that name says it."""
        return f"00-{self.id}-{self.span}-{'01' if self.sampled else '00'}"

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The header fields that hand it on."""
        state = (("tracestate", self.state),) if self.state else ()
        return (("traceparent", self.traceparent), *state)


def read_trace(traceparent: object, tracestate: object = None) -> Trace | None:
    """What a caller says; None for anything that is not said well (W3C Trace Context, 3.2)."""
    found = _PARENT.fullmatch(traceparent) if isinstance(traceparent, str) and len(traceparent) < 256 else None
    if found is None or (found[4] and traceparent[:2] == "00"):  # type: ignore[index]  # it is a text if it was found
        return None
    state = tracestate if isinstance(tracestate, str) and _STATE.fullmatch(tracestate) else ""
    return Trace(found[1], found[2], bool(int(found[3], 16) & 1), state if len(state) <= _STATE_LONGEST else "")


def arriving(said: Mapping[str, object] | None) -> AbstractContextManager[None]:
    """What runs within this belongs to the trace that `traceparent` and `tracestate` of `said` name, if they do."""
    came = read_trace(said.get("traceparent"), said.get("tracestate")) if said else None
    return _within(came) if came is not None else _ANYWHERE


@contextmanager
def _within(came: Trace) -> Iterator[None]:
    token = context.attach(_context(came))
    try:
        yield
    finally:
        context.detach(token)


def current() -> Trace | None:
    """The trace that what runs now belongs to: as `arriving` said, or as the program around the gateway traces it."""
    if not context.get_current():
        return None
    found = otel.get_current_span().get_span_context()
    return _trace(found) if found.is_valid else None


class Span:
    """One span, open until `end`. Its `trace` is there also where nobody collects spans: then `recorded` is None.

    `wanted` says that somebody does, or that its caller named a trace.
    """

    def __init__(self, tracer: otel.Tracer, recorded: otel.Span | None, trace: Trace, *, wanted: bool) -> None:
        self.trace = trace
        self._tracer = tracer
        self._span = recorded
        self._child: otel.Span | None = None
        self.wanted = wanted

    @property
    def recording(self) -> bool:
        """Whether somebody collects it."""
        return self._span is not None

    def note(self, fields: Mapping[str, object]) -> None:
        """Say more of it; what is no text, number or truth value is left out."""
        if self._span is not None:
            for name, value in fields.items():
                if isinstance(value, str | int | float | bool):
                    self._span.set_attribute(name, value)

    def step(self, name: str, seconds: float) -> None:
        """A step that took so long ends now."""
        if self._span is None:
            return
        now = time.time_ns()
        child, self._child = self._child, None
        if child is None:
            around = otel.set_span_in_context(self._span)
            child = self._tracer.start_span(name, around, start_time=now - int(seconds * 1e9))
        child.end(now)

    def going_out(self, name: str) -> Trace:
        """The step `name` begins, which asks somebody else: the trace to hand on to them."""
        if self._span is None:
            return self.trace
        around = otel.set_span_in_context(self._span)
        self._child = self._tracer.start_span(name, around, kind=otel.SpanKind.CLIENT)
        return _trace(self._child.get_span_context())

    def end(self, failed: bool) -> None:
        """It is over."""
        if self._child is not None:
            self._child.end()
        if self._span is not None:
            if failed:
                self._span.set_status(otel.StatusCode.ERROR)
            self._span.end()


class Tracer:
    """Starts spans with `provider`, by default the one that the program around the gateway has set up, if it has."""

    def __init__(self, provider: otel.TracerProvider | None = None, randomness: Randomness | None = None) -> None:
        self._tracer = otel.get_tracer("webmcp-gateway", tracer_provider=provider)
        self._provided = provider is not None
        self._look_at = 0.0
        self._randomness = randomness or Randomness()

    def start(self, name: str, parent: Trace | None) -> Span:
        """A span below `parent`, or at the root of a new trace."""
        if self._is_provided():
            around = _context(parent) if parent is not None else context.Context()
            span = self._tracer.start_span(name, around, kind=otel.SpanKind.SERVER)
            if span.is_recording():
                return Span(self._tracer, span, _trace(span.get_span_context()), wanted=True)
        return Span(self._tracer, None, self._unrecorded(parent), wanted=parent is not None)

    def _is_provided(self) -> bool:
        """Whether anybody may collect spans. A program around the gateway may begin with that later: look each second.

        To ask the library each time costs as much as all else here.
        """
        if not self._provided and (now := time.monotonic()) >= self._look_at:
            self._look_at = now + 1.0
            self._provided = not isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider)
        return self._provided

    def _unrecorded(self, parent: Trace | None) -> Trace:
        """A place in the trace of `parent`, or in a new one, which nobody collects."""
        if parent is None:
            drawn = self._randomness.hex(24)
            return Trace(drawn[:32], drawn[32:])
        return Trace(parent.id, self._randomness.hex(8), parent.sampled, parent.state)


def _trace(found: otel.SpanContext) -> Trace:
    ids = (otel.format_trace_id(found.trace_id), otel.format_span_id(found.span_id))
    return Trace(*ids, found.trace_flags.sampled, found.trace_state.to_header())


def _context(place: Trace) -> context.Context:
    flags = otel.TraceFlags(otel.TraceFlags.SAMPLED if place.sampled else otel.TraceFlags.DEFAULT)
    state = otel.TraceState.from_header([place.state]) if place.state else None
    found = otel.SpanContext(int(place.id, 16), int(place.span, 16), True, flags, state)
    return otel.set_span_in_context(otel.NonRecordingSpan(found), context.Context())
