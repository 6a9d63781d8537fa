"""The lines of the journal: how a record becomes bytes in a hash chain, and bytes a record again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from gateway.model import AuditRecord

NO_HASH = "0" * 64
"""What the first line of a chain names as the hash before it."""

LINE_START = b'{"writer":"'
"""How every line begins."""

_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

_BLOCK = 256 * 1024
_HASH_START = b',"hash":"'
_HASH_LENGTH = len(_HASH_START) + 64 + len(b'"}')


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the `seq`th of `writer`, naming the hash of the line before. `text` is the line itself, as JSON."""

    writer: str
    seq: int
    prev: str
    hash: str
    record: AuditRecord
    text: str


def write_line(writer: str, seq: int, prev: str, record: AuditRecord) -> Line:
    """Put a record into the chain. Raises ValueError for what JSON cannot say.

    The hash is SHA-256 over the line as it stands without its last member, `hash`.
    """
    members = {
        "writer": writer,
        "seq": seq,
        "prev": prev,
        "id": record.id,
        "phase": record.phase,
        "time": record.time,
        "fields": dict(record.fields),
    }
    try:
        open_text = _encode(members)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    digest = hashlib.sha256(open_text.encode("ascii")).hexdigest()
    return Line(writer, seq, prev, digest, record, f'{open_text[:-1]},"hash":"{digest}"}}')


def read_line(raw: bytes) -> Line:
    """Read a line (without its newline) and check its hash. Raises ValueError."""
    head, tail = raw[:-_HASH_LENGTH], raw[-_HASH_LENGTH:]
    if not tail.startswith(_HASH_START):
        raise ValueError("is not a line of a journal")
    digest = hashlib.sha256(head + b"}").hexdigest()
    if tail != _HASH_START + digest.encode() + b'"}':
        raise ValueError("was altered: its hash does not fit")
    try:
        text = raw.decode("ascii")
        return _line(json.loads(text), digest, text)
    except (KeyError, TypeError, RecursionError, ValueError) as error:
        raise ValueError("is not a line of a journal") from error


def _line(members: dict[str, Any], digest: str, text: str) -> Line:
    record = AuditRecord(members["id"], members["phase"], members["time"], members["fields"])
    line = Line(members["writer"], members["seq"], members["prev"], digest, record, text)
    words = (line.writer, line.prev, record.id, record.phase)
    if not all(type(word) is str for word in words) or type(line.seq) is not int:
        raise TypeError
    if type(record.time) not in (int, float) or type(record.fields) is not dict:
        raise TypeError
    return line


def raw_lines(file: BinaryIO, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """The lines from the byte `start` on, each with the offset behind it; a last line without newline is left out."""
    file.seek(start)
    offset = start
    for raw in file:
        if not raw.endswith(b"\n"):
            return
        offset += len(raw)
        yield offset, raw[:-1]


def raw_lines_backwards(descriptor: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines that end before the byte `end`, last first, each with its offset; bytes behind the last newline too.

    The first one given is what stands behind the last newline: empty in a file that was left in order.
    """
    rest = b""
    while end > 0:
        start = max(0, end - _BLOCK)
        pieces = (os.pread(descriptor, end - start, start) + rest).split(b"\n")
        offset = start + len(pieces[0])
        rest = pieces[0]
        found = []
        for piece in pieces[1:]:
            offset += 1
            found.append((offset, piece))
            offset += len(piece)
        yield from reversed(found)
        end = start
    yield 0, rest
