"""The official conformance suite in front of `/mcp/<upstream>`: both requirement sets, without expected failures."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.interop import everything
from tests.interop.kinds import upstream
from tests.interop.serving import gateway

SUITE = Path(__file__).parent / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
SCORED = {"2025-11-25": 30, "2026-07-28": 37}


async def scenarios(url: str, requirements: str) -> tuple[set[str], set[str], str]:
    """Return the scored scenarios that passed, those that failed, and the suite's output."""
    process = await asyncio.create_subprocess_exec(
        "node", str(SUITE), "server", "--url", url, "--requirements", requirements,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=SUITE.parents[1],
    )  # fmt: skip
    said = (await process.communicate())[0].decode()
    summary, _, unscored = said.partition("=== SUMMARY ===")[2].partition("Not scored")
    others = set(re.findall(r"^\s+[✓✗] (\S+) \(", unscored, re.MULTILINE))
    found = [(mark, name) for mark, name in re.findall(r"^([✓✗]) (\S+):", summary, re.MULTILINE) if name not in others]
    return {n for m, n in found if m == "✓"}, {n for m, n in found if m == "✗"}, said


@pytest.mark.parametrize("requirements", SCORED)
@pytest.mark.parametrize("kind", ["url", "sse", "websocket", "command", "server"])
async def test_every_scenario_passes_in_front_of_the_everything_server(
    tmp_path: Path, requirements: str, kind: str
) -> None:
    """The suite finds no difference from the server itself, over any transport."""
    async with upstream(kind, everything) as spec, gateway(tmp_path, f"everything: {spec}") as mcp:
        passed, failed, said = await scenarios(f"{mcp}/everything", requirements)
    assert not failed, said
    assert len(passed) == SCORED[requirements], said
