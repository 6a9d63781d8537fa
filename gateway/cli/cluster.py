"""`cluster status`: the processes of a gateway of several, with their leases, versions and what each owns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gateway.cli.group import Unusable, config_option
from gateway.cli.output import FAILED, console, json_option, write_json
from gateway.config import Config, load_config
from gateway.config.secrets import LenientEnvironment
from gateway.model import Json
from gateway.ports.nodes import NodeRow
from gateway.stores.nodes import ENDS_AFTER, DatabaseNodes
from gateway.stores.sealing import GivenKeys, KeyRing
from gateway.stores.sql import Database

KINDS = ("views", "sessions", "streams", "calls")
"""The live objects that a node counts, in the order of the columns."""


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
    living = [row for row in rows if row.age < ENDS_AFTER]
    differ = len({(row.announced.version, row.announced.digest) for row in living if row.signed}) > 1
    if as_json:
        write_json({"ok": bool(living) and not differ, "nodes": [_json(row) for row in rows]})
    else:
        _show(rows)
        if differ:
            click.echo("Nodes differ in version or configuration: nothing is forwarded between these.")
    if not living or differ:
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
        "node", "state", "renewed", "up", "version", "configuration", *KINDS, "address", box=None, pad_edge=False
    )
    for row in rows:
        one = row.announced
        counts = (str(row.owns.get(kind, "")) if row.age < ENDS_AFTER else "" for kind in KINDS)
        table.add_row(
            one.name,
            _state(row),
            f"{row.age:.1f} s ago",
            f"{row.life:.0f} s",
            one.version,
            one.digest[:8],
            *counts,
            one.address,
        )
    console().print(table)


def _state(row: NodeRow) -> str:
    if not row.signed:
        return "unsigned"
    if row.age >= ENDS_AFTER:
        return "ended"
    return "draining" if row.draining else "serves"


def _json(row: NodeRow) -> Json:
    one = row.announced
    return {
        "name": one.name,
        "incarnation": one.incarnation,
        "state": _state(row),
        "renewed": row.age,
        "up": row.life,
        "version": one.version,
        "configuration": one.digest,
        "policies": dict(one.policies),
        "address": one.address,
        "owns": dict(row.owns),
    }
