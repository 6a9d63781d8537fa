"""Whole gateways with one Redis: limits that count together, what is lost without it, and what is written into it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.app import ADMIN, build_app
from gateway.config import load_config
from gateway.errors import StartError
from tests.redis_server import RedisServer, be_patient, redis_server
from tests.world import Server, local_client

POLICY = """
version: 1
backends: {api: {url: "http://127.0.0.1:BACKEND", network: private}}
routes: [{path: /api/**, methods: [GET], rate: RATE}]
"""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Need no quick machine."""
    be_patient(monkeypatch)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A Redis that the test may break."""
    with redis_server() as started:
        yield started


class Gateway:
    """A gateway in this process: the sites of an app, and the listener for operators."""

    def __init__(self, folder: Path, redis: str, backend: int, rate: str) -> None:
        folder.mkdir()
        self.server, self._admin = Server(), Server()
        (folder / "index.html").write_text("<!doctype html><title>one page</title>")
        (folder / "policy.yaml").write_text(POLICY.replace("BACKEND", str(backend)).replace("RATE", rate))
        (folder / "gateway.yaml").write_text(
            f"server: {{listen: 127.0.0.1:{self.server.port}, drain: {{announce: 0s}}}}\n"
            "apps: {page: {source: index.html, policy: policy.yaml}}\n"
            'stores: {redis: "${env:REDIS}"}\n'
        )
        self._config = load_config(folder / "gateway.yaml", {"REDIS": redis})

    async def start(self) -> None:
        """Start both listeners."""
        app = build_app(self._config)
        await self.server.start(app)
        await self._admin.start(app[ADMIN])

    async def stop(self) -> None:
        """Stop both."""
        await self._admin.stop()
        await self.server.stop()

    async def call(self, http: aiohttp.ClientSession) -> int:
        """Return the status of a call."""
        headers = {"webmcp-gateway-client": "1"}
        async with http.get(f"http://page.localhost:{self.server.port}/api/x", headers=headers) as answer:
            return answer.status

    async def ready(self, http: aiohttp.ClientSession) -> tuple[int, str, dict[str, str]]:
        """Return what `/readyz` says: its status, its word, and the check of Redis."""
        async with http.get(f"http://127.0.0.1:{self._admin.port}/readyz") as answer:
            said = await answer.json()
            return answer.status, said["status"], said["checks"]["redis"]

    async def metric(self, http: aiohttp.ClientSession, name: str) -> float:
        """Return the sum of a metric."""
        async with http.get(f"http://127.0.0.1:{self._admin.port}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"webmcp_gateway_{name}"))


@asynccontextmanager
async def gateways(folder: Path, redis: RedisServer, rate: str, count: int = 2) -> AsyncIterator[list[Gateway]]:
    """So many gateways with one Redis, before one backend."""
    backend = Server()
    app = aiohttp.web.Application()

    async def answer(_: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(text="here")

    app.router.add_get("/api/x", answer)
    async with AsyncExitStack() as stack:
        await backend.start(app)
        stack.push_async_callback(backend.stop)
        made = [Gateway(folder / str(number), redis.url, backend.port, rate) for number in range(count)]
        for one in made:
            await one.start()
            stack.push_async_callback(one.stop)
        yield made


async def test_two_gateways_count_a_limit_exactly(tmp_path: Path, redis: RedisServer) -> None:
    """Sixty concurrent calls through both share twenty; Redis has digests alone, under the gateway's prefix."""
    async with gateways(tmp_path, redis, "20/hour per principal") as both, local_client() as http:
        statuses = await asyncio.gather(*[one.call(http) for one in both * 30])
        assert Counter(statuses) == {200: 20, 429: 40}
        names = redis.names()
        assert len([name for name in names if name.startswith("webmcp:rate:")]) == 1
        assert all(name.startswith("webmcp:") and "local" not in name and "page" not in name for name in names)


async def test_calls_go_on_without_redis_and_it_is_said(tmp_path: Path, redis: RedisServer) -> None:
    """Each gateway allows its share, without a burst, until Redis is there again."""
    async with gateways(tmp_path, redis, "20/hour per principal") as (one, other), local_client() as http:
        async with asyncio.timeout(30):
            while await one.metric(http, "store_up") < 1 or redis.ask("ZCARD", "webmcp:nodes") < 2:
                await asyncio.sleep(0.1)
        assert await one.ready(http) == (200, "ok", {"status": "ok"})
        redis.stop()
        statuses = await asyncio.gather(*[gateway.call(http) for gateway in (one, other) * 10])
        assert Counter(statuses) == {200: 2, 429: 18}
        status, word, check = await one.ready(http)
        assert (status, word, check["status"]) == (200, "degraded", "degraded")
        assert check["detail"]
        assert await one.metric(http, "store_up") == 0
        assert await one.metric(http, "rates_local_total") == 10
        redis.start()
        async with asyncio.timeout(30):
            while (await one.ready(http))[1] != "ok":
                await asyncio.sleep(0.1)
        assert await one.call(http) == 200


async def test_a_start_with_a_redis_that_evicts_is_refused(tmp_path: Path) -> None:
    """The message names setting and remedy."""
    with redis_server(maxmemory_policy="volatile-lru") as redis:
        one = Gateway(tmp_path / "one", redis.url, 9, "1/hour per app")
        with pytest.raises(StartError, match=r"^stores.redis: its maxmemory-policy is volatile-lru.*set noeviction"):
            await one.start()
        await one.stop()


def test_a_gateway_without_redis_does_not_load_its_client() -> None:
    """Neither the package, nor the modules of this one that use it."""
    code = (
        "import sys, gateway.app, gateway.cli.serve, gateway.assembly.shared_state;"
        "print([name for name in sys.modules if name.split('.')[0] == 'redis' or 'stores.redis' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
