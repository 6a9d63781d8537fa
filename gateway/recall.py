"""What was found out of header fields is remembered: the same ones come again and again, at least for a second."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar, TypeVarTuple

from gateway.model import Headers

T = TypeVar("T")
Others = TypeVarTuple("Others")

KEPT: Final = 32
FEW: Final = 12
"""Fields up to which they are remembered, so that nobody fills the memory with large ones."""


def recalled(find: Callable[[Headers, *Others], T]) -> Callable[[Headers, *Others], T]:
    """Remember what the pure function `find` gave for the last few headers; its other arguments must be hashable."""
    known = lru_cache(maxsize=KEPT)(find)

    def found(headers: Headers, *others: *Others) -> T:
        return known(headers, *others) if len(headers) <= FEW else find(headers, *others)

    return found
