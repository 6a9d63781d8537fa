"""Files that only the gateway's user can read, from their creation on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from gateway.cli.group import Unusable


def opener(path: str, flags: int) -> int:
    """Open such a file, as the `opener` of `open`; an existing file keeps its mode."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


@contextmanager
def output(place: str) -> Iterator[IO[str]]:
    """Yield the output of a command with content of the record: such a file, or standard output for `-`."""
    if place == "-":
        yield sys.stdout
        return
    try:
        file = open(place, "w", encoding="utf-8", opener=opener)  # noqa: SIM115  # closed below
    except OSError as error:
        raise Unusable(f"{place} cannot be written: {error.strerror}") from error
    with file:
        yield file
