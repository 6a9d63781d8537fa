"""The reference of `<mcp-app>` in docs/hosts.md has what its source has."""

from __future__ import annotations

import re

from tests.browser.stock_host import ROOT

ELEMENT = ROOT / "browser" / "src" / "host" / "element"
PAGE = (ROOT / "docs" / "hosts.md").read_text("utf-8")
REFERENCE = PAGE.partition("## The element")[2].partition("\n## ")[0]
KINDS = {"text": "text", "json": "JSON", "seconds": "seconds", "words": "words", "mode": "a mode"}


def section(title: str) -> str:
    """The text below a heading of the reference."""
    return REFERENCE.partition(f"### {title}\n")[2].partition("\n### ")[0]


def test_every_attribute_is_described_as_in_the_source() -> None:
    """Name, kind and meaning, in the order of the source."""
    source = (ELEMENT / "options.ts").read_text("utf-8")
    found = re.findall(r'^  "?([a-z-]+)"?: \{ kind: "(\w+)".*?doc: "(.*)" \},$', source, re.M)
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*) \|$", section("Attributes"), re.M)
    assert rows == [(name, KINDS[kind], doc) for name, kind, doc in found]
    assert len(rows) > 20


def test_every_event_is_described_and_no_other() -> None:
    """By its name; those with an answer have one in the source."""
    source = (ELEMENT / "events.ts").read_text("utf-8")
    declared = re.findall(r'^  "(mcp-app-[a-z-]+)": (.*);$', source, re.M)
    rows = [line.split(" | ") for line in section("Events").splitlines() if line.startswith("| `mcp-app")]
    described = {name: row[1] for row in rows for name in re.findall(r"`(mcp-app-[a-z-]+)`", row[0])}
    assert described.keys() == {name for name, _ in declared}
    answered = {name for name, detail in described.items() if ";" in detail}
    assert answered == {name for name, detail in declared if "Respond<" in detail}


def test_every_method_that_is_described_exists() -> None:
    """Of the element, by its name."""
    source = (ELEMENT / "mcp-app.ts").read_text("utf-8")
    rows = re.findall(r"^\| (`.*?) \|", section("Methods"), re.M)
    names = [name for row in rows for name in re.findall(r"`(\w+)", row)]
    missing = [name for name in names if not re.search(rf"^  (async |get )?{name}\(", source, re.M)]
    assert (missing, len(names)) == ([], 11)
