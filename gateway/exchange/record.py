"""The record (the audit log), and the entry in it of one exchange or tool call: its intent, then its outcome.

The intent is written before anything is sent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Final, Protocol

from anyio import CancelScope

from gateway.callers.token_exchange import actor_of
from gateway.crypto import Randomness
from gateway.errors import STATUS, Reason, Refusal
from gateway.exchange.refusals import KIND, LINES, PERIOD, Refusals
from gateway.hooks import Hooks
from gateway.model import AuditRecord, Caller, Json
from gateway.telemetry import Metrics, status_class
from gateway.throttle import ThrottledLog
from gateway.traces import CLIENT, SEEN, Span, Trace, Tracer, current


class Measure:
    """Counts entries in `metrics`, after their answers.

    All labels are names of the configuration or of this program, so that their number is bounded.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._closed_entries: list[tuple[str, Mapping[str, Json], Mapping[str, float], float]] = []
        metrics.look(self._count)

    def line(self, kind: str, phase: str) -> None:
        """Count one line that was written."""
        self._metrics.journal_lines.add(kind, phase)

    def count_entry(self, kind: str, fields: Mapping[str, Json], timing: Mapping[str, float], seconds: float) -> None:
        """Count one entry by its kind, in the next iteration of the event loop; `timing` is in seconds by step."""
        if not self._closed_entries:
            asyncio.get_running_loop().call_soon(self._count)
        self._closed_entries.append((kind, fields, timing, seconds))

    def _count(self) -> None:
        entries, self._closed_entries = self._closed_entries, []
        for record in entries:
            self._count_one(*record)

    def _count_one(self, kind: str, fields: Mapping[str, Json], timing: Mapping[str, float], seconds: float) -> None:
        metrics, app, door = self._metrics, _word(fields, "app"), _word(fields, "door")
        status = fields.get("status")
        answered = status_class(status if isinstance(status, int) else 0)
        match kind:
            case "http":
                metrics.requests.add(app, door, _word(fields, "route"), _word(fields, "decision"), answered)
                masked = fields.get("masked")
                for name in masked if isinstance(masked, list) else ():
                    metrics.secrets_masked.labels(name).inc()
            case "tool":
                metrics.tool_calls.add(app, answered)
            case "approval":
                metrics.answers.labels(app, _word(fields, "decision")).inc()
                return
            case _:
                return
        if reason := _word(fields, "reason"):
            metrics.count_refusal(app, door, reason)
        metrics.request_seconds.add(seconds, kind, app)
        metrics.step_seconds.add_all(kind, timing)


def _mask(value: Json, mask: Callable[[str], str]) -> Json:
    """Return the value with all texts in it masked."""
    match value:
        case str():
            return mask(value)
        case list():
            return [_mask(one, mask) for one in value]
        case dict():
            return {mask(name): _mask(one, mask) for name, one in value.items()}
        case _:
            return value


def _word(fields: Mapping[str, Json], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


log = logging.getLogger(__name__)


class OnFailure(StrEnum):
    """The treatment of a request whose entry cannot be written."""

    REFUSE_UNSAFE = "refuse-unsafe"
    REFUSE = "refuse"
    CONTINUE = "continue"


CONSEQUENCES: Final = {
    OnFailure.REFUSE_UNSAFE: "unsafe requests are refused, others continue unrecorded",
    OnFailure.REFUSE: "everything is refused",
    OnFailure.CONTINUE: "everything continues unrecorded",
}

CAUSES: Final = 4096
"""Causes (tool calls of models, gestures, questions) whose traces are kept for the calls that they lead to."""

OWN_WORK: Final = frozenset({"echo", "file", "fingerprint", "snapshot"})
"""Evidence of the gateway's own work, which may run in the task of a client's request."""

TRACED: Final = ("app", "door", "initiator", "route", "decision", "reason", "method", "status")
"""Fields that are also set on spans: names only, nothing that a page or a person wrote."""


WAITS: Final = 202
"""The status of a call that waits for a person, each time it is repeated."""


class Writer(Protocol):
    """The output of entries; `OSError` means that a line was not written."""

    def append(self, record: AuditRecord) -> AuditRecord:
        """Write one line, and return it as it was written."""
        ...

    def redact(self, record: AuditRecord) -> AuditRecord:
        """Return the line after redaction, as it may be written or passed on."""
        ...

    async def sync(self) -> None:
        """Wait until the written lines are as durable as configured."""
        ...


class Record:
    """The entry of one exchange or tool call: its fields so far.

    `span`: its place in a trace.
    """

    def __init__(self, recorder: Recorder, id: str, kind: str, caller: Caller, safe: bool, span: Span) -> None:
        self.id = id
        self.caller = caller
        self.span = span
        self.kind = kind
        self.safe = safe
        self.fields: dict[str, Json] = {
            "kind": kind,
            "principal": caller.principal.id,
            "app": caller.app,
            "view": caller.view,
            "door": caller.door,
            "client": CLIENT.get() if caller.evidence not in OWN_WORK else None,
            "initiator": caller.initiator,
            "evidence": caller.evidence,
            "cause": caller.cause,
            "trace": span.trace.id,
        }
        if (actor := actor_of(caller.principal.claims)) is not None:
            self.fields["act"] = actor
        self._recorder = recorder
        self._recording = span.recording
        self.reports: list[str] = []
        self._timing: dict[str, float] = {}
        self._since = self._began = time.perf_counter()
        self._opened = self._closed = self._passed = False

    def note(self, **fields: Json) -> None:
        """Add fields to the next line."""
        self.fields.update(fields)

    def leads(self, id: str) -> None:
        """Assign calls with the cause `id`, such as the answer to a question, to this trace."""
        self._recorder.leads(id, self.span.trace)

    def report(self, *reports: str) -> None:
        """Note reasons that would have refused the call if its policy were not in report mode."""
        if reports:
            self.reports += reports
            self.note(reported=[*self.reports])

    def mask(self) -> Callable[[str], str] | None:
        """Return what masks the tokens that pages of the caller recently sent; None without any."""
        return self._recorder.redactor(self.caller)

    def mark(self, step: str) -> None:
        """End the step `step` now; a repeated step adds to its duration."""
        now = time.perf_counter()
        took, timing = now - self._since, self._timing
        timing[step] = timing[step] + took if step in timing else took
        if self._recording:
            self.span.step(step, took)
        self._since = now

    async def open(self, *, lasting: bool = True, binding: bool = True) -> None:
        """Write the intent, once. Raises `Refusal` (`audit-unavailable`) if the configuration demands it.

        A safe call that is not `lasting` needs no intent: its outcome is recorded before its answer is sent, and there
        is no change whose result could stay unknown. A call that only takes something away is not `binding`: it runs
        even if the intent cannot be written.
        """
        self._passed = True
        if not self._opened and (lasting or not self.safe or self._recorder.tells_all):
            self._opened = True
            await self._recorder.write(self, "intent", binding=binding)

    async def refuse(self, refusal: Refusal) -> None:
        """Write the refusal as the outcome."""
        await self.close(status=refusal.status, reason=refusal.reason, detail=refusal.detail)

    async def cancel(self) -> None:
        """Write that the caller gave up as the outcome."""
        await self.close(status=STATUS[Reason.CANCELLED], reason=Reason.CANCELLED)

    async def close(self, *, status: int, reason: Reason | None = None, detail: str | None = None) -> None:
        """Write the outcome, once."""
        if self._closed:
            return
        self._closed = True
        timing: Json = {step: int(1e6 * took + 0.5) / 1000 for step, took in self._timing.items()}
        self.note(status=status, reason=reason, detail=detail, timing=timing)
        seconds = time.perf_counter() - self._began
        self._recorder.measure.count_entry(self.kind, self.fields, self._timing, seconds)
        if self._recording:
            self.span.note({f"gateway.{name}": self.fields.get(name) for name in TRACED} | {"gateway.record": self.id})
            self.span.end(failed=status >= 500)
        if not self._passed and (reason is not None or status == WAITS):
            # Nothing was sent, and a caller may repeat it at any rate: beyond a limit, refusals are counted in one
            # line.
            repeat = self._recorder.refusals.count(self.fields)
            if repeat is not None:
                self.id = repeat.id
                return
        if reason is Reason.CANCELLED:
            # A cancelled anyio scope would also cancel each step here, and plugins would not be notified.
            with CancelScope(shield=True):
                await self._recorder.write(self, "outcome")
        else:
            await self._recorder.write(self, "outcome")


class Recorder:
    """Starts entries and writes them to the journal, then to the plugins; counts them in `metrics`."""

    def __init__(
        self,
        journal: Writer,
        hooks: Hooks,
        on_failure: OnFailure,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
        tell: Callable[[str | None], None] = lambda _: None,
        refusals: int = LINES,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.measure = Measure(self.metrics)
        self._tracer = tracer or Tracer()
        self._randomness = Randomness()
        self.refusals = Refusals(refusals, name=self._randomness.id)
        self._tell = tell
        self._unwritten = ThrottledLog(log)
        self._failing = False
        self._causes: OrderedDict[str, Trace] = OrderedDict()
        self._journal = journal
        self._hooks = hooks
        self._on_failure = on_failure
        self.tells_all = on_failure is OnFailure.REFUSE or hooks.hear_records
        """True if every intent is written: if none may be missing, or a plugin receives entries."""
        self.redactor: Callable[[Caller], Callable[[str], str] | None] = lambda _: None
        """Returns what masks the tokens of this caller's pages: a page may put its token into a URL or a body."""

    def start(
        self, kind: str, caller: Caller, *, safe: bool, came: Trace | None = None, after: str | None = None
    ) -> Record:
        """Return a new entry. `safe`: the call changes nothing (RFC 9110, 9.2.1).

        It belongs to the trace of its cause, or of the question `after` whose answer it continues; else to the trace of
        its arrival, else to `came`. Calls with the same cause that has no trace yet, such as a person's gesture, share
        one.
        """
        known = self._causes.get(caller.cause or "") or self._causes.get(after or "")
        span = self._tracer.start(kind, known or current() or came)
        if (seen := SEEN.get()) is not None:
            seen.app, seen.trace = caller.app or seen.app, span.trace.id
            seen.mask = partial(self.redactor, caller)
        record = Record(self, self._randomness.id(), kind, caller, safe, span)
        if kind == "tool":
            self.leads(record.id, record.span.trace)
        elif caller.cause is not None and caller.cause not in self._causes:
            self.leads(caller.cause, record.span.trace)
        return record

    def leads(self, id: str, trace: Trace) -> None:
        """Assign calls with the cause `id` to this trace."""
        self._causes[id] = trace
        if len(self._causes) > CAUSES:
            self._causes.popitem(last=False)

    async def keep(self) -> None:
        """Write the counts of refusals without a line every minute, and once more when cancelled."""
        try:
            while True:
                await asyncio.sleep(PERIOD)
                await self.sum_up()
        finally:
            await self.sum_up()

    async def sum_up(self) -> None:
        """Write the counts of refusals."""
        for repeat in self.refusals.due():
            await self._line(repeat.id, KIND, repeat.fields)

    async def _line(self, id: str, kind: str, fields: Mapping[str, Json]) -> None:
        """Write one line whose failure refuses nothing."""
        entry = AuditRecord(id, "outcome", time.time(), fields)
        try:
            line = self._journal.append(entry)
            await self._journal.sync()
            self.measure.line(kind, "outcome")
        except OSError as error:
            line = self._journal.redact(entry)
            self._unwritten.write(logging.ERROR, "refusals not recorded", "a refusal cannot be recorded: %s", error)
        if self._hooks.hear_records:
            await self._hooks.audit_record(line)

    async def write_refusal(self, fields: Mapping[str, Json]) -> None:
        """Write one line about a caller that a door has refused, or count it beyond the limit."""
        if self.refusals.count(fields) is None:
            await self._line(self._randomness.id(), str(fields["kind"]), fields)

    async def write(self, record: Record, phase: str, *, binding: bool = True) -> None:
        """Write one line of an entry. Raises `Refusal` if a `binding` intent fails and the configuration demands it."""
        entry = AuditRecord(record.id, phase, time.time(), self._mask_tokens(record))
        try:
            line = self._journal.append(entry)
            await self._journal.sync()
            self.measure.line(record.kind, phase)
            if self._failing:
                self._works()
        except OSError as error:
            line = self._journal.redact(entry)
            refuses = phase == "intent" and binding and self._refuses(record.safe)
            self._fails(record, error, "refused" if refuses else "continued")
            if refuses:
                raise Refusal(Reason.AUDIT_UNAVAILABLE, "The record of this request cannot be written.") from error
        if self._hooks.hear_records:
            await self._hooks.audit_record(line)

    def _mask_tokens(self, record: Record) -> Mapping[str, Json]:
        """Return the fields to write, without tokens of the caller's pages."""
        mask = record.mask()
        return record.fields.copy() if mask is None else {name: _mask(one, mask) for name, one in record.fields.items()}

    def _works(self) -> None:
        self._failing = False
        log.warning("the record can be written again")
        self._tell(None)

    def _fails(self, record: Record, error: OSError, consequence: str) -> None:
        log.error("the record of %s cannot be written (%s): %s", record.id, consequence, error)
        self.metrics.journal_failures.labels(consequence).inc()
        self._failing = True
        self._tell(f"the record cannot be written ({error.strerror or error}): {CONSEQUENCES[self._on_failure]}")

    def _refuses(self, safe: bool) -> bool:
        match self._on_failure:
            case OnFailure.REFUSE:
                return True
            case OnFailure.REFUSE_UNSAFE:
                return not safe
            case OnFailure.CONTINUE:
                return False
