"""`python -m gateway`, for use when the command's script is not in the PATH."""

import subprocess
import sys


def test_the_package_is_the_command() -> None:
    """It runs a command, and shows the name under which it was called."""
    done = subprocess.run([sys.executable, "-m", "gateway", "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("webmcp-gateway ")
