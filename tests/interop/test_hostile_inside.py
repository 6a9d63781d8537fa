"""An upstream in the gateway's process that misbehaves: calls end with a reason, lists end, others continue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client

from gateway.jsontext.writing import SIZE, write_pieces
from tests.interop import hostile_inside
from tests.interop.probe import Probe, text
from tests.interop.serving import gateway, over_http
from tests.interop.test_hostile_http import call_outcome

MODES = ["legacy", "2026-07-28"]


@asynccontextmanager
async def behind(folder: Path, way: str, more: str = "") -> AsyncIterator[str]:
    """Yield the `/mcp` of a gateway in front of a hostile server and of a good one."""
    place = f"tests.interop.hostile_inside:{way.replace(' ', '_')}"
    async with AsyncExitStack() as stack:
        good = await stack.enter_async_context(over_http(Probe("good").server))
        lines = f'bad: {{server: "{place}"{more}}}\ngood: {{url: "{good}", network: private}}'
        yield await stack.enter_async_context(gateway(folder, lines))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("never", "did not answer within"),
        ("raises", ""),
        ("none", ""),
        ("another", ""),
        ("huge", "1048576"),
        ("nested", ""),
        ("bulky", "its response is invalid: more than 100000 commas"),
        ("surrogate", "fine"),
        ("flood", "unsolicited"),
        ("heavy", "unsolicited"),
        ("cancelled", ""),
        ("unborn", "cannot live"),
        ("no list", ""),
        ("dies", ""),
        ("exits", ""),
        ("leaves", "had enough"),
        ("unmade", "cannot be had: 2"),
    ],
)
async def test_a_call_ends_with_words(tmp_path: Path, way: str, why: str, mode: str) -> None:
    """In both eras; the other upstream is answered, also afterwards."""
    more = ", message: 1MiB" + (", timeout: 1s" if way == "never" else "")
    async with behind(tmp_path, way, more) as mcp, Client(f"{mcp}/good", mode=mode) as other:
        async with asyncio.timeout(60):
            bad = await call_in_mode(f"{mcp}/bad", mode)
        assert why in bad
        assert bad
        assert text(await other.call_tool("plain")).startswith("plain of good")


async def test_a_large_answer_is_written_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces: other tasks run meanwhile."""
    sizes: dict[bool, list[int]] = {True: [0], False: [0]}

    def counted(value: object) -> Iterator[str]:
        for piece in write_pieces(value):
            sizes[threading.current_thread() is threading.main_thread()].append(len(piece))
            yield piece

    monkeypatch.setattr("gateway.mcp.upstreams.transport.in_process.write_pieces", counted)
    async with behind(tmp_path, "huge", ", message: 1MiB") as mcp:
        assert "1048576" in await call_in_mode(f"{mcp}/bad", MODES[1])
    assert max(sizes[True]) <= SIZE
    assert SIZE // 2 < max(sizes[False]) <= 2 * SIZE


async def call_in_mode(url: str, mode: str) -> str:
    """Return the answer to a call, or why there is none."""
    try:
        async with Client(url, mode=mode) as client:
            return await call_outcome(client)
    except Exception as error:  # noqa: BLE001  # any exception will do, if it has a reason
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        return str(error)


@pytest.mark.parametrize(("way", "most"), [("loop", 3), ("endless", 101), ("many", 5000), ("lies", 2)])
async def test_lists_come_to_an_end(tmp_path: Path, way: str, most: int) -> None:
    """On `/mcp`, which reads them whole, they are cut; the other upstream's tools are listed."""
    hostile_inside.LISTS.clear()
    async with behind(tmp_path, way) as mcp, Client(mcp) as client:
        async with asyncio.timeout(60):
            while not (names := [tool.name for tool in (await client.list_tools()).tools if tool.name[:4] == "bad_"]):
                await asyncio.sleep(0.1)
        assert 1 <= len(names) <= most
        assert len(hostile_inside.LISTS) <= 110 * 2
        assert text(await client.call_tool("bad_ok" if "bad_ok" in names else names[0])) == "fine"
        assert text(await client.call_tool("good_plain")).startswith("plain of good")
