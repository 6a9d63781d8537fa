"""Callbacks that are called at each change of something, until they are unregistered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Watchers(Generic[P]):
    """The watchers of one thing, called in the order in which they were added."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[P, None]] = {}

    def add(self, callback: Callable[P, None]) -> Callable[[], None]:
        """Call `callback` at each change from now on; the returned function unregisters it."""
        key = object()
        self._callbacks[key] = callback

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    def notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every watcher; one that is added meanwhile is called at the next change."""
        for callback in list(self._callbacks.values()):
            callback(*args, **kwargs)
