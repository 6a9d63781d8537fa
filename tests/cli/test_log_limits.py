"""The number of lines of each kind is limited, and the rest summarized, for every logger."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import logs
from gateway.cli.logs import KINDS, LINES, LONGEST, PERIOD, Limits
from tests.clock import Clock
from tests.world import World


class Kept(logging.Handler):
    """Collects the lines that would be written."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self.limits = Limits(self.handle, clock or Clock())
        self.addFilter(self.limits)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def logger(handler: logging.Handler) -> logging.Logger:
    """A logger that writes to `handler` alone."""
    found = logging.Logger("tests.limits")
    found.addHandler(handler)
    return found


@pytest.mark.bound("log lines")
def test_lines_of_a_kind_are_limited_and_summed_up() -> None:
    """The arguments do not matter; another wording, level or logger is a kind of its own."""
    clock = Clock()
    kept = Kept(clock)
    log = logger(kept)
    for number in range(LINES + 30):
        log.warning("refused %r", f"caller {number}")
    log.error("refused %r", "worse")
    log.warning("another")
    assert (len(kept.said), kept.said[-2:]) == (LINES + 2, ["refused 'worse'", "another"])
    clock.now += PERIOD
    log.warning("refused %r", "later")
    assert kept.said[LINES + 2].startswith("30 more lines like this between ")
    assert kept.said[LINES + 2].endswith(": refused %r")
    assert kept.said[LINES + 3] == "refused 'later'"
    kept.limits.flush()
    assert len(kept.said) == LINES + 4


def test_kinds_are_bounded() -> None:
    """Libraries put a caller's text into the wording itself."""
    kept = Kept()
    log = logger(kept)
    for number in range(KINDS + LINES + 100):
        log.warning(f"caller {number} said so")
    assert len(kept.said) == KINDS + LINES
    kept.limits.flush()
    assert (len(kept.said), kept.said[-1].startswith("100 more lines")) == (KINDS + LINES + 1, True)


def test_a_long_message_is_cut() -> None:
    """The line contains the number of omitted characters."""
    kept = Kept()
    logger(kept).warning("said %s", "x" * (2 * LONGEST))
    assert len(kept.said[0]) < LONGEST + 100
    assert kept.said[0].endswith(f"… ({LONGEST + 5} characters more)")


async def test_a_flood_of_no_http_makes_few_lines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone can send such bytes; the summary is written when the period is over."""
    monkeypatch.setattr(logs, "PERIOD", 3.0)
    kept = Kept()
    kept.limits = Limits(kept.handle)
    kept.filters[:] = [kept.limits]
    logging.getLogger().addHandler(kept)
    try:
        for _ in range(LINES + 40):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
            writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nno header\r\n\r\n")
            assert (await reader.read(12)).endswith(b" 400")
            writer.close()
        assert len(kept.said) >= LINES
        async with asyncio.timeout(60):
            while not any("more lines like this" in line for line in kept.said):
                await asyncio.sleep(0.05)
    finally:
        logging.getLogger().removeHandler(kept)


def test_the_end_of_the_program_sums_up(tmp_path: Path) -> None:
    """The set-up of commands does so, on standard error."""
    script = "import logging\nfrom gateway.cli.logs import set_up\nset_up('text', False)\n"
    script += "for number in range(100):\n    logging.getLogger('x').warning('said %d', number)\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert len(lines) == LINES + 1
    assert f"{100 - LINES} more lines like this" in lines[-1]
    assert done.stdout == ""
