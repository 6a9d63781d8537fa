"""A policy, compiled: its rules by name, and its routes in a trie of segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Final
from urllib.parse import urlsplit

from gateway.documents import Section
from gateway.model import CanonicalRequest, Json
from gateway.policy import paths
from gateway.policy.destinations import canonical_origin
from gateway.policy.obligations import Obligations, parse_text
from gateway.policy.page_rules import NO_EXTERNAL, NO_LINKS, External, Links
from gateway.policy.rules import BackendSpec, Ceilings, OrganisationRule, PolicyTest, Route, ToolRule
from gateway.policy.templates import Template

_place = attrgetter("index")

REMEMBERED: Final = 1024
"""Lookups in the route cache: a path may have 8 KiB."""


_NOWHERE: Final[dict[str, _Branch]] = {}


@dataclass(slots=True)
class _Branch:
    """A node of the trie; `first` is the smallest index of a route at or below it.

    Empty values are shared, for memory locality with many routes.
    """

    first: int
    literals: dict[str, _Branch] = field(default_factory=lambda: _NOWHERE)
    parameter: _Branch | None = None
    ends: tuple[Route, ...] = ()
    rests: tuple[Route, ...] = ()

    def below(self, segment: str | None) -> Iterator[_Branch]:
        """Yield the branches that share a path with `segment`, None for a parameter, which is never empty."""
        if segment is None:
            yield from (branch for literal, branch in self.literals.items() if literal)
        elif segment in self.literals:
            yield self.literals[segment]
        if self.parameter is not None and segment != "":
            yield self.parameter

    def every(self) -> Iterator[Route]:
        """Yield the routes at and below it."""
        waiting = [self]
        while waiting:
            branch = waiting.pop()
            yield from (*branch.ends, *branch.rests)
            waiting += (*branch.literals.values(), *([branch.parameter] if branch.parameter is not None else []))


class Routes:
    """All routes of a policy, in the order of the file.

    `find(method, path, backend)` returns the first matching route in the file; `backend` None matches any.
    """

    __slots__ = ("_root", "all", "find")

    def __init__(self, routes: Sequence[Route]) -> None:
        self.all = tuple(routes)
        self._root = _Branch(first=0)
        for route in self.all:
            self._add(route)
        self.find: Callable[[str, str, str | None], Route | None] = lru_cache(maxsize=REMEMBERED)(self._find)

    def _find(self, method: str, path: str, backend: str | None) -> Route | None:
        best: Route | None = None
        for route in self._only(path) if "%" not in path else self._matching(path):
            if (
                (route.methods is None or method in route.methods)
                and (backend is None or route.backend is None or route.backend == backend)
                and (best is None or route.index < best.index)
            ):
                best = route
        return best

    def matching(self, path: str) -> list[Route]:
        """Return all routes that match the path, for any method and backend, in the order of the file."""
        return sorted(self._matching(path), key=_place)

    def begins(self, path: str) -> bool:
        """Return whether a route may match `path`, by its first segment."""
        root = self._root
        return root.parameter is not None or bool(root.rests) or paths.fold(path.split("/")[1]) in root.literals

    def nearest(self, path: str) -> Route | None:
        """Return a route that shares a longest prefix of segments with the path."""
        branch = self._root
        for segment in path.split("/")[1:]:
            below = branch.literals.get(paths.fold(segment)) or branch.parameter
            if below is None:
                break
            branch = below
        return self.all[branch.first] if self.all else None

    def covering(self, template: Template) -> list[Route]:
        """Return the routes that match every path of `template`, itself included, in the order of the file."""
        routes: list[Route] = []
        branches = [self._root]
        for segment in template.segments:
            below: list[_Branch] = []
            for branch in branches:
                routes += branch.rests
                if segment is not None and segment in branch.literals:
                    below.append(branch.literals[segment])
                # Parameters do not match an empty segment, as after a trailing slash.
                if branch.parameter is not None and segment != "":
                    below.append(branch.parameter)
            branches = below
        for branch in branches:
            routes += branch.rests if template.rest else (*branch.ends, *branch.rests)
        return sorted(routes, key=_place)

    def overlapping(self, template: Template) -> list[Route]:
        """Return the routes that share a path with `template`, in the order of the file."""
        routes: list[Route] = []
        branches = [self._root]
        for segment in template.segments:
            routes += chain.from_iterable(branch.rests for branch in branches)
            branches = [below for branch in branches for below in branch.below(segment)]
        for branch in branches:
            routes += branch.every() if template.rest else (*branch.ends, *branch.rests)
        return sorted(routes, key=_place)

    def _add(self, route: Route) -> None:
        branch = self._root
        for segment in route.template.segments:
            below = branch.parameter if segment is None else branch.literals.get(segment)
            if below is None:
                below = _Branch(first=route.index)
                if segment is None:
                    branch.parameter = below
                elif branch.literals:
                    branch.literals[segment] = below
                else:
                    branch.literals = {segment: below}
            branch = below
        if route.template.rest:
            branch.rests += (route,)
        else:
            branch.ends += (route,)

    def _only(self, path: str) -> Sequence[Route]:
        """Return the same as `_matching`, without its lists as long as only one branch matches."""
        branch = self._root
        rests: tuple[Route, ...] = ()
        segments = path.split("/")
        del segments[0]
        for segment in segments:
            if branch.rests:
                rests += branch.rests
            literal = branch.literals.get(segment)
            if literal is None:
                if branch.parameter is None or not segment:
                    return rests
                branch = branch.parameter
            elif branch.parameter is None:
                branch = literal
            else:
                return self._matching(path)
        if branch.rests:
            rests += branch.rests
        return branch.ends + rests if rests else branch.ends

    def _matching(self, path: str) -> list[Route]:
        segments = path.split("/")
        opaque: tuple[int, ...] = ()
        if "%" in path:
            opaque = tuple(place for place, segment in enumerate(segments[1:]) if paths.is_ambiguous(segment))
            segments = [paths.fold(segment) for segment in segments]
        routes: list[Route] = []
        branches = [self._root]
        for segment in segments[1:]:
            below: list[_Branch] = []
            for branch in branches:
                routes += branch.rests
                literal = branch.literals.get(segment)
                if literal is not None:
                    below.append(literal)
                if branch.parameter is not None and segment:
                    below.append(branch.parameter)
            if not below:
                return _keep_opaque(routes, opaque) if opaque else routes
            branches = below
        for branch in branches:
            routes += branch.ends
            routes += branch.rests
        return _keep_opaque(routes, opaque) if opaque else routes


def _keep_opaque(routes: list[Route], opaque: tuple[int, ...]) -> list[Route]:
    """Keep the routes that may match an ambiguous segment: `{name:encoded}`, and rules that deny."""
    return [route for route in routes if route.deny is not None or route.template.encoded.issuperset(opaque)]


def opaque_segments(path: str) -> Iterator[str]:
    """Return the ambiguous segments of a canonical path."""
    return (segment for segment in path.split("/") if paths.is_ambiguous(segment))


EVERY: Final = "*"
"""The name under `tools` of an organisation's policy that means every tool."""


@dataclass(frozen=True, slots=True)
class Organisation:
    """The policy of an organisation. `version` is the SHA-256 of its texts; `files` are those that it was read from."""

    file: str
    version: str
    rules: tuple[OrganisationRule, ...]
    tools: Mapping[str, ToolRule]
    ceilings: Ceilings
    files: tuple[str, ...] = ()
    _routes: Routes = field(default_factory=lambda: Routes(()), compare=False)

    def matching(self, method: str, path: str) -> list[OrganisationRule]:
        """Return the rules for a request, in the order of the file; also for segments that are ambiguous."""
        routes = (self.rules[route.index] for route in self._routes.matching(path))
        return [rule for rule in routes if rule.methods is None or method in rule.methods]

    def tool_rules(self, tool: str) -> tuple[ToolRule, ...]:
        """Return the rules for a tool."""
        return tuple(self.tools[name] for name in (tool, EVERY) if name in self.tools)

    def bind(self, rule: ToolRule) -> ToolRule:
        """Return the rule of an app for a tool with those of the organisation: a denial takes its place."""
        also = self.tool_rules(rule.name)
        if not also:
            return rule
        denies = next((one for one in also if one.deny is not None), None)
        if denies is not None and rule.deny is None:
            return replace(rule, deny=denies.deny, line=denies.line, file=denies.file, also=also)
        timeouts = [one.timeout for one in (rule, *also) if one.timeout is not None]
        return replace(rule, timeout=min(timeouts, default=None), also=also)


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
    until = parse_text(report, "until", _until, report.text("until"))
    if until is not None and now is not None and until.until - now > _LONGEST:
        report.problem(f"{until.date} is more than {MAX_DAYS} days away: report mode lasts {MAX_DAYS} at most", "until")
    return until


def _until(text: str) -> ReportMode:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f'"{text[:40]}" is not a day: write one such as 2026-12-31') from None
    end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return ReportMode(text, end.timestamp())


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy, from its file and the parts that it includes.

    `version` is the first 16 hex digits of its SHA-256; `defaults` apply to every route. `origins` maps the origins of
    absolute URLs to backends; `only_backend` is set if there is exactly one. `mode` is None if the policy enforces.
    `sources` are the files that it was read from, body schemas included. `reads_body` means that some route does;
    `largest_request` is the largest request limit of any route, in bytes. `snapshot` are the URLs whose answers are
    packed into the page, `frames` the origins that it may frame, `external` what it may load from other sites.
    `organisation` is the policy above it, `parts` are the included files. `forms` is the cache of `canonicalise`.
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
    external: External = NO_EXTERNAL
    mode: ReportMode | None = None
    sources: tuple[str, ...] = ()
    reads_body: bool = False
    largest_request: int = 0
    snapshot: tuple[str, ...] = ()
    organisation: Organisation | None = None
    parts: tuple[str, ...] = ()
    forms: dict[tuple[object, ...], CanonicalRequest] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def free_tools(self) -> tuple[str, ...]:
        """The page's tools that hosts may offer to models themselves: their rules need no enforcement."""
        return tuple(name for name, rule in self.tools.items() if not rule.at_gateway_only)

    @property
    def secret_routes(self) -> list[Json]:
        """The routes whose bodies are secret: `[methods, null for all; regular expression of the path]`."""
        secret = (route for route in self.routes.all if route.decision.obligations.secret)
        return [[[*sorted(route.methods)] if route.methods else None, route.template.pattern] for route in secret]

    @property
    def personal_tools(self) -> tuple[str, ...]:
        """The tools whose condition names facts of the principal alone: not every caller is shown them."""
        return tuple(
            name
            for name, rule in self.tools.items()
            if any(one.when is not None and one.when.of_principal for one in (rule, *rule.also))
        )

    def lets_get(self, url: str) -> bool:
        """Return whether a route allows a page to get `url`, a path or an absolute URL of a backend, also on approval.

        Raises ValueError if it is not a URL.
        """
        parts = urlsplit(url)
        backend = self.origins.get(canonical_origin(parts.scheme or "https", parts.netloc)) if parts.netloc else None
        route = self.routes.find("GET", parts.path or "/", backend)
        if self.organisation is not None:
            above = self.organisation.matching("GET", parts.path or "/")
            if any(rule.deny is not None for rule in above):
                return False
        return route is not None and route.deny is None and (backend is not None or not parts.netloc)
