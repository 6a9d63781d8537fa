"""`credential connect`: prints the console page where a logged-in person connects an account."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from gateway.assembly.credentials import Accounts
from gateway.cli.credential.opened import is_connected, named, run
from gateway.cli.group import Unusable
from gateway.cli.options import config_option
from gateway.cli.policy.output import json_option, write_json


@click.command()
@click.argument("name")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@config_option()
@json_option
def connect(name: str, opens: bool, path: Path, as_json: bool) -> None:
    """Print the address of the console's page on which a person connects an account for credential NAME.

    The gateway must be running; the page asks for a login to the console where there are logins, and starts nothing
    before a button is pressed.

    Example: webmcp-gateway credential connect calendar --open
    """

    async def address(accounts: Accounts) -> str:
        if not is_connected(named(accounts, name)):
            raise Unusable(f"{name} is the gateway's own: there is nothing to connect. Try `credential test {name}`.")
        return f"{accounts.console}/connect/{quote(name, safe='')}"

    url = run(path, address)
    write_json({"connect_url": url}) if as_json else click.echo(url)
    if opens:
        click.launch(url)
