"""An upstream as a process: every writer learns why it ended."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from gateway.eventloop.fair_share import RoundRobin
from gateway.mcp.upstreams.transport import process as processes
from gateway.mcp.upstreams.transport.conversation import UpstreamLost
from gateway.mcp.upstreams.transport.process import Process

MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def running(code: str) -> Process:
    """Return a Python process that runs `code`."""
    return Process("up", [sys.executable, "-c", code], env={}, cwd=None, limit=1000, in_turn=RoundRobin())


async def endings(process: Process, senders: int) -> set[str]:
    """Return the errors of `run` and of so many writers, all at once and then one more."""

    async def write() -> None:
        while True:
            await process.send(MESSAGE, {})
            await asyncio.sleep(0)

    run = process.run(lambda message, stream, size: False)
    told = await asyncio.gather(run, *(write() for _ in range(senders)), return_exceptions=True)
    with pytest.raises(UpstreamLost) as late:
        await process.send(MESSAGE, {})
    assert all(isinstance(one, UpstreamLost) for one in told)
    return {str(one) for one in (*told, late.value)}


async def test_all_hear_with_which_status_it_ended() -> None:
    """Also a writer that only finds its input closed."""
    told = await endings(running("import sys; sys.stderr.write('no licence'); raise SystemExit(3)"), 5)
    assert told == {"the process ended with status 3; it said: no licence"}


async def test_all_hear_that_it_cannot_be_started(tmp_path: Path) -> None:
    """If it existed when the configuration was read, and its interpreter does not."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n", "utf-8")
    script.chmod(0o700)
    process = Process("up", [str(script)], env={}, cwd=None, limit=1000, in_turn=RoundRobin())
    assert await endings(process, 5) == {f"{script} cannot be started: No such file or directory"}


@pytest.mark.parametrize(("logged", "lines"), [(False, 100_000), (True, 2000)])
async def test_of_much_that_it_says_the_end_is_looked_at(
    logged: bool, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the exit waits for the reader of endless output; the log has all of it at debug level."""
    monkeypatch.setattr(processes, "GRACE", 60.0)  # a busy machine may need longer to read all of it
    caplog.set_level(logging.DEBUG if logged else logging.INFO, logger="gateway.mcp.upstreams.transport.process")
    looked, says = 0, Process._says

    def count(self: Process, part: bytes) -> None:
        nonlocal looked
        looked += len(part)
        says(self, part)

    monkeypatch.setattr(Process, "_says", count)
    code = f"import os; os.write(2, b'no\\n' * {lines} + b'no licence\\n')"
    said = f"it said: {'no / ' * 4}no licence"
    assert await endings(running(code), 0) == {f"the process ended with status 0; {said}"}
    assert looked == 3 * lines + 11 if logged else looked < 150_000


SAID = [
    "print('x' * 2000, flush=True)",
    "print('x' * 2000, end='', flush=True)",
    "print('{}', '\\n', 'x' * 2000, '\\n{}', flush=True)",
    "[print('x' * 400, end='', flush=True) for _ in range(9)]",
]


@pytest.mark.parametrize("senders", [0, 5])
@pytest.mark.parametrize("said", SAID)
async def test_all_hear_that_it_said_too_much(said: str, senders: int) -> None:
    """And not the status of the kill: for a line or an endless one, at once or bit by bit."""
    assert await endings(running(f"import sys; {said}; [None for _ in sys.stdin]"), senders) == {
        "the process sent a message of more than 1000 bytes"
    }


async def test_who_writes_to_one_that_reads_nothing_more_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them check concurrently whether it ends."""
    looking = asyncio.Barrier(5)

    async def together(self: Process, otherwise: str) -> str:
        await looking.wait()
        return otherwise

    async def write() -> str:
        try:
            while True:
                await process.send(MESSAGE, {})
                await asyncio.sleep(0.01)
        except UpstreamLost as lost:
            return str(lost)

    monkeypatch.setattr(Process, "_why", together)
    process = running("import os, time; os.close(0); time.sleep(60)")
    run = asyncio.ensure_future(process.run(lambda message, stream, size: False))
    async with asyncio.timeout(60):
        told = await asyncio.gather(*(write() for _ in range(5)))
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert set(told) <= {"the process closed its input", "the process is not running"}


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("apart", [False, True])
async def test_one_that_ended_is_noticed_though_a_child_holds_its_output(
    apart: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its output is read to the end, and the child is killed unless it has a separate session."""
    monkeypatch.setattr("gateway.mcp.upstreams.transport.process.LOOK", 0.05)
    monkeypatch.setattr("gateway.mcp.upstreams.transport.process.GRACE", 0.2)
    child = tmp_path / "child"
    code = f"""if True:
        import pathlib, subprocess, sys
        child = subprocess.Popen(["sleep", "60"], start_new_session={apart})
        pathlib.Path({str(child)!r}).write_text(str(child.pid))
        for number in range(2000):
            print('{{"said":', number, '}}')
        raise SystemExit(3)"""
    heard: list[object] = []

    def receive(message: object, stream: object, size: int) -> bool:
        heard.append(message)
        return True

    try:
        async with asyncio.timeout(60):
            with pytest.raises(UpstreamLost, match="ended with status 3"):
                await running(code).run(receive)
            while not apart and alive(int(child.read_text())):
                await asyncio.sleep(0.01)
        assert heard == [{"said": number} for number in range(2000)]
    finally:
        if alive(pid := int(child.read_text())):
            os.kill(pid, signal.SIGKILL)
