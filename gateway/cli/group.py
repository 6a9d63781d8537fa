"""The parts that commands share: groups that import commands and large packages on use, errors, `--config`, files."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import IO, Any, Final, TypeVar

import click

from gateway.errors import DocumentError, StartError

ON_DEMAND: Final = frozenset(
    {
        "mcp",  # the client, the command line, the high-level server
        "mcp.server",
        "mcp.types",
        "sqlalchemy.ext.asyncio",  # the object-relational mapper
    }
)
"""Packages whose `__init__` imports far more than the gateway uses: it runs once a name is used that it defines."""

DEFERRED: Final = frozenset({"mcp_types", "mcp_types.methods"})
"""Packages with some five hundred models of pydantic: the validator of each is built at its first use."""


def import_on_demand() -> None:
    """Import these packages so from now on, in this process. Plugins notice no difference."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ON_DEMAND and fullname not in DEFERRED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            make = _OnDemand if fullname in ON_DEMAND else _Deferring
            spec.loader = make(fullname, spec.loader.path)
        return spec


class _OnDemand(SourceFileLoader):
    """Loads a package without running it, and runs it later."""

    def __init__(self, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._lock = RLock()
        self._ran = False

    def exec_module(self, module: ModuleType) -> None:
        def get(name: str) -> Any:  # PEP 562
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if find_spec(f"{module.__name__}.{name}") is not None:
                return import_module(f"{module.__name__}.{name}")
            self._run(module)
            return getattr(module, name)

        module.__dict__["__getattr__"] = get

    def _run(self, module: ModuleType) -> None:
        with self._lock:
            if not self._ran:
                self._ran = True
                module.__dict__.pop("__getattr__", None)
                super().exec_module(module)


class _Deferring(SourceFileLoader):
    """Loads a module whose models are complete at their first use."""

    def exec_module(self, module: ModuleType) -> None:
        with _deferred_models():
            super().exec_module(module)


@contextmanager
def _deferred_models() -> Iterator[None]:
    """Let pydantic build what is defined in the block later (`defer_build` of its ConfigDict)."""
    import pydantic  # noqa: PLC0415  only where a package with models is loaded

    inherited = pydantic.BaseModel.model_config
    pydantic.BaseModel.model_config = pydantic.ConfigDict(defer_build=True)
    try:
        yield
    finally:
        pydantic.BaseModel.model_config = inherited


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
        if "version" in commands_in:
            self.params.append(
                click.Option(
                    ["--version"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=self._show_version,
                    help="Print the version and exit, as the command does.",
                )
            )

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

    def _show_version(self, ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
        command = self.get_command(ctx, "version") if is_asked else None
        if command is not None:
            ctx.invoke(command)
            ctx.exit()

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
