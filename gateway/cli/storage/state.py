"""`storage backup`, `storage restore`, `storage check`: the gateway's state as a whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import click

from gateway.assembly.audit import key_of_journal
from gateway.cli import lock
from gateway.cli.group import Unusable, config_option
from gateway.cli.policy.output import FAILED, json_option, write_json
from gateway.config import Config, load_config
from gateway.config.secrets import Unneeded
from gateway.errors import StartError
from gateway.model import Json
from gateway.stores.backup import BackupUnusable, State, back_up, check_database, restore
from gateway.stores.heads import keys_beside, known_keys
from gateway.stores.verify import verify

LITTLE = 256 * 1024 * 1024
"""Free bytes below which `check` says so."""


def _state(config: Config) -> State:
    return State(config.database.reveal(), config.journal, config.encryption_key.file)


def _config(path: Path) -> Config:
    return load_config(path, Unneeded("database", "key"))


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option()
@json_option
def back_up_state(file: Path, path: Path, as_json: bool) -> None:
    """Write database, record and keys to FILE, a tar file that only you can read. The gateway may be running.

    Whoever has the file has the gateway's keys. Keys that are not in a file (`stores.encryption_key: ${env:…}` or
    keyring) are not in it, and are needed to restore.

    Example: webmcp-gateway storage backup gateway-monday.tar
    """
    try:
        manifest = back_up(_state(_config(path)), file)
    except BackupUnusable as error:
        raise Unusable(str(error)) from error
    except OSError as error:
        raise Unusable(f"{file} cannot be written: {error.strerror}") from error
    _say(manifest, as_json, f"{file}: {file.stat().st_size:,} bytes")


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option()
@json_option
def restore_state(file: Path, path: Path, as_json: bool) -> None:
    """Restore the backup FILE into an empty state: the database, the record and the keys of gateway.yaml.

    A backup of SQLite can be restored into PostgreSQL, and the other way round. Nothing is overwritten.

    Example: webmcp-gateway storage restore gateway-monday.tar
    """
    config = _config(path)
    try:
        lock.check_state(config)
        with lock.hold_lock(config.state):
            manifest = restore(file, _state(config))
    except (BackupUnusable, StartError) as error:
        raise Unusable(str(error)) from error
    except OSError as error:
        raise Unusable(f"{error.filename or file}: {error.strerror}") from error
    _say(manifest, as_json, f"{file} is restored: `webmcp-gateway storage check` looks at it, `serve` goes on with it")


@click.command("check")
@config_option()
@json_option
def check_state(path: Path, as_json: bool) -> None:
    """Check the state: the database and its version, the record and its key, and the room on the disk.

    Exit code 1 if there is a problem. The gateway may be running.

    Example: webmcp-gateway storage check
    """
    config = _config(path)
    problems = list(_problems(config))
    if as_json:
        write_json({"problems": list[Json](problems)})
    else:
        for problem in problems or ["no problem found: database, record and keys are whole"]:
            click.echo(problem)
    if problems:
        click.get_current_context().exit(FAILED)


def _problems(config: Config) -> Iterator[str]:
    try:
        if (problem := check_database(config.database.reveal())) is not None:
            yield problem
        if not config.journal.is_file():
            yield f"{config.journal}: nothing has been recorded yet"
        else:
            yield from verify(config.journal, [*known_keys(keys_beside(config.journal)), key_of_journal(config).public])
        free = shutil.disk_usage(config.journal.parent).free
        if free < LITTLE:
            yield f"{config.journal.parent}: only {free:,} bytes are free: make room, or set audit.retain"
    except (OSError, StartError, ValueError) as error:
        yield str(error)


def _say(manifest: dict[str, Json], as_json: bool, words: str) -> None:
    write_json(manifest) if as_json else click.echo(words)
