"""Which policies a command is about: the files it names, or those of gateway.yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from gateway.cli.group import Unusable
from gateway.config import load_config
from gateway.errors import DocumentError, Problem
from gateway.policy import Policy, load_policy

Command = TypeVar("Command", bound=Callable[..., Any])

CONFIG = Path("gateway.yaml")


class _Unused(Mapping[str, str]):
    """An environment for commands that never use a secret: every variable is set."""

    def __getitem__(self, key: str) -> str:
        return "unused"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


UNUSED = _Unused()


def config_option(command: Command) -> Command:
    """`--config`, for a command that reads gateway.yaml where no policy file is named."""
    option = click.option(
        "--config",
        "-c",
        type=click.Path(path_type=Path),
        default=CONFIG,
        show_default=True,
        help="Where the policies are named, if no file is given.",
    )
    return option(command)


def policies(files: Sequence[Path], config: Path) -> Mapping[str, Policy]:
    """The policies by what the user calls them. Raises DocumentError with the problems of all of them."""
    if not files:
        _require(config)
        return {f"{app.policy.file} ({app.id})": app.policy for app in load_config(config, UNUSED).apps.values()}
    found: dict[str, Policy] = {}
    problems: list[Problem] = []
    for file in files:
        try:
            found[str(file)] = load_policy(file)
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems)
    return found


def one_policy(file: Path | None, config: Path, app: str | None) -> tuple[str, Policy]:
    """An app's id and policy: of `file`, else of the app in gateway.yaml, which must be named if there are several."""
    if file is not None:
        return app or file.stem, load_policy(file)
    _require(config)
    apps = load_config(config, UNUSED).apps
    if app is None and len(apps) == 1:
        app = next(iter(apps))
    if app is None or app not in apps:
        raise Unusable(f"name one of the apps of {config} with --app: {', '.join(apps)}")
    return app, apps[app].policy


def _require(config: Path) -> None:
    if not config.exists():
        raise Unusable(f"there is no {config} here: name a policy file, or the configuration with --config")
