"""The position of the view runtime in the page of an upstream."""

from __future__ import annotations

import pytest

from gateway.mcp.upstreams.mount import page_with_runtime, with_runtime

SCRIPT = "<script>r</script>"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<!doctype html><html lang=x><head\nid=y>", "<title>t</title>"),
        ("<HTML>", "<header>h</header>"),
        (" <!DOCTYPE html>", "<p>p</p>"),
        ("", "<p>p</p>"),
        ("", "<head <html <!doctype"),
        ("", "<!doctype"),
        ("<html>", "<head"),
    ],
)
def test_it_stands_first(before: str, after: str) -> None:
    """In the head, or where the parser will begin it."""
    assert page_with_runtime(before + after, "r") == before + SCRIPT + after


@pytest.mark.parametrize("tag", ["<head ", "<html ", "<!doctype ", "<head", "< "])
def test_a_page_that_never_ends_a_tag_is_read_once(tag: str) -> None:
    """Scanning each tag to its end would take hours, and block the event loop."""
    page = tag * (4 * 1024 * 1024 // len(tag))
    assert page_with_runtime(page, "r") == SCRIPT + page


@pytest.mark.parametrize("contents", [None, 7, "x", {}, [None, 7, "x", {}, {"text": 7}, {"mimeType": 7, "uri": 7}]])
def test_what_is_no_page_stays_as_it_is(contents: object) -> None:
    """An upstream may answer with any text."""
    assert with_runtime({"contents": contents}, "r") == {"contents": contents}
