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

    When a file of an app is saved, the app is packed anew and the console opens its view again; models see the tools
    of the new page. What cannot be packed is said there, and the page of before stays. Policies take effect as with
    `serve`. For a bundler, let it write its output as it watches (`vite build --watch`), and name that folder.

    Example: webmcp-gateway dev
    """
    run(path, verbose=True, live=True)
