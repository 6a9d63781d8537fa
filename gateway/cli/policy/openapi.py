"""Learns routes from an OpenAPI 3.x file: paths, methods, schemas of JSON bodies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from gateway.cli.policy.proposals import Findings, LeftOut, ProposedSchema, RouteProposal, path_problem, unique
from gateway.documents import Node, load
from gateway.documents.reader import read_bytes
from gateway.errors import DocumentError, Problem
from gateway.jsontext.writing import plain_json
from gateway.model import Json
from gateway.policy import METHODS
from gateway.policy.regexes import bounded_regex
from gateway.policy.schemas import FORMATS, UNBOUNDED, parse_schema

MAX_SIZE: Final = 32 * 1024 * 1024
MAX_DEPTH: Final = 200

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_FLAGS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def read_document(path: Path) -> Node:
    """Parse the document in `path`. Raises DocumentError."""
    file = str(path)
    try:
        data = read_bytes(path, MAX_SIZE)
    except OSError as error:
        raise DocumentError([Problem(file, 1, 1, f"cannot be read: {error.strerror or error}")]) from error
    try:
        # A tab in JSON occurs only between values, where it means nothing; YAML refuses it.
        text = data.decode().replace("\t", " ")
        _check_depth(text, file)
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise DocumentError([Problem(file, line, column, f"not YAML: {error.problem or error.context}")]) from error
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise DocumentError([Problem(file, 1, 1, f"not YAML: {str(error).splitlines()[0]}")]) from error
    return _NodeReader(file).node(root) if root is not None else Node(None, file, 1, 1)


def _check_depth(text: str, file: str) -> None:
    """Raise DocumentError for a document that is nested too deep: PyYAML composes it on the stack, in C."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            mark = event.start_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise DocumentError([Problem(file, line, column, f"nested deeper than {MAX_DEPTH} levels")])


class _NodeReader:
    """Converts PyYAML's nodes."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._seen: set[int] = set()

    def node(self, raw: yaml.Node) -> Node:
        """Convert one value and its content."""
        line, column = raw.start_mark.line + 1, raw.start_mark.column + 1
        if isinstance(raw, yaml.ScalarNode):
            return Node(_scalar(raw), self._file, line, column)
        if id(raw) in self._seen:
            raise DocumentError([Problem(self._file, line, column, "used by an alias: write the value out")])
        self._seen.add(id(raw))
        if isinstance(raw, yaml.SequenceNode):
            return Node(tuple(self.node(one) for one in raw.value), self._file, line, column)
        values: dict[str, Node] = {}
        keys: dict[str, tuple[int, int]] = {}
        for key, value in raw.value:
            name, place = str(key.value), (key.start_mark.line + 1, key.start_mark.column + 1)
            if name in keys:
                raise DocumentError([Problem(self._file, *place, f'duplicate key "{name[:80]}"')])
            keys[name] = place
            values[name] = self.node(value)
        return Node(values, self._file, line, column, keys)


def _scalar(node: yaml.ScalarNode) -> str | int | float | bool | None:
    text: str = node.value
    if node.style in ("'", '"', "|", ">"):
        return text
    if text in _NULL:
        return None
    if text in _FLAGS:
        return _FLAGS[text]
    if text[0] in "-+.0123456789" and len(text) <= 40:
        for kind in (int, float):
            try:
                return kind(text) if "_" not in text else text
            except ValueError:
                continue
    return text


MAX_BYTES: Final = 128 * 1024
MAX_SCHEMA_DEPTH: Final = 60

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
        self._dropped_keywords: Counter[str] = Counter()

    def convert(self, node: Node) -> Schema | str:
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
        text = plain_json(schema)
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
            for what, count in self._dropped_keywords.most_common()
        ]

    def _schema(self, node: Node, definitions: dict[str, Json], depth: int) -> Json:
        if isinstance(node.value, bool):
            return node.value
        if not isinstance(node.value, Mapping):
            raise UnusableSchema("it is not a schema")
        if depth > MAX_SCHEMA_DEPTH:
            raise UnusableSchema(f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        schema: Schema = {}
        for key, value in node.value.items():
            if key not in _UNSAID and not key.startswith("x-"):
                self._keyword(schema, key, value, definitions, depth + 1)
        nullable = node.value.get("nullable")
        self._relax_required(schema, node)
        if self._legacy:
            _bounds(schema)
            if nullable is not None and nullable.value is True:
                schema = _with_null(schema)
        return schema

    def _keyword(self, schema: Schema, key: str, value: Node, definitions: dict[str, Json], depth: int) -> None:
        if key == "$ref":
            schema[key] = self._reference(str(value.value), definitions, depth)
        elif key in UNBOUNDED or key in ("$dynamicAnchor", "$vocabulary"):
            self._dropped_keywords[key] += 1
        elif key == "format" and value.value not in FORMATS:
            self._dropped_keywords[f"format {value.value}"] += 1
        elif key == "pattern" and not _is_bounded(str(value.value)):
            self._dropped_keywords[f"pattern {str(value.value)[:60]}"] += 1
        elif key in _SINGLE:
            schema[key] = self._schema(value, definitions, depth)
        elif key in _PLURAL and isinstance(value.value, tuple):
            schema[key] = [self._schema(one, definitions, depth) for one in value.value]
        elif key in _NAMED and isinstance(value.value, Mapping):
            schema[key] = {name: self._schema(one, definitions, depth) for name, one in value.value.items()}
        else:
            schema[key] = value.plain()

    def _reference(self, text: str, definitions: dict[str, Json], depth: int) -> str:
        """Return the rewritten reference; its target is added to the definitions."""
        target = _resolve(self._root, text)
        if target is None:
            raise UnusableSchema(f"it refers to {text[:100]}, which is not in the file")
        name = re.sub("[^A-Za-z0-9_.-]+", "-", text.removeprefix("#/components/schemas/")).strip("-")
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = self._schema(target, definitions, depth)
        return f"#/$defs/{name}"

    def _relax_required(self, schema: Schema, node: Node) -> None:
        """Remove read-only properties from `required`: requests lack them (OpenAPI, Schema Object, readOnly)."""
        required, properties = schema.get("required"), schema.get("properties")
        if isinstance(required, list) and isinstance(properties, dict):
            sent = [name for name in required if not _read_only(properties.get(str(name)))]
            if sent:
                schema["required"] = sent
            else:
                del schema["required"]


def dereference(root: Node, node: Node) -> Node:
    """Return the node, or the target of its `$ref` inside the file."""
    for _ in range(8):
        reference = node.value.get("$ref") if isinstance(node.value, Mapping) else None
        target = _resolve(root, str(reference.value)) if reference is not None else None
        if target is None:
            return node
        node = target
    return node


def _resolve(root: Node, reference: str) -> Node | None:
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
    values = schema.get("enum")
    if isinstance(values, list) and None not in values:
        schema["enum"] = [*values, None]
    return {**schema, "type": [kind, "null"]}


_PARAMETER = re.compile(r"\{([^{}/]+)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_OTHER: Final = frozenset({"trace", "query"})
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.ASCII | re.IGNORECASE)


def learn_openapi(path: Path, backend: str | None, *, deprecated: bool) -> Findings:
    """Learn the routes of the API in `path`; `backend` is the policy's base URL for all paths, if known.

    Raises DocumentError if it is not OpenAPI 3.x.
    """
    root = read_document(path)
    version = _text(_at(root, "openapi"))
    if version is None or not version.startswith("3."):
        raise DocumentError([root.problem("is not OpenAPI 3.x: there is no `openapi: 3.…` at its top")])
    reading = _OpenApiReading(root, BodySchemas(root, legacy=version.startswith("3.0")), deprecated)
    prefix = reading.prefix(backend)
    for name, item in _entries(_at(root, "paths")):
        reading.path(prefix + name, name, dereference(root, item))
    reading.findings.left_out += reading.schemas.notes()
    return reading.findings


@dataclass(slots=True)
class _OpenApiReading:
    """One pass over a file."""

    root: Node
    schemas: BodySchemas
    deprecated: bool
    findings: Findings = field(default_factory=Findings)
    names: set[str] = field(default_factory=set)

    def prefix(self, backend: str | None) -> str:
        """Return the prefix of the API's paths in the policy."""
        servers = _at(self.root, "servers")
        first = servers.value[0] if servers is not None and isinstance(servers.value, tuple) and servers.value else None
        url = (_text(_at(first, "url")) if first is not None else None) or "/"
        problem = "has variables" if "{" in url else "" if _is_url(url) else "is not valid"
        if problem:
            self._leave(
                first or self.root, f"the server {url}", f"its URL {problem}: routes begin with the paths alone"
            )
            return ""
        if backend is None:
            self.findings.backend = url.rstrip("/") if "://" in url else None
            return "" if self.findings.backend is not None else urlsplit(url).path.rstrip("/")
        base, own = urlsplit(backend).path.rstrip("/"), urlsplit(url).path.rstrip("/")
        return own[len(base) :] if (own + "/").startswith(base + "/") else own

    def path(self, path: str, name: str, item: Node) -> None:
        """Learn one path with its operations."""
        if not name.startswith("/"):
            self._leave(item, name, "the path does not begin with a slash")
            return
        template = _rename(path)
        problem = path_problem(template)
        if problem is not None:
            self._leave(item, path, problem)
            return
        if _at(item, "servers") is not None:
            self._leave(item, path, "it has separate servers: write a backend for it")
            return
        for word, operation in _entries(item):
            method = word.upper()
            if method in METHODS:
                self._operation(method, template, operation)
            elif word in _OTHER:
                self._leave(operation, f"{method} {path}", f"the method {method} is never let through")

    def _operation(self, method: str, path: str, operation: Node) -> None:
        label = f"{method} {path}"
        if (mark := _at(operation, "deprecated")) is not None and mark.value is True and not self.deprecated:
            self._leave(operation, label, "it is deprecated: --deprecated takes it")
            return
        if _at(operation, "servers") is not None:
            self._leave(operation, label, "it has separate servers: write a backend for it")
            return
        id = _text(_at(operation, "operationId"))
        why = f"operation {id}" if id is not None and id.isprintable() and len(id) <= 100 else "from the API"
        self.findings.proposals.append(RouteProposal(method, path, why, body=self._body(method, path, operation, id)))

    def _body(self, method: str, path: str, operation: Node, id: str | None) -> ProposedSchema | None:
        request_body = _at(operation, "requestBody")
        if request_body is None or method in ("GET", "HEAD", "OPTIONS"):
            return None
        body = dereference(self.root, request_body)
        kinds = dict(_entries(_at(body, "content")))
        json_kinds = [kind for kind in kinds if _JSON.fullmatch(kind.partition(";")[0].strip())]
        if not json_kinds:
            return None
        if len(json_kinds) != len(kinds):
            others = ", ".join(kind for kind in kinds if kind not in json_kinds)
            self._leave(
                body, f"the body schema of {method} {path}", f"it may be {others} too, which no schema can check"
            )
            return None
        schema = _at(kinds[json_kinds[0]], "schema")
        if schema is None:
            return None
        converted = self.schemas.convert(schema)
        if isinstance(converted, str):
            self._leave(schema, f"the body schema of {method} {path}", converted)
            return None
        required = _at(body, "required")
        if required is None or required.value is not True:
            self._leave(
                body, f"{method} {path} without a body", "the API calls it optional; with its schema it is needed"
            )
        name = unique(_file_name(id or f"{method} {path}"), self.names)
        self.names.add(name)
        return ProposedSchema(name, converted)

    def _leave(self, node: Node, what: str, why: str) -> None:
        self.findings.left_out.append(LeftOut(what, why, place=f"{node.file}:{node.line}:{node.column}"))


def _rename(path: str) -> str:
    """Return the path with parameter names that a route accepts."""
    used: list[str] = []

    def name(match: re.Match[str]) -> str:
        plain = re.sub("[^A-Za-z0-9_]", "_", match[1])
        chosen = unique(plain if _NAME.fullmatch(plain) else "id", used)
        used.append(chosen)
        return f"{{{chosen}}}"

    return _PARAMETER.sub(name, path)


def _file_name(text: str) -> str:
    return re.sub("[^a-z0-9]+", "-", re.sub("([a-z0-9])([A-Z])", r"\1-\2", text).lower()).strip("-")[:80] or "body"


def _at(node: Node | None, *keys: str) -> Node | None:
    for key in keys:
        node = node.value.get(key) if node is not None and isinstance(node.value, Mapping) else None
    return node


def _entries(node: Node | None) -> Iterator[tuple[str, Node]]:
    """Yield the entries of a mapping, without extensions."""
    if node is not None and isinstance(node.value, Mapping):
        yield from ((key, value) for key, value in node.value.items() if not key.startswith("x-"))


def _is_url(text: str) -> bool:
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


def _text(node: Node | None) -> str | None:
    return str(node.value) if node is not None and isinstance(node.value, str | float) else None
