"""`python -m gateway`, for use when the command's script is not in the PATH."""

import subprocess
import sys

from click.testing import CliRunner

from gateway.cli import main


def test_the_package_is_the_command() -> None:
    """It runs a command, and shows the name under which it was called."""
    done = subprocess.run([sys.executable, "-m", "gateway", "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("webmcp-gateway ")


def test_the_option_version_prints_what_the_command_does() -> None:
    """Only the whole program has it; a group of commands, or a command, has none."""
    runner = CliRunner()
    shown = runner.invoke(main, ["--version"])
    assert (shown.exit_code, shown.output) == (0, runner.invoke(main, ["version"]).output)
    assert runner.invoke(main, ["policy", "--version"]).exit_code == 2
    assert runner.invoke(main, ["pack", "--version"]).exit_code == 2
