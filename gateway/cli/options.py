"""Options shared by many commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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
