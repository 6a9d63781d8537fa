"""The program behind `make wpt`, on a checkout of a few pages with a small harness and server."""

from pathlib import Path

import pytest

from tests.wpt.__main__ import run
from tests.wpt.checkout import cases_of, sent_headers
from tests.wpt.exceptions import EXEMPT, REASONS, Exempt, exempt, needless, read_exceptions
from tests.wpt.results import read_results

SMALL = Path(__file__).parent / "small"
"""A checkout of three pages that are run, others that are not, and their server."""


def test_pages_are_found_and_others_left_out_by_class() -> None:
    """No helpers, no workers, nothing of another folder; each variant of a page counts as a page."""
    cases, left_out = cases_of(SMALL, ("fetch/api/",))
    names = ["many.any.html?1", "many.any.html?2", "one.any.html", "two.html"]
    assert [case.url for case in cases] == [f"/fetch/api/{name}" for name in names]
    assert left_out == {
        "done by hand": ["fetch/api/by-hand-manual.html"],
        "of workers alone": ["fetch/api/worker.any.js"],
    }
    assert "x-told" in sent_headers(SMALL, ("fetch/api/",))


async def test_what_differs_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Subtests that pass only natively, with the reason, and the figures; `again` repeats only pages that differed."""
    file = tmp_path / "results.jsonl"
    await run(SMALL, SMALL, ("fetch/api/",), 2, file, again=False)
    printed = capsys.readouterr().out
    assert printed.partition("\n\n")[2].split("\n\nLeft out:")[0].split("\n") == [
        "1/2 /fetch/api/two.html",
        "    protocol",
        "        fail: https: is not http:",
    ]
    assert printed.split()[-3:] == ["4", "0", "1"]
    results = read_results(file)
    assert {url: result.differs() for url, result in results.items()} == {
        "/fetch/api/many.any.html?1": [],
        "/fetch/api/many.any.html?2": [],
        "/fetch/api/one.any.html": [],
        "/fetch/api/two.html": ["protocol"],
    }
    await run(SMALL, SMALL, ("fetch/api/",), 2, file, again=True)
    again = capsys.readouterr().out
    assert [line for line in again.splitlines() if line.startswith("[")] == ["[1/1] 1/2 /fetch/api/two.html"]
    assert sorted(read_results(file)) == sorted(results)


def test_each_exception_is_named_with_its_reason() -> None:
    """In the documentation as here; each class has a subtest, and a subtest that just fails is in none."""
    text = " ".join((Path(__file__).parents[2] / "docs" / "app-authors.md").read_text("utf-8").split())
    assert [name for name, reason in REASONS.items() if f"| {name} | {reason} |" not in text] == []
    assert {each.reason for each in EXEMPT} == REASONS.keys()
    assert len({(each.url, each.pattern) for each in EXEMPT}) == len(EXEMPT)
    first = EXEMPT[0]
    assert exempt(first.url, first.pattern.replace("*", "x")) == first.reason
    assert exempt("/xhr/no-such-page.html", "reads") is None
    assert needless({first.url: [first.pattern.replace("*", "x")]}) == [
        each for each in EXEMPT[1:] if each.url == first.url
    ]
    assert first in needless({first.url: []})


def test_exceptions_are_read_by_class_and_page() -> None:
    """A page alone means all its subtests; in their names a star matches any text, and other characters themselves."""
    whole, one, two = read_exceptions("[workers]\n/a.html\n/b.html\n  it (x) *\n  [y]\n")
    assert (whole, one.pattern, two) == (Exempt("workers", "/a.html"), "it (x) *", Exempt("workers", "/b.html", "[y]"))
    assert whole.holds("/a.html", "any\nthing")
    assert one.holds("/b.html", "it (x) goes")
    assert not one.holds("/b.html", "it x goes")
    assert not one.holds("/a.html", "it (x) goes")
    assert not two.holds("/b.html", "y")
