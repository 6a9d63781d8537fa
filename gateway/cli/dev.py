"""`dev`: runs the gateway for an app's author, with live reload."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli.group import config_option
from gateway.cli.serve import run


@click.command()
@config_option("The configuration; `init` writes a first one.")
def dev(path: Path) -> None:
    """Run the gateway, and show changed apps at once.

    When a file of an app is saved, the app is packed again and the console reloads its view; models see the tools
    of the new page. If packing fails, the console shows why and keeps the previous page. Policies take effect as with
    `serve`. With a bundler, use its watch mode (`vite build --watch`) and name its output folder.

    Example: webmcp-gateway dev
    """
    run(path, verbose=True, live=True)
