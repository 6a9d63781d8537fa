"""The tests of the browser and of other programs run in a process of their own, beside all others: they wait a lot.

Their reports are told here as if they had run here, one after the other: one run, one count, one exit code.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

BESIDE: Final = frozenset(Path(__file__).parent / folder for folder in ("browser", "interop"))

FEW: Final = 20
"""Tests for which another process is not worth its start."""

REPORTS: Final = "WEBMCP_GATEWAY_TESTS_REPORTS"
"""In the environment of that process: the descriptor of the pipe that its reports go to."""

_BESIDE: Final = pytest.StashKey["Beside"]()

TELLING: Final = "telling"


class Beside:
    """The other process, and what it has told."""

    def __init__(self, config: pytest.Config, items: Sequence[pytest.Item], more: Sequence[pytest.Item]) -> None:
        self.wanted = frozenset(item.nodeid for item in items)
        self._config = config
        self._told: queue.SimpleQueue[pytest.TestReport | None] = queue.SimpleQueue()
        self._ended = False
        self._folder = tempfile.TemporaryDirectory(prefix="webmcp-gateway-tests-")
        self._log = Path(self._folder.name) / "log"
        chosen = Path(self._folder.name) / "tests"
        chosen.write_text("".join(f"{item.nodeid}\n" for item in (*items, *more)), "utf-8")
        theirs, ours = os.pipe()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"@{chosen}"],
                cwd=config.rootpath,
                env={**os.environ, REPORTS: str(ours)},
                pass_fds=[ours],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(ours)
        self._reader = threading.Thread(target=self._read, args=[theirs], daemon=True)
        self._reader.start()

    def reports(self, nodeid: str, *, last: bool) -> Iterator[pytest.TestReport]:
        """Those of one test, as they come, and whatever else fails; of the `last` one until the process has ended."""
        told = False
        while not self._ended and (last or not told):
            report = self._told.get()
            if report is None:
                self._ended = True
                continue
            told = told or (report.nodeid == nodeid and report.when == "teardown")
            if report.nodeid == nodeid or report.failed:
                yield report
        if not told:
            said = self._log.read_text("utf-8", "replace")[-3000:]
            why = f"The process of the tests beside these ended before this one did. Its last output:\n{said}"
            yield pytest.TestReport(nodeid, ("", None, nodeid), {}, "failed", why, "call")

    def end(self) -> None:
        """The process ends, if it has not, and leaves nothing behind."""
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        self._folder.cleanup()

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "r", encoding="utf-8") as lines:
            for line in lines:
                told: dict[str, Any] = json.loads(line)
                for name in ("location", "longrepr"):  # JSON knows no tuples
                    if isinstance(told[name], list):
                        told[name] = tuple(told[name])
                self._told.put(self._config.hook.pytest_report_from_serializable(config=self._config, data=told))
        self._told.put(None)


class Telling:
    """In the other process: tells every report."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self._config = config
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One line of JSON."""
        told = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        os.write(self._pipe, json.dumps(told).encode() + b"\n")


def is_beside(config: pytest.Config) -> bool:
    """Whether this is the other process, which tells."""
    pipe = os.environ.pop(REPORTS, None)
    if pipe is None:
        return False
    os.set_inheritable(int(pipe), False)
    config.pluginmanager.register(Telling(config, int(pipe)), TELLING)
    return True


def begin(config: pytest.Config, items: list[pytest.Item], at_end: str) -> None:
    """Where both kinds are asked for, those of `BESIDE` begin at once, in the other process.

    The test `at_end` looks at what its own process has done: it runs in both.
    """
    there = [item for item in items if not BESIDE.isdisjoint(item.path.parents)]
    here = [item for item in items if BESIDE.isdisjoint(item.path.parents)]
    if len(there) < FEW or not here or config.pluginmanager.has_plugin(TELLING):
        return
    if config.option.collectonly or config.option.usepdb:
        return
    config.stash[_BESIDE] = Beside(config, there, [item for item in here if item.name == at_end])
    items[:] = [*here[:-1], *there, here[-1]]  # what is set up here is torn down after the last that runs here


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """What runs in the other process is told here."""
    beside = item.config.stash.get(_BESIDE, None)
    if beside is None or item.nodeid not in beside.wanted:
        return None
    last = nextitem is None or nextitem.nodeid not in beside.wanted
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in beside.reports(item.nodeid, last=last):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Also where the run was ended early."""
    beside = session.config.stash.get(_BESIDE, None)
    if beside is not None:
        beside.end()
