"""Path templates of routes: whole segments, `{name}` for one, `**` at the end for any number."""

from __future__ import annotations

import re
from dataclasses import dataclass
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
        found = path.split("/")[1:]
        if len(found) < len(self.segments) if self.rest else len(found) != len(self.segments):
            return False
        if any(paths.is_ambiguous(segment) and place not in self.encoded for place, segment in enumerate(found)):
            return False
        return all(
            bool(segment) if wanted is None else paths.fold(segment) == wanted
            for wanted, segment in zip(self.segments, found, strict=False)
        )

    def values(self, path: str) -> dict[str, str]:
        """Return the decoded parameters of a matching path."""
        found = path.split("/")[1:]
        return {name: paths.decode(found[place]) for place, name in enumerate(self.names) if name}

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
