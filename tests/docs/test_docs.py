"""What the documentation says is what the program does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pluggy
import pytest

from gateway import hookspecs
from gateway.cli import main
from gateway.hooks import Hooks
from gateway.policy import parse_policy
from scripts.configuration_doc import PAGE, page

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language in the README."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def commands(program: str) -> list[list[str]]:
    """The command lines of a program in the README, without its name."""
    return [shlex.split(line)[1:] for block in blocks("") for line in block.splitlines() if line.startswith(program)]


def test_the_page_of_settings_is_made_from_the_settings() -> None:
    """After a change: python scripts/configuration_doc.py."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_policy_of_the_readme_is_a_policy_of_ten_lines() -> None:
    """It can be copied as it stands."""
    (text,) = blocks("yaml")
    assert len(text.splitlines()) == 10
    assert list(parse_policy(text, "README.md").tools) == ["add_to_cart", "get_cart"]


@pytest.mark.parametrize("arguments", commands("webmcp-gateway"), ids=" ".join)
def test_the_commands_of_the_readme_exist(arguments: list[str]) -> None:
    """Each with the options that are shown; they are parsed, not run."""
    command: click.Command | None = main
    context = click.Context(main)
    while isinstance(command, click.Group):
        name, command, arguments = command.resolve_command(context, arguments)
        assert command is not None, name
    arguments = ["." if argument == "path/to/web/app" else argument for argument in arguments]
    assert command is not None
    assert command.make_context("webmcp-gateway", arguments, parent=context) is not None


def test_the_make_targets_of_the_readme_exist() -> None:
    """`make demo` and `make test`."""
    targets = {arguments[0] for arguments in commands("make")} | set(re.findall("`make ([a-z]+)`", README))
    defined = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert targets
    assert targets <= defined


def test_the_links_of_the_documentation_lead_somewhere() -> None:
    """Every relative link in the README and in docs/."""
    for file in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", file.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (file.parent / target).exists(), f"{file.name}: {target}"


def test_the_library_example_of_the_readme_gives_an_application(tmp_path: Path) -> None:
    """It is run as it stands, up to the line that serves."""
    (text,) = blocks("python")
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "policy.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "gateway.yaml").write_text("apps: {cart: {source: index.html, policy: policy.yaml}}\n")
    program = text.replace("web.run_app(", "print(type(").replace(
        ", host=config.server.host", ").__name__, config.server.host"
    )
    program = re.sub(r", port=.*\)", ")", program)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Application 127.0.0.1\n"), done.stderr


def hook_names() -> set[str]:
    """Every hook of the contract."""
    specifications = pluggy.PluginManager(hookspecs.PROJECT)
    specifications.add_hookspecs(hookspecs)
    return {name for name in vars(specifications.hook) if not name.startswith("_")}


def test_every_hook_is_documented_and_used_by_a_plugin_of_ours() -> None:
    """A hook that nobody can read of, or that nobody uses, is not part of the contract."""
    documented = set(re.findall(r"^\| `(\w+)\(", (ROOT / "docs" / "plugins.md").read_text("utf-8"), re.MULTILINE))
    sources = [file.read_text("utf-8") for file in (ROOT / "plugins").glob("*.py")]
    used = {name for source in sources for name in re.findall(r"@hookimpl\n(?:async )?def (\w+)", source)}
    assert hook_names() == documented == used


async def test_the_plugin_of_the_docs_is_a_plugin(tmp_path: Path) -> None:
    """It can be copied as it stands."""
    page = (ROOT / "docs" / "plugins.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "friday.py").write_text(code, "utf-8")
    Hooks(["friday.py"], tmp_path)
