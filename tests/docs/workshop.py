"""An installation with everything that the documented commands refer to: a busy gateway, its record, files."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from gateway.cli import lock, main
from tests.cli.test_serve import COMMAND
from tests.credentials.house import House, house
from tests.docs.blocks import ROOT
from tests.leaks.watch import environment
from tests.postgresql import postgresql

ASKED = "/api/ask"
"""A path of the app that always requires approval, with a grant on offer."""

OPENAPI = """\
openapi: 3.1.0
info: {title: A shop, version: "1"}
servers: [{url: "https://shop.example.com/v2"}]
paths:
  /api/orders:
    get: {responses: {"200": {description: All orders.}}}
"""


TOKENS = "auth: [{type: token}]\napps: {cart: {source: ../dist, policy: ../policies/read-only.yaml}}\n"
"""A gateway.yaml with token authentication."""


@dataclass(frozen=True, slots=True)
class Done:
    """A finished command: its exit code and output."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Workshop:
    """A running gateway in `folder`, with the accounts and files that commands name."""

    folder: Path
    house: House
    database: str

    async def run(self, *words: str, folder: Path | None = None, stdin: str = "") -> Done:
        """Run `webmcp-gateway` with these words to its end, in this process."""
        runner = CliRunner(env={**self.house.environ, "BROWSER": "true"})
        with chdir(folder or self.folder):
            async with asyncio.timeout(120):
                done = await asyncio.to_thread(runner.invoke, main, words, input=stdin)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    async def start(self, *words: str, folder: Path | None = None) -> asyncio.subprocess.Process:
        """Start the command as a process, which the caller must end."""
        return await asyncio.create_subprocess_exec(
            *COMMAND,
            *words,
            cwd=folder or self.folder,
            env={**environment(), **self.house.environ, "BROWSER": "true"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def json(self, *words: str) -> Any:
        """The output of a command with `--json`."""
        done = await self.run(*words, "--json")
        assert done.code == 0, done
        return json.loads(done.out)

    @asynccontextmanager
    async def question(self) -> AsyncIterator[str]:
        """Send a request of the app that requires approval; yield the id of its question."""
        asking = asyncio.create_task(self.house.get("api", "ask", "POST"))
        try:
            async with asyncio.timeout(60):
                while not (listed := await self.json("approvals", "list")):
                    await asyncio.sleep(0.1)
            yield str(listed[0]["id"])
        finally:
            asking.cancel()
            await asyncio.wait([asking])


def lay_out(folder: Path) -> None:
    """Write the files that commands name, beside gateway.yaml."""
    for name in ("policies", "main"):
        shutil.copytree(ROOT / "policies", folder / name)
    for name in ("cart.yaml", "new.yaml"):
        shutil.copy(folder / "policies" / "cart.yaml", folder / name)
    shutil.copy(ROOT / "policies" / "cart-checkout.schema.json", folder)
    with (folder / "new.yaml").open("a") as file:
        file.write("  # another version\n")
    (folder / "openapi.yaml").write_text(OPENAPI, "utf-8")
    for name in ("dist", "fresh/path/to/web/app"):
        (folder / name).mkdir(parents=True)
        (folder / name / "index.html").write_text("<!doctype html><title>An app</title>", "utf-8")
    (folder / "tokens").mkdir()
    (folder / "tokens" / "gateway.yaml").write_text(TOKENS, "utf-8")


def policy_of(running: House) -> str:
    """The cart's policy with the running backend, and a route that requires approval."""
    text = (ROOT / "policies" / "cart.yaml").read_text("utf-8")
    asks = f"{{path: {ASKED}, methods: [POST], confirm: {{when: [person, page, model], grant: 10m}}}}"
    own = text.replace("https://shop.example.com/v2", f"{running.resource.url}\n    network: private")
    return own.replace("routes:\n", f"routes:\n  - {asks}\n")


def configuration(before: str, database: str) -> str:
    """The house's gateway.yaml with the names of the documentation."""
    named = "".join(
        f"  {name}: {line.split(':', 1)[1].strip()}\n"
        for name, of in (("shop-service", "secret"), ("calendar", "person"))
        for line in before.splitlines()
        if line.strip().startswith(f"{of}:")
    )
    text = before.replace("credentials:\n", f"credentials:\n{named}")
    return f"{text}approvals: {{ask: [console, cli]}}\nstores: {{database: '{database}'}}\n"


@asynccontextmanager
async def workshop(folder: Path) -> AsyncIterator[Workshop]:
    """Run everything: the record has some requests, and alice has connected her calendar."""
    with postgresql() as database, ExitStack() as stack:
        async with house(folder) as running:
            lay_out(folder)
            file = folder / "gateway.yaml"
            file.write_text(configuration(file.read_text("utf-8"), database.url), "utf-8")
            (folder / "policy.yaml").write_text(policy_of(running), "utf-8")
            tell = stack.enter_context(lock.hold_lock(folder))
            await running.restart()
            tell(f"http://127.0.0.1:{running.port}/mcp")
            assert (await running.get("api/products", "1"))[0] == 200
            assert (await running.get("api/admin", "users"))[0] == 403
            assert (await running.connect("alice", "calendar"))[0] == 200
            place = Workshop(folder, running, database.url)
            async with place.question():
                pass  # it is in the record, against which other policies are replayed
            yield place
