"""The parts that commands share: groups that import each command on use, errors, `--config`, private files."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from gateway.cli.packages import import_on_demand
from gateway.errors import DocumentError, StartError

UNUSABLE = 2
"""Exit code for an unusable file, argument or configuration; 1 is a failed check."""


LONGEST_SUMMARY = 1000
"""Characters of a command's summary in the help of its group: click cuts at 45 by itself, within a sentence."""


class Unusable(click.ClickException):
    """An error message without traceback; exit code 2."""

    exit_code = UNUSABLE

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=file is None)


class CommandGroup(click.Group):
    """`commands_in` maps each command to `module:name`."""

    def __init__(self, name: str, purpose: str, commands_in: Mapping[str, str]) -> None:
        super().__init__(name=name, help=purpose, no_args_is_help=True)
        self._places = commands_in

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return None
        module, _, name = self._places[cmd_name].partition(":")
        import_on_demand()
        with _without_collector():
            command: click.Command = getattr(import_module(module), name)
        command.short_help = command.get_short_help_str(LONGEST_SUMMARY)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # names of files may be no valid text
        try:
            return super().invoke(ctx)
        except DocumentError as error:
            raise Unusable(str(error)) from error
        except StartError as error:
            raise Unusable(f"webmcp-gateway cannot start: {error}") from error
        except OSError as error:
            if not isinstance(error.filename, str):
                raise
            raise Unusable(f"{error.filename}: cannot be used: {error.strerror}") from error


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the cyclic garbage collector during imports, where it takes a quarter of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


Command = TypeVar("Command", bound=Callable[..., Any])


def config_option(purpose: str = "The configuration.", name: str = "path") -> Callable[[Command], Command]:
    """Return the option `--config`, passed to the command as `name`."""
    return click.option(
        "--config",
        "-c",
        name,
        type=click.Path(path_type=Path),
        default=Path("gateway.yaml"),
        show_default=True,
        help=purpose,
    )


def opener(path: str, flags: int) -> int:
    """Open a file that only the gateway's user can read from its creation on, as the `opener` of `open`.

    An existing file keeps its mode.
    """
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


@contextmanager
def output(place: str) -> Iterator[IO[str]]:
    """Yield the output of a command with content of the record: such a file, or standard output for `-`."""
    if place == "-":
        yield sys.stdout
        return
    try:
        file = open(place, "w", encoding="utf-8", opener=opener)  # noqa: SIM115  # closed below
    except OSError as error:
        raise Unusable(f"{place} cannot be written: {error.strerror}") from error
    with file:
        yield file
