"""Records for the tests of commands that read them: journals, and databases that are filled from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from gateway.model import AuditRecord
from gateway.stores.lines import NO_HASH
from tests.stores.journals import write_line

WRITER = "0123456789abcdef"


def request(method: str, url: str, **fields: Any) -> dict[str, Any]:
    """The fields of the outcome of a request that the person made and the policy allowed."""
    return {
        "kind": "http",
        "principal": "local|local|local",
        "app": "cart",
        "view": "v1",
        "door": "bridge",
        "initiator": "person",
        "evidence": "gesture",
        "cause": None,
        "method": method,
        "url": url,
        "policy_version": "sha256:0",
        "backend": "shop",
        "request_size": 0,
        "route": url,
        "decision": "allow",
        "reasons": ["the route allows it"],
        "status": 200,
        "reason": None,
        **fields,
    }


def tool(name: str, **fields: Any) -> dict[str, Any]:
    """The same for a tool call of the model."""
    return {**request("tools/call", name), "kind": "tool", "tool": name, "initiator": "model", **fields}


def journal(path: Path, outcomes: Iterable[dict[str, Any]]) -> Path:
    """Write a journal with an intent and an outcome for each."""
    before, seq = NO_HASH, 0
    with path.open("wb") as file:
        for number, fields in enumerate(outcomes):
            for phase in ("intent", "outcome"):
                seq += 1
                line = write_line(WRITER, seq, before, AuditRecord(f"id{number}", phase, 1_700_000_000.0, fields))
                before = line.hash
                file.write(line.text.encode() + b"\n")
    return path


def database(path: Path, source: Path) -> Path:
    """Fill a database from the journal `source` as the gateway would."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table audit (writer text, seq integer, id text, phase text, line text)")
        for seq, text in enumerate(source.read_text("ascii").splitlines()):
            phase = "outcome" if '"phase":"outcome"' in text else "intent"
            connection.execute("insert into audit values (?, ?, ?, ?, ?)", (WRITER, seq, f"id{seq // 2}", phase, text))
        connection.commit()
    return path
