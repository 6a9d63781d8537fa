"""The apps of the corpus: a package or a server of its own, a policy, and a script that uses it as a person would."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from tests.corpus.packages import install_servers, locked
from tests.corpus.visit import Visit
from tests.world import free_port, serving

Script = Callable[[Visit], Awaitable[None]]
Prepare = Callable[[Path, Path], None]
"""Makes the folder of the app (the second path) of the unpacked package (the first)."""

Behind = Callable[[Path], AbstractAsyncContextManager[str]]
"""Runs the app's backend, given a folder for its files, and yields its URL."""


@dataclass(frozen=True, slots=True)
class App:
    """A published app."""

    name: str
    package: str
    technique: str
    prepare: Prepare
    script: Script
    start: str = "/"
    paths: tuple[str, ...] = ()
    """The paths of its backend, as in the routes of a policy."""
    behind: Behind | None = None
    policy: str = ""
    """Further keys of the policy."""
    ignore: tuple[str, ...] = ()
    """Patterns of what is not the same at any two times, such as durations."""
    limit: str = ""
    """The limit of the frame or the policy that stops it in a view, if one does."""
    quick: bool = False
    """Whether `make test` runs it."""
    apart: str = ""
    """What is not the same in a view and no fault, for the table."""
    assets: tuple[str, ...] = ()
    """The paths of scripts, styles and pictures, whose requests are not compared: a tab has them in its cache."""
    rendered: bool = False
    """Whether the backend renders the pages: then there is no folder."""


PICTURED = ("Swagger UI", "2048", "Blockly", "SB Admin 2", "Datasette", "docsify")
"""The names of the apps whose last page is in the picture of docs/corpus.md."""

APPS: list[App] = []


def app(
    name: str,
    package: str,
    technique: str,
    prepare: Prepare,
    *,
    start: str = "/",
    paths: tuple[str, ...] = (),
    behind: Behind | None = None,
    policy: str = "",
    ignore: tuple[str, ...] = (),
    limit: str = "",
    quick: bool = False,
    apart: str = "",
) -> Callable[[Script], Script]:
    """Add an app with the decorated script."""

    def add(script: Script) -> Script:
        APPS.append(
            App(name, package, technique, prepare, script, start, paths, behind, policy, ignore, limit, quick, apart)
        )
        return script

    return add


def rendered_app(
    name: str,
    package: str,
    technique: str,
    behind: Behind,
    *,
    assets: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
) -> Callable[[Script], Script]:
    """Add an app whose pages its backend renders, with the decorated script."""

    def add(script: Script) -> Script:
        APPS.append(
            App(
                name,
                package,
                technique,
                lambda _, target: target.mkdir(),
                script,
                paths=("/**",),
                behind=behind,
                ignore=ignore,
                assets=assets,
                rendered=True,
            )
        )
        return script

    return add


def folder(inner: str = ".") -> Prepare:
    """Take a folder of the package as it is."""

    def prepare(package: Path, target: Path) -> None:
        shutil.copytree(package / inner, target, ignore=shutil.ignore_patterns("*.map"))

    return prepare


def page(markup: str, **copies: str) -> Prepare:
    """Take files of the package, with a page as its documentation shows one."""

    def prepare(package: Path, target: Path) -> None:
        target.mkdir()
        for name, source in copies.items():
            into = target / name
            if (package / source).is_dir():
                shutil.copytree(package / source, into, ignore=shutil.ignore_patterns("*.map"))
            else:
                shutil.copy(package / source, into)
        (target / "index.html").write_text(markup, "utf-8")

    return prepare


def api(build: Callable[[], web.Application]) -> Behind:
    """Run an aiohttp application as the backend."""

    @asynccontextmanager
    async def run(_: Path) -> AsyncIterator[str]:
        async with serving(build()) as port:
            yield f"http://127.0.0.1:{port}"

    return run


def server(package: str, module: str, *arguments: str, files: Callable[[Path], None]) -> Behind:
    """Run a module of a package of PyPI as the backend, in a folder with `files`, at the port `{port}`."""

    @asynccontextmanager
    async def run(folder: Path) -> AsyncIterator[str]:
        needs = await asyncio.to_thread(install_servers)
        files(folder)
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-S",  # nothing of the tests' own environment
            "-m",
            module,
            *(argument.format(port=port) for argument in arguments),
            cwd=folder,
            env=os.environ | {"PYTHONPATH": f"{locked()[package].folder}:{needs}"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await _listens(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    return run


async def _listens(port: int, process: asyncio.subprocess.Process) -> None:
    """Wait until the process accepts connections."""
    async with asyncio.timeout(60):
        while process.returncode is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.1)
    raise OSError(f"the backend ended with the status {process.returncode}")
