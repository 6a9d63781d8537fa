"""The error of a failed benchmark."""

from __future__ import annotations

from collections.abc import Iterator


class BenchmarkError(Exception):
    """The benchmark cannot continue; the message is for the person who started it."""


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the single errors of an exception group."""
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from leaves(one)
        else:
            yield one
