"""A Chromium without a debugger attached, which would slow it down."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.errors import BenchmarkError
from benchmarks.processes import Processes, free_port

CHROMIUM = Path("/usr/bin/chromium")

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def show(url: str, profile: Path, processes: Processes) -> None:
    """Start a browser that shows `url` and keeps its profile in the folder `profile`. Raises `BenchmarkError`."""
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
    chromium = own if own.exists() else CHROMIUM
    if not chromium.exists():
        raise BenchmarkError(f"There is no Chromium at {own} or {CHROMIUM}; `make chromium` installs one.")
    port = free_port()
    where = [f"--user-data-dir={profile}", f"--remote-debugging-port={port}", url]
    processes.start(f"chromium {profile.name}", [str(chromium), *_FLAGS, *where], port=port)
