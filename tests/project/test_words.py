"""The first words of docstrings and comments name the thing, or say what it does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]

NOUN_CLAUSE: Final = re.compile(r'(?:"""|/\*\*\s+(?:\*\s)?)(?:What|Who|Whose|Where|How|Why)\b[^?\n]*$', re.MULTILINE)
"""The start of a description that is a noun clause, such as `What is sent`, and no question."""


@pytest.mark.parametrize(
    ("folder", "suffix"), [("gateway", "py"), ("plugins", "py"), ("scripts", "py"), ("browser/src", "ts")]
)
def test_no_description_begins_with_a_noun_clause(folder: str, suffix: str) -> None:
    """Write "The bytes that are sent." or "Return the bytes." in place of "What is sent."."""
    files = [path for path in sorted((ROOT / folder).rglob(f"*.{suffix}")) if "static" not in path.parts]
    assert len(files) > 3
    found = {str(path.relative_to(ROOT)): NOUN_CLAUSE.findall(path.read_text("utf-8")) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}
