"""Packs apps, many of them side by side, and keeps the results between starts under a digest of their content."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import gateway
from gateway.apps import make_shell, pack, page_config
from gateway.apps.node import keeping_node, node
from gateway.apps.pack import size_problem, stand_in
from gateway.apps.vendor import vendor_folder
from gateway.config import App, StorageKind
from gateway.documents.reader import read_bytes
from gateway.doors.assets import BuildFiles
from gateway.errors import DocumentError, Problem
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import compact_json_utf8, plain_json
from gateway.model import FolderSite, Json, Resource

FEW: Final = 4
"""The most apps that are packed before the port opens; of more, those without a kept result are packed afterwards."""

KEPT_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the kept results on disk; the oldest are removed."""

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of the files of one app that are read to compare them; the result of a larger app is not kept."""

SHOWN: Final = 10
"""Warnings of an app that are logged when it is packed."""

BATCH_SECONDS: Final = 1.0
"""Seconds after which the apps that were packed meanwhile are taken in together."""

log = logging.getLogger(__name__)


class Packer:
    """Packs apps with the runtime of `build_files`; `folder` holds kept results, None if none are kept.

    `live`: scripts are checked for syntax errors, as an author wants.
    """

    def __init__(self, build_files: BuildFiles, folder: Path | None, *, live: bool) -> None:
        self._build_files = build_files
        self._folder = folder
        self._live = live
        self._many = False
        self._ahead: dict[str, tuple[App, Resource]] = {}
        self._version = _digest(
            plain_json([gateway.__version__, build_files.everything, build_files.storage, node() is None])
        )
        self.remaining = 0
        """Apps that are still to be packed."""

    def pack(self, app: App, source: Path) -> Resource:
        """Return the packed app. Raises `DocumentError` if it has no page."""
        known, resource = self._ahead.get(app.id, (None, None))
        if known is app and resource is not None:
            return resource
        return self._load(app, source) or self._pack(app, source)

    def drop(self, apps: Iterable[str]) -> None:
        """Drop what was packed ahead for these apps: they are taken in, or never will be."""
        for id in apps:
            self._ahead.pop(id, None)

    def shell(self, app: App, origin: str, site: str) -> Resource:
        """Return the shell of an app whose pages a backend renders."""
        resource = make_shell(
            app=app.id,
            title=app.title,
            runtime=self._build_files.runtime,
            parts=self._build_files.parts,
            shell=self._build_files.shell,
            paged=self._build_files.paged,
            storage=self._build_files.storage if app.storage is StorageKind.GATEWAY else None,
            origin=origin,
            site=site,
            start=app.start,
            permissions=app.permissions,
            external=app.policy.external,
        )
        self._log(app, resource)
        return resource

    def frame(self, app: App) -> bytes:
        """Return as JSON what a page in a frame of the packed app gets."""
        config = page_config(
            app=app.id,
            title=app.title,
            runtime=self._build_files.runtime,
            parts=self._build_files.parts,
            paged=self._build_files.paged,
            storage=self._build_files.storage if app.storage is StorageKind.GATEWAY else None,
            external=app.policy.external,
        )
        return compact_json_utf8(config).encode()

    def waits(self, apps: Mapping[str, App]) -> list[App]:
        """Return the apps that are packed while the gateway runs; those whose results are kept are ready at once."""
        own = [(app, app.source) for app in apps.values() if isinstance(app.source, Path)]
        self._many = len(own) > FEW
        waiting: list[App] = []
        for app, source in own if self._many else ():
            resource = self._load(app, source)
            if resource is None:
                waiting.append(app)
            else:
                self._ahead[app.id] = app, resource
        self.remaining = len(waiting)
        return waiting

    async def ahead(self, apps: Sequence[App]) -> AsyncGenerator[list[App]]:
        """Pack the apps side by side, and yield them in batches as they are done, also those that failed."""
        loop = asyncio.get_running_loop()
        left, done, stopped = deque(apps), asyncio.Queue[App](), threading.Event()

        def work() -> None:
            with keeping_node():
                while not stopped.is_set():
                    try:
                        app = left.popleft()
                    except IndexError:
                        return
                    with suppress(DocumentError):  # raised again, and reported, when the app is taken in
                        if isinstance(app.source, Path):
                            self._ahead[app.id] = app, self._pack(app, app.source)
                    with suppress(RuntimeError):  # the loop is closed
                        loop.call_soon_threadsafe(done.put_nowait, app)

        threads = min(len(apps), max(2, os.cpu_count() or 2), 8)
        pool = ThreadPoolExecutor(threads, thread_name_prefix="packing")
        try:
            for _ in range(threads):
                pool.submit(work)
            self.remaining = len(apps)
            while self.remaining:
                batch = [await done.get()]
                until = time.monotonic() + BATCH_SECONDS
                while len(batch) < self.remaining and (rest := until - time.monotonic()) > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(rest):
                            batch.append(await done.get())
                yield batch
                self.drop(app.id for app in batch)
                self.remaining -= len(batch)
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            self.remaining = 0
        await asyncio.to_thread(self._prune)

    def _pack(self, app: App, source: Path) -> Resource:
        key = self._key(app, source)
        keeps = app.storage is StorageKind.GATEWAY
        resource = pack(
            source,
            app=app.id,
            title=app.title,
            runtime=self._build_files.runtime,
            parts=self._build_files.parts,
            storage=self._build_files.storage if keeps else None,
            start=app.start,
            permissions=app.permissions,
            frames=app.policy.frames,
            external=app.policy.external,
            routed=app.policy.lets_get,
            secret=bool(app.policy.secret_routes),
            checked=self._live,
            dedicated=app.dedicated,
        )
        if (problem := size_problem(resource)) is not None:
            resource = stand_in(resource, app.id, app.title, problem)
        self._log(app, resource)
        if key is not None:
            self._keep(key, resource)
        return resource

    def _key(self, app: App, source: Path) -> str | None:
        """Return a digest of all that a packed app depends on; None if it is not kept."""
        if not self._many or self._live or not source.is_dir():  # the files beside a page are not known
            return None
        sha = hashlib.sha256(self._version.encode())
        settings = (
            app.id,
            app.title,
            app.start,
            app.permissions,
            app.storage,
            app.sandbox,
            app.policy.version,
            str(source),
        )
        sha.update(repr(settings).encode())
        room = LARGEST
        for root in (source, vendor_folder(source)):
            for path in sorted(root.rglob("*")) if root.is_dir() else ():
                if not path.is_file():
                    continue
                try:
                    body = read_bytes(path, room)
                except OSError:
                    return None
                room -= len(body)
                sha.update(f"\0{path}\0{len(body)}\0".encode(errors="surrogateescape"))
                sha.update(body)
        return sha.hexdigest()

    def _load(self, app: App, source: Path) -> Resource | None:
        """Return the kept result for an app; None if it is missing or damaged."""
        key = self._key(app, source)
        if key is None or self._folder is None:
            return None
        path = self._folder / f"{key}.json"
        try:
            digest, _, text = read_bytes(path, 2 * LARGEST).decode().partition("\n")
            if digest != _digest(text):
                return None
            os.utime(path)
            resource = _read(parse_json(text), app)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        self._log(app, resource)
        return resource

    def _log(self, app: App, resource: Resource) -> None:
        """Log what is wrong with a packed app, and to its author what was done with it."""
        for note in resource.notes if self._live else ():
            log.info("app %s: %s", app.id, note)
        for problem in resource.unread:
            log.error("app %s: %s", app.id, problem)
        for problem in resource.warnings[: None if self._live else SHOWN]:
            log.warning("app %s: %s", app.id, problem)
        if (more := len(resource.warnings) - SHOWN) > 0 and not self._live:
            log.warning("app %s: %d more are listed by `webmcp-gateway pack`", app.id, more)

    def _keep(self, key: str, resource: Resource) -> None:
        """Write a result for the next start; a disk that is full is no reason to serve nothing."""
        if self._folder is None:
            return
        text = plain_json(_to_json(resource))
        new = self._folder / f".{key}.{threading.get_ident()}.new"
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(f"{_digest(text)}\n{text}".encode())
            os.replace(new, self._folder / f"{key}.json")

    def _prune(self) -> None:
        """Remove the results that were not used for longest, so that `KEPT_BYTES` hold."""
        if self._folder is None:
            return
        with suppress(OSError):
            files = sorted(
                ((entry.stat(), entry.path) for entry in os.scandir(self._folder)), key=lambda one: -one[0].st_mtime
            )
            size = 0
            for state, path in files:
                size += state.st_size
                if size > KEPT_BYTES:
                    os.unlink(path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _to_json(resource: Resource) -> dict[str, Any]:
    """Return a resource as JSON; what the policy opens is in the policy."""
    folder = resource.folder
    return {
        "uri": resource.uri,
        "html": resource.html,
        "meta": resource.meta,
        "notes": [*resource.notes],
        "head": resource.head,
        "allow": [*resource.allow],
        "warnings": [_place_and_message(one) for one in resource.warnings],
        "folder": None if folder is None else [folder.prefix, str(folder.page)],
        "unshown": None if resource.unshown is None else _place_and_message(resource.unshown),
    }


def _place_and_message(problem: Problem) -> list[Json]:
    return [problem.file, problem.line, problem.column, problem.message]


def _read_problem(written: Any) -> Problem:
    file, line, column, message = written
    return Problem(str(file), int(line), int(column), str(message))


def _read(result: Any, app: App) -> Resource:
    """Return the resource of such JSON. Raises KeyError, TypeError, ValueError."""
    folder = result["folder"]
    resource = Resource(
        str(result["uri"]), str(result["html"]), dict(result["meta"]), list(result["notes"]), int(result["head"])
    )
    return replace(
        resource,
        warnings=[_read_problem(one) for one in result["warnings"]],
        external=app.policy.external,
        allow=[str(one) for one in result["allow"]],
        folder=None if folder is None else FolderSite(str(folder[0]), Path(folder[1])),
        unshown=None if result["unshown"] is None else _read_problem(result["unshown"]),
    )
