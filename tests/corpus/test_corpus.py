"""Some published apps are the same in a view as natively, and the table of all of them agrees with the lock file."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Playwright, async_playwright, expect

from tests.browser.conftest import PATIENCE, launch
from tests.corpus.apps import APPS
from tests.corpus.catalog import App
from tests.corpus.packages import LOCK, install, locked
from tests.corpus.running import ARGUMENTS, run_app
from tests.corpus.table import PAGE, read_table, row_start

QUICK = [app for app in APPS if app.quick]


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """A browser that reaches no other site, and the packages of the quick apps."""
    install(app.package for app in QUICK)
    expect.set_options(timeout=PATIENCE)
    playwright: Playwright
    async with async_playwright() as playwright:
        browser = await launch(playwright, *ARGUMENTS)
        yield browser
        await browser.close()


@pytest.mark.parametrize("app", QUICK, ids=lambda app: app.name)
async def test_a_published_app_is_the_same_in_a_view(chromium: Browser, app: App, tmp_path: Path) -> None:
    """Text, requests and errors on the console agree."""
    row = await run_app(chromium, app, tmp_path)
    assert row.differences == ()
    assert row.native.texts


def test_the_table_has_the_apps_of_the_catalog_in_their_locked_versions() -> None:
    """Run `make corpus` after a change of either."""
    assert [row_start(app) for app in APPS] == [line.cells[:3] for line in read_table(PAGE.read_text("utf-8"))]


def test_what_differs_has_its_reason_in_the_table() -> None:
    """And the catalog names the same."""
    for app, line in zip(APPS, read_table(PAGE.read_text("utf-8")), strict=True):
        assert line.equal == (not app.limit)
        assert line.cells[4] == (app.limit or app.apart)


def test_each_locked_package_is_used_and_no_line_names_a_host() -> None:
    """The registries are those of the clients' own configuration."""
    assert set(locked()) == {app.package for app in APPS}
    assert "://" not in LOCK.read_text("utf-8")


def test_make_lock_resolves_what_each_server_needs() -> None:
    """The servers of the catalog are those that it names."""
    makefile = (PAGE.parents[1] / "Makefile").read_text("utf-8")
    (listed,) = re.findall("^SERVERS = (.+)$", makefile, re.MULTILINE)
    assert listed.split() == sorted(app.package for app in APPS if app.rendered)
