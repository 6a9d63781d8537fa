"""Only regular expressions with bounded cost are accepted, and they mean the same as elsewhere."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.conditions import pattern_program
from gateway.policy.regexes import MAX_SIZE, bounded_regex

PATTERNS = [
    r"^\d{3}-\d{4}$", r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[a-z]{2,}$", r"(a|b)*c", r"[\w.-]+", r'[^\s"]+', r"\bword\b",
    r"[a[b]", r"[a&&b]", r"[~]", r"[\]]", r"[\^-]", r"[^^]", r"[\w-]", r"\u00e9", r"\x41", r"[\u00e9-\u00ff]", r"\/",
    r"^$", r"(?:ab){2,3}?", "é", "[A-Z-]", r"\$\{", r"\W", r"[\D]", r"a.c", "#", " ",
]  # fmt: skip
TEXTS = [
    "", "a", "ab", "abab", "ababab", "c", "abc", "word", "words", "&", "~", "[", "]", "^", "-", "_", "é", "A", "/", "$",
    "${", "123-4567", "x@y.com", "a\nc", "\n", "٣", " ", "#",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_same_as_elsewhere(pattern: str) -> None:
    """The engine finds the same as Python, in ASCII."""
    program = pattern_program(bounded_regex(pattern))
    python = re.compile(
        re.sub(r"(?<!\\)\$$", r"\\Z", pattern.replace("[a[b]", r"[a\[b]").replace("&&", r"\&&")), re.ASCII
    )
    assert [program.execute({"v": text}) for text in TEXTS] == [python.search(text) is not None for text in TEXTS]


@pytest.mark.parametrize(
    "pattern",
    [
        "(", "a)", "a**", "a{3}{4}", "(?=a)", "(?!a)", "(?<=a)", "(?i)a", "(?P<x>a)", "(?>a)", "(.{100}){100}",
        r"(a)\1", r"\p{L}", "[]", "[a", "*", "a|*", "a{4,2}", "a{99999}", "a{,3}", r"\Q", "{", "}", "]", "\\", "[a--b]",
        r"[\p{L}]", "[b-a]",
        "(" * 20 + "a" + ")" * 20, "(((a{30}){30}){30})", "a" * 257, r"\ud800", r"[\ud800]",
    ],
)  # fmt: skip
def test_refused(pattern: str) -> None:
    """Look-around, back-references, flags, unbounded growth, and syntax errors."""
    with pytest.raises(ValueError, match="regular expression"):
        pattern_program(bounded_regex(pattern))


@given(st.text(alphabet="ab(|)[]^-*+?{},0123456789\\dwsbu.$ é", max_size=20), st.text(alphabet="ab1 é-", max_size=10))
def test_what_is_taken_is_run(pattern: str, text: str) -> None:
    """Every accepted pattern compiles in the engine, and is small."""
    try:
        regex = bounded_regex(pattern)
        program = pattern_program(regex)
    except ValueError:
        return
    assert regex.size <= MAX_SIZE
    assert program.execute({"v": text}) in (True, False)
