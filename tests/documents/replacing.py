"""Replaces each value of a document in turn, for tests of the reports of invalid values."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gateway.documents import load
from gateway.errors import DocumentError
from gateway.model import Json

WRONG: tuple[Json, ...] = ([[]], "{params.zzz}")
"""Values that are invalid nearly everywhere."""

Place = tuple[str | int, ...]


def unknown_keys(text: str, parse: Callable[[str], object]) -> Iterator[tuple[Place, Json, str]]:
    """Yield each key of the valid document `text` that `parse` reports as unknown after another value was replaced."""
    whole = load(text, "whole").plain()
    parse(json.dumps(whole))
    for place in _places(whole):
        for wrong in WRONG:
            changed: Any = copy.deepcopy(whole)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = wrong
            try:
                parse(json.dumps(changed))
            except DocumentError as error:
                for problem in error.problems:
                    if "unknown key" in problem.message:
                        yield place, wrong, problem.message


def _places(value: Json, place: Place = ()) -> Iterator[Place]:
    items: Iterable[tuple[str | int, Json]] = ()
    match value:
        case dict():
            items = value.items()
        case list():
            items = enumerate(value)
        case _:
            pass
    for key, inner in items:
        yield (*place, key)
        yield from _places(inner, (*place, key))
