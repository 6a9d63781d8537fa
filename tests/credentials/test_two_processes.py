"""Two gateway processes on one database: a token that one of them renews is not renewed by the other."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.credentials.house import House, house
from tests.credentials.test_real_server import grants
from tests.leaks.watch import environment
from tests.postgresql import postgresql
from tests.world import free_port

SERVE = (sys.executable, "-c", "from gateway.cli import main; main()", "serve")
CALLS = 50


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of the shared database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shared.db'}"
    else:
        with postgresql() as server:
            yield server.url


@asynccontextmanager
async def process(home: House, name: str) -> AsyncIterator[House]:
    """Run the gateway of `home` in a second process, with a separate folder and port."""
    port, folder = free_port(), home.folder / name
    shutil.copytree(home.folder / "web", folder / "web")
    shutil.copy(home.folder / "policy.yaml", folder)
    text = (home.folder / "gateway.yaml").read_text().replace(str(home.port), str(port))
    key = f'encryption_key: "${{file:{home.folder / "gateway.key"}}}"'
    (folder / "gateway.yaml").write_text(text.replace("stores: {", f"stores: {{{key}, "))
    started = await asyncio.create_subprocess_exec(
        *SERVE,
        cwd=folder,
        env={**environment(), **home.environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert started.stdout is not None
    try:
        async with asyncio.timeout(60):
            async for line in started.stdout:
                if f"http://cart.localhost:{port}" in line.decode():
                    break
        yield replace(home, port=port)
    finally:
        started.terminate()
        await started.communicate()


async def test_two_processes_renew_a_token_once(tmp_path: Path, database: str) -> None:
    """A person's token, with a single-use refresh token, and the gateway's own: many calls at both, one renewal."""
    async with house(tmp_path) as home:
        config = home.folder / "gateway.yaml"
        config.write_text(config.read_text() + 'stores: {database: "${env:DATABASE}"}\n')
        home.environ = {**home.environ, "DATABASE": database}
        await home.restart()
        assert (await home.connect())[0] == 200
        assert (await home.get("secret"))[0] == 200
        for kind in ("person", "secret"):
            await home.expire(kind)
        await home.gateway.stop()
        await home.provider.events()
        async with process(home, "one") as one, process(home, "two") as two:
            for kind, grant in (("person", "refresh_token"), ("secret", "client_credentials")):
                home.resource.seen.clear()
                await home.provider.hold()
                calls = [asyncio.create_task(there.get(kind)) for there in (one, two) for _ in range(CALLS)]
                await home.provider.held()
                await home.provider.release()
                assert {status for status, _ in await asyncio.gather(*calls)} == {200}
                assert grants(await home.provider.events()) == [("grant.success", grant, None)]
                assert len({fields["authorization"] for fields in home.resource.seen}) == 1
                assert len(home.resource.seen) == 2 * CALLS
