"""The one way in which a benchmark fails."""

from __future__ import annotations

from collections.abc import Iterator


class BenchmarkError(Exception):
    """The benchmark cannot go on; the message is for the person who started it."""


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """What went wrong, of all that went wrong at once."""
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from leaves(one)
        else:
            yield one
