"""JSON paths of values to redact or seal: `$.a.b`, `$..name`, `$.items[*].x`, `$["a b"][0]` (a subset of RFC 9535)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gateway.jsontext.reading import parse_json
from gateway.model import Json

MASKED: Final = "***"
MAX_PATH: Final = 256

_NAME = r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\-\u0080-\U0010ffff]*"
_SEGMENT = re.compile(
    rf"""(?P<deep>\.\.)?(?:
        (?(deep)|\.)(?P<name>{_NAME}|\*)
      | \[(?:(?P<index>\d{{1,9}})|(?P<star>\*)|(?P<double>"(?:[^"\\]|\\.)*")|'(?P<single>[^'\\]*)')\]
    )""",
    re.ASCII | re.VERBOSE,
)

Container: TypeAlias = dict[str, Json] | list[Json]
Key: TypeAlias = Any
"""A key of an object, or an index of a list: no type expresses which."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of a path: to a member by name, an item by index, or (None) to all; `deep`: at any depth."""

    selector: str | int | None
    deep: bool


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A compiled path."""

    text: str
    segments: tuple[PathStep, ...]

    def mask(self, value: Json) -> Json:
        """Return a copy of `value` with `***` at each place of the path; `value` itself if there is none."""
        return self.replace(value, lambda _: MASKED)

    def replace(self, value: Json, change: Callable[[Json], Json]) -> Json:
        """Return a copy with each value at a place of the path changed; `value` itself if no place matches."""
        if not any(True for _ in self._places(value)):
            return value
        copy = _copy(value)
        for container, key in list(self._places(copy)):
            container[key] = change(container[key])
        return copy

    def _places(self, value: Json) -> Iterator[tuple[Container, Key]]:
        values: list[Json] = [value]
        for segment in self.segments[:-1]:
            values = [
                container[key]
                for container in _containers(values, segment.deep)
                for key in _keys(container, segment.selector)
            ]
        last = self.segments[-1]
        for container in _containers(values, last.deep):
            for key in _keys(container, last.selector):
                yield container, key


MASKABLE: Final = (
    'that can be masked: write one such as $.customer.email, $..card_number (".." once) or $.items[*].price'
)

VAULTED: Final = "to a token in an answer: write one such as $.access_token or $.data.tokens[*].value"
"""The same for `vault`."""


def parse_json_path(text: str, purpose: str = MASKABLE) -> JsonPath:
    """Parse a path; `purpose` is the end of the message for an invalid one. Raises ValueError."""
    segments: list[PathStep] = []
    place = 1
    while text.startswith("$") and len(text) <= MAX_PATH and (match := _SEGMENT.match(text, place)):
        segments.append(PathStep(_selector(match), match["deep"] is not None))
        place = match.end()
    if not segments or place != len(text) or sum(segment.deep for segment in segments) > 1:
        raise ValueError(f'"{text[:80]}" is not a path {purpose}')
    return JsonPath(text, tuple(segments))


def _selector(match: re.Match[str]) -> str | int | None:
    if match["index"] is not None:
        return int(match["index"])
    if match["double"] is not None:
        return str(parse_json(match["double"]))
    if match["single"] is not None:
        return match["single"]
    return None if match["star"] or match["name"] == "*" else match["name"]


def _containers(values: list[Json], deep: bool) -> Iterator[Container]:
    """Yield the objects and lists among `values`, and if `deep` all within them."""
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list):
            yield value
            if deep:
                stack += value.values() if isinstance(value, dict) else value


def _keys(container: Container, selector: str | int | None) -> list[Key]:
    if isinstance(container, dict):
        if selector is None:
            return list(container)
        return [selector] if isinstance(selector, str) and selector in container else []
    if selector is None:
        return list(range(len(container)))
    return [selector] if isinstance(selector, int) and selector < len(container) else []


def _copy(value: Json) -> Json:
    """Return a deep copy, without recursion."""
    whole: list[Json] = [value]
    stack: list[Container] = [whole]
    while stack:
        container = stack.pop()
        for key in _keys(container, None):
            child = container[key]
            if isinstance(child, dict | list):
                copy: Container = child.copy()
                container[key] = copy
                stack.append(copy)
    return whole[0]
