"""The official conformance suite's scenarios for OAuth clients, on the gateway's own flows, where these apply.

Not here: what the gateway does not do, because its clients are registered by a person and named in gateway.yaml
(client id metadata documents, step-up of scopes, a change of the authorization server, the metadata of 2025-03-26).
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

HERE = Path(__file__).parent
SUITE = HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

Run: TypeAlias = "asyncio.Future[tuple[int | None, str]]"

SCENARIOS = [
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
    "client-credentials-jwt",
    "client-credentials-basic",
]


@pytest.fixture(scope="module")
async def runs() -> AsyncIterator[Mapping[str, Run]]:
    """All of them, two at a time: most of each is the start of two programs, one after the other."""
    turns = asyncio.Semaphore(2)
    started = {scenario: asyncio.ensure_future(run(scenario, turns)) for scenario in SCENARIOS}
    yield started
    for one in started.values():
        one.cancel()
    await asyncio.gather(*started.values(), return_exceptions=True)


async def run(scenario: str, turns: asyncio.Semaphore) -> tuple[int | None, str]:
    """The suite's exit code, and what it says."""
    program = f"{sys.executable} -m tests.interop.oauth_client"
    async with turns, asyncio.timeout(60):
        process = await asyncio.create_subprocess_exec(
            shutil.which("node") or "node",
            *(str(SUITE), "client", "--command", program, "--scenario", f"auth/{scenario}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=HERE.parents[1],
        )
        output, _ = await process.communicate()
    return process.returncode, output.decode()


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_scenario(runs: Mapping[str, Run], scenario: str) -> None:
    """It passes, with every check."""
    code, output = await runs[scenario]
    assert code == 0, output[-3000:]
