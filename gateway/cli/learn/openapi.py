"""Learns routes from an OpenAPI 3.x file: paths, methods, schemas of JSON bodies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gateway.cli.learn.body_schemas import BodySchemas, pointed
from gateway.cli.learn.document import read_document
from gateway.cli.learn.found import BodySchema, Findings, Learned, LeftOut, path_problem, unique
from gateway.documents import Node
from gateway.errors import DocumentError
from gateway.policy import METHODS

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
        raise DocumentError([root.problem("is no OpenAPI 3.x: there is no `openapi: 3.…` at its top")])
    reading = _Reading(root, BodySchemas(root, legacy=version.startswith("3.0")), deprecated)
    prefix = reading.prefix(backend)
    for name, item in _entries(_at(root, "paths")):
        reading.path(prefix + name, name, pointed(root, item))
    reading.found.left_out += reading.schemas.notes()
    return reading.found


@dataclass(slots=True)
class _Reading:
    """One pass over a file."""

    root: Node
    schemas: BodySchemas
    deprecated: bool
    found: Findings = field(default_factory=Findings)
    names: set[str] = field(default_factory=set)

    def prefix(self, backend: str | None) -> str:
        """Return the prefix of the API's paths in the policy."""
        servers = _at(self.root, "servers")
        first = servers.value[0] if servers is not None and isinstance(servers.value, tuple) and servers.value else None
        url = (_text(_at(first, "url")) if first is not None else None) or "/"
        if "{" in url:
            self._leave(
                first or self.root, f"the server {url}", "its URL has variables: routes begin with the paths alone"
            )
            return ""
        if backend is None:
            self.found.backend = url.rstrip("/") if "://" in url else None
            return "" if self.found.backend is not None else urlsplit(url).path.rstrip("/")
        base, own = urlsplit(backend).path.rstrip("/"), urlsplit(url).path.rstrip("/")
        return own[len(base) :] if (own + "/").startswith(base + "/") else own

    def path(self, path: str, name: str, item: Node) -> None:
        """Learn one path with its operations."""
        if not name.startswith("/"):
            self._leave(item, name, "the path does not begin with a slash")
            return
        template = _renamed(path)
        problem = path_problem(template)
        if problem is not None:
            self._leave(item, path, problem)
            return
        if _at(item, "servers") is not None:
            self._leave(item, path, "it has servers of its own: write a backend for it")
            return
        for word, operation in _entries(item):
            method = word.upper()
            if method in METHODS:
                self._operation(method, template, operation)
            elif word in _OTHER:
                self._leave(operation, f"{method} {path}", f"the method {method} is never let through")

    def _operation(self, method: str, path: str, operation: Node) -> None:
        shown = f"{method} {path}"
        if (mark := _at(operation, "deprecated")) is not None and mark.value is True and not self.deprecated:
            self._leave(operation, shown, "it is deprecated: --deprecated takes it")
            return
        if _at(operation, "servers") is not None:
            self._leave(operation, shown, "it has servers of its own: write a backend for it")
            return
        id = _text(_at(operation, "operationId"))
        why = f"operation {id}" if id is not None and id.isprintable() and len(id) <= 100 else "from the API"
        self.found.learned.append(Learned(method, path, why, body=self._body(method, path, operation, id)))

    def _body(self, method: str, path: str, operation: Node, id: str | None) -> BodySchema | None:
        given = _at(operation, "requestBody")
        if given is None or method in ("GET", "HEAD", "OPTIONS"):
            return None
        body = pointed(self.root, given)
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
        converted = self.schemas.converted(schema)
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
        return BodySchema(name, converted)

    def _leave(self, node: Node, what: str, why: str) -> None:
        self.found.left_out.append(LeftOut(what, why, place=f"{node.file}:{node.line}:{node.column}"))


def _renamed(path: str) -> str:
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


def _text(node: Node | None) -> str | None:
    return str(node.value) if node is not None and isinstance(node.value, str | float) else None
