"""A record for the tests of `audit`, and how they call it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.model import Json
from gateway.stores.sql import Database

START = 1_790_000_000.0


def fields(number: int, **others: Json) -> dict[str, Json]:
    """The fields of an exchange."""
    return {
        "kind": "http",
        "principal": "idp|cli|ada" if number % 2 else "idp|cli|bob",
        "app": "cart" if number % 3 else "desk",
        "view": f"v{number % 2}",
        "door": "bridge",
        "initiator": ("person", "page", "model")[number % 3],
        "method": "POST" if number % 2 else "GET",
        "url": f"/api/items/{number}",
        "route": "items",
        "decision": "allow",
        "trace": f"{number:032x}",
        **others,
    }


def run(folder: Path, *arguments: str) -> Result:
    """`webmcp-gateway audit …` with the configuration of `folder`."""
    command, *rest = arguments
    return CliRunner().invoke(main, ["audit", command, "--config", str(folder / "gateway.yaml"), *rest])


async def execute_statements(folder: Path, *statements: str) -> None:
    """Execute statements as an attacker with write access to the database."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database, database.connect() as connection:
        for statement in statements:
            await connection.exec_driver_sql(statement)
        await connection.commit()


def ids(result: Result) -> list[str]:
    """The ids in a JSON answer."""
    assert result.exit_code == 0, result.output
    return [one["id"] for one in json.loads(result.stdout)]
