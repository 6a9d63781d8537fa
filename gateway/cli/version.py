"""`version`: prints the versions of the gateway and its main dependencies."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

import click

import gateway

PARTS = ("mcp", "aiohttp", "pydantic")


@click.command()
def version() -> None:
    """Print the version."""
    parts = ", ".join(f"{name} {version_of(name)}" for name in PARTS)
    click.echo(f"webmcp-gateway {gateway.__version__} (Python {platform.python_version()}, {parts})")
