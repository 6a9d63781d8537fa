"""`storage`: lists and deletes page storage; backs up, restores and checks the gateway's state."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
from rich.table import Table

from gateway.assembly.audit import key_of_journal
from gateway.assembly.credentials import Accounts
from gateway.cli import lock
from gateway.cli.credential import run
from gateway.cli.group import Unusable, config_option
from gateway.cli.output import FAILED, console, json_option, minute, write_json
from gateway.config import Config, load_config
from gateway.config.secrets import LenientEnvironment
from gateway.errors import StartError
from gateway.model import Json
from gateway.stores.backup import BackupUnusable, State, back_up, check_database, restore
from gateway.stores.heads import keys_beside, known_keys
from gateway.stores.page_storage import StoredPage
from gateway.stores.verify import verify


@click.command("list")
@config_option()
@json_option
def list_storage(path: Path, as_json: bool) -> None:
    """List the owners and sizes of page storage by app, without its content.

    Example: webmcp-gateway storage list --json
    """

    async def load(accounts: Accounts) -> list[StoredPage]:
        return await accounts.storage.list()

    pages = run(path, load)
    if as_json:
        write_json([{"app": o.app, "person": o.person, "characters": o.size, "changed": o.changed_at} for o in pages])
        return
    table = Table("app", "person", "characters", "changed", box=None, pad_edge=False)
    for one in pages:
        changed_at = minute(one.changed_at)
        table.add_row(one.app, one.person, f"{one.size:,}", changed_at)
    console().print(table if pages else "No stored page data.")


@click.command("delete")
@click.option("--app", help="Only of this app.")
@click.option("--person", help="Only of this person, as in `storage list`.")
@click.option("--all", "everything", is_flag=True, help="Of all apps and persons.")
@config_option()
@json_option
def delete_storage(app: str | None, person: str | None, everything: bool, path: Path, as_json: bool) -> None:
    """Delete page storage. An open page keeps its copy until it is closed.

    Example: webmcp-gateway storage delete --app cart --person "https://login.example.com|alice"
    """
    if everything == bool(app or person):
        raise Unusable("name --app, --person or both; or --all")

    async def delete(accounts: Accounts) -> int:
        return await accounts.storage.delete(person, app)

    count = run(path, delete)
    write_json({"deleted": count}) if as_json else click.echo(f"Deleted: {count} entries of `storage list`.")


LITTLE = 256 * 1024 * 1024
"""Free bytes below which `check` says so."""


def _state(config: Config) -> State:
    return State(config.database.reveal(), config.journal, config.encryption_key.file)


def _config(path: Path) -> Config:
    return load_config(path, LenientEnvironment("database", "key"))


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option()
@json_option
def back_up_state(file: Path, path: Path, as_json: bool) -> None:
    """Write database, record and keys to FILE, a tar file that only you can read. The gateway may be running.

    The file contains the gateway's keys: keep it as safe as those. Keys that are not in a file
    (`stores.encryption_key: ${env:…}` or keyring) are not in it, and are needed to restore.

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
    _say(manifest, as_json, f"{file} is restored: check it with `webmcp-gateway storage check`, or start `serve`")


@click.command("check")
@config_option()
@json_option
def check_state(path: Path, as_json: bool) -> None:
    """Check the state: the database and its version, the record and its key, and the free space on the disk.

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
    if lock.is_created_by_start(config):
        yield f"{config.state}: there is no state yet: `webmcp-gateway serve` creates the folder"
        return
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
