"""docs/commands.md describes exactly the existing commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import gateway
from gateway.cli import main
from gateway.config.load import ANNOUNCE, DRAIN
from gateway.config.notices import RESTART

PAGE = (Path(gateway.__file__).parent.parent / "docs" / "commands.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## `webmcp-gateway ([a-z -]+)`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = [
    line for block in re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


def commands(group: click.Group = main, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command by its full name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


COMMANDS = dict(commands())


def test_every_command_has_its_section() -> None:
    """No section is about another command."""
    assert set(SECTIONS) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_named_in_the_section_of_its_command(name: str) -> None:
    """Exactly its options are named, by their long form."""
    written = (opt for parameter in COMMANDS[name].params for opt in (*parameter.opts, *parameter.secondary_opts))
    options = {opt for opt in written if opt.startswith("--")}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", SECTIONS[name]))
    assert options - named == set()
    assert named - options <= {"--help"}


@pytest.mark.parametrize("group", ["", "policy", "audit", "token"])
def test_no_summary_is_cut(group: str) -> None:
    """The help of a group shows the whole first sentence of each command, over several lines if necessary."""
    shown = " ".join(CliRunner().invoke(main, [*group.split(), "--help"]).output.split()).replace("[ARGS]...", "")
    inside = [command for name, command in COMMANDS.items() if name.split()[:-1] == group.split()]
    summaries = [command.get_short_help_str(1000) for command in inside]
    assert summaries
    assert [summary for summary in summaries if " ".join(summary.split()) not in shown] == []
    assert "..." not in shown


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_can_be_called_so(example: str) -> None:
    """Each example is parsed, not run."""
    program, *arguments = shlex.split(example.partition(" > ")[0])
    assert program == "webmcp-gateway"
    command: click.Command | None = main
    context = click.Context(main)
    while isinstance(command, click.Group):
        name, command, arguments = command.resolve_command(context, arguments)
        assert command is not None, name
    arguments = ["." if argument == "path/to/web/app" else argument for argument in arguments]
    assert command is not None
    command.make_context("webmcp-gateway", arguments, parent=context)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_says_what_it_is(name: str) -> None:
    """Help of policy commands has an example and exit codes, and they have an option for JSON."""
    command = COMMANDS[name]
    text = command.help or ""
    assert text
    if name.startswith("policy "):
        assert f"webmcp-gateway {name}" in text
        assert any("--json" in parameter.opts for parameter in command.params)
        assert "xit code 0" in text or name == "policy schema"


def test_serve_says_as_the_tables_do_what_a_restart_needs() -> None:
    """No sentence asks for a restart for a live setting; the names and the times are those of the configuration."""
    sentences = [line for line in SECTIONS["serve"].splitlines() if "restart" in line or "next start" in line]
    named = {name for line in sentences for name in re.findall(r"`([a-z_.]+)`", line)}
    assert named
    assert named <= set(RESTART)
    assert f"`server.drain.timeout` ({DRAIN:g} s)" in SECTIONS["serve"]
    assert f"`server.drain.announce` ({ANNOUNCE:g} s)" in SECTIONS["serve"]
