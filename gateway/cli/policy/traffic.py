"""Learns routes from a record: requests of persons and safe ones of pages, that were allowed and succeeded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.cli.policy.proposals import ENCODED, Findings, LeftOut, RouteProposal, path_problem, singular, unique
from gateway.model import WEBSOCKET, AuditRecord, Json
from gateway.policy import METHODS, SAFE_METHODS

MOST: Final = 5000
"""Different routes that are kept while a record is read."""

OPENED: Final = 101
"""The status of an open WebSocket."""

MANY: Final = 8
"""Distinct last segments of a read path above which they become one parameter."""

_VALUE = re.compile(
    r"""\d+
      | [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}
      | \d{4}-\d{2}-\d{2}.*
      | [A-Za-z]+[-_]\d+
      | (?=[^g-z]*\d)[0-9a-f]{12,}
      | (?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9_-]{16,}
      | (?=.*\d)[a-z]{1,8}_[A-Za-z0-9]{8,}
      | .*[%@:,;=].*""",
    re.ASCII | re.VERBOSE | re.IGNORECASE,
)
_CHANGES: Final = "caused by the page that change something"
_AMBIGUOUS = re.compile("%(?:2F|5C|25|3B|3F|23)")


@dataclass(slots=True)
class TrafficCount:
    """One method of one path: its count, and how often report mode allowed it."""

    count: int = 0
    reported: int = 0


@dataclass(slots=True)
class Traffic:
    """Collects records one at a time in bounded memory.

    `pages`: safe requests of pages are learned too; None: those that report mode let through.
    """

    app: str | None = None
    pages: bool | None = None
    counts: dict[tuple[str, str, str | None], TrafficCount] = field(default_factory=dict)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    apps: set[str] = field(default_factory=set)
    sockets: dict[str, AuditRecord] = field(default_factory=dict)
    """The intents of WebSockets without an outcome: those that are open."""
    posts: dict[tuple[str, str | None], TrafficCount] = field(default_factory=dict)
    """POST requests of pages by path and backend: socket.io sends them until its WebSocket is open."""

    def add(self, record: AuditRecord) -> None:
        """Count the outcome of a request; ignore other records."""
        fields = record.fields
        socket = self.sockets.pop(record.id, None)
        if record.phase == "intent":
            if socket is None and fields.get("method") == WEBSOCKET and len(self.sockets) < MOST:
                self.sockets[record.id] = record
            return
        if fields.get("kind") != "http" or (self.app is not None and fields.get("app") != self.app):
            return
        self.apps.add(str(fields.get("app")))
        if fields.get("approval") is not None and "answered_by" not in fields:
            return  # it waited for a person; its outcome is recorded separately
        why = _objection(fields, self.pages)
        method, url = fields.get("method"), fields.get("url")
        if why == _CHANGES and method == "POST" and isinstance(url, str) and fields.get("decision") == "allow":
            self._keep_post(generalise(url.partition("?")[0]), fields)
        if why is not None or not isinstance(method, str) or not isinstance(url, str):
            self._leave(*_omission(why or "without URL"))
            return
        backend = fields.get("backend")
        key = (method, generalise(url.partition("?")[0]), backend if isinstance(backend, str) else None)
        if key not in self.counts and len(self.counts) >= MOST:
            self._leave("requests to further paths", f"more than {MOST} different ones were seen")
            return
        one = self.counts.setdefault(key, TrafficCount())
        one.count += 1
        one.reported += bool(fields.get("reported"))

    def findings(self) -> Findings:
        """Return the learned routes, also of WebSockets that are still open."""
        for record in list(self.sockets.values()):
            self.add(AuditRecord(record.id, "outcome", record.time, {**record.fields, "status": OPENED}))
        for (path, backend), post in self.posts.items():
            if (WEBSOCKET, path, backend) in self.counts:  # which carries the same
                self.counts.setdefault(("POST", path, backend), post)
                self.left_out[_omission(_CHANGES)] -= post.count
        self.left_out = +self.left_out
        result = Findings(left_out=[LeftOut(what, why, count) for (what, why), count in self.left_out.most_common()])
        for (method, path, backend), seen in sorted(_join(self.counts).items(), key=_order):
            problem = path_problem(path)
            if problem is not None:
                result.left_out.append(LeftOut(f"{method} {path}", problem, seen.count))
                continue
            times = "once" if seen.count == 1 else f"{seen.count} times"
            mode = f", {seen.reported} in report mode" if seen.reported else ""
            result.proposals.append(RouteProposal(method, path, f"{times}{mode}", backend))
        result.left_out += _words(self.counts)
        return result

    def _keep_post(self, path: str, fields: Mapping[str, Json]) -> None:
        backend = fields.get("backend")
        key = (path, backend if isinstance(backend, str) else None)
        if key in self.posts or len(self.posts) < MOST:
            one = self.posts.setdefault(key, TrafficCount())
            one.count += 1
            one.reported += bool(fields.get("reported"))

    def _leave(self, what: str, why: str) -> None:
        self.left_out[(what, why)] += 1


def _omission(which: str) -> tuple[str, str]:
    """Return what is left out, and why."""
    return f"requests {which}", "only what persons did or pages read, and what worked, is learned"


def generalise(path: str) -> str:
    """Return the path with parameters for segments that look like values: numbers, ids, dates, encoded text."""
    names: list[str] = []
    segments: list[str] = []
    before = ""
    for segment in path.split("/")[1:]:
        if segment and _VALUE.fullmatch(segment):
            names.append(unique(singular(before) if before else "id", names))
            segments.append(f"{{{names[-1]}{ENCODED if _AMBIGUOUS.search(segment) else ''}}}")
            before = ""
        else:
            segments.append(segment)
            before = segment
    return "/" + "/".join(segments)


def _objection(fields: Mapping[str, Json], pages: bool | None) -> str | None:
    """Return why a request is not learned from, None if it is."""
    initiator, status, method = fields.get("initiator"), fields.get("status"), fields.get("method")
    opens = method == WEBSOCKET and initiator == "page"  # pages open sockets when they load
    learns = bool(fields.get("reported")) if pages is None else pages
    reads = learns and initiator == "page" and method in SAFE_METHODS
    if initiator != "person" and not opens and not reads:
        return _CHANGES if initiator == "page" and method not in SAFE_METHODS else f"caused by the {initiator}"
    if fields.get("decision") != "allow":
        return "that were denied"
    if fields.get("reason") is not None:
        return f"that ended with {fields['reason']}"
    if not isinstance(status, int) or status >= 400:
        return f"answered with {status}"
    return None if method in (*METHODS, WEBSOCKET) else "with another method"


Key = tuple[str, str, str | None]


def _join(seen: Mapping[Key, TrafficCount]) -> dict[Key, TrafficCount]:
    """Merge read paths that differ only in their last segment, if there are many."""
    groups: dict[Key, list[Key]] = {}
    for key in seen:
        method, path, backend = key
        head, _, last = path.rpartition("/")
        if method in SAFE_METHODS and last and "{" not in last:
            groups.setdefault((method, head, backend), []).append(key)
    joined = dict(seen)
    for (method, head, backend), keys in groups.items():
        if len(keys) <= MANY:
            continue
        used = re.findall(r"\{([^{}:]+)", head)
        before = head.rpartition("/")[2]
        name = unique(singular(before) if before and "{" not in before else "id", used)
        whole = joined.setdefault((method, f"{head}/{{{name}}}", backend), TrafficCount())
        for key in keys:
            one = joined.pop(key)
            whole.count += one.count
            whole.reported += one.reported
    return joined


def _words(seen: Iterable[Key]) -> list[LeftOut]:
    """Report unsafe requests whose last segments look like values: each stays a separate route."""
    groups: Counter[tuple[str, str]] = Counter()
    for method, path, _ in seen:
        head, _, last = path.rpartition("/")
        if method not in SAFE_METHODS and last and "{" not in last:
            groups[(method, head)] += 1
    why = "words are no parameters where something is changed: write {name} yourself if they are values"
    return [
        LeftOut(f"{method} {head}/…, one route for {count} words", why)
        for (method, head), count in groups.items()
        if count > 2
    ]


def _order(item: tuple[Key, TrafficCount]) -> tuple[str, bool, str]:
    method, path, _ = item[0]
    return path, method not in SAFE_METHODS, method
