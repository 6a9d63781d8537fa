"""Parses YAML into nodes: values of the YAML 1.2 core types with their positions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import yaml

from gateway.errors import DocumentError, Problem
from gateway.model import Json

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,12})(B|kB|KB|MB|GB|KiB|MiB|GiB)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def quote(text: str) -> str:
    """Quote a text for a message, shortened if it is long."""
    return f'"{text[:80]}…"' if len(text) > 80 else f'"{text}"'


def parse_duration(text: str) -> float:
    """Parse `10s`, `2m`, `500ms`, `24h`, `90d` to seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        example = "500ms, 10s, 2m, 24h or 90d"
        raise ValueError(f"{quote(text)} is not a duration: write a positive number with a unit, such as {example}")
    return seconds


def parse_size(text: str) -> int:
    """Parse `64KiB`, `1MiB`, `10MB`, `0B` to bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if not match:
        example = "512B, 64KiB, 1MiB or 10MB"
        raise ValueError(f"{quote(text)} is not a size: write a whole number with a unit, such as {example}")
    return int(match[1]) * _BYTES[match[2]]


MAX_SIZE: Final = 8 * 1024 * 1024
MAX_DEPTH: Final = 32
MAX_NUMBER: Final = 40

Scalar: TypeAlias = str | int | float | bool | None

_PLAIN: dict[str, bool | None] = {"null": None, "Null": None, "NULL": None, "~": None, "": None}
_PLAIN |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document and its position; `line` and `column` count from 1.

    `keys` maps each key of a mapping to its position.
    """

    value: Scalar | tuple[Node, ...] | Mapping[str, Node]
    file: str
    line: int
    column: int
    keys: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Its type, as error messages name it."""
        return _kind(self.value)

    def plain(self) -> Json:
        """Return the value without positions."""
        if isinstance(self.value, Mapping):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, tuple):
            return [node.plain() for node in self.value]
        return self.value

    def problem(self, message: str) -> Problem:
        """Return a problem at this position."""
        return Problem(self.file, self.line, self.column, message)


def load(text: str, file: str) -> Node:
    """Parse the single document in `text`; `file` is its name in messages. Raises DocumentError."""
    problems: list[Problem] = []
    node = parse(text, file, problems)
    raise_all(problems)
    return node


def parse(text: str, file: str, problems: list[Problem]) -> Node:
    """Parse like `load`, but append errors to `problems` while parsing can continue."""
    if len(text) > MAX_SIZE:
        raise DocumentError([Problem(file, 1, 1, f"larger than {MAX_SIZE // 2**20} MiB")])
    try:
        return _Builder(file, problems).build(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        match "".join(text.splitlines()[line - 1 : line])[column - 1 : column]:
            case "\t":
                message = "a tab, where lines are indented: write spaces"
            case "{" if column > 1:
                message = 'a "{" inside of a text: put the text in quotes, such as "/api/{id}"'
        raise DocumentError([*problems, Problem(file, line, column, f"not YAML: {message}")]) from error
    except (yaml.YAMLError, UnicodeError) as error:
        message, *_ = str(error).splitlines()
        raise DocumentError([*problems, Problem(file, 1, 1, f"not YAML: {message}")]) from error


class _Frame:
    """A list or mapping under construction; `key` is the key of the next value."""

    __slots__ = ("column", "entries", "is_mapping", "items", "key", "keys", "line")

    def __init__(self, is_mapping: bool, line: int, column: int) -> None:
        self.is_mapping = is_mapping
        self.line = line
        self.column = column
        self.items: list[Node] = []
        self.entries: dict[str, Node] = {}
        self.keys: dict[str, tuple[int, int]] = {}
        self.key: str | None = None


class _Builder:
    """Builds nodes from parser events, without recursion and to a maximum depth, so that the stack cannot overflow."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        self.stack: list[_Frame] = []
        self.roots: list[Node] = []

    def build(self, text: str) -> Node:
        """Parse the single document. Stops at the first syntax error."""
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.ScalarEvent):
                self._check(event, event.tag, event.anchor)
                self._place(self._scalar(event), event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._check(event, event.tag, event.anchor)
                self._open(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close()
            elif isinstance(event, yaml.AliasEvent):
                self._problem(event, f"alias *{event.anchor} is refused: write the value out")
                self._place(None, event)
            elif isinstance(event, yaml.DocumentStartEvent) and self.roots:
                self._problem(event, "a second document is refused: write one document per file")
        return self.roots[0] if self.roots else Node(None, self.file, 1, 1)

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        line, column = _at(event)
        if len(self.stack) >= MAX_DEPTH:
            raise DocumentError(
                [*self.problems, Problem(self.file, line, column, f"nested deeper than {MAX_DEPTH} levels")]
            )
        if self._at_key():
            self._problem(event, "a key must be text")
            self.stack[-1].key = ""
        self.stack.append(_Frame(isinstance(event, yaml.MappingStartEvent), line, column))

    def _close(self) -> None:
        frame = self.stack.pop()
        value = frame.entries if frame.is_mapping else tuple(frame.items)
        self._add(Node(value, self.file, frame.line, frame.column, frame.keys))

    def _place(self, value: Scalar, event: yaml.Event) -> None:
        if self._at_key():
            self._key(value, event)
        else:
            self._add(Node(value, self.file, *_at(event)))

    def _at_key(self) -> bool:
        return bool(self.stack) and self.stack[-1].is_mapping and self.stack[-1].key is None

    def _key(self, value: Scalar, event: yaml.Event) -> None:
        frame = self.stack[-1]
        if not isinstance(value, str):
            self._problem(event, f"a key must be text, not {_kind(value)}; put it in quotes")
        elif not value:
            self._problem(event, "a key must not be empty")
        elif value in frame.keys:
            line, column = frame.keys[value]
            self._problem(event, f"duplicate key {quote(value)}: it is already on line {line}, column {column}")
        else:
            frame.keys[value] = _at(event)
            frame.key = value
            return
        frame.key = ""

    def _add(self, node: Node) -> None:
        if not self.stack:
            self.roots.append(node)
        elif self.stack[-1].is_mapping:
            frame = self.stack[-1]
            if frame.key:
                frame.entries[frame.key] = node
            frame.key = None
        else:
            self.stack[-1].items.append(node)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        text: str = event.value
        if event.style:
            return text
        if text in _PLAIN:
            return _PLAIN[text]
        if text[0] in "-+.0123456789":
            return self._number(text, event)
        return text

    def _number(self, text: str, event: yaml.ScalarEvent) -> Scalar:
        if not (_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text) or _SPECIAL_FLOAT.fullmatch(text)):
            return text
        if len(text) > MAX_NUMBER or _SPECIAL_FLOAT.fullmatch(text):
            self._problem(event, f"{quote(text)} is not a number that can be used here; put it in quotes if it is text")
            return 0
        if _INTEGER.fullmatch(text):
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        number = float(text)
        if math.isinf(number):
            self._problem(event, f"{quote(text)} is too large a number")
        return number

    def _check(self, event: yaml.Event, tag: str | None, anchor: str | None) -> None:
        if tag is not None:
            self._problem(event, f"tag {quote(tag)} is refused: values have the types that they show")
        if anchor is not None:
            self._problem(event, f"anchor &{anchor} is refused: write the value out where it is needed")

    def _problem(self, event: yaml.Event, message: str) -> None:
        self.problems.append(Problem(self.file, *_at(event), message))


def _at(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def raise_all(problems: list[Problem]) -> None:
    """Raise DocumentError with `problems` in file order, if there are any."""
    if problems:
        files = list(dict.fromkeys(problem.file for problem in problems))
        raise DocumentError(sorted(problems, key=lambda one: (files.index(one.file), one.line, one.column)))


def _kind(value: Scalar | tuple[Node, ...] | Mapping[str, Node]) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {quote(value)}"
        case int() | float():
            return f"the number {value}"
        case tuple():
            return "a list"
        case _:
            return "a mapping"
