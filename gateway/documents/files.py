"""Reads files without blocking on anything that is not a regular file, such as a pipe without a writer."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Why a file of text cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start}: save the file so"
    return f"cannot be read: {error.strerror or error}"


def read_bytes(path: Path, most: int = -1) -> bytes:
    """Return the content of a file, or its first `most` bytes. Raises OSError, also if it is not a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a pipe would block
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, and no file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)
