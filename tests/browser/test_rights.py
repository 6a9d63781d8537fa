"""The console of a person whose rights change while it is open says what is so, and shows the apps again by itself."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import BrowserContext, expect

from tests.assembly.test_live_settings import ROLES, UNTIL, change_settings, rewrite
from tests.doors.access_world import HR, building


async def test_a_console_follows_the_rights_of_its_person(tmp_path: Path, context: BrowserContext) -> None:
    """A person without a role learns that there are apps, and of whom to ask, not their names; a role brings them."""
    async with building(tmp_path, UNTIL) as house:
        house.configure(pay="none", books_access="none")
        await context.set_extra_http_headers(HR)
        page = await context.new_page()
        await page.goto(house.console)
        app = page.get_by_role("heading", name="pay", exact=False, level=1)
        await expect(app).to_be_attached()
        await change_settings(house, ROLES, "roles: {user: [sales], admin: [root]}")
        excluded = page.get_by_role("heading", name="You may not use any app here")
        await expect(excluded).to_be_visible()
        await expect(page.get_by_text("Ask an administrator for access")).to_be_visible()
        state = await house.state(HR)
        assert (state["apps"], state["excluded"]) == ([], True)
        await change_settings(house, "user: [sales]", "user: [sales, hr]")
        await expect(app).to_be_attached()
        await expect(excluded).not_to_be_attached()


async def test_without_apps_the_console_says_how_to_name_one(tmp_path: Path, context: BrowserContext) -> None:
    """An app that is named then appears without a restart, and without a reload by hand."""
    async with building(tmp_path, UNTIL) as house:
        await context.set_extra_http_headers(HR)
        page = await context.new_page()
        await page.goto(house.console)
        apps = house.folder.joinpath("gateway.yaml").read_text("utf-8")
        start = apps.index("apps:")
        named = apps[start : apps.index("\n", apps.rindex("policy: notes.yaml")) + 1]
        rewrite(house, named, "")
        house.reread()
        await expect(page.get_by_text("Name an app under `apps:` in gateway.yaml")).to_be_visible()
        rewrite(house, apps.replace(named, ""), apps)
        house.reread()
        await expect(page.get_by_role("heading", name="pay", exact=False, level=1)).to_be_attached()
