"""The cases of this folder, by family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.cli.attack.cases import read_family

CASES = Path(__file__).parent / "cases"
REQUESTS = ("path", "authority", "redirect", "method-headers", "body", "response", "rules")
"""The families whose cases are requests of an app, and run at every door."""

SEQUENCES = ("quota", "stream", "cookies", "masks", "reload")
"""The families whose cases have several steps; these run at every door, too."""

GROUPS = {
    "mcp": ("modern", "modern-sdk", "legacy", "stdio"),
    "json": ("modern", "modern-sdk", "legacy", "stdio", "bridge"),
    "all": ("modern", "modern-sdk", "legacy", "stdio", "bridge", "site"),
}


def family(name: str) -> list[dict[str, Any]]:
    """The cases of one family."""
    return [dict(case) for case in read_family(CASES / f"{name}.yaml")]


def doors_of(case: dict[str, Any]) -> tuple[str, ...]:
    """The doors that can express a request case: all, unless it lists some."""
    named = case.get("doors", "all")
    listed = [named] if isinstance(named, str) else named
    return tuple(door for name in listed for door in GROUPS.get(name, (name,)))
