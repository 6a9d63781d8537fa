"""The limit of open connections, in a separate process with a limited number of descriptors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.cli.serve import ENOUGH

SCRIPT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, int(sys.argv[1])))
from gateway.cli import serve
print(serve.raise_file_limit() or "enough")
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("hard", "said"), [(ENOUGH, "enough"), (512, "only 512 connections and files may be open at a time")]
)
def test_as_many_are_taken_as_there_are(hard: int, said: str) -> None:
    """The soft limit is raised to the hard limit; too low a limit is reported."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT, str(hard)], capture_output=True, text=True, check=True)
    words, limit = ran.stdout.splitlines()
    assert words.startswith(said)
    assert int(limit) == hard
