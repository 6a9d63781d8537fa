"""Compares two policies by deciding sample paths: the order of rules counts.

Of overlapping routes the first in the file decides. So only the paths of new, removed, changed or moved routes, and
where those overlap other routes, need checking; the same rule decides everywhere else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from gateway.policy.compare import Turn as Turn
from gateway.policy.compare import backends_differ, rest_differs, routes_differ, schema_text, tools_differ
from gateway.policy.overlaps import Overlaps, Region, region
from gateway.policy.policy import Policy
from gateway.policy.rules import METHODS, Route


class ChangeKind(StrEnum):
    """The subject of a change."""

    ROUTE = "route"
    TOOL = "tool"
    BACKEND = "backend"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `subjects` are its routes (as `GET /api/cart`), tools or backends.

    `line` is in the new file, in the old one if something is closed; None for the whole file.
    """

    turn: Turn
    kind: ChangeKind
    subjects: tuple[str, ...]
    detail: str
    line: int | None = None


def diff(old: Policy, new: Policy) -> tuple[Change, ...]:
    """Return the changes from `old` to `new`; opened ones come first."""
    found = chain(_routes(old, new), _tools(old, new), _backends(old, new), _rest(old, new))
    return tuple(sorted(found, key=lambda change: list(Turn).index(change.turn)))


def _routes(old: Policy, new: Policy) -> list[Change]:
    sayings = _Sayings()
    met: dict[tuple[int | None, int | None], tuple[Route | None, Route | None, dict[str, set[str]]]] = {}
    for place, methods, backend in _places(old, new, sayings):
        for path in place.witnesses:
            for method in methods:
                before, after = (policy.routes.find(method, path, backend) for policy in (old, new))
                if sayings.of(before) != sayings.of(after):
                    key = (before.index if before else None, after.index if after else None)
                    shown = met.setdefault(key, (before, after, {}))[2]
                    shown.setdefault(method, set()).add(place.text)
    changes: dict[tuple[Turn, str], tuple[dict[str, None], int | None]] = {}
    for before, after, shown in met.values():
        subject = _subject(shown)
        for turn, detail in routes_differ(before, after):
            rule = (before if turn is Turn.CLOSED and after is None else after) or before
            subjects, _ = changes.setdefault((turn, detail), ({}, rule.line if rule else None))
            subjects[subject] = None
    return [
        Change(turn, ChangeKind.ROUTE, tuple(subjects), detail, line if len(subjects) == 1 else None)
        for (turn, detail), (subjects, line) in changes.items()
    ]


class _Sayings:
    """Numbers routes by content, ignoring their position: equal content has equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._routes: dict[int, int] = {}

    def of(self, route: Route | None) -> int:
        """Return the number of a route's content; -1 for None."""
        if route is None:
            return -1
        number = self._routes.get(id(route))
        if number is None:
            number = self._routes[id(route)] = self._numbers.setdefault(_content(route), len(self._numbers))
        return number


def _subject(shown: dict[str, set[str]]) -> str:
    """Return the methods of one pair of rules, with the shortest path that shows them."""
    path = min(chain.from_iterable(shown.values()), key=lambda text: (len(text), text))
    return f"{', '.join(sorted(shown))} {path}"


def _places(old: Policy, new: Policy, sayings: _Sayings) -> Iterator[tuple[Region, Set[str], str | None]]:
    """Yield the regions and methods where a different rule may decide, for each possible backend."""
    names = {*old.backends, *new.backends}
    several = max(len(old.backends), len(new.backends)) > 1
    backends: tuple[str | None, ...] = (None, *sorted(names)) if several else (None,)
    depth = 1 + max((len(route.template.segments) for route in (*old.routes.all, *new.routes.all)), default=0)
    for one, other in _pairs(old.routes.all, new.routes.all, sayings):
        methods = (one.methods or METHODS) & (other.methods or METHODS)
        if methods:
            place = region(one.template, other.template, depth)
            for backend in backends:
                yield place, methods, backend


def _pairs(old: Sequence[Route], new: Sequence[Route], sayings: _Sayings) -> Iterator[tuple[Route, Route]]:
    """Yield each changed route with itself, and with each route of the other policy that it overlaps."""
    changed_old, changed_new = _changed(old, new, sayings)
    for routes, others in ((changed_new, old), (changed_old, new)):
        overlaps = Overlaps(others) if routes else None
        for route in routes:
            yield route, route
            for other in overlaps.of(route.template) if overlaps else ():
                yield route, other


def _changed(old: Sequence[Route], new: Sequence[Route], sayings: _Sayings) -> tuple[list[Route], list[Route]]:
    """Return the routes that are not in both policies in the same order."""
    places: dict[int, list[int]] = {}
    for place, route in enumerate(new):
        places.setdefault(sayings.of(route), []).append(place)
    pairs: list[tuple[int, int]] = []
    for place, route in enumerate(old):
        waiting = places.get(sayings.of(route))
        if waiting:
            pairs.append((place, waiting.pop(0)))
    kept = _longest_rising(pairs)
    in_old, in_new = {one for one, _ in kept}, {other for _, other in kept}
    return (
        [route for place, route in enumerate(old) if place not in in_old],
        [route for place, route in enumerate(new) if place not in in_new],
    )


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest increasing subsequence by second part; `pairs` increase in their first part."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int | None] = []
    for place, (_, value) in enumerate(pairs):
        length = bisect_left(ends, value)
        before.append(last[length - 1] if length else None)
        ends[length : length + 1] = [value]
        last[length : length + 1] = [place]
    chosen: list[tuple[int, int]] = []
    at = last[-1] if last else None
    while at is not None:
        chosen.append(pairs[at])
        at = before[at]
    return chosen[::-1]


def _content(route: Route) -> Hashable:
    template, confirm = route.template, route.confirm
    shape = (template.segments, template.rest, template.encoded)
    asks = (confirm.initiators, confirm.message, confirm.grant, confirm.timeout) if confirm is not None else None
    conditions = (route.when.text if route.when is not None else None, schema_text(route.schema))
    return (shape, route.methods, route.backend, route.deny, asks, conditions, route.decided.obligations)


def _tools(old: Policy, new: Policy) -> Iterable[Change]:
    for name in dict.fromkeys((*new.tools, *old.tools)):
        before, after = old.tools.get(name), new.tools.get(name)
        rule = after or before
        for turn, detail in tools_differ(before, after):
            yield Change(turn, ChangeKind.TOOL, (name,), detail, rule.line if rule else None)


def _backends(old: Policy, new: Policy) -> Iterable[Change]:
    for name in dict.fromkeys((*new.backends, *old.backends)):
        for turn, detail in backends_differ(old.backends.get(name), new.backends.get(name)):
            yield Change(turn, ChangeKind.BACKEND, (name,), detail)


def _rest(old: Policy, new: Policy) -> Iterable[Change]:
    return (Change(turn, ChangeKind.POLICY, (), detail) for turn, detail in rest_differs(old, new))
