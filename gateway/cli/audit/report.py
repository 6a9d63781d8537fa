"""`audit report`: one page about a period: callers, refusals, approvals, and calls that a model caused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Final

import click

from gateway.cli.audit.source import every, filter_of, filter_options, source, source_options, visible, what, when
from gateway.cli.group import output
from gateway.exchange.refusals import CALLER
from gateway.model import Json
from gateway.stores.records import StoredRecord

SLICES: Final = 48
MOST_LISTED: Final = 200


@dataclass(slots=True)
class Activity:
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
    detail: str


@dataclass(slots=True)
class Tally:
    """Counts the records from `since` to `until`, in seconds since the epoch."""

    since: float
    until: float
    total: int = 0
    callers: dict[tuple[str, str], Activity] = field(default_factory=dict)
    initiators: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    routes: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: list[ListedRecord] = field(default_factory=list)
    unfinished: list[ListedRecord] = field(default_factory=list)
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
                self._count_refusals(record)
            case _:
                pass

    def _call(self, record: StoredRecord) -> None:
        fields = record.fields
        app, initiator = _word(fields.get("app")), _word(fields.get("initiator")) or "unknown"
        reason = _word(fields.get("reason"))
        self.total += 1
        doings = self.callers.setdefault((_word(fields.get("principal")), app), Activity())
        doings.done += 1
        doings.by[initiator] += 1
        doings.changes += _word(fields.get("method")) not in ("GET", "HEAD", "OPTIONS")
        self.initiators[initiator] += 1
        self.routes[(app, _word(fields.get("route")) or what(record)[:60])] += 1
        self.slices[self._slice(record.time)][initiator] += 1
        if record.ended_at is None or reason == "result-unknown":
            self._list("unknown", self.unfinished, record, "route")
        elif reason:
            doings.refused += 1
            self.reasons[reason] += 1

    def _count_refusals(self, record: StoredRecord) -> None:
        """Count a line that sums up refusals without separate lines."""
        fields, more = record.fields, record.fields.get("more")
        if not isinstance(more, int) or fields.get("of") == CALLER:  # an unauthenticated caller did nothing
            return
        app, initiator = _word(fields.get("app")), _word(fields.get("initiator")) or "unknown"
        doings = self.callers.setdefault((_word(fields.get("principal")), app), Activity())
        doings.done, doings.refused = doings.done + more, doings.refused + more
        doings.by[initiator] += more
        self.total += more
        self.initiators[initiator] += more
        self.reasons[_word(fields.get("reason"))] += more
        self.routes[(app, _word(fields.get("route")) or what(record))] += more
        self.slices[self._slice(record.time)][initiator] += more

    def _list(self, name: str, place: list[ListedRecord], record: StoredRecord, detail: str) -> None:
        if len(place) >= MOST_LISTED:
            self.more[name] += 1
            return
        app, principal, detail = (_word(record.fields.get(key)) for key in ("app", "principal", detail))
        place.append(ListedRecord(when(record.time) or "", app, principal, what(record), detail))

    def _slice(self, time: float) -> int:
        share = (time - self.since) / max(1.0, self.until - self.since)
        return min(SLICES - 1, max(0, int(share * SLICES)))


def _word(value: Json) -> str:
    return value if isinstance(value, str) else ""


_TONES: Final = {"person": "#2f7d5b", "page": "#8a94a6", "model": "#b4632a", "unknown": "#c23b3b"}

_STYLE: Final = """
:root{color-scheme:light dark;--line:color-mix(in srgb,currentColor 16%,transparent);
--muted:color-mix(in srgb,currentColor 62%,transparent)}
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2.5rem auto;padding:0 1.25rem}
h1{font-size:1.6rem;margin:0}h2{font-size:1.05rem;margin:2.2rem 0 .6rem}p{margin:.2rem 0;color:var(--muted)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:break-word;max-width:20rem}.wide{overflow-x:auto}
th{font-weight:600;color:var(--muted)}td.n,th.n{text-align:right;white-space:nowrap}
.bar{display:flex;height:.6rem;border-radius:3px;overflow:hidden;min-width:6rem;background:var(--line)}
.key span{margin-right:1rem;white-space:nowrap}
.key i{display:inline-block;width:.7rem;height:.7rem;border-radius:2px;margin-right:.35rem}
dl{display:flex;gap:2.2rem;flex-wrap:wrap;margin:1.2rem 0}dt{color:var(--muted)}
dd{margin:0;font-size:1.5rem;font-weight:600;font-variant-numeric:tabular-nums}
svg{width:100%;height:9rem;display:block}@media print{body{margin:0}}
"""


def page(tally: Tally, title: str) -> str:
    """Return the page."""
    since, until = (f"{when(time)}"[:16].replace("T", " ") for time in (tally.since, tally.until))
    parts = (
        f"<h1>{_text(title)}</h1><p>{since} to {until}, UTC</p>",
        _figures(tally),
        _section("Who caused it", _key() + _draw(tally)),
        _section("Who did what", _callers(tally), wide=True),
        _section("Why calls ended early", _count_table(tally.reasons.most_common(), ("reason", "times"))),
        _section("Answers to approvals", _list_table(tally.answers, "answer", tally.more["answers"]), wide=True),
        _section("Result unknown", _list_table(tally.unfinished, "route", tally.more["unknown"]), wide=True),
        _section("Changes of policies", _list_table(tally.policies, "change", tally.more["policies"]), wide=True),
        _section("Most used", _routes(tally)),
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{policy}"><meta name="viewport" content="width=device-width"><title>{_text(title)}</title>'
        f"<style>{_STYLE}</style><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _figures(tally: Tally) -> str:
    figures = (
        ("calls", tally.total),
        ("refused or failed", sum(tally.reasons.values())),
        ("by a model", tally.initiators["model"]),
        ("by a person", tally.initiators["person"]),
        ("approvals answered", len(tally.answers) + tally.more["answers"]),
        ("result unknown", len(tally.unfinished) + tally.more["unknown"]),
    )
    return "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{number:,}</dd></div>" for name, number in figures) + "</dl>"


def _key() -> str:
    return (
        '<p class="key">'
        + "".join(f'<span><i style="background:{tone}"></i>{name}</span> ' for name, tone in _TONES.items())
        + "</p>"
    )


def _draw(tally: Tally) -> str:
    """Draw calls over time as stacked columns by cause."""
    highest = max((sum(one.values()) for one in tally.slices), default=0) or 1
    width, bars = 1000 / len(tally.slices), []
    for number, one in enumerate(tally.slices):
        top = 200.0
        for name, tone in _TONES.items():
            height = 190 * one[name] / highest
            top -= height
            if height:
                place = f'x="{number * width + 1:.1f}" y="{top:.1f}" width="{width - 2:.1f}" height="{height:.1f}"'
                bars.append(f'<rect {place} fill="{tone}"/>')
    return (
        f'<svg viewBox="0 0 1000 200" preserveAspectRatio="none" role="img" aria-label="Calls over time">'
        f'{"".join(bars)}<path d="M0 200H1000" stroke="currentColor"/></svg><p>At most {highest:,} in one column.</p>'
    )


def _callers(tally: Tally) -> str:
    rows = []
    for (principal, app), doings in sorted(tally.callers.items(), key=lambda item: -item[1].done):
        shares = "".join(
            f'<span style="flex:{doings.by[name]};background:{tone}"></span>'
            for name, tone in _TONES.items()
            if doings.by[name]
        )
        numbers = (doings.done, doings.changes, doings.refused)
        cells = "".join(f'<td class="n">{number:,}</td>' for number in numbers)
        bar = f'<td><div class="bar">{shares}</div></td>'
        rows.append(f"<tr><td>{_text(principal)}</td><td>{_text(app)}</td>{cells}{bar}</tr>")
    names = '<th>caller</th><th>app</th><th class="n">calls</th><th class="n">changing</th><th class="n">refused</th>'
    return _table(f"{names}<th>caused by</th>", rows)


def _count_table(items: Sequence[tuple[str, int]], names: tuple[str, str]) -> str:
    rows = [f'<tr><td>{_text(name)}</td><td class="n">{number:,}</td></tr>' for name, number in items]
    return _table(f'<th>{names[0]}</th><th class="n">{names[1]}</th>', rows)


def _routes(tally: Tally) -> str:
    return _count_table(
        [(f"{app} · {route}", number) for (app, route), number in tally.routes.most_common(30)], ("route", "calls")
    )


def _list_table(items: Iterable[ListedRecord], detail: str, more: int) -> str:
    rows = [
        f"<tr><td>{_text(one.time)}</td><td>{_text(one.app)}</td><td>{_text(one.principal)}</td>"
        f"<td>{_text(one.what)}</td><td>{_text(one.detail)}</td></tr>"
        for one in items
    ]
    rest = f"<p>and {more:,} more</p>" if more else ""
    return _table(f"<th>time</th><th>app</th><th>caller</th><th>call</th><th>{detail}</th>", rows) + rest


def _table(names: str, rows: Sequence[str]) -> str:
    return f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(rows)}</tbody></table>" if rows else "<p>None.</p>"


def _section(name: str, body: str, *, wide: bool = False) -> str:
    """A part of the page; a `wide` table is scrolled, also by keys, where the window is narrower."""
    if wide and "<table" in body:
        body = f'<div class="wide" role="region" aria-label="{name}" tabindex="0">{body}</div>'
    return f"<section><h2>{name}</h2>{body}</section>"


def _text(text: str) -> str:
    return escape(visible(text))


@click.command()
@source_options
@filter_options
@click.option("--output", "-o", "place", metavar="FILE", default="-", help="Output file, readable by its owner only.")
@click.option("--title", default="What the gateway carried", show_default=True, help="The heading of the page.")
def report(config: Path, record: str | None, place: str, title: str, **options: str | None) -> None:
    """Write an HTML report about a period, by default the last 30 days. It needs no network.

    Example: webmcp-gateway audit report --since 7d --output week.html
    """
    now = time.time()
    record_filter = filter_of(dict(options), now)
    if record_filter.since is None:
        record_filter = replace(record_filter, since=now - 30 * 86400)
    tally = Tally(record_filter.since or 0.0, record_filter.until or now)
    for one in every(source(config, record), record_filter):
        tally.take(one)
    with output(place) as file:
        file.write(page(tally, title))
