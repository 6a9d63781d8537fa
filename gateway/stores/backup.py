"""A backup of the state: one tar file with a consistent copy of the database, then the journal and the keys.

The journal is copied after the database, so it has every line that the database refers to.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from sqlalchemy import Connection, create_engine, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio.engine import create_async_engine

from gateway import __version__
from gateway.errors import StartError
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Json
from gateway.stores.schema import METADATA, MIGRATIONS, SCHEMA_VERSION, migrate, version_of
from gateway.stores.segments import pin_files
from gateway.stores.sql import DRIVERS, first_line

MANIFEST: Final = "manifest.json"
DATABASE: Final = "database.db"
KEY: Final = "encryption.key"
JOURNAL: Final = "journal"
"""The first part of the names of the journal's files in a backup; the rest is what follows the journal's own name."""

FORMAT: Final = 1
_ROWS: Final = 1000
_BLOCK: Final = 1024 * 1024
_LARGEST_MANIFEST: Final = 4 * 1024 * 1024


class BackupUnusable(Exception):
    """A backup that cannot be made or restored; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a gateway: the database's URL, the journal, and the file of the encryption key, if it is one."""

    database: str
    journal: Path
    key: Path | None


def back_up(state: State, to: Path) -> dict[str, Json]:
    """Write the backup; the gateway may be running. Return its manifest. Raises `BackupUnusable` and OSError."""
    if to.exists():
        raise BackupUnusable(f"{to} exists already: name a new file")
    part = to.with_name(f"{to.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with TemporaryDirectory(dir=to.parent, prefix=".backup-") as scratch, os.fdopen(descriptor, "wb") as file:
            copy = Path(scratch) / DATABASE
            version = _copy_database(state.database, copy)
            with tarfile.open(fileobj=file, mode="w") as tar:
                sums = dict(_add_files(tar, copy, state))
                manifest: dict[str, Json] = {
                    "format": FORMAT,
                    "gateway": __version__,
                    "schema": version,
                    "time": time.time(),
                    "files": dict[str, Json](sums),
                }
                raw = plain_json(manifest).encode()
                tar.addfile(_entry(MANIFEST, len(raw)), io.BytesIO(raw))
            file.flush()
            os.fsync(file.fileno())
        os.link(part, to)  # never over another file
    except FileExistsError as error:
        raise BackupUnusable(f"{to} exists already: name a new file") from error
    finally:
        part.unlink(missing_ok=True)
    return manifest


def read_backup(backup: Path) -> dict[str, Json]:
    """Return the manifest after every file was compared with it. Raises `BackupUnusable` and OSError."""
    try:
        with tarfile.open(backup, "r:") as tar:
            sums = {member.name: _sum(tar, member) for member in tar if member.name != MANIFEST}
            member = tar.getmember(MANIFEST)
            content = tar.extractfile(member)
            if content is None or member.size > _LARGEST_MANIFEST:
                raise ValueError("no manifest")
            manifest = parse_json(content.read())
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise BackupUnusable(f"{backup} is not a whole backup of the gateway: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BackupUnusable(f"{backup} has another format: restore it with the version that made it")
    if manifest.get("files") != sums:
        raise BackupUnusable(f"{backup} is damaged: its files are not those that its manifest lists")
    schema = manifest.get("schema")
    if not isinstance(schema, int) or schema > len(MIGRATIONS):
        raise BackupUnusable(
            f"{backup} is of the newer gateway {manifest.get('gateway')}: restore it with that version"
        )
    return manifest


def restore(backup: Path, state: State) -> dict[str, Json]:
    """Write the files of a backup where `state` has none. Return its manifest. Raises `BackupUnusable` and OSError."""
    manifest = read_backup(backup)
    with tarfile.open(backup, "r:") as tar, TemporaryDirectory(dir=state.journal.parent, prefix=".restore-") as scratch:
        places = {member.name: _place(member.name, state) for member in tar if member.name not in (MANIFEST, DATABASE)}
        there = [str(place) for place in places.values() if place.exists()]
        there += _find_existing(state.database)
        if there:
            raise BackupUnusable(f"{', '.join(there)} exist already: a backup is restored into an empty state")
        lite = state.database.startswith("sqlite:")
        copy = Path(state.database.partition(":///")[2]) if lite else Path(scratch) / DATABASE
        files: list[Path] = []
        try:
            for name, place in ((DATABASE, copy), *places.items()):
                _extract(tar, name, place)
                files.append(place)
            if not lite:
                _fill_postgresql(copy, state.database)
        except BaseException:
            for place in files:
                place.unlink()
            raise
    return manifest


def check_database(url: str) -> str | None:
    """Return what is wrong with a database, None if nothing is; it is not migrated. Raises OSError."""
    if url.startswith("sqlite:"):
        path = Path(url.partition(":///")[2])
        if not path.is_file():
            return f"{path}: there is no database yet"
        try:
            with closing(sqlite3.connect(path)) as database:
                messages = [str(row[0]) for row in database.execute("PRAGMA integrity_check(10)")]
        except sqlite3.Error as error:
            return f"{path}: {error}"
        if messages != ["ok"]:
            return f"{path}: {'; '.join(messages)}: restore a backup"
    try:
        version = asyncio.run(_version(url))
    except (SQLAlchemyError, OSError, ValueError) as error:
        return f"the database cannot be used: {first_line(error)}"
    if version < len(MIGRATIONS):
        return f"the database has version {version}: the next start migrates it to {len(MIGRATIONS)}"
    return None


def _add_files(tar: tarfile.TarFile, copy: Path, state: State) -> Iterator[tuple[str, str]]:
    """Add every file; yield names and hashes."""
    with copy.open("rb") as file:
        yield DATABASE, _add(tar, DATABASE, file, copy.stat().st_size)
    with pin_files(state.journal) as segments:
        for segment in segments:
            name = JOURNAL + segment.path.name.removeprefix(state.journal.name)
            with segment.open() as file:
                yield name, _add(tar, name, file, _whole_lines(file, segment.size))
    beside = (f".{end}" for end in ("key", "keys", "otlp"))
    for name, place in ((JOURNAL + end, Path(f"{state.journal}{end}")) for end in beside):
        if place.is_file():
            with place.open("rb") as file:
                yield name, _add(tar, name, file, place.stat().st_size)
    if state.key is not None and state.key.is_file():
        with state.key.open("rb") as file:
            yield KEY, _add(tar, KEY, file, state.key.stat().st_size)


def _whole_lines(file: BinaryIO, size: int) -> int:
    """Return the size up to the last complete line: the next one may be half written."""
    at = size
    while at > 0:
        start = max(0, at - _BLOCK)
        end = os.pread(file.fileno(), at - start, start).rfind(b"\n")
        if end >= 0:
            return start + end + 1
        at = start
    return 0


class _Hashing(io.RawIOBase):
    """Reads `file` from its start, and hashes what is read."""

    def __init__(self, file: BinaryIO) -> None:
        file.seek(0)
        self._file = file
        self.sha = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.sha.update(data)
        return data


def _add(tar: tarfile.TarFile, name: str, file: BinaryIO, size: int) -> str:
    source = _Hashing(file)
    tar.addfile(_entry(name, size), source)
    return source.sha.hexdigest()


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o600, int(time.time())
    return entry


def _sum(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    sha = hashlib.sha256()
    file = tar.extractfile(member)
    if file is None:
        raise ValueError(f"{member.name} is no file")
    while block := file.read(_BLOCK):
        sha.update(block)
    return sha.hexdigest()


def _place(name: str, state: State) -> Path:
    """Return where a file of the backup belongs. Raises `BackupUnusable` for a name that no backup has."""
    end = name.removeprefix(JOURNAL)
    known = end in ("", ".key", ".keys", ".otlp") or (end[:1] == "." and end[1:].isdigit() and len(end) == 16)
    if name == KEY and state.key is not None:
        return state.key
    if name == KEY:
        raise BackupUnusable("the backup has an encryption key: name a file for it in stores.encryption_key")
    if not name.startswith(JOURNAL) or not known:
        raise BackupUnusable(f"the backup has a file {name[:80]!r}, which no backup has")
    return Path(f"{state.journal}{end}")


def _extract(tar: tarfile.TarFile, name: str, place: Path) -> None:
    try:
        source = tar.extractfile(name)
    except KeyError as error:
        raise BackupUnusable(f"the backup has no {name}") from error
    if source is None:
        raise BackupUnusable(f"{name} in the backup is no file")
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            while block := source.read(_BLOCK):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        place.unlink()
        raise


def _copy_database(url: str, to: Path) -> int:
    """Copy the current database into an SQLite file; return its version."""
    os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if not url.startswith("sqlite:"):
        return asyncio.run(_dump(url, to))
    path = Path(url.partition(":///")[2])
    if not path.is_file():
        raise BackupUnusable(f"there is no database {path} yet")
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
            source.backup(target)  # in one step: writers go on, and it is one moment's state
            version = target.execute("SELECT version FROM schema_version").fetchone()
    except sqlite3.Error as error:
        raise BackupUnusable(f"the database {path} cannot be read: {error}") from error
    return int(version[0]) if version else 0


async def _dump(url: str, to: Path) -> int:
    """Copy all tables of a PostgreSQL database, in one snapshot."""
    source = create_async_engine(_driver(url), isolation_level="REPEATABLE READ", hide_parameters=True)
    target = create_engine(f"sqlite:///{to}")
    try:
        async with source.connect() as connection:
            version = await connection.run_sync(version_of)
            if version != len(MIGRATIONS):
                raise BackupUnusable(
                    f"the database has version {version}, and this gateway {len(MIGRATIONS)}: use the version that runs"
                )
            with target.begin() as made:
                migrate(made)
                made.execute(SCHEMA_VERSION.delete())
                for table in METADATA.sorted_tables:
                    async for rows in (await connection.stream(select(table))).mappings().partitions(_ROWS):
                        made.execute(table.insert(), [dict(row) for row in rows])
    except (SQLAlchemyError, OSError) as error:
        raise BackupUnusable(f"the database cannot be read: {first_line(error)}") from error
    finally:
        target.dispose()
        await source.dispose()
    return version


def _find_existing(url: str) -> list[str]:
    """Return the database, if it has anything."""
    if url.startswith("sqlite:"):
        path = url.partition(":///")[2]
        return [path] if os.path.exists(path) else []
    try:
        used = asyncio.run(_is_used(url))
    except (SQLAlchemyError, OSError) as error:
        raise BackupUnusable(f"the database cannot be used: {first_line(error)}") from error
    return [f"tables in {make_url(url).render_as_string()}"] if used else []


async def _is_used(url: str) -> bool:
    engine = create_async_engine(_driver(url), hide_parameters=True)
    try:
        async with engine.connect() as connection:
            return bool(await connection.run_sync(lambda one: inspect(one).has_table(SCHEMA_VERSION.name)))
    finally:
        await engine.dispose()


async def _version(url: str) -> int:
    engine = create_async_engine(_driver(url), hide_parameters=True)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(version_of)
    finally:
        await engine.dispose()


def _fill_postgresql(copy: Path, url: str) -> None:
    try:
        asyncio.run(_load(copy, url))
    except (SQLAlchemyError, OSError, StartError) as error:
        raise BackupUnusable(f"the database cannot be written: {first_line(error)}") from error


async def _load(copy: Path, url: str) -> None:
    """Fill an empty PostgreSQL database from a copy, in one transaction."""
    source = create_engine(f"sqlite:///{copy}", hide_parameters=True)
    target = create_async_engine(_driver(url), hide_parameters=True)
    try:
        with source.begin() as connection:
            migrate(connection)
            async with target.begin() as made:
                await made.run_sync(lambda one: _fill(connection, one))
    finally:
        source.dispose()
        await target.dispose()


def _fill(source: Connection, target: Connection) -> None:
    migrate(target)
    target.execute(SCHEMA_VERSION.delete())
    for table in METADATA.sorted_tables:
        for rows in source.execute(select(table)).mappings().partitions(_ROWS):
            target.execute(table.insert(), [dict(row) for row in rows])


def _driver(url: str) -> str:
    url_made = make_url(url)
    url_made = url_made.set(drivername=DRIVERS.get(url_made.drivername, url_made.drivername))
    return url_made.render_as_string(hide_password=False)
