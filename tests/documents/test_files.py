"""Only regular files are read: nothing blocks on a pipe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.apps.files import own_file
from gateway.documents.reader import read_bytes


def test_a_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    """A larger one is refused; a link to a file works, too."""
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").symlink_to("a")
    assert (read_bytes(tmp_path / "b"), read_bytes(tmp_path / "a", 5)) == (b"12345", b"12345")
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_bytes(tmp_path / "a", 4)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A pipe without a writer, an endless device and a folder are refused; an app's file cannot become one."""
    os.mkfifo(tmp_path / "pipe")
    for place, why in (("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "directory"), ("none", "No such file")):
        with pytest.raises(OSError, match=why):
            read_bytes(tmp_path / place)
    assert own_file((tmp_path / "pipe").resolve(), "GET", "/pipe", 9) is None
