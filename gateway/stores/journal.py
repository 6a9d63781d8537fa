"""The record itself: an append-only file of hash-chained lines, each written before the answer that it tells of."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from gateway.errors import StartError
from gateway.model import AuditRecord, Json
from gateway.stores.followers import Follower
from gateway.stores.lines import LINE_START, NO_HASH, Line, raw_lines, raw_lines_backwards, read_line, write_line
from gateway.stores.redaction import Redaction

NOTE = "note"
"""The phase of lines in which a journal speaks of itself; `intent` and `outcome` are of exchanges and tool calls."""

UNKNOWN = "result-unknown"
"""The `reason` of an outcome that a later process wrote, because the one that wrote the intent did not live to."""

FOLLOWER_LINES = 1000
_STARTED = "the journal was opened"


class Journal:
    """The journal in the file `path`, for one process at a time; an async context manager.

    Each start is a `writer` of its own, its lines numbered from 1: where a loss of power took the last lines, their
    numbers are not used again. The chain goes on through all writers of a file. `size` is the file's, in bytes.
    Values that the JSON paths of `redact` name are never written. At the start a torn last line is set aside in a
    file beside it, and each intent without outcome gets one with the reason `result-unknown`. A line survives the
    death of the process, and a loss of power as far as the system had written it.
    """

    def __init__(self, path: Path, redact: Sequence[str] = (), now: Callable[[], float] = time.time) -> None:
        self.path = path
        self.writer = secrets.token_hex(8)
        self.seq = 0
        self.size = 0
        self._hash = NO_HASH
        self._redact = Redaction(redact)
        self._now = now
        self._file = -1
        self._torn = False
        self._followers: set[Follower] = set()

    async def __aenter__(self) -> Self:
        """Open or resume. Raises StartError where another process has the file, or it cannot be used."""
        try:
            self._file = _open_alone(self.path)
            try:
                self._resume()
            except BaseException:
                self._close()
                raise
        except OSError as error:
            raise StartError(f"the journal {self.path} cannot be used: {error.strerror}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for follower in tuple(self._followers):
            follower.end()
        self._close()

    def append(self, record: AuditRecord) -> None:
        """Write one line. Raises OSError, and then nothing of it is in the file."""
        redacted = AuditRecord(record.id, record.phase, record.time, self._redact(record.fields))
        try:
            line = write_line(self.writer, self.seq + 1, self._hash, redacted)
        except ValueError as error:
            raise OSError(errno.EINVAL, f"the record cannot be written as JSON: {error}") from error
        self._write(line.text.encode("ascii") + b"\n")
        self.seq, self._hash = line.seq, line.hash
        for follower in tuple(self._followers):
            follower.offer(line)

    def subscribe(self, limit: int = FOLLOWER_LINES) -> Follower:
        """Lines from now on, as an async iterator that is also a context manager; `limit` may wait unread."""
        follower = Follower(limit, self._followers.discard)
        self._followers.add(follower)
        if self._file < 0:
            follower.end()
        return follower

    def last(self, count: int) -> list[Line]:
        """The last `count` lines of exchanges and tool calls, oldest first."""
        found: list[Line] = []
        for line in self._backwards():
            if len(found) == count:
                break
            if line.record.phase != NOTE:
                found.append(line)
        return found[::-1]

    def _write(self, raw: bytes) -> None:
        if self._torn:
            os.ftruncate(self._file, self.size)
            self._torn = False
        written = os.write(self._file, raw)
        if written != len(raw):
            # A full disk took a part of the line: away with it, now or before the next one.
            self._torn = True
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
                self._torn = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self.size += written

    def _resume(self) -> None:
        self.size = os.fstat(self._file).st_size
        torn = self._take_up_chain()
        unknown = list(_without_outcome(self._backwards()))
        if torn:
            self._note("what no line was, at the end of the journal, was set aside", **torn)
        for record in reversed(unknown):
            self.append(self._unknown_outcome(record))
        self._note(_STARTED, process=os.getpid())  # last: what stands before it need not be looked through again

    def _take_up_chain(self) -> dict[str, Json]:
        """Find the last whole line, set aside what follows it, and say what that was."""
        end = self.size
        for offset, raw in raw_lines_backwards(self._file, self.size):
            try:
                line = read_line(raw)
            except ValueError:
                end = offset
                continue
            self._hash = line.hash
            if offset + len(raw) == self.size:
                self._write(b"\n")  # nothing was lost of the last line but its end
                return {}
            break
        else:
            if not LINE_START.startswith(os.pread(self._file, len(LINE_START), 0)):
                raise StartError(f"{self.path} is not a journal: name a new file, or the journal of before")
        return self._set_aside(end) if end < self.size else {}

    def _set_aside(self, start: int) -> dict[str, Json]:
        torn = os.pread(self._file, self.size - start, start)
        place = self.path.with_name(f"{self.path.name}.torn-{start}-{secrets.token_hex(4)}")
        copy = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(copy, "wb") as file:
            file.write(torn)
            file.flush()
            os.fsync(copy)
        os.ftruncate(self._file, start)
        self.size = start
        return {"file": place.name, "size": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}

    def _backwards(self) -> Iterator[Line]:
        for _, raw in raw_lines_backwards(self._file, self.size):
            if raw:
                try:
                    yield read_line(raw)
                except ValueError:
                    continue  # `verify` tells of it

    def _note(self, message: str, **fields: Json) -> None:
        self.append(AuditRecord("", NOTE, self._now(), {"kind": "journal", "message": message, **fields}))

    def _unknown_outcome(self, intent: AuditRecord) -> AuditRecord:
        message = "result unknown: the gateway ended before it could record an outcome"
        fields: Mapping[str, Json] = {**intent.fields, "reason": UNKNOWN, "message": message}
        return AuditRecord(intent.id, "outcome", self._now(), fields)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _open_alone(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(descriptor, 0o600)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StartError(
            f"another process writes the journal {path}: end it, or give this one a journal of its own"
        ) from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _without_outcome(backwards: Iterator[Line]) -> Iterator[AuditRecord]:
    """Intents of the last run without an outcome, last first; each run has seen to those of the runs before."""
    closed: set[str] = set()
    for line in backwards:
        match line.record.phase:
            case "outcome":
                closed.add(line.record.id)
            case "intent" if line.record.id not in closed:
                yield line.record
            case "note" if line.record.fields.get("message") == _STARTED:
                return


def read(path: Path) -> Iterator[Line]:
    """The lines of a journal, oldest first. Raises ValueError at one that is damaged, naming its number."""
    with path.open("rb") as file:
        for number, (_, raw) in enumerate(raw_lines(file), 1):
            try:
                yield read_line(raw)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: the line {error}") from error


def verify(path: Path) -> list[str]:
    """What is wrong with a journal, each with its line number: damaged, missing, added and moved lines.

    The chain proves every line but the last ones: lines taken away at the end leave no trace in the file.
    """
    problems: list[str] = []
    before: Line | None = None
    number = 0
    with path.open("rb") as file:
        for number, (_, raw) in enumerate(raw_lines(file), 1):
            try:
                line = read_line(raw)
            except ValueError as error:
                problems.append(f"line {number} {error}")
                continue
            problems.extend(f"line {number} {text}" for text in _breaks(before, line))
            before = line
        if _ends_torn(file):
            problems.append(f"line {number + 1} is torn: it has no end")
    return problems


def _ends_torn(file: BinaryIO) -> bool:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    return file.read() not in (b"", b"\n")


def _breaks(before: Line | None, line: Line) -> Iterator[str]:
    seq = before.seq + 1 if before and before.writer == line.writer else 1
    if line.seq != seq:
        yield f"has the number {line.seq} instead of {seq}"
    elif line.prev != (before.hash if before else NO_HASH):
        yield "does not continue the line before it"
