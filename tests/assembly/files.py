"""Replaces files, and waits for the effect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path


def replace_file(file: Path, text: str) -> None:
    """Replace a file as editors and deployments do."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(text, "utf-8")
    os.replace(new, file)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `holds` is true, for 20 seconds at most."""
    async with asyncio.timeout(60):
        while not await holds():
            await asyncio.sleep(0.05)
