"""A cache of results computed from header fields: clients send the same ones again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar, TypeVarTuple

from gateway.model import Headers

T = TypeVar("T")
Others = TypeVarTuple("Others")

KEPT: Final = 32
FEW: Final = 12
"""Most fields of a cached head, so that large heads do not fill the memory."""


def recalled(find: Callable[[Headers, *Others], T]) -> Callable[[Headers, *Others], T]:
    """Cache the pure function `find` for the last few headers; its other arguments must be hashable."""
    known = lru_cache(maxsize=KEPT)(find)

    def found(headers: Headers, *others: *Others) -> T:
        return known(headers, *others) if len(headers) <= FEW else find(headers, *others)

    return found
