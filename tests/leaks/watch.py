"""Notes how much of a gateway's output was scanned, and where it contained a secret; across the processes of a run."""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.leaks.marks import found_in

FOLDER: Final = "WEBMCP_GATEWAY_TESTS_LEAKS"
"""The environment variable with the folder in which all processes of a run note their findings."""


class Watch:
    """Scans all output by the kind of place; with a `folder`, its findings are written there."""

    def __init__(self, folder: Path | None = None) -> None:
        self.seen: Counter[str] = Counter()
        self.found: list[str] = []
        self._folder = folder
        if folder is not None:
            atexit.register(self._sum_up)

    def look(self, kind: str, data: bytes, where: str = "") -> None:
        """Scan these bytes."""
        self.seen[kind] += len(data)
        form = found_in(data)
        if form is None:
            return
        at = data.index(form)
        test = os.environ.get("PYTEST_CURRENT_TEST", "a process")
        self.find(f"{kind} {where} of {test}: {form!r} in {data[max(0, at - 120) : at + 60]!r}")

    def find(self, what: str) -> None:
        """Note a secret that was found."""
        self.found.append(what)
        self._write({"found": what})

    def _sum_up(self) -> None:
        if self._folder is not None and self._folder.is_dir():
            self._write({"seen": dict(self.seen)})

    def _write(self, said: dict[str, object]) -> None:
        if self._folder is not None:
            with (self._folder / f"{os.getpid()}.jsonl").open("a") as file:
                file.write(json.dumps(said) + "\n")


class Taps:
    """The target of all taps: the watch of the run, or a separate one within `aside`.

    `cookies` are the values of sessions that gateways set: an answer contains them, and nothing else may.
    """

    def __init__(self) -> None:
        self.watch = Watch()
        self.cookies: set[str] = set()

    @contextmanager
    def aside(self) -> Iterator[Watch]:
        """Watch the output within this block separately from the run."""
        before, self.watch = self.watch, Watch()
        try:
            yield self.watch
        finally:
            self.watch = before


TAPS: Final = Taps()


def read_findings(folder: Path) -> tuple[list[str], Counter[str]]:
    """Return the findings of other processes, and how much they have scanned."""
    found, seen = [], Counter[str]()
    for path in folder.glob("*.jsonl"):
        for line in path.read_text("utf-8").splitlines():
            said = json.loads(line)
            found += [said["found"]] if "found" in said else []
            seen.update(said.get("seen", {}))
    return found, seen


def environment() -> dict[str, str]:
    """Return the environment variables with which a separate gateway process is scanned."""
    inside = Path(__file__).parent / "inside"
    return {**os.environ, "PYTHONPATH": f"{inside}:{inside.parents[2]}"}
