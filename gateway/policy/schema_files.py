"""Parses a JSON Schema file into a schema that can be enforced completely, or lists everything that prevents it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from gateway.documents import Node
from gateway.errors import DocumentError, Problem
from gateway.policy.engine import pattern_program
from gateway.policy.regexes import bounded_regex
from gateway.policy.schemas import FORMATS, KEYWORDS, UNBOUNDED, BodySchema, Pattern

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
            walk.problem(value, f"{name} is not taken: write the schema out, or use $ref to #/$defs/…")
        elif name not in KEYWORDS and name not in _SAID and not name.startswith("x-"):
            walk.problem(value, f"{name} is no keyword of JSON Schema 2020-12 that is enforced here")
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
    found: Node | None = walk.root
    for part in text.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.value.get(key) if found is not None and isinstance(found.value, Mapping) else None
    if found is None:
        walk.problem(node, f'"{text[:80]}" leads nowhere in the file')


def _at(node: Node, path: list[str | int]) -> Node:
    for part in path:
        inner = node.value
        if isinstance(inner, Mapping) and part in inner:
            node = inner[str(part)]
        elif isinstance(inner, tuple) and isinstance(part, int) and part < len(inner):
            node = inner[part]
    return node
