"""Reads the locations of the record from gateway.yaml, without needing any other secret or policy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.config.audit import SinkName, database
from gateway.config.secrets import secret
from gateway.config.settings import DEFAULTS
from gateway.documents import Report, load
from gateway.documents.files import read_bytes, unreadable
from gateway.errors import DocumentError, Problem
from gateway.model import Secret


@dataclass(frozen=True, slots=True)
class Places:
    """The journal, the database, and the key that signs heads: itself, or its file.

    `fills_database` means that the gateway copies the journal into the database.
    """

    journal: Path
    database: Secret
    key: Secret | None
    key_file: Path
    fills_database: bool


def record_places(path: Path, environ: Mapping[str, str]) -> Places:
    """Return the locations in the configuration in `path`. Raises DocumentError."""
    try:
        text = read_bytes(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError([Problem(str(path), 1, 1, unreadable(error))]) from error
    folder = Path(os.path.realpath(path)).parent
    report = Report([])
    root = report.section(load(text, str(path)))
    stores, audit = root.section("stores"), root.section("audit")
    journal = folder / stores.text("journal", DEFAULTS["stores.journal"])
    places = Places(
        journal=journal,
        database=database(stores, folder, environ),
        key=secret(audit, "key", folder, environ) if audit.get("key") is not None else None,
        key_file=journal.with_name(f"{journal.name}.key"),
        fills_database=SinkName.DATABASE in audit.texts("sinks", (SinkName.DATABASE.value,)),
    )
    if report.problems:
        raise DocumentError(report.problems)
    return places
