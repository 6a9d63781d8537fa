"""`credential rotate-key`: a new encryption key for stored tokens, page storage, and logins."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.assembly.credentials import Accounts
from gateway.cli.credential.opened import run
from gateway.cli.options import config_option
from gateway.cli.policy.output import json_option, write_json
from gateway.model import Json
from gateway.stores.sealing import new_key


@click.command("rotate-key")
@click.option("--print", "prints", is_flag=True, help="Print a new key and do nothing else.")
@click.option("--reseal", is_flag=True, help="Make no new key: seal with the first that there is.")
@config_option()
@json_option
def rotate_key(prints: bool, reseal: bool, path: Path, as_json: bool) -> None:
    """Make a new key for stored tokens, what pages keep and logins, and seal all of it anew.

    The gateway may be running.

    The key before stays in its place until the next rotation, for processes that still hold it. A key in the
    environment is not ours to change: put what --print gives in front of it, separated by a space, restart the
    gateway, and call this with --reseal.

    Example: webmcp-gateway credential rotate-key
    """
    if prints:
        click.echo(new_key())
        return

    async def rotated(accounts: Accounts) -> dict[str, Json]:
        if not reseal:
            accounts.ring.rotate()
        done, lost = await accounts.store.reseal()
        pages, lost_pages = await accounts.storage.reseal()
        logins, lost_logins = await accounts.hints.reseal()
        tokens: dict[str, Json] = {"key": accounts.ring.ids[0], "sealed": done, "unreadable": lost}
        kept: dict[str, Json] = {"pages": pages, "unreadable_pages": lost_pages}
        return {**tokens, **kept, "logins": logins, "unreadable_logins": lost_logins}

    result = run(path, rotated)
    if as_json:
        write_json(result)
        return
    click.echo(f"The key is {result['key']}; {result['sealed']} tokens were sealed with it.")
    if result["pages"]:
        click.echo(f"So was what {result['pages']} pages keep.")
    if result["logins"]:
        click.echo(f"So were the ID tokens of {result['logins']} logins.")
    if result["unreadable_logins"]:
        click.echo(f"{result['unreadable_logins']} logins will end here alone, and not at their issuer.")
    if result["unreadable_pages"]:
        click.echo(f"What {result['unreadable_pages']} pages keep can be opened with no key: see `storage delete`.")
    if result["unreadable"]:
        click.echo(f"{result['unreadable']} tokens can be opened with no key: their accounts must be connected anew.")
