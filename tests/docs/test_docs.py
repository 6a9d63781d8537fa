"""The documentation matches the program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pluggy
import pytest

from gateway import hookspecs
from gateway.hooks import Hooks
from gateway.model import Door
from gateway.policy import parse_policy, run_tests
from scripts.configuration_doc import DEPLOYMENT, PAGE, deployment, page
from tests.docs.blocks import PAGES, ROOT, blocks, lines

README = (ROOT / "README.md").read_text(encoding="utf-8")


SHOWN = {block.file or block.language: block.text for block in blocks("yaml", "python") if block.page == "README.md"}
"""The blocks of the README, by file name or by language."""


def test_the_page_of_settings_is_made_from_the_settings() -> None:
    """To update it: python scripts/configuration_doc.py."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_page_of_operators_names_the_settings_that_need_a_restart() -> None:
    """To update it: python scripts/configuration_doc.py."""
    text = DEPLOYMENT.read_text(encoding="utf-8")
    assert text == deployment(text)


def test_the_policy_of_the_readme_is_a_policy_of_ten_lines() -> None:
    """It is valid as written, and has a test, which passes: `policy test` is a command that the page names."""
    text = SHOWN["cart.yaml"]
    assert len(text.splitlines()) == 1 + 10  # the first names the file
    policy = parse_policy(text, "README.md")
    assert list(policy.tools) == ["add_to_cart", "get_cart"]
    assert [result.passed for result in run_tests(policy)] == [True]


def test_the_make_targets_of_the_readme_exist() -> None:
    """`make demo` and `make test` are checked."""
    targets = {line.split()[1] for _, line in lines("make ")} | set(re.findall("`make ([a-z-]+)`", README))
    defined = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert targets
    assert targets <= defined


PROGRAMS = {
    "webmcp-gateway": "tests/docs/test_commands.py",
    "make": "tests/docs/test_docs.py",
    "pip": "Makefile",
    ".venv/bin/npx": "tests/interop/test_published.py",
    "helm": "tests/deploy",
    "kubectl": "tests/deploy",
    "rm": "tests/deploy",
    "docker": "tests/deploy",
    "openssl": "tests/cluster/test_compose.py",
    "chown": "tests/cluster/test_compose.py",
    "chmod": "tests/cluster/test_compose.py",
    "echo": "tests/cluster/test_compose.py",
    "cat": "tests/cluster/test_compose.py",
    "useradd": "tests/deploy/test_files.py",
    "/usr/bin/python3": "tests/deploy/test_files.py",
    "/opt/webmcp-gateway/bin/pip": "tests/deploy/test_files.py",
    "mkdir": "tests/deploy/test_files.py",
    "cp": "tests/deploy/test_files.py",
    "install": "tests/deploy/test_files.py",
    "systemctl": "tests/deploy/test_files.py",
    "journalctl": "tests/deploy/test_files.py",
    "gateway": "tests/deploy/test_files.py",
    "gateway()": "tests/deploy/test_files.py",
}
"""The programs whose commands the documentation shows, and what runs them, or checks them."""

LANGUAGES = {"", "yaml", "python", "js", "json", "html"}
"""The languages of the blocks that tests run, parse or compare; a command is in a block without one."""


@pytest.mark.parametrize("shown", PAGES, ids=lambda shown: shown.name)
def test_no_block_and_no_command_escapes_the_tests(shown: Path) -> None:
    """A block in a list, in another language, or a command of another program would be run by nothing."""
    fences = re.findall(r"^( *)(?:```|~~~)(.*)$", shown.read_text("utf-8"), re.MULTILINE)
    assert {indent for indent, _ in fences} <= {""}
    assert {language for _, language in fences} <= LANGUAGES
    written = (line for block in blocks("") if block.page == shown.name for line in block.text.splitlines())
    commands = [line for line in written if re.match(r"\$ |[a-z./][\w./-]*( |$)", line)]
    assert [line for line in commands if line.split()[0] not in PROGRAMS] == []


def test_the_links_of_the_documentation_lead_somewhere() -> None:
    """Every relative link in the README and in docs/ has a target."""
    for file in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", file.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (file.parent / target).exists(), f"{file.name}: {target}"


SENTENCE_END = re.compile(r"""[a-z0-9)`"'][.!?] +[A-Z`*\[]""")
"""Where one sentence ends and another begins."""


@pytest.mark.parametrize(
    "path",
    [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_each_sentence_begins_a_line(path: Path) -> None:
    """So that a change of one sentence changes one line; tables and titles of paragraphs aside."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    prose = [re.sub(r"`[^`]*`", "`x`", re.sub(r"^ *\d+\. ", "", line)) for line in prose]
    assert [line for line in prose if SENTENCE_END.search(line)] == []


def test_the_page_of_the_record_lists_every_door() -> None:
    """Its table has the values of `Door`, no more and no fewer."""
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    table = text.partition("### Doors\n")[2].partition("## ")[0]
    assert set(re.findall(r"`([a-z]+)`", "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)))) == set(Door)


def test_the_library_example_of_the_readme_gives_an_application(tmp_path: Path) -> None:
    """It is run as written, except for the line that serves."""
    text = SHOWN["python"]
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<!doctype html>")
    for file in ("gateway.yaml", "cart.yaml"):
        (tmp_path / file).write_text(SHOWN[file])
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
    """Every hook specification."""
    specifications = pluggy.PluginManager(hookspecs.PROJECT)
    specifications.add_hookspecs(hookspecs)
    return {name for name in vars(specifications.hook) if not name.startswith("_")}


def test_every_hook_is_documented_and_used_by_a_plugin_of_ours() -> None:
    """A hook without documentation or use is not part of the contract."""
    documented = set(re.findall(r"^\| `(\w+)\(", (ROOT / "docs" / "plugins.md").read_text("utf-8"), re.MULTILINE))
    sources = [file.read_text("utf-8") for file in (ROOT / "plugins").glob("*.py")]
    used = {name for source in sources for name in re.findall(r"@hookimpl\n(?:async )?def (\w+)", source)}
    assert hook_names() == documented == used


async def test_the_plugin_of_the_docs_is_a_plugin(tmp_path: Path) -> None:
    """It is valid as written."""
    page = (ROOT / "docs" / "plugins.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "friday.py").write_text(code, "utf-8")
    Hooks(["friday.py"], tmp_path)


def test_each_failure_in_the_table_names_its_test() -> None:
    """The files and functions in docs/deployment.md exist."""
    text = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)` ((?:`test_\w+`(?:, )?)+)", text)
    assert len(named) > 10
    for file, tests in named:
        written = (ROOT / file).read_text("utf-8")
        for test in re.findall(r"\w+", tests):
            assert f"def {test}(" in written, test
