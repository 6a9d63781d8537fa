"""The command `policy learn`, in this process."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from gateway.cli import main

BACKEND = ("--backend", "https://shop.example.com")


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["policy", "learn", *arguments])


def learn(*arguments: str) -> tuple[list[str], list[tuple[str, int]]]:
    """The routes that were added, and the omissions with their counts."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    added = [f"{', '.join(one['methods'])} {one['path']}" for one in told["added"]]
    return added, [(one["what"], one["count"]) for one in told["left_out"]]
