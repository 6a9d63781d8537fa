"""Journals as tests read and write them."""

import os
from pathlib import Path

from gateway.model import AuditRecord
from gateway.stores.lines import SALT_BYTES, Line, chain_line, read_line
from gateway.stores.segments import lines_from


def journal_lines(path: Path) -> list[Line]:
    """Return the lines of a whole journal, oldest first. Raises ValueError at a damaged one."""
    return [read_line(raw) for _, raw in lines_from(path)]


def write_line(writer: str, seq: int, prev: str, record: AuditRecord) -> Line:
    """Return the line of a record behind the one with the hash `prev`."""
    raw, digest = chain_line(writer, seq, prev, record, os.urandom(SALT_BYTES).hex())
    return Line(writer, seq, prev, digest, record, raw[:-1].decode("ascii"))
