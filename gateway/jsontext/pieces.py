"""Writes large JSON in small pieces, so that other threads run in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gateway.jsontext.compact import compact_ascii, quoted

PARTS: Final = 5000
"""Values above which JSON counts as large."""

SIZE: Final = 256 * 1024
"""Characters of strings above which JSON counts as large, and the length of a piece."""


def is_large(value: object) -> bool:
    """Return whether a value takes long to write."""
    parts, size = PARTS, SIZE
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            size -= len(one)
        elif isinstance(one, dict):
            parts -= len(one)
            size -= sum(map(len, one))
            waiting += one.values()
        elif isinstance(one, list):
            parts -= len(one)
            waiting += one
        if parts < 0 or size < 0:
            return True
    return False


def written(value: object, compact: Callable[[object], str] = compact_ascii) -> Iterator[str]:
    """Yield the JSON of a value, each small part as `compact` writes it. Raises as that does."""
    if not is_large(value):
        yield compact(value)
    elif isinstance(value, str):
        yield '"'
        for start in range(0, len(value), SIZE):
            yield compact(value[start : start + SIZE])[1:-1]
        yield '"'
    elif isinstance(value, dict):
        mark = "{"
        for key, one in value.items():
            yield f"{mark}{compact(key)}:"
            yield from written(one, compact)
            mark = ","
        yield "}"
    elif isinstance(value, list):
        mark = "["
        for one in value:
            yield mark
            yield from written(one, compact)
            mark = ","
        yield "]"


def escaped(texts: Iterable[str]) -> Iterator[str]:
    """Yield one long string, given in parts, as JSON in ASCII."""
    yield '"'
    for text in texts:
        yield quoted(text)[1:-1]
    yield '"'


def gathered(texts: Iterable[str]) -> list[bytes]:
    """Join ASCII strings into byte chunks of about `SIZE`."""
    found, waiting, size = [], list[str](), 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= SIZE:
            found.append("".join(waiting).encode("ascii"))
            waiting, size = [], 0
    return [*found, "".join(waiting).encode("ascii")]
