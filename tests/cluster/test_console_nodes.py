"""The console's page of the nodes: which one answered, what each has, whether they reach each other, what differs."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import async_playwright, expect

from tests.browser.conftest import launch
from tests.cluster.alternating import alternating
from tests.cluster.cluster import client, cluster
from tests.cluster.test_doors import page_at


async def test_the_page_of_the_nodes(tmp_path: Path, database: str) -> None:
    """Through a balancer that alternates; it closes views of both, and names a node with another policy."""
    async with cluster(tmp_path, database, "a", "b") as nodes, async_playwright() as playwright:
        origin = f"http://gateway.localhost:{nodes.public}"
        async with alternating(nodes.public, nodes["a"].port, nodes["b"].port), await launch(playwright) as browser:
            page = await browser.new_page(viewport={"width": 1180, "height": 480})
            await page.goto(origin)
            await page.get_by_test_id("to-nodes").click()
            rows = page.get_by_test_id("nodes").locator("tbody tr")
            await expect(rows).to_have_count(2, timeout=30_000)
            await expect(page.get_by_text("answered")).to_have_count(1)
            await expect(rows.get_by_text("serving")).to_have_count(2)
            await expect(rows.get_by_text(re.compile(r"^in \d+ ms$"))).to_have_count(1)
            async with client() as http, page_at(nodes, http, "b"), page_at(nodes, http, "a"):
                views = page.get_by_test_id("views").locator("tbody tr")
                await expect(views).to_have_count(2, timeout=30_000)
                await page.screenshot(path=tmp_path / "views.png")
                for name in "ab":
                    await page.get_by_role("button", name=f"Close the view of page at {name}").click()
                    await expect(page.get_by_role("button", name=f"Close the view of page at {name}")).to_have_count(0)
            await nodes.start("c", more="approvals: {timeout: 7m}\n")
            await expect(page.get_by_test_id("differing")).to_contain_text("nodes differ in configuration: a, b (")
            await expect(rows).to_have_count(3)
            await page.screenshot(path=tmp_path / "nodes.png")
