"""The lock file of a running gateway, beside gateway.yaml and locked as long as it runs."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.errors import StartError
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Json

NAME = "gateway.lock"

TRIES = 5
PAUSE = 0.02


def place_of(config: Path) -> Path:
    """Return the lock file of a configuration."""
    return config.resolve().parent / NAME


@contextmanager
def hold_lock(config: Path) -> Iterator[Callable[[str], None]]:
    """Hold the lock file of `config`; the yielded callback writes the gateway's URL into it once it is reachable.

    Raises StartError if another gateway holds it.
    """
    path = place_of(config)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"the lock file {path} cannot be written: {error.strerror}") from error
    try:
        if not _take(file):
            raise StartError(f"a gateway with this configuration runs already ({path})")
        os.ftruncate(file, 0)
        yield lambda url: _write(file, url)
        with suppress(OSError):
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def running_url(config: Path) -> str | None:
    """Return the URL of the gateway of `config`, None if none runs or it is not reachable yet."""
    url = _told(config).get("url")
    return url if isinstance(url, str) else None


def process(config: Path) -> int | None:
    """Return the process id of that gateway, or None."""
    id = _told(config).get("process")
    return id if isinstance(id, int) else None


def is_starting(config: Path) -> bool:
    """Return whether a gateway of `config` runs or is starting."""
    with _opened(config) as file:
        return file is not None and _is_held(file)


def _told(config: Path) -> dict[str, Json]:
    """Return the content of the lock file, if a gateway runs."""
    with _opened(config) as file:
        if file is not None and _is_held(file):
            with suppress(ValueError, OSError):
                told: Json = parse_json(os.pread(file, 4096, 0))
                return told if isinstance(told, dict) else {}
    return {}


@contextmanager
def _opened(config: Path) -> Iterator[int | None]:
    try:
        file = os.open(place_of(config), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _take(file: int) -> bool:
    """Take the lock, with retries: a process that checks it holds it for a moment."""
    for _ in range(TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(PAUSE)
    return False


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _write(file: int, url: str) -> None:
    os.pwrite(file, plain_json({"url": url, "process": os.getpid()}).encode(), 0)
