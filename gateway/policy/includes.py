"""Puts a policy together from its file and the parts that it includes; each rule keeps its place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.documents.nodes import Node, parse, quote
from gateway.documents.reader import read_bytes, unreadable
from gateway.errors import DocumentError, Problem

MAX_FILE: Final = 8 * 1024 * 1024

DEEPEST: Final = 8
"""Parts that may include each other in a row."""

MOST: Final = 64
"""Parts of one policy."""

_LISTS: Final = ("routes", "frames", "tests")
_NAMED: Final = ("backends", "tools")
_SHARED: Final = ("limits", "responses", "links", "external")
_JOINED: Final = {
    ("responses", "mask"),
    ("links", "allow"),
    *(("external", kind) for kind in ("fonts", "images", "styles", "scripts", "connect")),
}
"""Lists that are put together, so that no file takes away what another one masks or allows."""

_OWN: Final = ("mode",)
"""Keys of the policy file itself: a part must not relax the policies that include it."""


def read_file(path: Path) -> str:
    """Read a text file. Raises DocumentError."""
    try:
        return read_bytes(path, MAX_FILE).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError([Problem(str(path), 1, 1, unreadable(error))]) from error


class PolicyFiles:
    """The files around the policy in `path`: its parts and schemas, below its own folder or the folder `root`.

    `root` is that of gateway.yaml; by default the nearest folder with one, at or above the policy.
    """

    def __init__(self, path: Path, root: Path | None = None) -> None:
        real = Path(os.path.realpath(path))
        folder = root if root is not None else config_folder(real)
        self._folders = {real.parent, *([Path(os.path.realpath(folder))] if folder is not None else [])}
        self._real = {str(path): real}

    def beside(self, file: str, name: str) -> str:
        """Return the text of a file in or below the folder of `file`. Raises ValueError."""
        folder = self._real[file].parent
        path = Path(os.path.realpath(folder / name))  # `resolve` raises RuntimeError for a loop of links
        if not path.is_relative_to(folder):
            raise ValueError(f"{quote(name)} is outside of the folder of the policy")
        return _text(path, name)

    def include(self, file: str, name: str) -> tuple[str, str]:
        """Return the shown name and the text of a part that `file` names relative to itself. Raises ValueError."""
        path = Path(os.path.realpath(self._real[file].parent / name))
        if not any(path.is_relative_to(folder) for folder in self._folders):
            raise ValueError(f"{quote(name)} is outside of the folder of the configuration, or links to the outside")
        display_path = os.path.normpath(Path(file).parent / name)
        known = next((one for one, real in self._real.items() if real == path), display_path)
        self._real[known] = path
        return known, _text(path, name)


def config_folder(path: Path) -> Path | None:
    """Return the nearest folder with a gateway.yaml, at or above that of the file `path`."""
    return next((folder for folder in path.parents if (folder / "gateway.yaml").is_file()), None)


def _text(path: Path, name: str) -> str:
    try:
        return read_file(path)
    except DocumentError as error:
        raise ValueError(f"{quote(name)} {error.problems[0].message}") from error


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """A policy put together: `files` are those of its parts, `texts` their contents, in the order of inclusion."""

    node: Node
    files: tuple[str, ...]
    texts: tuple[str, ...]


def put_together(text: str, file: str, files: PolicyFiles | None, problems: list[Problem]) -> PolicyParts:
    """Parse the policy in `text` and its parts; errors are appended to `problems`. Raises DocumentError.

    The routes of a file come before those of the parts that it includes. `files` None: nothing can be included.
    """
    reading = _Inclusion(files, problems)
    main = parse(text, file, problems)
    if not isinstance(main.value, Mapping) or "include" not in main.value:
        return PolicyParts(main, (), ())
    parts = reading.all_of(main, (file,))
    document = _merge([node for node, _ in parts], problems)
    return PolicyParts(document, tuple(node.file for node, _ in parts[1:]), tuple(text for _, text in parts[1:]))


@dataclass(slots=True)
class _Inclusion:
    files: PolicyFiles | None
    problems: list[Problem]
    seen: dict[str, None] = field(default_factory=dict)

    def all_of(self, node: Node, chain: tuple[str, ...]) -> list[tuple[Node, str]]:
        """Return a file and all of its parts, depth first; a part that is included twice is there once."""
        parts = [(node, "")]
        for entry in self._included_parts(node):
            part = self._part(entry, chain)
            if part is not None:
                parts += [(part[0], part[1]), *self.all_of(part[0], (*chain, part[0].file))[1:]]
        return parts

    def _included_parts(self, node: Node) -> Iterator[Node]:
        entries = node.value.get("include") if isinstance(node.value, Mapping) else None
        if entries is None:
            return
        if not isinstance(entries.value, tuple):
            self.problems.append(entries.problem(f"include: must be a list of files, not {entries.kind}"))
            return
        for one in entries.value:
            if isinstance(one.value, str) and one.value:
                yield one
            else:
                self.problems.append(one.problem(f"include: must be the name of a file, not {one.kind}"))

    def _part(self, entry: Node, chain: tuple[str, ...]) -> tuple[Node, str] | None:
        """Return the part that an item of `include` names; None after a problem, or if it is there already."""
        name = str(entry.value)
        if self.files is None:
            return self._refuse(entry, "a policy that is not read from a file has no files beside it")
        if name.startswith("/") or "\\" in name or ":" in name:
            return self._refuse(entry, f"{quote(name)} must be a path relative to this file")
        try:
            display_path, text = self.files.include(entry.file, name)
        except ValueError as error:
            return self._refuse(entry, str(error))
        if display_path in chain:
            path = " → ".join([*chain[chain.index(display_path) :], display_path])
            return self._refuse(entry, f"{quote(name)} includes itself: {path}")
        if len(chain) > DEEPEST:
            return self._refuse(entry, f"{quote(name)} is included through more than {DEEPEST} files")
        if display_path in self.seen:
            return None
        if len(self.seen) >= MOST:
            return self._refuse(entry, f"a policy has at most {MOST} parts")
        self.seen[display_path] = None
        try:
            node = parse(text, display_path, self.problems)
        except DocumentError as error:
            self.problems[:] = error.problems  # it contains those from before
            return None
        if node.value is None:
            return None
        if not isinstance(node.value, Mapping):
            self.problems.append(node.problem(f"must be a mapping, not {node.kind}"))
            return None
        for key in _OWN:
            if key in node.value:
                line, column = node.keys[key]
                self.problems.append(
                    Problem(display_path, line, column, f'"{key}" belongs in the policy, not in a part')
                )
        return node, text

    def _refuse(self, entry: Node, message: str) -> tuple[Node, str] | None:
        """Report a problem at the item, which is left out."""
        self.problems.append(entry.problem(f"include: {message}"))
        return None


def _merge(nodes: list[Node], problems: list[Problem]) -> Node:
    """Return one document of several: the first is the policy itself, and what it sets is nearest."""
    main = nodes[0]
    values: dict[str, Node] = {}
    keys: dict[str, tuple[int, int]] = {}
    for node in nodes:
        entries = node.value if isinstance(node.value, Mapping) else {}
        for key, value in entries.items():
            if key == "version" and node is not main and value.value != 1:
                problems.append(value.problem(f"version: must be the number 1, not {value.kind}"))
            if key in ("include", "version") and node is not main:
                continue
            if key in _OWN and node is not main:
                continue
            before = values.get(key)
            values[key] = value if before is None else _join(key, before, value, problems)
            keys.setdefault(key, node.keys.get(key, (1, 1)))
    return Node(values, main.file, main.line, main.column, keys)


def _join(key: str, near: Node, far: Node, problems: list[Problem]) -> Node:
    """Return the value of a key that two files set; `near` is of the file that includes, or of an earlier part."""
    if key in _LISTS and isinstance(near.value, tuple) and isinstance(far.value, tuple):
        return Node((*near.value, *far.value), near.file, near.line, near.column)
    if key in _NAMED and isinstance(near.value, Mapping) and isinstance(far.value, Mapping):
        for name in far.value.keys() & near.value.keys():
            line, column = far.keys[name]
            other = near.value[name]
            message = f'{key}: "{name}" is defined in {other.file}, line {near.keys[name][0]}, too'
            problems.append(Problem(far.file, line, column, message))
        return _together(near, far, {**far.value, **near.value})
    if key in _SHARED and isinstance(near.value, Mapping) and isinstance(far.value, Mapping):
        entries = {**far.value, **near.value}
        for name in far.value.keys() & near.value.keys():
            one, other = near.value[name], far.value[name]
            if (key, name) in _JOINED and isinstance(one.value, tuple) and isinstance(other.value, tuple):
                entries[name] = Node((*one.value, *other.value), one.file, one.line, one.column)
        return _together(near, far, entries)
    if key not in (*_LISTS, *_NAMED, *_SHARED):
        return near
    wrong = far if isinstance(near.value, tuple | Mapping) else near
    problems.append(wrong.problem(f"{key}: must be a {'list' if key in _LISTS else 'mapping'}, not {wrong.kind}"))
    return near


def _together(near: Node, far: Node, entries: Mapping[str, Node]) -> Node:
    return Node(entries, near.file, near.line, near.column, {**far.keys, **near.keys})
