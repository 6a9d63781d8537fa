"""Converts OpenAPI schemas to JSON Schemas that a policy can enforce completely."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from gateway.cli.learn.found import LeftOut
from gateway.documents import Node, load
from gateway.errors import DocumentError
from gateway.model import Json
from gateway.policy.regexes import bounded_regex
from gateway.policy.schema_files import parse_schema
from gateway.policy.schemas import FORMATS, UNBOUNDED

MAX_BYTES: Final = 128 * 1024
MAX_DEPTH: Final = 60

_UNSAID: Final = frozenset({"discriminator", "xml", "externalDocs", "example", "$schema", "$id", "$anchor", "nullable"})
_PLURAL: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_SINGLE: Final = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"})

Schema = dict[str, Json]


class UnusableSchema(Exception):
    """No policy can enforce this schema; the message gives the reason."""


class BodySchemas:
    """Converts the schemas of one file. `legacy` means OpenAPI 3.0, whose schemas are not JSON Schema."""

    def __init__(self, root: Node, *, legacy: bool) -> None:
        self._root = root
        self._legacy = legacy
        self._dropped: Counter[str] = Counter()

    def converted(self, node: Node) -> Schema | str:
        """Return the schema, with referenced schemas in its `$defs`; or the reason why it is unusable."""
        definitions: dict[str, Json] = {}
        try:
            schema = self._schema(node, definitions, 0)
        except UnusableSchema as error:
            return str(error)
        if not isinstance(schema, dict):
            return "it takes everything, or nothing"
        if definitions:
            schema = {**schema, "$defs": definitions}
        text = json.dumps(schema)
        if len(text) > MAX_BYTES:
            return f"it is larger than {MAX_BYTES // 1024} KiB with all that it refers to"
        try:
            parse_schema(load(text, "the schema"), "the schema")
        except DocumentError as error:
            return error.problems[0].message
        return schema

    def notes(self) -> list[LeftOut]:
        """Return the keywords omitted from all schemas."""
        return [
            LeftOut(f"{what} in body schemas", "it is not checked by policies", count)
            for what, count in self._dropped.most_common()
        ]

    def _schema(self, node: Node, definitions: dict[str, Json], depth: int) -> Json:
        if isinstance(node.value, bool):
            return node.value
        if not isinstance(node.value, Mapping):
            raise UnusableSchema("it is not a schema")
        if depth > MAX_DEPTH:
            raise UnusableSchema(f"it is nested deeper than {MAX_DEPTH} levels")
        found: Schema = {}
        for key, value in node.value.items():
            if key not in _UNSAID and not key.startswith("x-"):
                self._keyword(found, key, value, definitions, depth + 1)
        nullable = node.value.get("nullable")
        self._required(found, node)
        if self._legacy:
            _bounds(found)
            if nullable is not None and nullable.value is True:
                found = _with_null(found)
        return found

    def _keyword(self, found: Schema, key: str, value: Node, definitions: dict[str, Json], depth: int) -> None:
        if key == "$ref":
            found[key] = self._reference(str(value.value), definitions, depth)
        elif key in UNBOUNDED or key in ("$dynamicAnchor", "$vocabulary"):
            self._dropped[key] += 1
        elif key == "format" and value.value not in FORMATS:
            self._dropped[f"format {value.value}"] += 1
        elif key == "pattern" and not _is_bounded(str(value.value)):
            self._dropped[f"pattern {str(value.value)[:60]}"] += 1
        elif key in _SINGLE:
            found[key] = self._schema(value, definitions, depth)
        elif key in _PLURAL and isinstance(value.value, tuple):
            found[key] = [self._schema(one, definitions, depth) for one in value.value]
        elif key in _NAMED and isinstance(value.value, Mapping):
            found[key] = {name: self._schema(one, definitions, depth) for name, one in value.value.items()}
        else:
            found[key] = value.plain()

    def _reference(self, text: str, definitions: dict[str, Json], depth: int) -> str:
        """Return the rewritten reference; its target is added to the definitions."""
        target = _resolved(self._root, text)
        if target is None:
            raise UnusableSchema(f"it refers to {text[:100]}, which is not in the file")
        name = re.sub("[^A-Za-z0-9_.-]+", "-", text.removeprefix("#/components/schemas/")).strip("-")
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = self._schema(target, definitions, depth)
        return f"#/$defs/{name}"

    def _required(self, found: Schema, node: Node) -> None:
        """Remove read-only properties from `required`: requests lack them (OpenAPI, Schema Object, readOnly)."""
        required, properties = found.get("required"), found.get("properties")
        if isinstance(required, list) and isinstance(properties, dict):
            sent = [name for name in required if not _read_only(properties.get(str(name)))]
            if sent:
                found["required"] = sent
            else:
                del found["required"]


def pointed(root: Node, node: Node) -> Node:
    """Return the node, or the target of its `$ref` inside the file."""
    for _ in range(8):
        reference = node.value.get("$ref") if isinstance(node.value, Mapping) else None
        target = _resolved(root, str(reference.value)) if reference is not None else None
        if target is None:
            return node
        node = target
    return node


def _resolved(root: Node, reference: str) -> Node | None:
    if not reference.startswith("#/"):
        return None
    node: Node | None = root
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.value.get(key) if node is not None and isinstance(node.value, Mapping) else None
    return node


def _read_only(schema: Json) -> bool:
    return isinstance(schema, dict) and schema.get("readOnly") is True


def _is_bounded(pattern: str) -> bool:
    try:
        bounded_regex(pattern)
    except ValueError:
        return False
    return True


def _bounds(schema: Schema) -> None:
    """Convert boolean `exclusiveMinimum` beside `minimum` to one number, as since JSON Schema draft 6."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) is True and bound in schema:
            schema[exclusive] = schema.pop(bound)


def _with_null(schema: Schema) -> Schema:
    kind = schema.get("type")
    if not isinstance(kind, str):
        return {"anyOf": [schema, {"type": "null"}]}
    listed = schema.get("enum")
    if isinstance(listed, list) and None not in listed:
        schema["enum"] = [*listed, None]
    return {**schema, "type": [kind, "null"]}
