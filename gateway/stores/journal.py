"""The audit log: an append-only file of hash-chained lines, each written before the answer that it describes."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from msgspec.structs import replace

from gateway.crypto import Randomness
from gateway.errors import StartError
from gateway.jsontext.writing import with_text_for_constants
from gateway.model import AuditRecord, Json
from gateway.stores.heads import EVERY, JournalKey, copies_of, new_key
from gateway.stores.lines import (
    LINE_START,
    NO_HASH,
    NOTE,
    SALT_BYTES,
    Line,
    Redaction,
    chain_line,
    raw_lines_backwards,
    read_line,
)
from gateway.stores.segments import Disk, closed_path, closed_segments, lines_backwards, open_alone, start_of


class Follower:
    """An async iterator over lines as they are written; leaving its context ends it.

    It ends when the journal closes, or when `limit` lines are unread: then `lost` is True, and the buffered lines are
    returned before the end.
    """

    def __init__(self, limit: int, leave: Callable[[Follower], None]) -> None:
        self.lost = False
        self._limit = limit
        self._leave = leave
        self._lines: deque[Line] = deque()
        self._ended = False
        self._wake = asyncio.Event()

    def offer(self, line: Line) -> None:
        """Buffer a line, or end as lost if the buffer is full."""
        if len(self._lines) < self._limit:
            self._lines.append(line)
            self._wake.set()
        else:
            self.lost = True
            self.end()

    def end(self) -> None:
        """Return only the lines that are buffered already, then end."""
        self._ended = True
        self._wake.set()
        self._leave(self)

    def waiting(self) -> tuple[Line, ...]:
        """Take all buffered lines."""
        lines = tuple(self._lines)
        self._lines.clear()
        return lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Line:
        while not self._lines and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        if not self._lines:
            raise StopAsyncIteration
        return self._lines.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.clear()
        self.end()


UNKNOWN = "result-unknown"
"""The `reason` of an outcome that a later process wrote, because the writer of the intent ended before."""

FOLLOWER_LINES = 1000
MOST_BESIDE = 200
"""Other journals that a head lists; with more, it lists the first ones."""

MOST_OPEN = 2000
"""Open intents that a head lists; with more, it lists none, and a start searches further back."""

PROBE = 4096
"""Bytes for which the disk must have room, beside the journal."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Keeping:
    """The settings of a journal's storage. `fsync` makes `synced` wait for the disk.

    A new file begins after `size` bytes, or after `every` seconds by the clock (86400: at midnight UTC); None is never.
    """

    fsync: bool = False
    size: int | None = None
    every: float | None = None


class Journal:
    """The journal in the file `path`, for one process at a time; an async context manager.

    Each start is a new `writer` with lines numbered from 1: numbers of lines lost in a power failure are not reused.
    The hash chain continues through all writers and files. `size` is that of the file, `position` that of all files, in
    bytes. Values at the JSON paths of `redact` are never written. At the start, a torn last line is moved to a separate
    file, and each intent without outcome gets one with the reason `result-unknown`. The journal's own lines are signed
    with `key`, which proves all lines before them; at the start they contain `opening`, too. A line survives the death
    of the process; it survives a power failure if the system had written it to disk, or after `synced`.
    """

    def __init__(
        self,
        path: Path,
        redact: Sequence[str] = (),
        now: Callable[[], float] = time.time,
        key: JournalKey | None = None,
        keeping: Keeping = Keeping(),
        opening: Mapping[str, Json] = MappingProxyType({}),
    ) -> None:
        self.path = path
        self._opening = opening
        self.writer = secrets.token_hex(8)
        self.chain = self.writer
        self.seq = 0
        self.size = 0
        self.heads = 0
        self._start = 0
        self._hash = NO_HASH
        self._key = key or new_key()
        self._keeping = keeping
        self._redact = Redaction(redact)
        self._now = now
        self._randomness = Randomness()
        self._file = -1
        self._torn = False
        self._failed = False
        self._sealed = True
        self._unsealed_since: float | None = None
        self._period: float | None = None
        self._intents: dict[str, None] = {}
        self._beside: set[str] = set()
        self._copied_heads: dict[str, str] = {}
        self._followers: set[Follower] = set()
        self._grew = asyncio.Event()
        self._disk = Disk(path, lambda: (self._file, self.position))

    @property
    def position(self) -> int:
        """The byte offset behind all that was written, from the beginning of the first file."""
        return self._start + self.size

    async def __aenter__(self) -> Self:
        """Open or resume. Raises StartError if another process has the file, or it cannot be used."""
        try:
            self._file = open_alone(self.path)
            try:
                self._resume()
            except BaseException:  # after any error, release the file for others
                self._close()
                raise
        except OSError as error:
            raise StartError(f"the journal {self.path} cannot be used: {error.strerror}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self.seal()
        for follower in tuple(self._followers):
            follower.end()
        self._disk.close()
        self._close()

    async def keep(self) -> None:
        """Sign a head every ten seconds in which lines were written, and begin new files, until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                self.seal()
                self.rotate()
            except OSError as error:
                log.error("the journal %s cannot be sealed: %s", self.path, error)

    def append(self, record: AuditRecord) -> AuditRecord:
        """Write one line, and return the record as it was written.

        Raises OSError if nothing of it was written. With `fsync`, it is on the disk only after `synced`.
        """
        record = self.redact(record)
        self._seal_late(record)
        salt = self._randomness.hex(SALT_BYTES)
        try:
            raw, digest = chain_line(self.writer, self.seq + 1, self._hash, record, salt)
        except ValueError:
            record = _sayable(record)
            raw, digest = chain_line(self.writer, self.seq + 1, self._hash, record, salt)
        self._write(raw)
        before, self._hash = self._hash, digest
        self.seq, self._sealed = self.seq + 1, False
        if self._unsealed_since is None and record.phase != NOTE:
            self._unsealed_since = record.time
        if record.phase == "intent":
            self._intents[record.id] = None
        elif record.phase == "outcome":
            self._intents.pop(record.id, None)
        self._grew.set()
        if self._followers:
            line = Line(self.writer, self.seq, before, digest, record, raw[:-1].decode("ascii"))
            for follower in tuple(self._followers):
                follower.offer(line)
        return record

    async def sync(self) -> None:
        """With `fsync`, wait until everything written is on the disk. Raises OSError if that fails."""
        if self._keeping.fsync:
            await self._disk.sync()

    async def wait_for_growth(self, position: int) -> bool:
        """Wait until the journal extends beyond `position`; False if it is closed before."""
        while self.position <= position and self._file >= 0:
            self._grew.clear()
            await self._grew.wait()
        return self.position > position

    def redact(self, record: AuditRecord) -> AuditRecord:
        """Return the record after redaction; the journal's own lines are unchanged, since they are signed."""
        if not self._redact.any or record.phase == NOTE:
            return record
        return AuditRecord(record.id, record.phase, record.time, self._redact(record.fields))

    def seal(self) -> None:
        """Sign the lines since the last head, if there are any. Raises OSError."""
        if not self._sealed:
            self.note("head")

    def _seal_late(self, record: AuditRecord) -> None:
        """Sign the lines before `record` if `keep` has not for too long: the machine slept, or its clock jumped."""
        since = self._unsealed_since
        if since is not None and record.phase != NOTE and record.time - since > EVERY:
            self.note("head")

    def note(self, message: str, **fields: Json) -> None:
        """Write a head with a message. Raises OSError."""
        open_ids: Json = [*self._intents] if len(self._intents) <= MOST_OPEN else None
        place: dict[str, Json] = {"chain": self.chain, "start": self._start, "head": self.heads + 1, "open": open_ids}
        place["copied"] = dict[str, Json](self._copied_heads)
        if self._beside:
            place["beside"] = list[Json](sorted(self._beside)[:MOST_BESIDE])
        note: dict[str, Json] = {"kind": "journal", "message": message, **place, **fields}
        now = self._now()
        self.append(AuditRecord("", NOTE, now, self._key.sign(self.writer, self.seq + 1, self._hash, now, note)))
        self.heads += 1
        self._sealed, self._unsealed_since = True, None
        if self._keeping.fsync:
            self._disk.bring()

    def witness(self, chains: Iterable[str]) -> None:
        """Note other journals in the same database: heads list them, so that none can disappear unnoticed."""
        new = {chain for chain in chains if chain != self.chain} - self._beside
        if new:
            self._beside |= new
            self._sealed = False

    def note_copy(self, sink: str, last: str) -> None:
        """A sink has every line up to the hash `last` (`NO_HASH`: none); heads contain that from now on."""
        if (last == NO_HASH) is not (self._copied_heads.get(sink, NO_HASH) == NO_HASH):
            self._sealed = False  # it was emptied, or filled for the first time: the last head's entry is outdated
        self._copied_heads[sink] = last

    def rotate(self) -> bool:
        """Begin a new file if the current one is full, or its period is over. Raises OSError. Return whether it did."""
        period = self._now() // self._keeping.every if self._keeping.every else None
        full = self._keeping.size is not None and self.size >= self._keeping.size
        if not full and period == self._period:
            return False
        self._period = period
        self.seal()
        place = closed_path(self.path, self._start)
        fresh = self.path.with_name(f"{self.path.name}.new")
        with suppress(FileNotFoundError):
            fresh.unlink()  # left by a process that died here
        descriptor = open_alone(fresh)
        try:
            self._disk.bring()
            os.link(self.path, place)  # the journal exists at every moment, so no other process can begin one
            fresh.rename(self.path)
        except OSError:
            os.close(descriptor)
            raise
        os.close(self._file)
        self._file, self._start, self.size = descriptor, self.position, 0
        self.note("the journal continues in a new file")
        return True

    def subscribe(self, limit: int = FOLLOWER_LINES) -> Follower:
        """Subscribe to lines from now on; `limit` may be unread."""
        follower = Follower(limit, self._followers.discard)
        self._followers.add(follower)
        if self._file < 0:
            follower.end()
        return follower

    def last(self, count: int) -> list[Line]:
        """Return the last `count` lines of exchanges and tool calls, oldest first."""
        lines: list[Line] = []
        for line in self._backwards():
            if len(lines) == count:
                break
            if line.record.phase != NOTE:
                lines.append(line)
        return lines[::-1]

    def _write(self, raw: bytes) -> None:
        if self._torn:
            os.ftruncate(self._file, self.size)
            self._torn = False
        try:
            size = os.write(self._file, raw)
            if size != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        except OSError:
            # A full disk took a part of the line: remove it now, or before the next one.
            self._torn = self._failed = True
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
                self._torn = False
            raise
        self._failed = False
        self.size += size

    def check(self) -> None:
        """Raise OSError if no line could be written now; after a failure, a line of its own tries it."""
        if self._failed:
            self.note("the journal can be written again")
            return
        probe = self.path.with_name(f"{self.path.name}.probe")
        file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if os.write(file, bytes(PROBE)) < PROBE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        finally:
            os.close(file)
            probe.unlink()

    def _resume(self) -> None:
        self.size = os.fstat(self._file).st_size
        self._period = self._now() // self._keeping.every if self._keeping.every else None
        for one in closed_segments(self.path):  # a process that died during rotation left two names for one file
            if one.path.samefile(self.path):
                one.path.unlink()
        if self.size:
            self._start = start_of(self.path)
        torn = self._take_up_chain()
        if not self.size and (before := closed_segments(self.path)):
            self._start = before[-1].end
        unknown = self._take_up_notes()
        self._intents = dict.fromkeys(record.id for record in reversed(unknown))
        self.note("the journal was opened", process=os.getpid(), **self._opening, **torn)
        for record in reversed(unknown):
            self.append(self._unknown_outcome(record))
        self.seal()

    def _take_up_chain(self) -> dict[str, Json]:
        """Find the last whole line, set aside what follows it, and return a description of that."""
        end = self.size
        for offset, raw in raw_lines_backwards(self._file, self.size):
            try:
                line = read_line(raw)
            except ValueError:
                end = offset
                continue
            self._hash = line.hash
            if offset + len(raw) == self.size:
                self._write(b"\n")  # only the newline of the last line was lost
                return {}
            break
        else:
            if not LINE_START.startswith(os.pread(self._file, len(LINE_START), 0)):
                raise StartError(
                    f"{self.path} is not a journal of this version: name a new file, or the previous journal"
                )
            self._hash = next((line.hash for line in self._backwards()), NO_HASH)
        return self._set_aside(end) if end < self.size else {}

    def _take_up_notes(self) -> list[AuditRecord]:
        """Restore the state of the last head; return the intents of the last run without an outcome, last first."""
        unknown: list[AuditRecord] = []
        closed_ids: set[str] = set()
        open_ids: set[str] | None = None
        for line in self._backwards():
            if line.record.phase == "outcome":
                closed_ids.add(line.record.id)
            elif line.record.phase == "intent" and line.record.id not in closed_ids:
                if open_ids is None or line.record.id in open_ids:
                    unknown.append(line.record)
                if open_ids is not None:
                    open_ids.discard(line.record.id)
            elif line.record.phase == NOTE:
                if not self.heads:
                    self._take_up_head(line.record.fields)
                listed = line.record.fields.get("open")
                if open_ids is None and isinstance(listed, list):
                    open_ids = {id for id in listed if isinstance(id, str)} - closed_ids
            if open_ids is not None and not open_ids:
                break
        return unknown

    def _take_up_head(self, fields: Mapping[str, Json]) -> None:
        chain, head = fields.get("chain"), fields.get("head")
        if isinstance(chain, str) and isinstance(head, int):
            self.chain, self.heads = chain, head
        beside = fields.get("beside")
        if isinstance(beside, list):
            self._beside = {one for one in beside if isinstance(one, str)}
        self._copied_heads = copies_of(fields)

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
        return {"set_aside": place.name, "size": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}

    def _backwards(self) -> Iterator[Line]:
        for raw in lines_backwards(self.path):
            with suppress(ValueError):  # `verify` reports it
                yield read_line(raw)

    def _unknown_outcome(self, intent: AuditRecord) -> AuditRecord:
        message = "result unknown: the gateway ended before it could record an outcome"
        fields: Mapping[str, Json] = {**intent.fields, "reason": UNKNOWN, "message": message}
        return AuditRecord(intent.id, "outcome", self._now(), fields)

    def _close(self) -> None:
        self._grew.set()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _sayable(record: AuditRecord) -> AuditRecord:
    """Return the record with text for numbers that JSON cannot represent. Raises OSError.

    Callers can therefore not prevent a line by their values.
    """
    try:
        fields = with_text_for_constants(dict(record.fields))
    except (TypeError, ValueError, RecursionError) as error:
        raise OSError(errno.EINVAL, f"the record cannot be written as JSON: {error}") from error
    return replace(record, fields=fields)
