"""An app's own site serves its files to browsers that come and go."""

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
