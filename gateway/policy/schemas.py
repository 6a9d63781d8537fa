"""JSON Schemas of bodies (draft 2020-12): fully enforced, without fetches, at a bounded cost per validation."""

from __future__ import annotations

import ipaddress
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema.exceptions import FormatError, ValidationError
from referencing import Registry

from gateway.errors import Reason
from gateway.model import Json
from gateway.policy.conditions import Failure
from gateway.policy.messages import visible

if TYPE_CHECKING:
    from cel import Program

UNBOUNDED: Final = frozenset({"$dynamicRef", "unevaluatedItems", "unevaluatedProperties"})
MAX_STEPS: Final = 30_000
"""Keyword evaluations per validation; each takes about five microseconds."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?", re.ASCII)


Check: TypeAlias = Callable[..., Iterator[ValidationError] | None]
"""The library's callback for a keyword."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; `size` is the approximate cost of a match."""

    program: Program
    size: int


class TooMuch(Exception):  # not an error: the count is full
    """A validation exceeded its keyword evaluations."""


class _Bounds(FormatChecker):
    """The state of one validation: the checked formats, the compiled patterns, the steps left."""

    def __init__(self, patterns: Mapping[str, Pattern]) -> None:
        self.patterns = patterns
        self.left = MAX_STEPS

    def check(self, instance: object, format: str) -> None:
        """Check a string's format. Raises FormatError."""
        if isinstance(instance, str) and not FORMATS[format](instance):
            raise FormatError(f"{instance[:60]!r} is not a {format}")

    def step(self, weight: int = 1) -> None:
        """Count one keyword evaluation. Raises `TooMuch`."""
        self.left -= weight
        if self.left < 0:
            raise TooMuch

    def matches(self, pattern: str, text: str) -> bool:
        """Return whether the pattern of a schema is found in `text`."""
        found = self.patterns[pattern]
        self.step(5 + found.size // 8 + (found.size * len(text) >> 18))
        return found.program.execute({"v": text}) is True


@dataclass(frozen=True, slots=True)
class BodySchema:
    """A schema ready for use; `file` is its name in messages."""

    file: str
    schema: Mapping[str, Json] | bool
    patterns: Mapping[str, Pattern]

    def failure(self, value: Json) -> Failure | None:
        """Return None if `value` is valid."""
        validator = _Validator(self.schema, registry=Registry(), format_checker=_Bounds(self.patterns))
        try:
            error = next(validator.iter_errors(value), None)
        except (TooMuch, RecursionError):
            return Failure(f"the body takes too long to check against {self.file}", Reason.CONDITION_LIMIT)
        if error is None:
            return None
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
        return Failure(visible(f"the body breaks {self.file}: body{place[:100]}: {_short(error)}"))


def _short(error: ValidationError) -> str:
    return error.message if len(error.message) <= 160 else f"{error.validator} does not hold"


def _counted(
    check: Callable[..., Iterator[ValidationError] | None], validator: Any, *arguments: Any
) -> Iterator[ValidationError]:
    validator.format_checker.step()
    yield from check(validator, *arguments) or ()


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not validator.format_checker.matches(pattern, instance):
        yield ValidationError(f"{instance[:60]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, inner in patterns.items():
            for key, value in instance.items():
                if validator.format_checker.matches(pattern, key):
                    yield from validator.descend(value, inner, path=key, schema_path=pattern)


def _additional(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    patterns = schema.get("patternProperties", {})
    for key, value in instance.items():
        if key in schema.get("properties", {}) or any(validator.format_checker.matches(one, key) for one in patterns):
            continue
        if inner is False:
            yield ValidationError(f"{key[:60]!r} is not allowed")
        else:
            yield from validator.descend(value, inner, path=key)


def _unique(validator: Any, unique: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not unique or not isinstance(instance, list):
        return
    validator.format_checker.step(len(instance))
    texts = {json.dumps(_numbers_alike(item), sort_keys=True) for item in instance}
    if len(texts) != len(instance):
        yield ValidationError("has an item twice")


def _numbers_alike(value: Any) -> Any:
    """Make 1.0 and 1 equal."""
    if isinstance(value, dict):
        return {key: _numbers_alike(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers_alike(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None and _parses(datetime.fromisoformat, text.upper().replace("Z", "+00:00"))


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None and _parses(date.fromisoformat, text)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "date": _is_date,
    "date-time": _is_time,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "ipv4": partial(_parses, ipaddress.IPv4Address),
    "ipv6": partial(_parses, ipaddress.IPv6Address),
    "uuid": lambda text: len(text) == 36 and _parses(uuid.UUID, text),
}
_OWN: Final = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "uniqueItems": _unique,
}
KEYWORDS: Final = frozenset(Draft202012Validator.VALIDATORS) - UNBOUNDED | {
    "then",
    "else",
    "minContains",
    "maxContains",
}
_Validator = validators.create(
    meta_schema=Draft202012Validator.META_SCHEMA,
    validators={
        name: partial(_counted, check)
        for name, check in {**Draft202012Validator.VALIDATORS, **_OWN}.items()
        if name in KEYWORDS
    },
    type_checker=Draft202012Validator.TYPE_CHECKER,
)
