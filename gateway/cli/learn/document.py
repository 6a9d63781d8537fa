"""Parses an OpenAPI file into nodes with positions: YAML in common use, with numbers as keys, or JSON.

Policies are parsed more strictly (`gateway.documents`); both refuse aliases and duplicate keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from gateway.documents import Node
from gateway.errors import DocumentError, Problem

MAX_SIZE: Final = 32 * 1024 * 1024
MAX_DEPTH: Final = 200

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_FLAGS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def read_document(path: Path) -> Node:
    """Parse the document in `path`. Raises DocumentError."""
    file = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DocumentError([Problem(file, 1, 1, f"cannot be read: {error.strerror or error}")]) from error
    if len(data) > MAX_SIZE:
        raise DocumentError([Problem(file, 1, 1, f"larger than {MAX_SIZE // 2**20} MiB")])
    try:
        # A tab in JSON occurs only between values, where it means nothing; YAML refuses it.
        root = yaml.compose(data.decode().replace("\t", " "), Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise DocumentError([Problem(file, line, column, f"not YAML: {error.problem or error.context}")]) from error
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise DocumentError([Problem(file, 1, 1, f"not YAML: {str(error).splitlines()[0]}")]) from error
    return _Reader(file).node(root, 0) if root is not None else Node(None, file, 1, 1)


class _Reader:
    """Converts PyYAML's nodes."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._seen: set[int] = set()

    def node(self, given: yaml.Node, depth: int) -> Node:
        """Convert one value and its content."""
        line, column = given.start_mark.line + 1, given.start_mark.column + 1
        if isinstance(given, yaml.ScalarNode):
            return Node(_scalar(given), self._file, line, column)
        if depth > MAX_DEPTH:
            raise DocumentError([Problem(self._file, line, column, f"nested deeper than {MAX_DEPTH} levels")])
        if id(given) in self._seen:
            raise DocumentError([Problem(self._file, line, column, "used by an alias: write the value out")])
        self._seen.add(id(given))
        if isinstance(given, yaml.SequenceNode):
            return Node(tuple(self.node(one, depth + 1) for one in given.value), self._file, line, column)
        values: dict[str, Node] = {}
        keys: dict[str, tuple[int, int]] = {}
        for key, value in given.value:
            name, place = str(key.value), (key.start_mark.line + 1, key.start_mark.column + 1)
            if name in keys:
                raise DocumentError([Problem(self._file, *place, f'duplicate key "{name[:80]}"')])
            keys[name] = place
            values[name] = self.node(value, depth + 1)
        return Node(values, self._file, line, column, keys)


def _scalar(given: yaml.ScalarNode) -> str | int | float | bool | None:
    text: str = given.value
    if given.style in ("'", '"', "|", ">"):
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
