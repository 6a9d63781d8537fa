"""Path templates of routes: whole segments, `{name}` for one, `**` at the end for any number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from gateway.policy import paths

_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})(:encoded)?\}", re.ASCII)
REST: Final = "**"


@dataclass(frozen=True, slots=True)
class Template:
    """A path template: `None` in `segments` is a parameter, whose name is in `names` at the same index.

    `rest` means that it ends in `**`, which matches any number of segments, including none. `encoded` holds the indices
    of segments that may be ambiguous.
    """

    text: str
    segments: tuple[str | None, ...]
    names: tuple[str, ...]
    encoded: frozenset[int]
    rest: bool

    def matches(self, path: str) -> bool:
        """Return whether a canonical path matches; for few templates, where a trie does not pay."""
        segments = path.split("/")[1:]
        if len(segments) < len(self.segments) if self.rest else len(segments) != len(self.segments):
            return False
        if any(paths.is_ambiguous(segment) and place not in self.encoded for place, segment in enumerate(segments)):
            return False
        return all(
            bool(segment) if segment_wanted is None else paths.fold(segment) == segment_wanted
            for segment_wanted, segment in zip(self.segments, segments, strict=False)
        )

    @property
    def pattern(self) -> str:
        """A regular expression of JavaScript and Python for the paths that match."""
        segments = ("[^/]+" if segment is None else re.escape(segment) for segment in self.segments)
        return "".join(f"/{segment}" for segment in segments) + ("(?:/.*)?" if self.rest else "")

    def values(self, path: str) -> dict[str, str]:
        """Return the decoded parameters of a matching path."""
        segments = path.split("/")[1:]
        return {name: paths.decode(segments[place]) for place, name in enumerate(self.names) if name}

    def value(self, name: str, path: str) -> str:
        """Return the decoded parameter `name` of a matching path."""
        return paths.decode(path.split("/")[1:][self.names.index(name)])


def parse_template(text: str) -> Template:
    """Parse the template of a route's `path`. Raises ValueError with the remedy."""
    if not text.startswith("/"):
        raise ValueError(f'"{text}" must start with "/"')
    parts = text.split("/")[1:]
    rest = parts[-1] == REST
    if rest:
        parts.pop()
    segments: list[str | None] = []
    names: list[str] = []
    encoded: set[int] = set()
    for place, part in enumerate(parts):
        match = _PARAMETER.fullmatch(part)
        segments.append(None if match else _literal(part, text))
        names.append(match[1] if match else "")
        if match and match[2]:
            encoded.add(place)
    if len([name for name in names if name]) != len({name for name in names if name}):
        raise ValueError(f'"{text}" uses a parameter name twice')
    if "" in parts[:-1] or (rest and "" in parts):
        raise ValueError(f'"{text}" has an empty segment')
    return Template(text, tuple(segments), tuple(names), frozenset(encoded), rest)


def _literal(part: str, text: str) -> str:
    if part == REST:
        raise ValueError(f'"{text}" has ** before its end: it is allowed only as the last segment')
    if "{" in part or "}" in part:
        raise ValueError(f'"{text}": {part} must be a whole segment, such as {{item}} or {{item:encoded}}')
    if "*" in part:
        raise ValueError(f'"{text}": write {{name}} for one segment and ** at the end for any number')
    if "?" in part or "#" in part:
        raise ValueError(f'"{text}" has a query or a fragment: leave it out, a route matches the path alone')
    canonical = paths.canonical_path("/" + part)[1:] if part else ""
    if paths.is_ambiguous(canonical):
        raise ValueError(f'"{text}": {part} can never match; {paths.ENCODED_REMEDY}')
    if canonical != part:
        raise ValueError(f'"{text}" is not in its canonical form: write {canonical or "/"} for {part}')
    return paths.fold(part)


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
    texts = [_segment(one, other, place, shown=True) for place in range(length)]
    texts_filled = [_segment(one, other, place, shown=False) for place in range(length)]
    rest = one.rest and other.rest
    text = "/" + "/".join([*texts, REST] if rest else texts)
    tails = range(depth - length + 1) if rest else range(1)
    paths = ["/" + "/".join([*texts_filled, *(FRESH.format(f"r{n}") for n in range(tail))]) for tail in tails]
    opaque = _opaque(one, other, texts_filled)
    return Region(text, (*paths, *([opaque] if opaque else [])))


def _segment(one: Template, other: Template, place: int, *, shown: bool) -> str:
    for template in (one, other):
        literal = template.segments[place] if place < len(template.segments) else None
        if literal is not None:
            return literal
    if not shown:
        return FRESH.format(f"p{place}")
    names = (template.names[place] for template in (one, other) if place < len(template.names))
    return f"{{{next(names, 'any')}}}"


def _opaque(one: Template, other: Template, texts_filled: list[str]) -> str | None:
    """Return a path that only `{name:encoded}` matches."""
    places = [place for place in one.encoded | other.encoded if texts_filled[place].startswith("~")]
    if not places or (one.rest and other.rest):
        return None
    segments = [OPAQUE.format(place) if place in places else text for place, text in enumerate(texts_filled)]
    return "/" + "/".join(segments)
