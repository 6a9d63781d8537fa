"""Reports of an attack run: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.attack.attempts import Attempt


def print_report(url: str, attempts: Sequence[Attempt], console: Console) -> None:
    """Print the counts for each family and door, then every attempt that did not hold."""
    table = Table("family", "door", "tried", "held", "not held", title=f"Attacks on {url}")
    for family, door in sorted({(one.family, one.door) for one in attempts}):
        tried = [one for one in attempts if (one.family, one.door) == (family, door)]
        held = sum(one.held for one in tried)
        missed = Text(str(len(tried) - held), "bold red" if held < len(tried) else "green")
        table.add_row(family, door, str(len(tried)), str(held), missed)
    console.print(table)
    for one in attempts:
        if not one.held:
            console.print(Text(f"NOT HELD  {one.id} at {one.door}: {one.why}", "bold red"))
            console.print(f"          answered {one.status or 'nothing'}, gateway-reason {one.reason or 'none'}")
    held = sum(one.held for one in attempts)
    console.print(f"{held} of {len(attempts)} attacks held")


def json_report(url: str, attempts: Sequence[Attempt]) -> str:
    """Return the report as JSON."""
    cases = [
        {
            "id": one.id,
            "family": one.family,
            "door": one.door,
            "why": one.why,
            "status": one.status,
            "reason": one.reason,
            "held": one.held,
        }
        for one in attempts
    ]
    counts = {"tried": len(attempts), "held": sum(one.held for one in attempts)}
    return json.dumps({"url": url, "ok": counts["tried"] == counts["held"], **counts, "cases": cases}, indent=2)
