"""Runs test pages in Chromium: on their own server, and as apps of a gateway in its console."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import yaml
from playwright.async_api import Browser, ConsoleMessage, Error, Page

from benchmarks.processes import free_port
from tests.wpt.packing import Unpackable, write_app

PASS: Final = 0
_STATUS = ("pass", "fail", "timeout", "not run", "precondition failed")
_HARNESS = ("", "error", "timeout", "precondition failed")

_MARK = "wpt:"
"""The prefix of a page's messages on its console; report.js has it, too."""

PATIENCE: Final = 70.0
"""The timeout of a page in seconds."""

SILENCE: Final = 40.0
"""Seconds after which a page without any message is given up."""

_HERE = Path(__file__).parent


@dataclass(slots=True)
class Outcome:
    """The result of a page: status and message of each subtest by its name, and a problem of the whole."""

    subtests: dict[str, tuple[str, str]] = field(default_factory=dict)
    problem: str = ""

    def passes(self, name: str) -> bool:
        """Return whether this subtest passed."""
        return self.subtests.get(name, ("", ""))[0] == _STATUS[PASS]

    def why(self, name: str) -> str:
        """Return why it did not."""
        return ": ".join(self.subtests.get(name, ("not reported", self.problem)))


@dataclass(frozen=True, slots=True)
class Site:
    """A checkout that is served."""

    ports: dict[str, list[int]]

    @property
    def origin(self) -> str:
        """The origin of the tests."""
        return f"http://localhost:{self.ports['http'][0]}"


@asynccontextmanager
async def site(tools: Path, checkout: Path) -> AsyncIterator[Site]:
    """Serve the checkout on loopback with the programs of `tools`."""
    command = (sys.executable, str(_HERE / "site.py"), str(tools), str(checkout), str(_HERE / "report.js"))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line.startswith(b"{"):
            raise SystemExit(f"{tools}/tools/wptserve does not start: {line.decode()}")
        drain = asyncio.create_task(_drain(process.stdout))
        served = Site(json.loads(line))
        await _answers(served.origin + "/resources/testharness.js")
        yield served
        drain.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        await process.wait()


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


async def _answers(url: str) -> None:
    async with aiohttp.ClientSession() as client, asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with client.get(url):
                    return
            await asyncio.sleep(0.1)


async def run_page(page: Page, url: str) -> Outcome:
    """Load `url`, and wait for the results of the page, or of the first frame in it that has a harness."""
    outcome, told, ended = Outcome(), asyncio.Event(), asyncio.Event()
    teller = ""

    def hear(said: ConsoleMessage) -> None:
        # Not by a binding: it is missing at the start of frames that get a separate process.
        nonlocal teller
        if not said.text.startswith(_MARK):
            return
        who, message = json.loads(said.text.removeprefix(_MARK))
        teller = teller or who
        if who != teller:
            return  # a frame or a window that the test opened
        told.set()
        if "test" in message:
            _note(outcome, [message["test"]])
            return
        outcome.subtests.clear()
        _note(outcome, message["tests"])
        if message["status"]:
            outcome.problem = f"{_HARNESS[message['status']]}: {message['message']}"
        ended.set()

    page.on("console", hear)
    page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.dismiss()))
    try:
        async with asyncio.timeout(PATIENCE):
            await page.goto(url, wait_until="commit")
            async with asyncio.timeout(SILENCE):
                await told.wait()
            await ended.wait()
    except TimeoutError:
        outcome.problem = "it did not end" if told.is_set() else "it told nothing"
    except Error as error:
        outcome.problem = str(error).partition("\n")[0]
    return outcome


def _note(outcome: Outcome, tests: Sequence[tuple[str, int, str | None]]) -> None:
    for name, status, message in tests:
        outcome.subtests[name] = (_STATUS[status], message or "")


@asynccontextmanager
async def gateway(folder: Path, served: Site, urls: Sequence[str], headers: Sequence[str]) -> AsyncIterator[Gateway]:
    """Run a gateway with an app for each page, and a policy that is as permissive as possible."""
    apps: dict[str, str] = {}
    problems: dict[str, str] = {}
    shutil.rmtree(folder, ignore_errors=True)
    async with aiohttp.ClientSession() as client:
        for number, url in enumerate(urls):
            try:
                await write_app(client, served.origin, url, folder / f"t{number}")
                apps[url] = f"t{number}"
            except (Unpackable, aiohttp.ClientError) as problem:
                problems[url] = str(problem)
    while True:
        port = free_port()
        _configure(folder, served, port, apps, headers)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "serve", "--config", str(folder / "gateway.yaml")),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        said: list[str] = []
        while line := (await process.stdout.readline()).decode():
            said.append(line)
            if "ready" in line:
                break
        else:
            await process.wait()
            refused = {url: line for url, app in apps.items() for line in said if f"{folder}/{app}/" in line}
            if not refused:
                raise SystemExit("".join(said) or "the gateway does not start")
            problems |= refused
            apps = {url: app for url, app in apps.items() if url not in refused}
            continue
        break
    drain = asyncio.create_task(_drain(process.stdout))
    try:
        yield Gateway(f"http://gateway.localhost:{port}", apps, problems)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        drain.cancel()


@dataclass(frozen=True, slots=True)
class Gateway:
    """Its console, the app of each page, and why other pages are no apps."""

    console: str
    apps: dict[str, str]
    problems: dict[str, str]

    async def run(self, browser: Browser, url: str) -> Outcome:
        """Run the page in a view."""
        if url in self.problems:
            return Outcome(problem=f"not packed: {self.problems[url].strip()}")
        async with await browser.new_context(ignore_https_errors=True) as context:
            return await run_page(await context.new_page(), f"{self.console}/#/apps/{self.apps[url]}")


def _configure(folder: Path, served: Site, port: int, apps: dict[str, str], headers: Sequence[str]) -> None:
    config = {
        "server": {"listen": f"127.0.0.1:{port}"},
        "apps": {app: {"source": app, "policy": "policy.yaml"} for app in apps.values()},
    }
    policy = {
        "version": 1,
        "backends": {
            "wpt": {"url": served.origin, "network": "private", "cookies": "jar", "origins": [served.origin]},
        },
        "limits": {"timeout": "60s", "request": "16MiB", "response": "64MiB"},
        "responses": {"headers": [*headers]},
        "routes": [
            {
                "path": "/**",
                "methods": ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"],
                "redirects": "same-route",
                "stream": True,
            }
        ],
    }
    (folder / "gateway.yaml").write_text(yaml.safe_dump(config), "utf-8")
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy), "utf-8")


async def run_natively(browser: Browser, origin: str, url: str) -> Outcome:
    """Run the page on its own server."""
    async with await browser.new_context(ignore_https_errors=True) as context:
        return await run_page(await context.new_page(), origin + url)
