"""The official conformance suite's scenarios for OAuth clients, on the gateway's own flows, where these apply."""

from __future__ import annotations

import asyncio
import re
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
    "dpop",
    "dpop-nonce",
    "offline-access-not-supported",
    "offline-access-scope",
    "scope-from-scopes-supported",
    "scope-from-www-authenticate",
    "scope-omitted-when-undefined",
    "wif-jwt-bearer",
    "enterprise-managed-authorization",
]

APART = {
    "basic-cimd": "a client id is given in gateway.yaml; it may be the URL of a document that its owner publishes",
    "scope-step-up": "gateway.yaml says what the gateway may ever ask for: an upstream cannot make it ask for more",
    "scope-retry-limit": "so there is no second request for more scope, either",
    "authorization-server-migration": "gateway.yaml names the issuer: an upstream cannot lead to another one",
    "resource-mismatch": "nor are the upstream's own metadata believed, since issuer and resource are named there",
    "2025-03-26-oauth-metadata-backcompat": "an issuer is named, with its endpoints where it has no metadata",
    "2025-03-26-oauth-endpoint-fallback": "endpoints are never guessed: a secret would go to a guess",
}
"""Scenarios for clients that discover by themselves whom to trust, and why the gateway is no such client."""


async def test_every_scenario_is_accounted_for() -> None:
    """A new version of the suite cannot add one unnoticed."""
    process = await asyncio.create_subprocess_exec(
        shutil.which("node") or "node", str(SUITE), "list", "--client", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    listed = set(re.findall(r"auth/([a-z0-9-]+)", output.decode()))
    assert listed == {*SCENARIOS, *APART}


@pytest.fixture(scope="module")
async def runs() -> AsyncIterator[Mapping[str, Run]]:
    """Run all of them, two at a time: most of each is the start of two programs, one after the other."""
    turns = asyncio.Semaphore(2)
    started = {scenario: asyncio.ensure_future(run(scenario, turns)) for scenario in SCENARIOS}
    yield started
    for one in started.values():
        one.cancel()
    await asyncio.gather(*started.values(), return_exceptions=True)


async def run(scenario: str, turns: asyncio.Semaphore) -> tuple[int | None, str]:
    """Return the suite's exit code and output."""
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
