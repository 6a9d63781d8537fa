"""JSON Schemas of bodies (draft 2020-12): fully enforced, without fetches, at a bounded cost per validation."""

from __future__ import annotations

import ipaddress
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
from gateway.jsontext.writing import sorted_json
from gateway.model import Json
from gateway.policy.conditions import Failure
from gateway.policy.messages import visible

if TYPE_CHECKING:
    from cel import Program
from jsonschema.exceptions import SchemaError

from gateway.documents import Node
from gateway.errors import DocumentError, Problem
from gateway.policy.conditions import pattern_program
from gateway.policy.regexes import bounded_regex

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
        self.steps = MAX_STEPS

    def check(self, instance: object, format: str) -> None:
        """Check a string's format. Raises FormatError."""
        if isinstance(instance, str) and not FORMATS[format](instance):
            raise FormatError(f"{instance[:60]!r} is not a {format}")

    def step(self, weight: int = 1) -> None:
        """Count one keyword evaluation. Raises `TooMuch`."""
        self.steps -= weight
        if self.steps < 0:
            raise TooMuch

    def matches(self, pattern: str, text: str) -> bool:
        """Return whether the pattern of a schema is found in `text`."""
        regex = self.patterns[pattern]
        self.step(5 + regex.size // 8 + (regex.size * len(text) >> 18))
        return regex.program.execute({"v": text}) is True


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


def _count_errors(
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
    texts = {sorted_json(_numbers_alike(item)) for item in instance}
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
        name: partial(_count_errors, check)
        for name, check in {**Draft202012Validator.VALIDATORS, **_OWN}.items()
        if name in KEYWORDS
    },
    type_checker=Draft202012Validator.TYPE_CHECKER,
)


_SAID: Final = frozenset(
    {"$schema", "$comment", "$defs", "title", "description", "default", "examples", "deprecated", "readOnly"}
    | {"writeOnly", "contentMediaType", "contentEncoding"}
)
_OBJECTS: Final = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE: Final = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"})
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def parse_schema(node: Node, file: str) -> BodySchema:
    """Parse the schema in `node`. Raises DocumentError with every problem and its place."""
    problems: list[Problem] = []
    patterns: dict[str, Pattern] = {}
    schema = node.plain()
    if not isinstance(schema, dict | bool):
        raise DocumentError([node.problem("a schema must be a mapping")])
    _check(node, _Walk(node, problems, patterns))
    if not problems:
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            problems.append(_at(node, list(error.absolute_path)).problem(f"not a JSON Schema: {error.message[:200]}"))
    if problems:
        raise DocumentError(problems)
    return BodySchema(file, schema, patterns)


@dataclass(frozen=True, slots=True)
class _Walk:
    """The state of a schema check."""

    root: Node
    problems: list[Problem]
    patterns: dict[str, Pattern]

    def problem(self, node: Node, message: str) -> None:
        """Report a problem at `node`."""
        self.problems.append(node.problem(message))

    def pattern(self, node: Node, text: str) -> None:
        """Compile a pattern once."""
        if text in self.patterns:
            return
        try:
            regex = bounded_regex(text)
            self.patterns[text] = Pattern(pattern_program(regex), regex.size)
        except ValueError as error:
            self.problem(node, str(error).partition("\n")[0][:200])


def _check(node: Node, walk: _Walk) -> None:
    """Check every keyword of a schema and its subschemas."""
    if not isinstance(node.value, Mapping):
        return
    for name, value in node.value.items():
        if name in UNBOUNDED or name in ("$id", "$anchor", "$dynamicAnchor", "$vocabulary"):
            walk.problem(value, f"{name} is not supported: write the schema out, or use $ref to #/$defs/…")
        elif name not in KEYWORDS and name not in _SAID and not name.startswith("x-"):
            walk.problem(value, f"{name} is not a keyword of JSON Schema 2020-12 that is enforced here")
        elif name == "$schema" and str(value.value).rstrip("#") != _DIALECT:
            walk.problem(value, f"write the schema in {_DIALECT}")
        elif name == "$ref":
            _check_ref(value, walk)
        elif name == "format" and value.value not in FORMATS:
            walk.problem(value, f"a format must be one that is checked: {', '.join(FORMATS)}")
        elif name == "pattern" and isinstance(value.value, str):
            walk.pattern(value, value.value)
        _check_below(name, value, walk)


def _check_below(name: str, node: Node, walk: _Walk) -> None:
    if name in _OBJECTS and isinstance(node.value, Mapping):
        for key, inner in node.value.items():
            if name == "patternProperties":
                walk.pattern(inner, key)
            _check(inner, walk)
    elif name in _LISTS and isinstance(node.value, tuple):
        for inner in node.value:
            _check(inner, walk)
    elif name in _SINGLE:
        _check(node, walk)


def _check_ref(node: Node, walk: _Walk) -> None:
    text = str(node.value)
    if text != "#" and not text.startswith("#/"):
        walk.problem(node, f'"{text[:80]}" is refused: $ref leads inside the file alone, such as #/$defs/item')
        return
    target: Node | None = walk.root
    for part in text.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        target = target.value.get(key) if target is not None and isinstance(target.value, Mapping) else None
    if target is None:
        walk.problem(node, f'"{text[:80]}" leads nowhere in the file')


def _at(node: Node, path: list[str | int]) -> Node:
    for part in path:
        inner = node.value
        if isinstance(inner, Mapping) and part in inner:
            node = inner[str(part)]
        elif isinstance(inner, tuple) and isinstance(part, int) and part < len(inner):
            node = inner[part]
    return node
