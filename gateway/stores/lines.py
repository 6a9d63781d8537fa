"""The lines of the journal: how a record becomes bytes in a hash chain, and bytes a record again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from gateway.model import AuditRecord, Json

NO_HASH = "0" * 64
"""What the first line of a chain names as the hash before it."""

LINE_START = b'{"writer":"'
"""How every line begins."""

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
        open_text = json.dumps(members, separators=(",", ":"), allow_nan=False)
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
        return _line(json.loads(raw), digest, raw.decode("ascii"))
    except (KeyError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError("is not a line of a journal") from error


def _line(members: dict[str, Json], digest: str, text: str) -> Line:
    match members:
        case {
            "writer": str(writer),
            "seq": int(seq),
            "prev": str(prev),
            "id": str(id),
            "phase": str(phase),
            "time": int() | float() as time,
            "fields": dict(fields),
        }:
            return Line(writer, seq, prev, digest, AuditRecord(id, phase, float(time), fields), text)
        case _:
            raise ValueError("is not a line of a journal")


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
