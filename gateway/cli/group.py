"""A group that loads each command when it is called, and ends with exit code 2 where a file or the start is wrong."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

import click

from gateway.errors import DocumentError, StartError

UNUSABLE = 2
"""Exit code where a file, an argument or the configuration cannot be used; 1 is a failed check."""


class Unusable(click.ClickException):
    """A message without traceback; exit code 2."""

    exit_code = UNUSABLE

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=file is None)


class CommandGroup(click.Group):
    """`commands_in` says where each command is: `module:name`."""

    def __init__(self, name: str, purpose: str, commands_in: Mapping[str, str]) -> None:
        super().__init__(name=name, help=purpose, no_args_is_help=True)
        self._places = commands_in

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return None
        module, _, name = self._places[cmd_name].partition(":")
        with _uncollected():
            command: click.Command = getattr(import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DocumentError as error:
            raise Unusable(str(error)) from error
        except StartError as error:
            raise Unusable(f"webmcp-gateway cannot start: {error}") from error


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic collector, which walks all modules again and again while they grow: a quarter of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
