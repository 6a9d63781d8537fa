"""A PostgreSQL of its own for a test: a new cluster in a temporary folder, on a free port of loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it has no types

from tests.world import bound


def binaries() -> Path:
    """The newest that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if found:
        return found[-1]
    postgres = shutil.which("postgres")
    if postgres is None:
        raise RuntimeError("PostgreSQL is missing (Debian: apt install postgresql)")
    return Path(postgres).resolve().parent


@asynccontextmanager
async def postgres() -> AsyncIterator[str]:
    """The URL of an empty database."""
    as_root = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="pg") as name:
        folder = Path(name)
        if as_root:
            shutil.chown(folder, "postgres", "postgres")
        data = str(folder / "data")
        run: dict[str, Any] = {"cwd": folder, "stdout": asyncio.subprocess.DEVNULL, **as_root}
        made = await asyncio.create_subprocess_exec(
            binaries() / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", **run
        )
        assert await made.wait() == 0
        sock = bound()
        port = int(sock.getsockname()[1])
        sock.close()
        options = ["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-p", str(port), "-k", str(folder)]
        server = await asyncio.create_subprocess_exec(
            binaries() / "postgres", "-D", data, *options, stderr=asyncio.subprocess.DEVNULL, **run
        )
        try:
            await _answering(port)
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            server.terminate()
            await server.wait()


async def _answering(port: int) -> None:
    for _ in range(200):
        try:
            connection = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")
        except (OSError, asyncpg.PostgresError):
            await asyncio.sleep(0.05)
        else:
            await connection.close()
            return
    raise RuntimeError("PostgreSQL does not answer")
