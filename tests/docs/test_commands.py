"""Every command in the README and docs/ runs as written, on a busy gateway, with the documented exit code."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shlex
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.docs.blocks import lines
from tests.docs.workshop import Workshop, workshop
from tests.world import free_port

COMMANDS = sorted({(block.page, line.removeprefix("webmcp-gateway ")) for block, line in lines("webmcp-gateway ")})

GO_ON = ("serve", "stdio", "dev", "approvals watch", "audit tail --follow")
"""Commands that run until they are interrupted, or their input ends."""

FRESH = ("doctor path", "init", "serve", "dev", "policy check", "policy test", "policy explain DELETE")
"""Commands of the README that a reader calls in a new folder, in which no gateway runs yet."""

ENDS = {
    ("README.md", "policy explain DELETE /api/cart/7 --initiator model"): 1,  # a first policy allows reads only
    ("README.md", "policy replay gateway.journal --policy policies/cart.yaml"): 1,  # a decision would change
    ("commands.md", "cluster status"): 1,  # no node has joined
    ("commands.md", "doctor http://127.0.0.1:8000"): 1,  # no backend runs there
    ("commands.md", "init http://127.0.0.1:8000/shop/ --app shop"): 2,  # nor here
    ("commands.md", "policy replay gateway.journal --policy new.yaml"): 1,  # it has no route for the request
    ("commands.md", "storage restore gateway-monday.tar"): 2,  # a gateway runs here
}
"""Exit codes other than 0."""

ANSWERS = {"approvals answer": "approve\n"}
"""The input of a person."""


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    """One installation for all commands."""
    async with workshop(tmp_path_factory.mktemp("workshop")) as made:
        yield made


async def fill_placeholders(place: Workshop, words: str, stack: AsyncExitStack) -> str:
    """The command with placeholders replaced: addresses, ids, people, numbers."""
    words = words.replace("http://localhost:8080", f"http://localhost:{place.house.port}")
    words = words.replace("https://mcp.example.com", f"http://localhost:{place.house.port}")
    words = words.replace("postgresql://reader@db/gateway", place.database)
    words = words.replace("https://login.example.com|alice", "local|local")
    if "4f0ak1" in words:
        words = words.replace("4f0ak1", await stack.enter_async_context(place.question()))
    if words.startswith("approvals watch"):
        await stack.enter_async_context(place.question())
    if "9a2Bx4" in words:
        async with place.question() as id:
            granted = await place.run("approvals", "answer", id, "--approve", "--grant")
            assert granted.code == 0, granted
        words = words.replace("9a2Bx4", (await place.run("approvals", "grants")).out.split()[0])
    if "--head" in words:
        key = await place.run("audit", "key")
        (place.folder / "gateway.pub").write_text(key.out)
        verified = await place.json("audit", "verify")
        words = words.replace("81234", str(verified["records"][0]["proven_to_head"]))
        (place.folder / "backup").mkdir(exist_ok=True)
        shutil.copy(place.folder / "gateway.journal", place.folder / "backup")  # later: the journal grows meanwhile
    if words.startswith("attack"):
        words += " --rate 500"  # the last one counts; at the usual pace it takes a minute
    if words.startswith("token revoke"):
        await place.run("token", "create", "claude", folder=place.folder / "tokens")
    return words


async def run_interrupted(place: Workshop, words: str, folder: Path) -> tuple[int, str]:
    """Start a command that keeps running, interrupt it after its first output; return exit code and output."""
    process = await place.start(*shlex.split(words), folder=folder)
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(60):
        if words.startswith("stdio"):
            process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        first = (await process.stdout.readline()).decode()
        if words.startswith(("serve", "dev")):
            while first and "/mcp" not in first:
                first = (await process.stdout.readline()).decode()
        process.stdin.close()
        if words.startswith(GO_ON) and not words.startswith("stdio"):
            process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    return process.returncode or 0, first + (out + err).decode()


@pytest.mark.parametrize(("page", "line"), COMMANDS)
async def test_a_command_of_the_docs_runs(page: str, line: str, place: Workshop, tmp_path: Path) -> None:
    """It prints or writes something, and ends with 0 unless another code is listed above."""
    command, _, output = line.partition(" > ")
    folder = place.folder
    if command.startswith("token"):
        folder = place.folder / "tokens"
    elif command.startswith("cluster"):
        folder = tmp_path
        (folder / "key").write_bytes(base64.b64encode(os.urandom(32)))
        (folder / "key").chmod(0o600)
        (folder / "gateway.yaml").write_text(
            f"stores: {{database: '{place.database}', encryption_key: '${{file:key}}'}}\n"
            "cluster: {keys: ['${file:key}']}\nupstreams: {other: {url: 'http://127.0.0.1:9/mcp'}}\n"
        )
    elif command.startswith(FRESH) and (page == "README.md" or command.startswith(("init", "serve", "dev"))):
        folder = tmp_path
        (folder / "path/to/web/app").mkdir(parents=True)
        (folder / "path/to/web/app/index.html").write_text("<!doctype html><script>fetch('/api/cart')</script>")
        if not command.startswith("init"):
            port = str(free_port())
            await place.run(
                "init", "path/to/web/app", "--backend", "http://127.0.0.1:3000", "--port", port, folder=folder
            )
    async with AsyncExitStack() as stack:
        words = await fill_placeholders(place, command, stack)
        if words.startswith(GO_ON) or "--open" in words:
            code, said = await run_interrupted(place, words, folder)
        else:
            stdin = next((typed for name, typed in ANSWERS.items() if words.startswith(name)), "")
            done = await place.run(*shlex.split(words), folder=folder, stdin=stdin)
            code, said = done.code, done.out + done.err
    written = re.search(r"--output (\S+)", words)
    assert "Traceback" not in said
    assert said or (written and (folder / written[1]).stat().st_size)
    assert not output or said
    assert code == ENDS.get((page, command), 0), said
