"""The fenced blocks of the README and of docs/, with the file that a block represents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `line` is its first line; `file` is the path in the comment on its first line."""

    page: str
    line: int
    language: str
    text: str
    file: str | None

    @property
    def id(self) -> str:
        """The id of its tests."""
        return f"{self.page}:{self.line} {self.file or self.language}"


def blocks(*languages: str) -> Iterator[Block]:
    """Every block in one of these languages, page by page; `""` is a block without one."""
    for page in PAGES:
        source = page.read_text("utf-8")
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", source, re.MULTILINE | re.DOTALL):
            language, text = match.groups()
            if language in languages:
                named = re.match(r"# ([\w./-]+\.\w+)\n", text)
                line = source.count("\n", 0, match.start()) + 1
                yield Block(page.name, line, language, text, named[1] if named else None)


def lines(program: str) -> Iterator[tuple[Block, str]]:
    """Every command line of a program in the blocks without a language."""
    for block in blocks(""):
        for line in block.text.splitlines():
            if line.startswith(program):
                yield block, line
