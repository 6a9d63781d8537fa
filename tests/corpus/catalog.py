"""The apps of the corpus: each is a folder made of a package, a policy, and a script that uses it as a person would."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from tests.corpus.visit import Visit
from tests.world import serving

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
