"""The main job in Chromium on three machines: a view at one node, a call at another, the approval at the third."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.browser.conftest import browser as browser  # a fixture
from tests.cluster.film import film, shop
from tests.cluster.machines import Machines
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.cluster, pytest.mark.browser]


def test_the_machines_are_separate(places: Machines) -> None:
    """The nodes of these tests have network namespaces of their own."""
    if not places.separate:
        pytest.skip("no network namespaces can be made here: the nodes run at 127.0.0.2 to 127.0.0.4 instead")
    assert places.outside.startswith("10.213.")


async def test_a_view_a_call_and_an_approval_at_three_nodes(
    browser: Browser, tmp_path: Path, places: Machines, database: str, redis: RedisServer
) -> None:
    """The view is at a, the model's call at b, the approval at c; the shop is told once. The docs show the picture."""
    async with shop(tmp_path, places, database, redis) as place:
        picture = await film(browser, place)
    assert picture.startswith(b"\xff\xd8")
