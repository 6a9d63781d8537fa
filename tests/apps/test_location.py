"""Scripts of a page that read `location` are packed so that they read it from the view runtime."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gateway.apps import PARTS, pack
from gateway.apps.node import ASKS
from gateway.model import Resource
from tests.apps.packing import RUNTIME, write

NAMES = {word: [f"part({name!r})" for name in names] for word, names in PARTS.items()}
PART = "part('location/location.js')"


def pack_files(folder: Path, **files: str) -> Resource:
    """The packed app of these files, with parts of the runtime that print their names."""
    return pack(write(folder, **files), app="cart", title="The cart", runtime=RUNTIME, parts=NAMES)


def test_every_kind_of_script_asks(tmp_path: Path) -> None:
    """All kinds of scripts, linked modules, templates and event handlers are rewritten; data and other text are not."""
    page = pack_files(
        tmp_path,
        index__html=(
            "<!doctype html><html lang=de><head><title>location.a</title></head><body>"
            "<script>location.a</script><script src=b.js></script><script defer src=c.js></script>"
            "<script type=module>import './d.js'; location.e</script><template><script>location.f</script></template>"
            "<button onclick='go(location.g, \"&lt;\")' title='location.h'>x</button>"
            "<script type='application/json'>location.i</script><script>if (location.j</script>"
            "<script>x = '<\\/script>' + location.k</script></body></html>"
        ),
        b__js="location.b",
        c__js="'use strict'; document.currentScript; location.c",
        d__js="const { href: d } = location; export { d }",
    ).html
    assert re.findall(rf"{re.escape(ASKS)}location\)\.(\w)", page) == ["a", "b", "c", "e", "f", "g", "k"]
    assert f"= {ASKS}location)" in page
    assert f'onclick="go({ASKS}location).g, &quot;&lt;&quot;)"' in page
    assert page.count(PART) == 1
    assert page.index("<html") < page.index(PART) < page.index("<title>location.a</title>")


def test_a_script_that_stands_as_data_asks_too(tmp_path: Path) -> None:
    """A script that is stored as data is rewritten, also a deferred one; its other text stays."""
    page = "<body><script src=a.js></script><script defer src=a.js></script></body>"
    html = pack_files(tmp_path, index__html=page, a__js="f('</script>', location.a)").html
    text = json.dumps(f"f('</script>', {ASKS}location).a)").replace("<", r"\u003c")
    assert html.count(f'<script type="webmcp-gateway-exact">{text}</script>') == 2


def test_what_stands_before_the_head_asks_too(tmp_path: Path) -> None:
    """Handlers on the `<html>` element are rewritten, and the runtime follows it."""
    page = "<html onclick='go(location.a, location.b)'><head><title>Cart</title></head><body></body></html>"
    html = pack_files(tmp_path, index__html=page).html
    opening = f'<html onclick="go({ASKS}location).a, {ASKS}location).b)"><head>'
    assert html.startswith(f'{opening}<meta name="webmcp-gateway"')
    assert html.endswith("<title>Cart</title></head><body></body></html>")


@pytest.mark.parametrize("code", ["locations = 1", "typeof location", "f({ location: 1 })"])
def test_a_page_that_reads_none_is_as_before(tmp_path: Path, code: str) -> None:
    """The page stays byte for byte the same, and does not contain that part."""
    page = f"<p title=location>location</p><script>{code}</script>"
    html = pack_files(tmp_path, index__html=page).html
    assert html.endswith(page)
    assert PART not in html


@pytest.mark.parametrize(
    "makes", ["new Function(text)", "s=Function(l)()", "(() => {}).constructor(text)", "(0, eval)(text)"]
)
def test_a_page_that_makes_code_of_texts_has_that_part(tmp_path: Path, makes: str) -> None:
    """The part is added if any text of the page contains `location`, even outside scripts."""
    page = f"<p x-text='location.href'></p><script>{makes}</script>"
    assert PART in pack_files(tmp_path, index__html=page).html
    assert PART not in pack_files(tmp_path, index__html=page.replace("location.href", "place")).html


@pytest.mark.parametrize(
    ("script", "reads"),
    [
        ("f(a.pathname)", True),
        ("f(a.href)", True),
        ("if (a.href == b) c()", True),
        ("f(node.baseURI)", True),
        ("f(document.URL)", True),
        ("a.href = b", False),
        ("a.pathnames", False),
    ],
)
def test_a_page_that_reads_resolved_urls_has_that_part(tmp_path: Path, script: str, reads: bool) -> None:
    """A browser resolves them against the frame, which is at no address of the app."""
    assert (PART in pack_files(tmp_path, index__html=f"<script>{script}</script>").html) is reads


def test_a_page_beside_its_base_is_at_the_start(tmp_path: Path) -> None:
    """A base that leads into a folder of the app is not where the page is; one that leads to none is."""
    within = pack_files(tmp_path, index__html="<base href=sub/>", sub_of_a__js="").html
    assert "&quot;start&quot;: &quot;/&quot;" in within
    assert "&quot;start&quot;" not in pack_files(tmp_path, index__html="<base href=/shop/>").html


def test_without_node_the_author_of_a_router_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts stay as they are; a note says so, and that a link to a fragment leaves the view."""
    page = "<script>history.pushState(null, '', '/a'); location.href = '#b'</script>"
    with monkeypatch.context() as patch:
        patch.setattr("shutil.which", lambda *_, **__: None)
        without = pack_files(tmp_path, index__html=page)
    assert without.html.endswith(page)
    assert [note for note in without.notes if "routers of the history do not work" in note]
    assert [note for note in without.notes if "set location.hash" in note]
    assert len(pack_files(tmp_path, index__html=page).notes) == 1


def test_a_page_says_what_its_base_was(tmp_path: Path) -> None:
    """Routers look for the base; the element itself would point at the host."""
    page = "<base href='/shop/'><script>location.href</script>"
    assert "&quot;declared&quot;: &quot;/shop/&quot;" in pack_files(tmp_path, index__html=page).html
