"""The state folder of a running gateway: checked at the start, and locked as long as it runs."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gateway.config import Config
from gateway.errors import StartError
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Json

NAME = "gateway.lock"

TRIES = 5
PAUSE = 0.02

PROBE: Final = 64 * 1024
"""Bytes that must fit into the state folder at the start: a few lines of the record, and the keys."""

NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs"})
"""File systems of other machines: their locks are not reliable, and SQLite's shared memory does not work on them."""

MOUNTS: Final = Path("/proc/self/mountinfo")

log = logging.getLogger(__name__)


def place_of(state: Path) -> Path:
    """Return the lock file of a state folder."""
    return state / NAME


def is_created_by_start(config: Config) -> bool:
    """Return whether the next start creates the state folder."""
    return config.server.state_dir is not None and not config.state.exists()


def check_state(config: Config, *, create: bool = True) -> None:
    """Check the state folder, and create it if it is missing. Raises StartError with the remedy.

    Without `create`, a missing one is not created: only whether it could be.
    """
    state, chosen = config.state, config.server.state_dir is not None
    other = "name another folder in server.state_dir" if chosen else "set server.state_dir to a folder for its files"
    if not create and is_created_by_start(config):
        if not os.access(state.parent, os.W_OK | os.X_OK):
            raise StartError(
                f"the state folder {state} cannot be created: {_user(os.geteuid())} cannot write to {state.parent}; "
                f"create it for {_user(os.geteuid())}, or {other}"
            )
        return
    try:
        if chosen and create:
            state.mkdir(0o700, exist_ok=True)
        status = state.stat()
        owner = status.st_uid
    except OSError as error:
        raise StartError(f"the state folder {state} cannot be used: {error.strerror}; {other}") from error
    kind = file_system(state, _mounts())
    if kind in NETWORK:
        why = f"the state folder {state} is on a file system of another machine ({kind})"
        unsafe = "locks and SQLite are not reliable there"
        if chosen:
            raise StartError(f"{why}: {unsafe}; name a folder on a local disk or a block volume in server.state_dir")
        log.warning("%s: %s; set server.state_dir to a folder on a local disk or a block volume", why, unsafe)
    if chosen and owner not in (0, os.geteuid()):
        raise StartError(
            f"the state folder {state} belongs to {_user(owner)}, and the gateway runs as {_user(os.geteuid())}: "
            f"run it as {_user(owner)}, or give it the folder: chown -R {_user(os.geteuid())} {state}"
        )
    if create and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        log.warning("everybody may write to the state folder %s, and replace its files: chmod o-w %s", state, state)
    _probe(state, other)
    for file in _state_files(config, state):
        if not os.access(file, os.R_OK | os.W_OK):
            who = _user(file.stat().st_uid)
            raise StartError(
                f"{file} belongs to {who}, and {_user(os.geteuid())} cannot write it: "
                f"chown -R {_user(os.geteuid())} {state}"
            )
    if chosen:
        _check_moved(config)


def file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system with `path`, by a table in the form of /proc/self/mountinfo (proc(5))."""
    where, kind = "", ""
    target = os.path.realpath(path)
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split(" ")[4].replace("\\040", " ") if fields.count(" ") >= 4 else ""
        if point and len(point) >= len(where) and Path(target).is_relative_to(point):
            where, kind = point, rest.partition(" ")[0]
    return kind


def _mounts() -> str:
    try:
        return MOUNTS.read_text("utf-8", "replace")
    except OSError:  # another system than Linux
        return ""


def _probe(state: Path, other: str) -> None:
    """Write a file as large as a start needs, and remove it."""
    probe = state / f".gateway.probe-{os.getpid()}"
    try:
        file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if os.write(file, bytes(PROBE)) < PROBE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)  # some file systems find out late that they are full
        finally:
            os.close(file)
            probe.unlink()
    except OSError as error:
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                remedy = f"make room on its disk, or {other}"
            case errno.EROFS:
                remedy = f"mount it writable, or {other}"
            case _:
                remedy = f"give it to {_user(os.geteuid())} (chown), or {other}"
        reason = os.strerror(error.errno or 0)
        raise StartError(f"nothing can be written to the state folder {state}: {reason}; {remedy}") from error


def _vital_files(config: Config) -> Iterator[Path]:
    """Yield the files of the state that make up what must not be lost: record, database, key."""
    yield config.journal
    scheme, _, database = config.database.reveal().partition(":///")
    if scheme == "sqlite":
        yield Path(database)
    if config.encryption_key.file is not None:
        yield config.encryption_key.file


def _state_files(config: Config, state: Path) -> Iterator[Path]:
    yield from (file for file in (place_of(state), config.audit.key_file, *_vital_files(config)) if file.exists())


def _check_moved(config: Config) -> None:
    """Refuse to begin anew while the files of an earlier start lie beside gateway.yaml."""
    folder, state = config.path.parent, config.state
    if folder == state:
        return
    left = [file.name for file in _vital_files(config) if file.parent == state and not file.exists()]
    leftovers = sorted(one for name in left for one in folder.glob(f"{name}*") if one.is_file())
    if any(one.name in left for one in leftovers):
        files = " ".join(str(one) for one in leftovers)
        raise StartError(
            f"{', '.join(one.name for one in leftovers)} of earlier starts lie beside {config.path.name}, and not in "
            f"server.state_dir: end the gateway that uses them, then move them: mv {files} {state}/"
        )


def _user(id: int) -> str:
    try:
        return pwd.getpwuid(id).pw_name
    except KeyError:
        return f"user {id}"


@contextmanager
def hold_lock(state: Path) -> Iterator[Callable[[str], None]]:
    """Hold the lock file of the folder; the yielded callback writes the gateway's URL into it once it is reachable.

    Raises StartError if another gateway holds it.
    """
    path = place_of(state)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"the lock file {path} cannot be written: {error.strerror}; set server.state_dir") from error
    try:
        if not _take(file):
            holder = process(state)
            holder_text = f", process {holder}" if holder is not None else ""
            raise StartError(
                f"a gateway with this state folder runs already ({path}{holder_text}): end it, or give this one a "
                "folder of its own in server.state_dir"
            )
        os.ftruncate(file, 0)
        yield lambda url: _write(file, url)
        with suppress(OSError):
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def running_url(state: Path) -> str | None:
    """Return the URL of the gateway with the state folder, None if none runs or it is not reachable yet."""
    url = _read_lock(state).get("url")
    return url if isinstance(url, str) else None


def process(state: Path) -> int | None:
    """Return the process id of that gateway, or None."""
    id = _read_lock(state).get("process")
    return id if isinstance(id, int) else None


def is_starting(state: Path) -> bool:
    """Return whether a gateway with this state folder runs or is starting."""
    with _open_lock(state) as file:
        return file is not None and _is_held(file)


def _read_lock(state: Path) -> dict[str, Json]:
    """Return the content of the lock file, if a gateway runs."""
    with _open_lock(state) as file:
        if file is not None and _is_held(file):
            with suppress(ValueError, OSError):
                content: Json = parse_json(os.pread(file, 4096, 0))
                return content if isinstance(content, dict) else {}
    return {}


@contextmanager
def _open_lock(state: Path) -> Iterator[int | None]:
    try:
        file = os.open(place_of(state), os.O_RDONLY | os.O_CLOEXEC)
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
