"""A folder is packed into one self-contained HTML file."""

import html
import json
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest

from gateway.apps import pack
from gateway.apps.files import Folder, Reference
from gateway.errors import DocumentError
from gateway.policy import parse_policy
from tests.apps.packing import PIXEL, PIXEL_URL, RUNTIME, body, pack_files, problems, write


def test_what_refers_to_no_file_keeps_its_bytes(tmp_path: Path) -> None:
    """White space, letter case, entities and comments of the author are kept."""
    page = (
        "<!DOCTYPE html>\r\n<HTML Lang='en'><HEAD  ><Title>a &amp; <b></title></head><body>\n"
        "<p CLASS=x >é<!-- <img src=no> --></body></HTML>\n"
    )
    assert body(pack_files(tmp_path, index__html=page)) == page


@pytest.mark.parametrize(
    ("page", "inlined"),
    [
        ("<![CDATA[ > <img src=p.png> ]]>", True),
        ("<![if !IE]><img src=p.png><![endif]>", True),
        ("<![odd <img src=p.png>", False),
        ("<![CDATA[", False),
        ("<svg><desc><![CDATA[ > <img src=p.png> ]]></desc></svg>", False),
        ("<svg/><![CDATA[ > <img src=p.png> ]]>", True),
        ("<svg><svg></svg><![CDATA[ > <img src=p.png> ]]></svg>", False),
    ],
)
def test_a_marked_section_is_read_as_browsers_read_it(tmp_path: Path, page: str, inlined: bool) -> None:
    """It is a comment up to the next `>`, except inside SVG text."""
    made = body(pack_files(tmp_path, index__html=page, p__png=PIXEL))
    assert made == (page.replace("p.png", f'"{PIXEL_URL}"') if inlined else page)


@pytest.mark.parametrize(
    "page",
    [
        '<noscript><img src="https://pixel.example/x.gif"></noscript>',
        "<textarea rows=2>\n<img src=gone.png></TEXTAREA >",
        "<title><script src=gone.js></title>",
        "<iframe><img src=gone.png></iframe>",
        "<xmp><link rel=stylesheet href=gone.css></xmp>",
        "<!-- -- > <img src=gone.png> -->",
        "<!-- <img src=gone.png>",
    ],
)
def test_what_is_text_names_no_files(tmp_path: Path, page: str) -> None:
    """Browsers load nothing from text, so it is not packed; `<noscript>` is text, since scripts run."""
    assert body(pack_files(tmp_path, index__html=page)) == page


@pytest.mark.parametrize("comment", ["<!-->", "<!--->", "<!-- a --!>", "<!---->"])
def test_a_comment_ends_where_browsers_end_it(tmp_path: Path, comment: str) -> None:
    """The markup after the comment is packed."""
    page = f"{comment}<img src=p.png><!-- -->"
    assert PIXEL_URL in body(pack_files(tmp_path, index__html=page, p__png=PIXEL))


@pytest.mark.parametrize(
    "page, before",
    [
        ("<!doctype html><html><head><title>x</title></head></html>", "<!doctype html><html><head>"),
        ("<!doctype html><html lang=en><body>x</body></html>", "<!doctype html><html lang=en>"),
        ("<!doctype html><p>x", "<!doctype html>"),
        ("<p>x", ""),
    ],
)
def test_the_runtime_comes_first(tmp_path: Path, page: str, before: str) -> None:
    """The runtime precedes anything of the page that could run."""
    resource = pack_files(tmp_path, index__html=page)
    assert resource.html.startswith(f'{before}<meta name="webmcp-gateway"')


def test_the_page_says_which_app_it_is(tmp_path: Path) -> None:
    """The runtime reads the app's id, title and base from a meta element."""
    resource = pack_files(tmp_path, index__html="<head></head>")
    content = re.search(r'name="webmcp-gateway" content="([^"]*)"', resource.html)
    assert content is not None
    assert json.loads(html.unescape(content[1])) == {"app": "cart", "title": "The cart", "base": "/"}


def test_the_resource_is_named_by_its_content(tmp_path: Path) -> None:
    """The same files give the same URI, other files another; the content security policy allows no external source."""
    first = pack_files(tmp_path, index__html="<p>1")
    again = pack_files(tmp_path, index__html="<p>1")
    other = pack_files(tmp_path, index__html="<p>2")
    assert re.fullmatch(r"ui://cart/[0-9a-f]{12}\.html", first.uri)
    assert (first.uri == again.uri, first.uri == other.uri) == (True, False)
    assert first.meta == {"csp": {"connectDomains": [], "resourceDomains": []}}


def test_pictures_become_data_urls(tmp_path: Path) -> None:
    """Attributes that refer to images are inlined anywhere, with queries, encoded names and fragments."""
    page = (
        '<link rel="icon" href="/a.png"><img alt=x src=a.png?v=1><img src="a%2Epng">'
        "<template><img src='./a.png'></template>"
        '<img srcset="a.png 1x, a.png 2x"><video poster=a.png></video>'
        '<svg><image href="a.png#part"/></svg><img src="data:,x">'
    )
    text = body(pack_files(tmp_path, index__html=page, a__png=PIXEL))
    assert text.count(PIXEL_URL) == 8
    assert f'srcset="{PIXEL_URL} 1x, {PIXEL_URL} 2x"' in text
    assert f'href="{PIXEL_URL}#part"' in text
    assert "alt=x" in text
    assert 'src="data:,x"' in text


@pytest.mark.parametrize(
    ("name", "media_type"),
    [("a.bmp", "image/bmp"), ("a.CUR", "image/x-icon"), ("a.apng", "image/apng"), ("a.opus", "audio/ogg")],
)
def test_older_kinds_of_files_are_embedded_too(tmp_path: Path, name: str, media_type: str) -> None:
    """Files of older types become data URLs with their media types."""
    page = f"<style>a {{ cursor: url({name}), auto }}</style>"
    assert f'url("data:{media_type};base64,eA==")' in body(pack_files(tmp_path, index__html=page, **{name: b"x"}))


@pytest.mark.parametrize(
    "page, message",
    [
        ('<p>\n  <img src="no.png">', "index.html:2:8: no.png: there is no such file in the app's folder; if"),
        ("<img src=../secret.png>", "index.html:1:6: ../secret.png lies outside of the app's folder"),
        ("<img src=%2e%2e/secret.png>", "index.html:1:6: %2e%2e/secret.png lies outside of the app's folder"),
        (
            "<script src=https://cdn.example/x.js></script>",
            "index.html:1:9: https://cdn.example/x.js is on another site",
        ),
        ("<script src=//cdn.example/x.js></script>", "index.html:1:9: //cdn.example/x.js is on another site"),
        ("<img src=a.exe>", "index.html:1:6: a.exe: files named .exe cannot be embedded"),
        ("<script src=a.tsx></script>", "index.html:1:9: a.tsx is not JavaScript: build the app"),
        ("<iframe src=b.html></iframe>", "index.html:1:9: b.html: there is no such file in the app's folder"),
        ("<style>\n\n@import 'no.css';</style>", "index.html:3:9: no.css: there is no such file"),
        ("<base href=https://a.example/>", "index.html:1:7: <base href> of another site counts as its path"),
        ("<link rel=stylesheet href=loop.css>", "loop.css:1:9: loop.css imports itself"),
        ("<img src=//[x>", "index.html:1:6: //[x can name no file: Invalid IPv6 URL"),
        ("<img src=a%00.png>", "index.html:1:6: a%00.png can name no file: %00 is in no name"),
        (f"<img src={'a' * 5000}.png>", f"index.html:1:6: {'a' * 80} can name no file: "),
        ("<img src=turning.png>", "index.html:1:6: turning.png"),
        (r"<style>a{background:url('\ffffff\d800')}</style>", "index.html:1:25: \ufffd\ufffd: there is no such file"),
        ("<iframe src=//[x></iframe>", "index.html:1:9: //[x can name no file: Invalid IPv6 URL"),
        (
            "<iframe src=//maps.example/x></iframe>",
            "index.html:1:9: <iframe> of another site, which hosts block, shows nothing: name https://maps.example",
        ),
        ("<object data=https://maps.example/x></object>", "index.html:1:9: <object> of another site"),
        ("<svg><use href=https://maps.example/x#a></svg>", "index.html:1:11: <use> of another site"),
        (
            "<svg><use href=s.svg#a></svg>",
            "index.html:1:11: <use href> of a file cannot be packed into one HTML, and shows nothing: put its",
        ),
        (
            "<svg><script xlink:href=a.js /></svg>",
            "index.html:1:14: a <script> of an SVG cannot be packed, and is left out:",
        ),
        ("<p><script>1</scripts>", "index.html:1:4: this <script> has no end tag, and runs in no browser"),
        ("<base href=http://[x>", "index.html:1:7: <base href> of another site counts"),
        ("<base href=/\\[x>", "index.html:1:7: <base href> of another site counts"),
    ],
)
def test_what_cannot_be_packed_is_reported_with_its_place(tmp_path: Path, page: str, message: str) -> None:
    """No problem is dropped silently."""
    folder = write(tmp_path / "app", a__exe=b"", a__tsx="", a__html="", loop__css='@import "loop.css";')
    write(tmp_path, secret__png=PIXEL)
    (folder / "turning.png").symlink_to("turning.png")
    [found] = problems(folder, index__html=page)
    assert found.startswith(message)


def test_all_that_one_element_names_in_vain_is_reported(tmp_path: Path) -> None:
    """All missing files of an element are reported at once."""
    found = problems(tmp_path, index__html="<img src=a.png srcset='b.png 1x, c.png 2x'><video poster=d.png src=e.mp4>")
    assert [each.partition(": there is")[0] for each in found] == [
        *("index.html:1:6: a.png", "index.html:1:16: b.png", "index.html:1:16: c.png"),
        *("index.html:1:51: d.png", "index.html:1:64: e.mp4"),
    ]


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """A symbolic link does not widen the folder."""
    write(tmp_path, secret__png=PIXEL)
    folder = write(tmp_path / "app")
    folder.mkdir(exist_ok=True)
    (folder / "a.png").symlink_to(tmp_path / "secret.png")
    assert problems(folder, index__html="<img src=a.png>") == ["index.html:1:6: a.png lies outside of the app's folder"]


def test_a_page_that_is_a_link_out_of_the_folder_is_an_error(tmp_path: Path) -> None:
    """The error is the one of any other file, and contains the remedy."""
    write(tmp_path, other__html="<p>")
    folder = write(tmp_path / "app")
    folder.mkdir(exist_ok=True)
    (folder / "index.html").symlink_to(tmp_path / "other.html")
    with pytest.raises(DocumentError, match=r"index\.html:1:1: the page is a link to a file elsewhere"):
        pack(folder, app="cart", title="", runtime="")


def test_a_file_that_goes_while_it_is_packed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Editors replace files: a file that vanishes meanwhile is reported as a problem, not raised as an error."""
    folder = write(tmp_path, a__png=PIXEL)
    found = Folder.find

    def gone(self: Folder, reference: Reference, beside: Path, kind: str) -> Path:
        path = found(self, reference, beside, kind)
        path.unlink()
        return path

    monkeypatch.setattr(Folder, "find", gone)
    [problem] = problems(folder, index__html="<img src=a.png>")
    assert problem.startswith("index.html:1:6: a.png cannot be read: No such file")


def test_small_files_that_name_each_other_fill_no_memory(tmp_path: Path) -> None:
    """Each style sheet is packed once; what would make a page too large is left out, or loaded when the page runs."""
    sheets = {f"c{n}__css": f'@import "c{n + 1}.css";' * 2 for n in range(40)}
    folder = write(tmp_path / "app", **sheets, c40__css="", a__png=bytes(1024 * 1024))
    pack_files(folder, index__html="<link rel=stylesheet href=c0.css>")
    write(folder, c40__css="a{}")
    made = pack_files(folder, index__html="<link rel=stylesheet href=c0.css>")
    assert made.warnings[0].message == "is left out: with this the packed page has more than 64 MiB"
    assert len(made.html) < 1024 * 1024
    found = problems(folder, index__html="<img src=a.png>\n" * 100)
    assert len(found) == 94
    assert found[0] == (
        "index.html:7:6: a.png is loaded when the page runs: more than 9 MiB of pictures and films are not embedded"
    )


def test_a_page_that_the_console_cannot_show_is_told_of(tmp_path: Path) -> None:
    """The page is packed all the same, for hosts that accept it."""
    write(tmp_path, index__html=f"<p>{'A' * 14 * 1024**2}")
    assert "it is too large for the console, which shows pages of 14 MiB at most" in pack_files(tmp_path).notes


def test_a_folder_without_a_page_is_an_error(tmp_path: Path) -> None:
    """The error explains what an app is."""
    with pytest.raises(DocumentError, match=r"an app is a folder with an index\.html"):
        pack(tmp_path, app="cart", title="", runtime="")


def test_one_html_file_is_an_app(tmp_path: Path) -> None:
    """A file with another name than index.html can be given as the source."""
    write(tmp_path, shop__html="<img src=a.png>", a__png=PIXEL)
    assert PIXEL_URL in pack(tmp_path / "shop.html", app="cart", title="", runtime="").html


def test_a_base_without_an_address_stays(tmp_path: Path) -> None:
    """The element stays: scripts look for its id, and links use its target."""
    page = '<base id="b" target="_blank"><base href="/shop/"><p>'
    resource = pack_files(tmp_path, index__html=page)
    assert '<base id="b" target="_blank"><p>' in resource.html


def test_a_base_element_becomes_the_base_of_the_apps_urls(tmp_path: Path) -> None:
    """The element is removed: it would resolve against the host's page."""
    resource = pack_files(tmp_path, index__html="<base href='/shop/'><img src=/shop/a.png>", a__png=PIXEL)
    assert "&quot;base&quot;: &quot;/shop/&quot;" in resource.html
    assert body(resource) == f'<img src="{PIXEL_URL}">'


@pytest.mark.parametrize("base", ["/docs/", "docs/", "/docs/page", "./docs/"])
def test_a_base_that_is_a_folder_of_the_app_leads_there(tmp_path: Path, base: str) -> None:
    """As on the app's own site, for attributes, scripts, modules and sheets alike."""
    page = (
        f"<base href='{base}'><img src=a.png><script src=s.js></script><link rel=stylesheet href=c.css>"
        "<script type=module>import './m.js'</script>"
    )
    write(tmp_path, docs_of_a__png=PIXEL, docs_of_s__js="inDocs()", docs_of_m__js="moduleInDocs()")
    write(tmp_path, docs_of_c__css="p { background: url(a.png) }", s__js="inRoot()")
    resource = pack_files(tmp_path, index__html=page)
    assert f"&quot;base&quot;: &quot;{urljoin('/', base)}&quot;" in resource.html
    packed_body = body(resource)
    assert packed_body.count(PIXEL_URL) == 2
    assert all(one in packed_body for one in ("inDocs()", "moduleInDocs()"))


def test_hints_and_the_pages_own_csp_are_left_out(tmp_path: Path) -> None:
    """Neither works in a page that fetches nothing and has all scripts inline."""
    page = (
        "<link rel=preload href=a.js as=script>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'self'\"><p>"
    )
    resource = pack_files(tmp_path, index__html=page)
    assert body(resource) == "<p>"
    assert "content security policy" in resource.notes[1]


def test_the_cart_example_packs(tmp_path: Path) -> None:
    """The example app needs no external file once it is packed."""
    web = Path(__file__).parents[2] / "examples" / "cart_app" / "web"
    resource = pack(web, app="cart", title="Cart", runtime=RUNTIME)
    assert not re.search(r'\b(src|href)="(?!data:|#|")', resource.html)
    assert resource.html.count("data:image/svg+xml;base64,") >= 9


NO_PICTURE = "data:image/svg+xml,<svg%20xmlns='http://www.w3.org/2000/svg'%20width='0'/>#webmcp-gateway:"


def test_what_the_backend_has_stays_where_it_is(tmp_path: Path) -> None:
    """Images, videos, sheets and url() with paths of a route are kept, unless the folder has such a file."""
    page = (
        '<svg><image href="/api/a.png"/></svg><embed src="data:image/png,x">'
        '<link rel="icon" href="/api/i.png"><template><img src="/api/a.png"></template>'
        "<style>p { background: url('/api/d.png') }</style>"
    )

    def made(html: str, routed: bool = True) -> str:
        folder = write(tmp_path, index__html=html)
        return body(
            pack(folder, app="cart", title="", runtime=RUNTIME, routed=lambda path: routed and path.startswith("/api/"))
        )

    assert made(page) == page
    left_out = made(page, routed=False)
    assert 'href="/api/i.png"' not in left_out
    assert 'url("#/api/d.png")' in left_out
    assert made('<script type="module" src="/api/x.js"></script>') == (
        '<script type="module" src="about:invalid#/api/x.js"></script>'
    )
    assert made('<img src="https://cdn.example/api/a.png">') == (
        f'<img src="https://cdn.example/api/a.png" srcset="{NO_PICTURE}">'
    )
    write(tmp_path, css_of_s__css="p { background: url(../api/e.png) }")
    assert made("<link rel=stylesheet href=css/s.css><img src='api/a.png?x#y'>") == (
        f'<style>p {{ background: url("/api/e.png") }}</style><img src="/api/a.png?x#y" srcset="{NO_PICTURE}">'
    )
    assert made("<img srcset='/api/ü%2C.png 1x, data:image/png,x 2x' src=/api/b.png>") == (
        f'<img srcset="{NO_PICTURE}/api/%C3%BC%252C.png%201x,%20data:image/png,x%202x" src="/api/b.png">'
    )
    assert made("<video poster=/api/p.png src='/api/v.mp4#t=1'></video>") == (
        f'<video poster="{NO_PICTURE}/api/p.png" src="data:,x#webmcp-gateway:/api/v.mp4#t=1"></video>'
    )
    assert made("<link rel=stylesheet href=/api/t.css><link rel=stylesheet type='text/css' href=/api/t.css>") == (
        '<link rel=stylesheet type="#webmcp-gateway:" href=/api/t.css>'
        '<link rel=stylesheet type="#webmcp-gateway:text/css" href=/api/t.css>'
    )
    sets = (
        "<style>p { background: image-set('/api/a.png' type('image/png') 1x, \"api/b.png\" 2x, 'data:,x' 3x) }</style>"
    )
    assert made(sets) == (
        "<style>p { background: "
        "image-set(url(\"/api/a.png\") type('image/png') 1x, url(\"/api/b.png\") 2x, 'data:,x' 3x) }</style>"
    )
    assert made("<style>@import '/api/t.css';p{}</style>") == "<style>p{}</style>"
    write(tmp_path, api_of_a__png=b"x")
    assert made('<img src="/api/a.png">') == '<img src="data:image/png;base64,eA==">'


def test_what_a_backend_has_at_an_origin_of_its_own_stays_there(tmp_path: Path) -> None:
    """The URL is kept if the policy declares that origin for the backend, and a route matches the path."""
    policy = parse_policy(
        "version: 1\nbackends:\n"
        "  a: {url: https://a.internal, origins: [https://files.example]}\n"
        "  b: {url: https://b.internal, origins: [https://other.example]}\n"
        "routes: [{path: '/img/**', methods: [GET], backend: a}, {path: /img/no.png, deny: no}]\n",
        "p.yaml",
    )

    def made(html: str) -> str:
        folder = write(tmp_path, index__html=html)
        return body(pack(folder, app="cart", title="", runtime=RUNTIME, routed=policy.lets_get))

    page = '<img src="https://files.example/img/a.png"><img src="//FILES.example:443/img/b.png?x">'
    assert made(page) == page.replace('">', f'" srcset="{NO_PICTURE}">')
    for url in (
        "https://files.example/else/a.png",
        "https://other.example/img/a.png",
        "https://x.example/img/a.png",
        "http://files.example/img/a.png",
        "ftp://files.example/img/a.png",
        "//[x/img/a.png",
    ):
        folder = write(tmp_path, index__html=f'<img src="{url}">')
        [warning] = pack(folder, app="cart", title="", runtime=RUNTIME, routed=policy.lets_get).warnings
        assert warning.message.startswith(url)


def test_frames_of_other_sites_are_those_that_the_page_names_and_the_policy_allows(tmp_path: Path) -> None:
    """A frame's site must be named in the page or its scripts; the code of the runtime does not count."""
    page = "<iframe src='HTTPS://maps.example:443/x'></iframe><script>show('https://films.example/1')</script>"
    folder, frames = (
        write(tmp_path, index__html=page),
        ["https://films.example", "https://maps.example", "https://x.example"],
    )
    resource = pack(folder, app="cart", title="", runtime="'https://x.example'", frames=frames)
    assert body(resource) == page
    assert resource.meta == {
        "csp": {
            "connectDomains": [],
            "resourceDomains": [],
            "frameDomains": ["https://films.example", "https://maps.example"],
        }
    }


def test_a_file_that_is_not_utf_8_is_read_as_browsers_do(tmp_path: Path) -> None:
    """By its byte order mark, or what it declares; else as windows-1252, which is reported with its place."""
    said = "this is not UTF-8, and is read as cp1252: save it as UTF-8"
    latin = "/* ä */\nschön".encode("latin-1")
    scripts = "<script src=b.js charset=latin1></script><script src=c.js></script>"
    marked = b"\xef\xbb\xbf// \xc3\xbc\nmarked()"
    page = f"<link rel=stylesheet href=a.css>{scripts}"
    made = pack_files(tmp_path, index__html=page, a__css=latin, b__js=latin, c__js=marked)
    assert [str(one).removeprefix(f"{tmp_path}/") for one in made.warnings] == [f"a.css:1:4: {said}"]
    assert made.html.count("/* ä */\nschön") == 2
    assert "<script>// ü\nmarked()</script>" in made.html
    assert "<p>ö" in pack_files(tmp_path, index__html="\n<p>ö".encode("utf-16")).html
    russian = '<meta charset="koi8-r"><p>привет'.encode("koi8-r")
    assert body(pack_files(tmp_path, index__html=russian)) == '<meta charset="utf-8"><p>привет'
