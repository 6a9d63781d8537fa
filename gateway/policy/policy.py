"""A policy, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from gateway.documents import Section
from gateway.model import CanonicalRequest
from gateway.policy.destinations import canonical_origin
from gateway.policy.links import NO_LINKS, Links
from gateway.policy.obligations import Obligations, parse_text
from gateway.policy.routes import Routes
from gateway.policy.rules import BackendSpec, PolicyTest, ToolRule

MAX_DAYS: Final = 30
_LONGEST: Final = MAX_DAYS * 86400.0


@dataclass(frozen=True, slots=True)
class ReportMode:
    """Report mode until the end of a day: `until` in seconds since the epoch, `date` as written."""

    date: str
    until: float

    def active(self, now: float | None) -> bool:
        """Return whether it is active at `now`; never without a time, nor more than 30 days before its end."""
        return now is not None and 0 < self.until - now <= _LONGEST


def read_mode(top: Section, now: float | None) -> ReportMode | None:
    """Read the mode of the file, None if it enforces. Without `now` the end is not limited."""
    node = top.get("mode")
    if node is None or node.value == "enforce":
        return None
    if isinstance(node.value, str):
        top.problem(f"must be enforce, or {{report: {{until: 2026-12-31}}}}, not {node.kind}", "mode")
        return None
    mode = top.section("mode")
    if "report" not in mode:
        mode.problem('"report" is missing: write {report: {until: 2026-12-31}}')
    report = mode.section("report")
    report.require("until")
    found = parse_text(report, "until", _until, report.text("until"))
    if found is not None and now is not None and found.until - now > _LONGEST:
        report.problem(f"{found.date} is more than {MAX_DAYS} days away: report mode lasts {MAX_DAYS} at most", "until")
    return found


def _until(text: str) -> ReportMode:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f'"{text[:40]}" is no day: write one such as 2026-12-31') from None
    end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return ReportMode(text, end.timestamp())


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy file. `version` is the first 16 hex digits of its SHA-256; `defaults` apply to every route.

    `origins` maps the origins of absolute URLs to backends; `only_backend` is set if there is exactly one. `mode` is
    None if the policy enforces. `sources` are the files that it was read from, body schemas included. `reads_body`
    means that some route does; `largest_request` is the largest request limit of any route, in bytes. `snapshot` are
    the URLs whose answers are packed into the page, `frames` the origins that it may frame. `forms` is the cache of
    `canonicalise`.
    """

    file: str
    version: str
    backends: Mapping[str, BackendSpec]
    routes: Routes
    tools: Mapping[str, ToolRule]
    tests: tuple[PolicyTest, ...]
    defaults: Obligations
    origins: Mapping[str, str]
    only_backend: str | None
    links: Links = NO_LINKS
    frames: tuple[str, ...] = ()
    mode: ReportMode | None = None
    sources: tuple[str, ...] = ()
    reads_body: bool = False
    largest_request: int = 0
    snapshot: tuple[str, ...] = ()
    forms: dict[tuple[object, ...], CanonicalRequest] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def free_tools(self) -> tuple[str, ...]:
        """The page's tools that hosts may offer to models themselves: their rules need no enforcement."""
        return tuple(name for name, rule in self.tools.items() if not rule.held)

    def lets_get(self, url: str) -> bool:
        """Return whether a route allows a page to get `url`, a path or an absolute URL of a backend, also on approval.

        Raises ValueError if it is not a URL.
        """
        parts = urlsplit(url)
        backend = self.origins.get(canonical_origin(parts.scheme or "https", parts.netloc)) if parts.netloc else None
        route = self.routes.find("GET", parts.path or "/", backend)
        return route is not None and route.deny is None and (backend is not None or not parts.netloc)
