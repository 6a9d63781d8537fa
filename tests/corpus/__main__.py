"""`python -m tests.corpus`: runs the apps natively and in a view, and writes their rows of docs/corpus.md."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.async_api import async_playwright, expect

from tests.browser.conftest import launch
from tests.corpus import running
from tests.corpus.apps import APPS
from tests.corpus.catalog import App
from tests.corpus.packages import install
from tests.corpus.picture import write_picture
from tests.corpus.running import ARGUMENTS, Row, run_app
from tests.corpus.table import write_table


def main() -> None:
    """Run the apps that the arguments select."""
    parser = argparse.ArgumentParser(prog="make corpus", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of apps")
    parser.add_argument("--jobs", type=int, default=2, help="apps at a time")
    parser.add_argument("--patience", type=int, default=running.PATIENCE, help="milliseconds that anything may take")
    parser.add_argument("--install", choices=["quick", "all"], help="only download the packages of these apps")
    parser.add_argument("--folder", type=Path, help="where to leave the files of the runs")
    given = parser.parse_args()
    if given.install:
        install(app.package for app in APPS if app.quick or given.install == "all")
        return
    running.PATIENCE = given.patience
    apps = [app for app in APPS if not given.only or any(part.lower() in app.name.lower() for part in given.only)]
    install(app.package for app in apps)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="corpus"))
    rows = asyncio.run(run(apps, given.jobs, folder))
    if not given.folder:
        shutil.rmtree(folder)
    write_table(rows, APPS)
    equal = sum(row.equal for row in rows)
    print(f"{equal} of {len(rows)} are equal to native, {len(rows) - equal} are not.")
    sys.exit(not all(row.expected for row in rows))


async def run(apps: list[App], jobs: int, folder: Path) -> list[Row]:
    """Run the apps, as many at a time as `jobs`, and print each result."""
    expect.set_options(timeout=running.PATIENCE)
    rows: dict[str, Row] = {}
    seats = asyncio.Semaphore(jobs)

    async def one(app: App) -> None:
        async with seats:
            begun = time.monotonic()
            own = folder / app.name.replace(" ", "-").replace("/", "-").lower()
            shutil.rmtree(own, ignore_errors=True)
            own.mkdir(parents=True)
            row = rows[app.name] = await run_app(browser, app, own)
            result = "equal" if row.equal else "different"
            print(f"[{len(rows)}/{len(apps)}] {app.name}: {result} ({time.monotonic() - begun:.0f} s)", flush=True)
            for difference in row.differences:
                print(f"      {difference}", flush=True)

    async with async_playwright() as playwright:
        browser = await launch(playwright, *ARGUMENTS)
        async with asyncio.TaskGroup() as group:
            for app in apps:
                group.create_task(one(app))
        found = [rows[app.name] for app in apps]
        await write_picture(browser, found)
        await browser.close()
    return found


if __name__ == "__main__":
    main()
