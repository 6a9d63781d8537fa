"""Counts records for a report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from gateway.cli.audit.shown import what, when
from gateway.exchange.refusals import CALLER
from gateway.model import Json
from gateway.stores.records import StoredRecord

SLICES: Final = 48
MOST_LISTED: Final = 200


@dataclass(slots=True)
class Doings:
    """The calls of one caller in one app."""

    done: int = 0
    refused: int = 0
    changes: int = 0
    by: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """One record in a list of the report."""

    time: str
    app: str
    principal: str
    what: str
    said: str


@dataclass(slots=True)
class Tally:
    """Counts the records from `since` to `until`, in seconds since the epoch."""

    since: float
    until: float
    total: int = 0
    callers: dict[tuple[str, str], Doings] = field(default_factory=dict)
    initiators: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    routes: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: list[ListedRecord] = field(default_factory=list)
    unknown: list[ListedRecord] = field(default_factory=list)
    policies: list[ListedRecord] = field(default_factory=list)
    more: Counter[str] = field(default_factory=Counter)
    slices: list[Counter[str]] = field(default_factory=lambda: [Counter() for _ in range(SLICES)])

    def take(self, record: StoredRecord) -> None:
        """Count one record."""
        match record.fields.get("kind"):
            case "approval":
                self._list("answers", self.answers, record, "decision")
            case "policy":
                self._list("policies", self.policies, record, "message")
            case "http" | "tool":
                self._call(record)
            case "refused":
                self._refused(record)
            case _:
                pass

    def _call(self, record: StoredRecord) -> None:
        fields = record.fields
        app, initiator = _word(fields.get("app")), _word(fields.get("initiator")) or "unknown"
        reason = _word(fields.get("reason"))
        self.total += 1
        doings = self.callers.setdefault((_word(fields.get("principal")), app), Doings())
        doings.done += 1
        doings.by[initiator] += 1
        doings.changes += _word(fields.get("method")) not in ("GET", "HEAD", "OPTIONS")
        self.initiators[initiator] += 1
        self.routes[(app, _word(fields.get("route")) or what(record)[:60])] += 1
        self.slices[self._slice(record.time)][initiator] += 1
        if record.ended is None or reason == "result-unknown":
            self._list("unknown", self.unknown, record, "route")
        elif reason:
            doings.refused += 1
            self.reasons[reason] += 1

    def _refused(self, record: StoredRecord) -> None:
        """Count a line that sums up refusals without separate lines."""
        fields, more = record.fields, record.fields.get("more")
        if not isinstance(more, int) or fields.get("of") == CALLER:  # an unauthenticated caller did nothing
            return
        app, initiator = _word(fields.get("app")), _word(fields.get("initiator")) or "unknown"
        doings = self.callers.setdefault((_word(fields.get("principal")), app), Doings())
        doings.done, doings.refused = doings.done + more, doings.refused + more
        doings.by[initiator] += more
        self.total += more
        self.initiators[initiator] += more
        self.reasons[_word(fields.get("reason"))] += more
        self.routes[(app, _word(fields.get("route")) or what(record))] += more
        self.slices[self._slice(record.time)][initiator] += more

    def _list(self, name: str, place: list[ListedRecord], record: StoredRecord, said: str) -> None:
        if len(place) >= MOST_LISTED:
            self.more[name] += 1
            return
        app, principal, said = (_word(record.fields.get(key)) for key in ("app", "principal", said))
        place.append(ListedRecord(when(record.time) or "", app, principal, what(record), said))

    def _slice(self, time: float) -> int:
        share = (time - self.since) / max(1.0, self.until - self.since)
        return min(SLICES - 1, max(0, int(share * SLICES)))


def _word(value: Json) -> str:
    return value if isinstance(value, str) else ""
