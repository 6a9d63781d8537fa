"""A clock that tests advance."""

from __future__ import annotations


class Clock:
    """A clock in seconds; a call returns its time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
