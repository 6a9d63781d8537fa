"""The official conformance suite's scenarios for OAuth clients, on the gateway's own flows, where these apply.

Not here: what the gateway does not do, because its clients are registered by a person and named in gateway.yaml
(client id metadata documents, step-up of scopes, a change of the authorization server, the metadata of 2025-03-26).
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUITE = HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

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


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_scenario(scenario: str) -> None:
    """It passes, with every check."""
    program = f"{sys.executable} -m tests.interop.oauth_client"
    process = await asyncio.create_subprocess_exec(
        shutil.which("node") or "node",
        *(str(SUITE), "client", "--command", program, "--scenario", f"auth/{scenario}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=HERE.parents[1],
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, output.decode()[-3000:]
