"""HTML is parsed as browsers do; tests/browser/test_markup.py compares these pages with one."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from gateway.apps.files import Text
from gateway.apps.markup import parse
from tests.apps.html_pages import PAGES


@pytest.mark.parametrize("page", PAGES)
def test_elements_are_those_that_a_browser_makes(page: str) -> None:
    """Elements with an id are compared: their names, and the text of scripts and styles."""
    found = parse(Text("index.html", page)).elements
    seen = [
        [element.get("id"), element.name, page[element.end : element.text_end] if _has_text(element.name) else ""]
        for element in found
        if element.get("id") is not None
    ]
    assert seen == PAGES[page]


def steps(page: str) -> int:
    """The steps that parsing takes."""
    taken = 0

    def step(*_: object) -> Any:
        nonlocal taken
        taken += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        parse(Text("index.html", page))
    finally:
        sys.settrace(before)
    return taken


def _has_text(name: str) -> bool:
    return name in ("script", "style")


@pytest.mark.parametrize(
    ("page", "head"),
    [
        ("<p><head><body></body>", ""),
        ("<!-- a --> <!DOCTYPE html>\n<html><head>", "<!-- a --> <!DOCTYPE html>\n<html><head>"),
        ("x<html><head></head>", ""),
        ("<html><body></body><p></body>x", "<html>"),
        ("<body></body><!-- x", ""),
    ],
)
def test_the_head_begins_where_browsers_say(page: str, head: str) -> None:
    """No script of the page may run before the runtime."""
    assert page[: parse(Text("index.html", page)).head] == head


@pytest.mark.parametrize(
    "page",
    [
        lambda n: "<span><div>" + "<i>" * n + "</span>" * n,
        lambda n: "<svg>" + "<g>" * n + "<desc><p>" + "</g>" * n,
    ],
)
def test_a_page_of_many_open_elements_is_read_in_steps_as_many(page: Callable[[int], str]) -> None:
    """Parsing takes linear time: no end tag searches all open elements."""

    assert steps(page(400)) < 2.2 * steps(page(200))


def test_plain_tags_are_passed_over_at_once() -> None:
    """A page of 2.6 million tags takes seconds: those that neither refer to a file nor run anything are one step."""
    assert steps('<p class="x">a</p><b>' * 10_000 + "<script>1</script>") < 1000
    assert steps("<p>a</p><svg/><b>" * 1000) < steps("<p onclick>a</p><svg/><b onclick>" * 1000) / 1.5


@pytest.mark.parametrize("before", ["<svg/>", "<math></math>", "<template><i></i></template>", "<template>"])
def test_plain_tags_beside_an_icon_or_a_template_are_few_steps(before: str) -> None:
    """What they open and close together is not looked at one by one."""
    row = '<div class="a"><ul><li>a</li><li>b</li></ul><p>c<b>d</b></p></div>'
    assert (
        steps(before + row * 1000) < steps(before + row.replace(">", " id=x>", 1).replace("<p>", "<p id=y>") * 1000) / 4
    )


def test_the_shapes_of_an_icon_are_one_step() -> None:
    """They are left out as plain tags; one that may refer to something is not."""
    shapes = '<g fill="none"><path d="M1 2"/><circle cx="1" cy="2" r="3"></circle></g>'
    kept = '<path fill="url(a.svg#b)"/><path fill="u&#114;l(a.svg#b)"/><rect id="x"/><g onclick="1"/><path style=""/>'
    found = parse(Text("index.html", f"<svg>{shapes}{kept}</svg>")).elements
    assert [element.name for element in found] == ["svg:svg", "svg:path", "svg:path", "svg:rect", "svg:g", "svg:path"]
    assert steps(f"<svg>{shapes * 1000}</svg>") < steps(f"<svg>{shapes.replace('<g', '<g id=x') * 1000}</svg>") / 4


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"/a?x=1&copy=2&reg;&lt"', "/a?x=1&copy=2®<"),
        ("'&ltx&#65&#x42;&nothing;'", "&ltxAB&nothing;"),
        ("p.png/", "p.png/"),
        ("a\"b'", "a\"b'"),
        ("\u00a0a\u000b", "\u00a0a\u000b"),
    ],
)
def test_values_of_attributes_are_read_as_browsers_read_them(written: str, value: str) -> None:
    """A reference without its semicolon is not decoded before `=` or letters; only HTML's white space ends a value."""
    [element] = parse(Text("index.html", f"<img src={written}>")).elements
    assert element.get("src") == value
