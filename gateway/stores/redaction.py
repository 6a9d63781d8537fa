"""Redaction: values at configured JSON paths are replaced before a record is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.model import Json

REDACTED = "[redacted]"
_NESTED = (dict, list)

_STEP = re.compile(
    r"(?P<deep>\.\.)(?P<below>[A-Za-z_][\w-]*|\*)|\.(?P<name>[A-Za-z_][\w-]*|\*)|\[(?P<any>\*)\]|\['(?P<quoted>[^']+)'\]"
)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step into the member `name`, or into every member and item if None; `deep` means at any depth."""

    name: str | None
    deep: bool


class Redaction:
    """Replaces the values at `paths` in the fields of a record; `$` is the fields.

    Of JSONPath (RFC 9535) it supports `$.a.b`, `$['a']`, `$..name`, `$.*` and `$.items[*]`. Raises ValueError for
    others.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self._paths = tuple(_steps(path) for path in paths)
        self.any = bool(self._paths)

    def __call__(self, fields: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the fields with those values replaced; the argument is not modified."""
        for steps in self._paths:
            first = steps[0].name
            if first is not None and not steps[0].deep:
                if first in fields:
                    fields = {**fields, first: _redacted(fields[first], steps[1:])}
                continue
            fields = {
                key: _member(key, value, steps) if first in (None, key) or isinstance(value, _NESTED) else value
                for key, value in fields.items()
            }
        return fields


def _steps(path: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    at = 1
    while at < len(path) and path.startswith("$"):
        found = _STEP.match(path, at)
        if found is None:
            break
        name = found["below"] or found["name"] or found["any"] or found["quoted"]
        steps.append(_Step(None if name == "*" and not found["quoted"] else name, found["deep"] is not None))
        at = found.end()
    if not steps or at != len(path):
        raise ValueError(f"{path!r} is not a path such as $.password, $..token or $.items[*].name")
    return tuple(steps)


def _redacted(value: Json, steps: tuple[_Step, ...]) -> Json:
    match value:
        case _ if not steps:
            return REDACTED
        case dict():
            return {key: _member(key, inner, steps) for key, inner in value.items()}
        case list():
            return [_member(None, inner, steps) for inner in value]
        case _:
            return value


def _member(key: str | None, value: Json, steps: tuple[_Step, ...]) -> Json:
    """Redact a member, or an item of a list, whose `key` is None."""
    step = steps[0]
    if step.deep:
        value = _redacted(value, steps)
    return _redacted(value, steps[1:]) if step.name is None or step.name == key else value
