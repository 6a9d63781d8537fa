"""The other pages of a site are packed into the first one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.apps import node, pack
from gateway.apps.node import ASKS
from gateway.apps.pack import PAGES
from gateway.apps.page_scripts import WAITS
from tests.apps.packing import RUNTIME, write

PARTS = {ASKS: ["/*location*/"], PAGES: ["/*location*/", "/*pages*/"], WAITS: ["/*late*/"]}


def other_pages(html: str) -> dict[str, Any]:
    """The other pages, by path."""
    found = re.search(rf'<script type="application/json" id="{PAGES}">(.*?)</script>', html)
    return json.loads(found[1]) if found else {}


def test_pages_that_are_named_are_packed(tmp_path: Path) -> None:
    """Each referenced page is packed once, with its files and the pages that it names; others are left out."""
    write(
        tmp_path,
        index__html="<a href=about.html>About</a><script>if (0) location.href = 'docs/a%20b.html?x#y'</script>",
        about__html="<head><link rel=stylesheet href=a.css></head><a href=/index.html>Home</a><a href=broken.html>",
        docs_of_x__html="<p>nobody names it",
        a__css="a { color: red }",
        broken__html="<img src=none.png>",
    )
    (tmp_path / "docs" / "a b.html").write_text("<img src=../a.svg><script>location</script>", "utf-8")
    write(tmp_path, a__svg="<svg xmlns='http://www.w3.org/2000/svg'/>")
    app = pack(tmp_path, app="cart", title="Cart", runtime=RUNTIME, parts=PARTS, base="/shop/")
    found = other_pages(app.html)
    assert list(found) == [
        "/shop/",
        "/shop/index.html",
        "/shop/about.html",
        "/shop/docs/a%20b.html",
        "/shop/broken.html",
    ]
    assert [found["/shop/"], found["/shop/index.html"]] == ["", ""]
    assert "<style>a { color: red }</style>" in found["/shop/about.html"]
    assert re.match(r"<img src=\"data:image/svg\+xml;.*webmcpGatewayOwn\(location\)", found["/shop/docs/a%20b.html"])
    assert "/*location*/;/*pages*/</script><a href=about" in app.html
    assert [str(warning).replace(f"{tmp_path}/", "") for warning in app.warnings] == [
        "broken.html:1:6: none.png: there is no such file in the app's folder; "
        "if the backend has it, let the policy (`pack --policy`) allow GET of it"
    ]


def test_a_script_of_many_pages_is_rewritten_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing asks for the shared script once, and all pages get its new code."""
    asked: list[str] = []
    real = node.ask

    def ask(program: str, name: str, line: str) -> str:
        asked.append(line)
        return real(program, name, line)

    monkeypatch.setattr(node, "ask", ask)
    links = "".join(f"<a href={name}.html>" for name in "abc")
    write(tmp_path, index__html=f"{links}<script src=shared.js></script>", shared__js="location.shared")
    write(tmp_path, **{f"{name}__html": "<script src=shared.js></script>" for name in "abc"})
    found = other_pages(pack(tmp_path, app="cart", title="Cart", runtime=RUNTIME, parts=PARTS).html)
    assert sum("location.shared" in line for line in asked) == 1
    assert [f"{ASKS}location).shared" in found[f"/{name}.html"] for name in "abc"] == [True] * 3


def test_pages_with_which_the_console_would_not_show_the_app_are_left_out(tmp_path: Path) -> None:
    """Pages are added while they fit the console's limit; escaped characters count with their encoded size."""
    long = {"a": "a" * 5_000_000, "b": f"<!--{'<b>' * 900_000}-->", "c": "c" * 5_000_000, "d": "d" * 1_000_000}
    write(tmp_path, index__html="".join(f"<a href={name}.html>" for name in long))
    write(tmp_path, **{f"{name}__html": f"<p>{text}" for name, text in long.items()})
    app = pack(tmp_path, app="cart", title="Cart", runtime=RUNTIME, parts=PARTS)
    assert [*other_pages(app.html)][2:] == ["/a.html", "/b.html", "/d.html"]
    assert "its page c.html is left out: with it, the app is too large for the console" in app.notes
    assert len(json.dumps({"text": app.html}, ensure_ascii=False).encode()) < 15 * 1024 * 1024


def test_a_name_is_found_between_what_is_none(tmp_path: Path) -> None:
    """Names are found next to others in one string, after character references, and beside long text."""
    long = "A" * 1_000_000
    write(
        tmp_path,
        index__html=f"<p>{long}</p><a onclick='go(&quot;a.html&quot;)'></a><script>'b.html,c.html'.split()</script>",
        **{f"{name}__html": f"<p>{name}" for name in "abc"},
    )
    app = pack(tmp_path, app="cart", title="Cart", runtime=RUNTIME, parts=PARTS)
    assert [*other_pages(app.html)][2:] == ["/a.html", "/b.html", "/c.html"]


def test_a_link_to_a_folder_names_its_page(tmp_path: Path) -> None:
    """Static sites link to folders, with or without a trailing slash; a folder that no link names adds no page."""
    write(
        tmp_path,
        index__html="<a href=/about/>About</a><a href='docs/deep?x'>Deep</a><a href=about/>About</a>",
        about_of_index__html="<a href=../>Home</a>",
        docs_of_index__html="<p>nobody leads there",
    )
    (tmp_path / "docs" / "deep").mkdir()
    (tmp_path / "docs" / "deep" / "index.html").write_text("<p>Deep", "utf-8")
    app = pack(tmp_path, app="cart", title="Cart", runtime=RUNTIME, parts=PARTS)
    found = other_pages(app.html)
    folders = ["/about", "/about/index.html", "/about/", "/docs/deep", "/docs/deep/index.html", "/docs/deep/"]
    assert [*found][2:] == folders
    assert [found["/about"], found["/about/index.html"]] == [["/about/"], ["/about/"]]
    assert "Home" in found["/about/"]


def test_scripts_of_other_pages_wait_with_those_of_the_first(tmp_path: Path) -> None:
    """A script of the backend in one page makes the scripts of all pages wait for their turn."""
    write(
        tmp_path,
        index__html="<a href=b.html></a><script>1</script>",
        b__html="<script src=/api/a.js></script><script>2</script>",
    )
    routed = lambda path: path.startswith("/api/")  # noqa: E731
    app = pack(tmp_path, app="cart", title="Cart", runtime=RUNTIME, parts=PARTS, routed=routed)
    assert other_pages(app.html)["/b.html"].count(f'{WAITS}=""') == 2
    assert "/*pages*/;/*late*/" in app.html


def test_an_app_of_one_page_has_no_others(tmp_path: Path) -> None:
    """The packed page has no block for other pages."""
    write(tmp_path, index__html="<a href=https://other.example/about.html>", other__html="<p>other")
    assert PAGES not in pack(tmp_path, app="cart", title="Cart", runtime=RUNTIME, parts=PARTS).html
