"""Detection of changed files that are no longer being written, by their stamps alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gateway.config import Watch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that was written long ago."""
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\n")
    os.utime(path, (1, 1))
    return path


def test_a_file_that_rests_is_left_alone(file: Path) -> None:
    """A file without a change is never reported."""
    watch = Watch([file])
    assert [watch.look() for _ in range(3)] == [False, False, False]


def test_a_change_is_taken_when_it_has_rested_for_one_look(file: Path) -> None:
    """A file that is being written changes between two looks."""
    watch = Watch([file])
    watch.look()
    looks = []
    for text in ("v", "ver", "version: 1\ntools: {}\n"):
        file.write_text(text)
        looks.append(watch.look())
    assert looks == [False, False, False]
    assert watch.look()


def test_what_was_taken_is_no_change_any_more(file: Path) -> None:
    """The next change is reported again."""
    watch = Watch([file])
    file.write_text("version: 1\ntools: {}\n")
    watch.look()
    assert watch.look()
    watch.note_read(watch.stamps(), [file])
    assert not watch.look()
    file.write_text("version: 1\n")
    assert [watch.look(), watch.look()] == [False, True]


def test_another_file_of_the_same_size_and_time_is_a_change(file: Path) -> None:
    """A deployment that preserves times is detected by the inode."""
    watch = Watch([file])
    other = file.with_name("other")
    other.write_text("version: 2\n")
    os.utime(other, (1, 1))
    os.replace(other, file)
    assert [watch.look(), watch.look()] == [False, True]


def test_a_file_that_goes_and_comes_is_a_change_each_time(file: Path) -> None:
    """Removal and return are each reported."""
    watch = Watch([file])
    text = file.read_text()
    file.unlink()
    assert [watch.look(), watch.look()] == [False, True]
    watch.note_read(watch.stamps(), [file])
    file.write_text(text)
    assert [watch.look(), watch.look()] == [False, True]


def test_a_file_that_changed_just_before_is_read_once_more(file: Path) -> None:
    """The file may change after it was read, within one tick of its file system."""
    os.utime(file, (time.time(), time.time()))
    watch = Watch([file])
    assert [watch.look(), watch.look()] == [False, True]
