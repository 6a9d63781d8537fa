"""Overlaps of path templates: the routes that overlap one, and sample paths for all paths in both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gateway.policy.rules import Route
from gateway.policy.templates import REST, Template

FRESH = "~{}"
"""A segment that is no route's literal, so that only parameters match it."""

OPAQUE = "~%2F{}"


@dataclass(frozen=True, slots=True)
class Region:
    """The paths that two templates share, as a template; `witnesses` are samples of them."""

    text: str
    witnesses: tuple[str, ...] = field(compare=False)


def region(one: Template, other: Template, depth: int) -> Region:
    """Return the overlap of two templates, which must overlap. `depth` is more than the segments of any template."""
    length = max(len(one.segments), len(other.segments))
    shown = [_segment(one, other, place, shown=True) for place in range(length)]
    filled = [_segment(one, other, place, shown=False) for place in range(length)]
    rest = one.rest and other.rest
    text = "/" + "/".join([*shown, REST] if rest else shown)
    tails = range(depth - length + 1) if rest else range(1)
    paths = ["/" + "/".join([*filled, *(FRESH.format(f"r{n}") for n in range(tail))]) for tail in tails]
    opaque = _opaque(one, other, filled)
    return Region(text, (*paths, *([opaque] if opaque else [])))


class Overlaps:
    """Finds the routes whose templates overlap a given one."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Branch()
        for route in routes:
            branch = self._root
            for segment in route.template.segments:
                branch = branch.below.setdefault(segment, _Branch())
            (branch.rests if route.template.rest else branch.ends).append(route)

    def of(self, template: Template) -> Iterator[Route]:
        """Yield the routes whose templates share a path with `template`."""
        branches = [self._root]
        for segment in template.segments:
            below: list[_Branch] = []
            for branch in branches:
                yield from branch.rests
                below += branch.under(segment)
            branches = below
        for branch in branches:
            yield from branch.all() if template.rest else (*branch.ends, *branch.rests)


@dataclass(slots=True)
class _Branch:
    below: dict[str | None, _Branch] = field(default_factory=dict)
    ends: list[Route] = field(default_factory=list)
    rests: list[Route] = field(default_factory=list)

    def under(self, segment: str | None) -> list[_Branch]:
        if segment is None:
            return list(self.below.values())
        return [self.below[key] for key in (segment, None) if key in self.below]

    def all(self) -> Iterator[Route]:
        stack = [self]
        while stack:
            branch = stack.pop()
            yield from (*branch.ends, *branch.rests)
            stack += branch.below.values()


def _segment(one: Template, other: Template, place: int, *, shown: bool) -> str:
    for template in (one, other):
        literal = template.segments[place] if place < len(template.segments) else None
        if literal is not None:
            return literal
    if not shown:
        return FRESH.format(f"p{place}")
    names = (template.names[place] for template in (one, other) if place < len(template.names))
    return f"{{{next(names, 'any')}}}"


def _opaque(one: Template, other: Template, filled: list[str]) -> str | None:
    """Return a path that only `{name:encoded}` matches."""
    places = [place for place in one.encoded | other.encoded if filled[place].startswith("~")]
    if not places or (one.rest and other.rest):
        return None
    segments = [OPAQUE.format(place) if place in places else text for place, text in enumerate(filled)]
    return "/" + "/".join(segments)
