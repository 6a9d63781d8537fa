"""`cluster status`: the processes of a gateway of several, with their leases, versions and what each owns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gateway.cli.group import Unusable, config_option
from gateway.cli.output import FAILED, console, json_option, write_json
from gateway.cluster.report import OWNED, node_json, state_of, what_differs
from gateway.config import Config, load_config
from gateway.config.secrets import LenientEnvironment
from gateway.ports.nodes import NodeRow, NodeState
from gateway.stores.nodes import DatabaseNodes
from gateway.stores.sealing import GivenKeys, KeyRing
from gateway.stores.sql import Database


@click.command()
@config_option()
@json_option
def status(path: Path, as_json: bool) -> None:
    """List the nodes of the cluster, the youngest last: lease, version, configuration, and what each owns.

    It ends with 1 if no node runs, or if nodes differ so that they do not forward to each other.

    Example: webmcp-gateway cluster status
    """
    config = load_config(path, LenientEnvironment("database", "keys"))
    rows = sorted(asyncio.run(_read(config)), key=lambda row: -row.life)
    alive = any(state_of(row) is not NodeState.ENDED for row in rows)
    differing = what_differs(rows)
    if as_json:
        write_json(
            {"ok": alive and not differing, "differing": [*differing], "nodes": [node_json(row) for row in rows]}
        )
    else:
        _show(rows)
        for words in differing:
            click.echo(f"{words}: nothing is forwarded between them")
    if not alive or differing:
        click.get_current_context().exit(FAILED)


async def _read(config: Config) -> Sequence[NodeRow]:
    if config.cluster is None:
        raise Unusable("gateway.yaml has no section cluster: this gateway is one process")
    ring = KeyRing(GivenKeys("cluster.keys", config.cluster.keys))
    async with Database(config.database.reveal()) as database:
        return await DatabaseNodes(database, ring.derive("cluster announcements")).nodes()


def _show(rows: Sequence[NodeRow]) -> None:
    if not rows:
        click.echo("No node has joined.")
        return
    table = Table(
        "node", "state", "renewed", "up", "version", "configuration", *OWNED, "address", box=None, pad_edge=False
    )
    for row in rows:
        one = row.announced
        ended = state_of(row) is NodeState.ENDED
        counts = ("" if ended else str(row.owns.get(kind, "")) for kind in OWNED)
        table.add_row(
            one.name,
            state_of(row).value,
            f"{row.age:.1f} s ago",
            f"{row.life:.0f} s",
            one.version,
            one.digest[:8],
            *counts,
            one.address,
        )
    console().print(table)
