"""The reasons of refusals, and their page in the documentation."""

import re
from pathlib import Path

from gateway.errors import STATUS, WORDS, Reason

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| (\d{3}) \| (.+) \|$", re.MULTILINE)


def test_the_page_has_every_reason() -> None:
    """Each code once, in the order of the enum, with its status and a description."""
    rows = ROW.findall(PAGE.read_text("utf-8"))
    assert [(code, int(status)) for code, status, _ in rows] == [(str(reason), STATUS[reason]) for reason in Reason]
    assert all(words.endswith(".") for _, _, words in rows)


def test_people_read_words_of_their_own() -> None:
    """One sentence for each reason, without technical terms, numbers or names of code."""
    assert list(WORDS) == list(Reason)
    assert [
        words for words in WORDS.values() if not re.fullmatch(r"[A-Z][A-Za-z', ]+\.( [A-Z][A-Za-z', ]+\.)?", words)
    ] == []
    assert [
        words for words in WORDS.values() if re.search("gateway|policy|backend|http|token|route", words, re.I)
    ] == []
