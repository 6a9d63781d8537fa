"""A typed reader over nodes that reports every problem at once, including unknown keys."""

from __future__ import annotations

import difflib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from gateway.documents.nodes import Node, parse, parse_duration, parse_size, quote, raise_all
from gateway.errors import DocumentError, Problem


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """The reason why a file of text cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start}: save the file so"
    return f"cannot be read: {error.strerror or error}"


LARGEST: Final = 256 * 1024 * 1024
"""Bytes of a file that is read at once, such as a film in an app."""


def open_file(path: Path) -> int:
    """Open a regular file, and return its descriptor. Raises OSError: a pipe would block, a device may be endless."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name contains a NUL character", str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a pipe would block
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, and no file", str(path))


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Raises OSError."""
    with os.fdopen(open_file(path), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        size = f"{most // 2**20} MiB" if most >= 2**20 else f"{most:,} bytes"
        raise OSError(errno.EFBIG, f"larger than {size}", str(path))
    return content


T = TypeVar("T")


def suggestion(name: str, allowed: Iterable[str]) -> str:
    """Return `, did you mean "…"?`, or an empty string if no allowed name is similar."""
    near = difflib.get_close_matches(name, list(allowed), n=1)
    return f', did you mean "{near[0]}"?' if near else ""


@contextmanager
def read_document(text: str, file: str, *, empty: bool = False) -> Iterator[Section]:
    """Yield the document as a section; at the end raise DocumentError with all problems, including unknown keys.

    With `empty` an empty document counts as an empty mapping.
    """
    problems: list[Problem] = []
    node = parse(text, file, problems)
    if empty and node.value is None:
        node = Node({}, node.file, node.line, node.column)
    with read_parsed(node, problems) as section:
        yield section


@contextmanager
def read_parsed(node: Node, problems: list[Problem] | None = None) -> Iterator[Section]:
    """Read like `read_document`, for a parsed document; `problems` are its errors so far."""
    report = Report(problems if problems is not None else [])
    section = report.section(node)
    try:
        yield section
    except OSError as error:  # a path that the system refuses wherever it is looked for, such as one with a long name
        if not isinstance(error.filename, str):
            raise
        place = max(_naming(node, error.filename), key=lambda one: len(str(one.value)), default=node)
        report.add(place, f"{error.filename[:80]!r} cannot be used: {error.strerror}")
        raise DocumentError(report.problems) from error
    report.close()


def _naming(node: Node, path: str) -> Iterator[Node]:
    """Yield the texts with which a path ends."""
    if isinstance(node.value, str):
        if node.value and path.endswith(node.value.removeprefix("./")):
            yield node
    elif isinstance(node.value, Mapping):
        for one in node.value.values():
            yield from _naming(one, path)
    elif isinstance(node.value, tuple):
        for one in node.value:
            yield from _naming(one, path)


class Report:
    """Collects the problems of one document, its opened sections, and the further files that its values name."""

    __slots__ = ("files", "problems", "sections")

    def __init__(self, problems: list[Problem]) -> None:
        self.files: set[Path] = set()
        self.problems = problems
        self.sections: list[Section] = []

    def add(self, node: Node, message: str) -> None:
        """Add a problem at `node`."""
        self.problems.append(node.problem(message))

    def section(self, node: Node, key: str | None = None) -> Section:
        """Return a reader over a mapping; anything else is one problem, and reads as an empty mapping."""
        if not isinstance(node.value, Mapping):
            prefix = f"{key}: " if key is not None else ""
            remedy = "; an empty one is {}" if key is not None and node.value is None else ""
            self.add(node, f"{prefix}must be a mapping, not {node.kind}{remedy}")
            return Section(Node({}, node.file, node.line, node.column), Report([]))
        section = Section(node, self)
        self.sections.append(section)
        return section

    def close(self) -> None:
        """Report unknown keys. Raises DocumentError if there is any problem."""
        for section in self.sections:
            section.close()
        raise_all(self.problems)


class Section:
    """A typed reader over one mapping. Keys that are never read are unknown.

    After a problem a reader returns a placeholder of the right type, so that reading can continue.
    """

    __slots__ = ("_entries", "_used_keys", "node", "report")

    def __init__(self, node: Node, report: Report) -> None:
        self.node = node
        self.report = report
        self._entries: Mapping[str, Node] = node.value if isinstance(node.value, Mapping) else {}
        self._used_keys: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def get(self, key: str) -> Node | None:
        """Return the node of `key`, None if it is absent; for values without a typed reader."""
        self._used_keys[key] = None
        return self._entries.get(key)

    def problem(self, message: str, key: str | None = None) -> None:
        """Report a problem at the value of `key`, or at this section."""
        node = self._entries.get(key, self.node) if key is not None else self.node
        self.report.add(node, f"{key}: {message}" if key is not None else message)

    def require(self, *keys: str) -> None:
        """Report each of `keys` that is missing."""
        for key in keys:
            if self.get(key) is None:
                self.problem(f'"{key}" is missing')

    def text(self, key: str, default: str = "") -> str:
        """Read a non-empty string."""
        node = self.get(key)
        if node is None:
            return default
        if isinstance(node.value, str) and node.value:
            return node.value
        empty = node.value == ""
        self.problem("must not be empty" if empty else f"must be text, not {node.kind}{_quote_hint(node)}", key)
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """Read `true` or `false`."""
        node = self.get(key)
        if node is None:
            return default
        if not isinstance(node.value, bool):
            self.problem(f"must be true or false, not {node.kind}", key)
            return default
        return node.value

    def integer(self, key: str, default: int = 0, *, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        """Read an integer between `minimum` and `maximum`."""
        node = self.get(key)
        if node is None:
            return default
        if isinstance(node.value, bool) or not isinstance(node.value, int) or not minimum <= node.value <= maximum:
            allowed = f"a whole number from {minimum} to {maximum}" if minimum < maximum else f"the number {minimum}"
            self.problem(f"must be {allowed}, not {node.kind}", key)
            return default
        return node.value

    def choice(self, key: str, allowed: Iterable[str], default: str = "") -> str:
        """Read one of the strings in `allowed`."""
        node = self.get(key)
        if node is None:
            return default
        names = tuple(allowed)
        if not isinstance(node.value, str) or node.value not in names:
            near = suggestion(node.value, names) if isinstance(node.value, str) else ""
            self.problem(f"must be one of {', '.join(names)}, not {node.kind}{near}", key)
            return default
        return node.value

    def duration(self, key: str, default: float = 0.0) -> float:
        """Read a duration such as `10s`, in seconds."""
        return self._parse_value(key, default, parse_duration)

    def size(self, key: str, default: int = 0) -> int:
        """Read a size such as `1MiB`, in bytes."""
        return self._parse_value(key, default, parse_size)

    def nodes(self, key: str, *, texts: bool = False) -> tuple[Node, ...]:
        """Return the items of a list, which with `texts` may be texts; none if the key is absent."""
        node = self.get(key)
        if node is None:
            return ()
        if not isinstance(node.value, tuple):
            self.problem(f"must be a list, not {node.kind}{_list_hint(node) if texts else ''}", key)
            return ()
        return node.value

    def texts(self, key: str, default: tuple[str, ...] = (), *, empty: str = "") -> tuple[str, ...]:
        """Read a list of strings; `empty` is the message for an empty list, if it is not allowed."""
        outer = self.get(key)
        if outer is None:
            return default
        nodes = []
        if empty and outer.value == ():
            self.problem(empty, key)
        for node in self.nodes(key, texts=True):
            if isinstance(node.value, str) and node.value:
                nodes.append(node.value)
            else:
                self.report.add(node, f"{key}: must be text, not {node.kind}{_quote_hint(node)}")
        return tuple(nodes)

    def section(self, key: str) -> Section:
        """Return the mapping under `key`; an empty one if it is absent."""
        node = self.get(key)
        return self.report.section(node if node is not None else Node({}, *self._place), key)

    def sections(self, key: str) -> tuple[Section, ...]:
        """Return a list of mappings."""
        return tuple(self.report.section(node) for node in self.nodes(key))

    def named_sections(self, key: str) -> dict[str, Section]:
        """Return a mapping of arbitrary names to mappings."""
        entries = self._entries.get(key)
        if entries is not None and isinstance(entries.value, tuple):
            self.get(key)
            self.problem(f"must be a mapping, not a list; write {_named_hint(entries.value)}", key)
            return {}
        outer = self.section(key)
        return {name: self.report.section(node, name) for name in outer if (node := outer.get(name)) is not None}

    def close(self) -> None:
        """Report each key that was never read, with the allowed names."""
        if len(self._entries) == sum(key in self._entries for key in self._used_keys):
            return
        allowed = list(self._used_keys)
        for key in self._entries:
            if key not in self._used_keys:
                names = f"allowed: {', '.join(sorted(allowed))}" if allowed else "no keys are allowed here"
                self._refuse_key(key, f"unknown key {quote(key)}{suggestion(key, allowed)} ({names})")

    def _refuse_key(self, key: str, message: str) -> None:
        line, column = self.node.keys.get(key, (self.node.line, self.node.column))
        self.report.problems.append(Problem(self._entries[key].file, line, column, message))

    def _parse_value(self, key: str, default: T, parse: Callable[[str], T]) -> T:
        node = self.get(key)
        if node is None:
            return default
        try:
            return parse(node.value if isinstance(node.value, str) else str(node.plain()))
        except ValueError as error:
            self.problem(str(error), key)
            return default

    @property
    def _place(self) -> tuple[str, int, int]:
        return self.node.file, self.node.line, self.node.column


_PLAIN = re.compile(r"[A-Za-z/][\w./-]*", re.ASCII)
"""Texts that YAML reads as such without quotes, also within brackets."""


def _list_hint(node: Node) -> str:
    """Return the remedy for a text in the place of a list."""
    if not isinstance(node.value, str) or not node.value or len(node.value) > 80:
        return ""
    return f"; write [{node.value if _PLAIN.fullmatch(node.value) else quote(node.value)}]"


def _named_hint(items: tuple[Node, ...]) -> str:
    """Return the mapping to write for a list of names."""
    name = items[0].value if items else None
    return f"{{{name if isinstance(name, str) and len(name) <= 80 and _PLAIN.fullmatch(name) else 'name'}: {{}}}}"


def _quote_hint(node: Node) -> str:
    return "" if isinstance(node.value, tuple | Mapping | str) else "; put it in quotes"
