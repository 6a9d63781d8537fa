"""An app's own site serves its files, and its page at the paths of its router, to browsers that come and go."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from tests.world import running


async def test_a_browser_that_leaves_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone when its file is there to be sent: nothing fails that nobody hears of."""
    failed: list[str] = []
    asked = asyncio.Event()
    prepare = web.FileResponse.prepare

    async def late(self: web.FileResponse, request: web.BaseRequest) -> AbstractStreamWriter | None:
        asked.set()
        while request.transport is not None:
            await asyncio.sleep(0)
        return await prepare(self, request)

    monkeypatch.setattr(web.FileResponse, "prepare", late)
    async with running(tmp_path) as world:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: failed.append(str(said)))
        _, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
        host = world.site.removeprefix("http://")
        writer.write(f"GET / HTTP/1.1\r\nhost: {host}\r\nwebmcp-gateway-client: 1\r\n\r\n".encode())
        await asked.wait()
        writer.transport.abort()
    gc.collect()
    asyncio.get_running_loop().set_exception_handler(None)
    assert failed == []


async def test_a_path_of_the_router_that_is_loaded_is_the_page(tmp_path: Path) -> None:
    """By a person, where no rule begins as it does, and no file is named; scripts are held to the policy."""
    to_a_page = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    script = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
    asked = [
        ("/products/7", to_a_page),
        ("/nothing.js", to_a_page),
        ("/api/nothing", to_a_page),
        ("/products/7", script),
    ]
    async with running(tmp_path) as world, world.client() as client:
        async with client.get(world.site, headers=to_a_page) as page:
            whole = await page.text()
        found = []
        for path, headers in asked:
            async with client.get(world.site + path, headers=headers) as answer:
                found.append((answer.status, await answer.text() == whole))
    assert found == [(200, True), (403, False), (403, False), (403, False)]
