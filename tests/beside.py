"""A run of all tests has them in several processes, since they wait a lot: each takes the next file when one has ended.

The first of them tells what the others report as if it had run there, file by file: one run, one count, one exit code.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final

import pytest

PROCESSES: Final = 2
"""On two processors, so that what waits for a sign has it in time."""

MANY: Final = 40
"""Files from which on other processes are worth their start."""

BROWSER: Final = "tests/browser/"
"""Whose files one process takes first and all others last: each of them starts a browser, which computes a lot."""

SHARE: Final = "WEBMCP_GATEWAY_TESTS_SHARE"
"""For another process: the pipes that it takes files from, the one that it tells to, and where all tests are named."""

_FILES: Final = pytest.StashKey["Files"]()
_OTHERS: Final = pytest.StashKey["Others"]()
_NUMBER: Final = struct.Struct("I")

TELLING: Final = "telling"


class Files:
    """The tests of a run by file, and which files this process has taken; each process runs `last` at its end."""

    def __init__(
        self, items: Sequence[pytest.Item], last: pytest.Item, names: Sequence[str], pipes: Sequence[int]
    ) -> None:
        self.items: dict[str, list[pytest.Item]] = {name: [] for name in names}
        for item in items:
            self.items[file_of(item.nodeid)].append(item)
        self.last = last
        self.pipes = pipes
        self.taken: list[str] = []

    def take(self) -> Iterator[str]:
        """One after the other, until none is left; what is read from the pipe no other process reads."""
        names = list(self.items)
        for pipe in self.pipes:
            while number := os.read(pipe, _NUMBER.size):
                self.taken.append(names[_NUMBER.unpack(number)[0]])
                yield self.taken[-1]

    def after(self, name: str) -> pytest.Item:
        """A test of another file, for which what is set up for `name` alone is torn down."""
        elsewhere = (items[0] for other, items in self.items.items() if other != file_of(self.last.nodeid) and items)
        return self.last if name != file_of(self.last.nodeid) else next(elsewhere)


class Others:
    """The other processes, and what they have told."""

    def __init__(self, config: pytest.Config, files: Files) -> None:
        self._config = config
        self._files = files
        self._folder = tempfile.TemporaryDirectory(prefix="webmcp-gateway-tests-")
        self._queue: queue.SimpleQueue[pytest.TestReport | None] = queue.SimpleQueue()
        self._open: dict[str, list[pytest.TestReport]] = {}
        self._whole: set[str] = set()
        self._failed = False
        chosen = Path(self._folder.name) / "tests"
        chosen.write_text("".join(f"{item.nodeid}\n" for items in files.items.values() for item in items), "utf-8")
        self._logs = [Path(self._folder.name) / str(number) for number in range(1, PROCESSES)]
        self._readers = list[threading.Thread]()
        orders = [files.pipes[::-1], *([files.pipes] * (PROCESSES - 2))]
        self._processes = [self._start(chosen, log, pipes) for log, pipes in zip(self._logs, orders, strict=True)]
        self._running = len(self._processes)

    def whole(self, *, wait: bool) -> Iterator[list[pytest.TestReport]]:
        """The reports of each file that has ended there, with `wait` of all of them; what else fails comes alone."""
        while self._running:
            try:
                report = self._queue.get(block=wait)
            except queue.Empty:
                return
            if report is None:
                self._running -= 1
                continue
            self._failed = self._failed or report.failed
            name = file_of(report.nodeid)
            if report.nodeid == self._files.last.nodeid or name not in self._files.items:
                if report.failed:
                    yield [report]
                continue
            told = self._open.setdefault(name, [])
            told.append(report)
            if sum(one.when == "teardown" for one in told) == len(self._files.items[name]):
                self._whole.add(name)
                yield self._open.pop(name)

    def untold(self) -> Iterator[list[pytest.TestReport]]:
        """When all have ended: of files that have not, what was told, and a failure of each test without reports."""
        codes = [process.wait() for process in self._processes]
        said = "\n".join(
            log.read_text("utf-8", "replace")[-3000:] for log, code in zip(self._logs, codes, strict=True) if code
        )
        why = f"A process of the tests ended before this one did. Last output:\n{said}"
        for name in self._files.items.keys() - self._whole - set(self._files.taken):
            told = self._open.get(name, [])
            done = {report.nodeid for report in told if report.when == "teardown"}
            missing = [item.nodeid for item in self._files.items[name] if item.nodeid not in done]
            yield [*told, *(_failure(nodeid, why) for nodeid in missing)]
            self._failed = True
        if any(codes) and not self._failed:
            yield [_failure(self._files.last.nodeid, f"A process of the tests failed after its last one:\n{said}")]

    def end(self) -> None:
        """They end, if they have not, and leave nothing behind."""
        for process in self._processes:
            process.terminate()
        for process, reader in zip(self._processes, self._readers, strict=True):
            process.wait()
            reader.join()
        self._folder.cleanup()

    def _start(self, chosen: Path, log: Path, pipes: Sequence[int]) -> subprocess.Popen[bytes]:
        theirs, ours = os.pipe()
        # all tests of the files, whatever was chosen of them: what was not is left out there
        paths = [str(items[0].path) for items in self._files.items.values()]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "", *paths],
                cwd=self._config.rootpath,
                env={**os.environ, SHARE: " ".join(map(str, (*pipes, ours, chosen)))},
                pass_fds=[*pipes, ours],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        os.close(ours)
        self._readers.append(threading.Thread(target=self._read, args=[theirs], daemon=True))
        self._readers[-1].start()
        return process

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "r", encoding="utf-8") as lines:
            for line in lines:
                told: dict[str, Any] = json.loads(line)
                for name in ("location", "longrepr"):  # JSON knows no tuples
                    if isinstance(told[name], list):
                        told[name] = tuple(told[name])
                self._queue.put(self._config.hook.pytest_report_from_serializable(config=self._config, data=told))
        self._queue.put(None)


class Telling:
    """In another process: tells every report."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self._config = config
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One line of JSON."""
        told = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with os.fdopen(self._pipe, "wb", closefd=False) as pipe:
            pipe.write(json.dumps(told).encode() + b"\n")


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.partition("::")[0]


def _failure(nodeid: str, why: str) -> pytest.TestReport:
    return pytest.TestReport(nodeid, (file_of(nodeid), None, nodeid), {}, "failed", why, "call")


def is_beside() -> bool:
    """Whether this is another process, which tells."""
    return SHARE in os.environ


def divide(config: pytest.Config, items: list[pytest.Item], at_end: str) -> None:
    """A run of many files, and of the test `at_end`, which looks at what its own process has done, is divided."""
    last = next((item for item in items if item.name == at_end), None)
    share = os.environ.pop(SHARE, None)
    if last is None:
        if share is not None:
            items.clear()
        return
    items.remove(last)
    if share is not None:
        *descriptors, chosen = share.split(" ", 3)
        first, then, telling = map(int, descriptors)
        for descriptor in (first, then, telling):
            os.set_inheritable(descriptor, False)
        config.pluginmanager.register(Telling(config, telling), TELLING)
        order = {nodeid: place for place, nodeid in enumerate(Path(chosen).read_text("utf-8").splitlines())}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
        config.stash[_FILES] = Files(items, last, list(dict.fromkeys(map(file_of, order))), (first, then))
    else:
        names = list(dict.fromkeys(file_of(item.nodeid) for item in items))
        if len(names) >= MANY and not config.option.collectonly and not config.option.usepdb:
            browser = [number for number, name in enumerate(names) if name.startswith(BROWSER)]
            others = sorted({*range(len(names))}.difference(browser))
            config.stash[_FILES] = Files(items, last, names, (_filled(others), _filled(browser)))
    items.append(last)


def _filled(numbers: Sequence[int]) -> int:
    """A pipe that holds these, and ends after them."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(map(_NUMBER.pack, numbers)))
    os.close(writing)
    return reading


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Each process runs the files that fall to it; the first one tells what the others do."""
    files = session.config.stash.get(_FILES, None)
    if files is None or session.testsfailed:
        return None
    others = None
    if not session.config.pluginmanager.has_plugin(TELLING):
        others = session.config.stash[_OTHERS] = Others(session.config, files)
    for name in files.take():
        for item, following in pairwise([*files.items[name], files.after(name)]):
            _run(session, item, following)
        if others is not None:
            _tell(session, others.whole(wait=False))
    if others is not None:
        _tell(session, others.whole(wait=True))
        _tell(session, others.untold())
    _run(session, files.last, None)
    return True


def _run(session: pytest.Session, item: pytest.Item, following: pytest.Item | None) -> None:
    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    _stop_if_asked(session)


def _tell(session: pytest.Session, files: Iterator[list[pytest.TestReport]]) -> None:
    """Each test as if it had run here."""
    hook = session.config.hook
    for reports in files:
        for nodeid, group in groupby(reports, key=lambda report: report.nodeid):
            told = list(group)
            hook.pytest_runtest_logstart(nodeid=nodeid, location=told[0].location)
            for report in told:
                hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=nodeid, location=told[0].location)
            _stop_if_asked(session)


def _stop_if_asked(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Also where the run was ended early."""
    others = session.config.stash.get(_OTHERS, None)
    if others is not None:
        others.end()
