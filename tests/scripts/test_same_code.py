"""Changes of docstrings and comments are distinguished from changes of code."""

from __future__ import annotations

import pytest

from scripts.same_code import is_same

BEFORE = {
    "a.py": '"""One."""\n\nA = 1\n"""Two."""\n\n\ndef f() -> str:\n    """Three."""\n    return "four"  # five\n',
    "a.ts": '/** One. */\nexport const f = <T>(x: T): string => `${x}` + "two" + 4n; // three\n',
    "a.tsx": 'export const f = (x: string) => <p title="one">{x}</p>; // two\n',
}


@pytest.mark.parametrize(
    ("path", "old", "new", "same"),
    [
        ("a.py", "One", "1", True),
        ("a.py", "Two", "2", True),
        ("a.py", "Three", "3", True),
        ("a.py", "five", "5", True),
        ("a.py", "four", "4", False),
        ("a.py", "A = 1", "A = 2", False),
        ("a.ts", "One", "1", True),
        ("a.ts", "three", "3", True),
        ("a.ts", "two", "2", False),
        ("a.ts", "string", "number", False),
        ("a.ts", "4n", "5n", False),
        ("a.tsx", "two", "2", True),
        ("a.tsx", "one", "1", False),
    ],
)
def test_a_change_of_words_is_told_from_one_of_code(path: str, old: str, new: str, same: bool) -> None:
    """In every place where words may be; the program's own strings are code."""
    before = BEFORE[path]
    assert old in before
    assert is_same(path, before, before.replace(old, new)) is same
