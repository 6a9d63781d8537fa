"""A folder becomes one HTML file that needs no other."""

import html
import json
import re
from pathlib import Path

import pytest

from gateway.apps import pack
from gateway.apps.files import Folder, Reference
from gateway.apps.waiting import WAITS
from gateway.errors import DocumentError
from gateway.model import Resource
from gateway.policy import parse_policy

RUNTIME = 'console.log("runtime")'
PIXEL = b"\x89PNG\r\n\x1a\n"
PIXEL_URL = "data:image/png;base64,iVBORw0KGgo="


def write(folder: Path, **files: str | bytes) -> Path:
    """Files by name; `__` stands for a dot, `_of_` for a slash."""
    for name, content in files.items():
        path = folder / name.replace("_of_", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def packed(folder: Path, **files: str | bytes) -> Resource:
    """The packed app of these files."""
    return pack(write(folder, **files), app="cart", title="The cart", runtime=RUNTIME)


def body(resource: Resource) -> str:
    """The HTML without what the packer put into the head."""
    return re.sub(r'<meta name="webmcp-gateway".*?</script>', "", resource.html, count=1, flags=re.DOTALL)


def problems(folder: Path, **files: str | bytes) -> list[str]:
    """What the packer says is wrong, with file names relative to the folder."""
    with pytest.raises(DocumentError) as caught:
        packed(folder, **files)
    return [str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems]


def test_what_refers_to_no_file_keeps_its_bytes(tmp_path: Path) -> None:
    """Odd white space, case, entities and comments of the author stay as they are."""
    page = (
        "<!DOCTYPE html>\r\n<HTML Lang='en'><HEAD  ><Title>a &amp; <b></title></head><body>\n"
        "<p CLASS=x >é<!-- <img src=no> --></body></HTML>\n"
    )
    assert body(packed(tmp_path, index__html=page)) == page


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
    """The runtime stands before anything of the page that could run."""
    resource = packed(tmp_path, index__html=page)
    assert resource.html.startswith(f'{before}<meta name="webmcp-gateway"')


def test_the_page_says_which_app_it_is(tmp_path: Path) -> None:
    """The runtime reads the app's id, title and base from a meta element."""
    resource = packed(tmp_path, index__html="<head></head>")
    content = re.search(r'name="webmcp-gateway" content="([^"]*)"', resource.html)
    assert content is not None
    assert json.loads(html.unescape(content[1])) == {"app": "cart", "title": "The cart", "base": "/"}


def test_the_resource_is_named_by_its_content(tmp_path: Path) -> None:
    """The same files give the same URI, others another; the policy for content allows nothing outside."""
    first = packed(tmp_path, index__html="<p>1")
    again = packed(tmp_path, index__html="<p>1")
    other = packed(tmp_path, index__html="<p>2")
    assert re.fullmatch(r"ui://cart/[0-9a-f]{12}\.html", first.uri)
    assert (first.uri == again.uri, first.uri == other.uri) == (True, False)
    assert first.meta == {"csp": {"connectDomains": [], "resourceDomains": []}}


def test_pictures_become_data_urls(tmp_path: Path) -> None:
    """Attributes that name pictures, with queries, encoded names and fragments, wherever they stand."""
    page = (
        '<link rel="icon" href="/a.png"><img alt=x src=a.png?v=1><img src="a%2Epng">'
        "<template><img src='./a.png'></template>"
        '<img srcset="a.png 1x, a.png 2x"><video poster=a.png></video>'
        '<svg><image href="a.png#part"/></svg><img src="data:,x">'
    )
    text = body(packed(tmp_path, index__html=page, a__png=PIXEL))
    assert text.count(PIXEL_URL) == 8
    assert f'srcset="{PIXEL_URL} 1x, {PIXEL_URL} 2x"' in text
    assert f'href="{PIXEL_URL}#part"' in text
    assert "alt=x" in text
    assert 'src="data:,x"' in text


def test_style_sheets_stand_in_the_page(tmp_path: Path) -> None:
    """Imports in their place, files relative to the sheet that names them, strings and comments untouched."""
    page = (
        '<link rel="stylesheet" href="css/a.css" media="screen"><p style="background: url(a.png)">'
        '<style>i { background: url( "a.png" ) }</style>'
    )
    sheet = '@import "b.css" print;\nb { background: URL(../a.png); content: "url(no.png)"; }/* url(no.png) </style> */'
    text = body(
        packed(
            tmp_path,
            index__html=page,
            css_of_a__css=sheet,
            css_of_b__css="@import url(/css/c.css);",
            css_of_c__css="@font-face { src: url('f.woff2') }",
            css_of_f__woff2=b"wOF2",
            a__png=PIXEL,
        )
    )
    assert text.startswith(
        '<style media="screen">@media print {\n@font-face { src: url("data:font/woff2;base64,d09GMg==") }\n}'
    )
    assert text.count(f'url("{PIXEL_URL}")') + text.count(f"url(&quot;{PIXEL_URL}&quot;)") == 3
    assert text.count("url(no.png)") == 2
    assert "<\\/style> */" in text


@pytest.mark.parametrize(
    ("sheet", "made"),
    [
        ("@import 'b.css'", "b{}"),
        ("@import url(b.css)\n", "b{}"),
        ('@import"b.css";i{}', "b{}i{}"),
        ("@import/**/ /* a */ 'b.css' print", "@media print {\nb{}\n}"),
        ("@namespace url(http://www.w3.org/1999/xhtml);i{}", "@namespace url(http://www.w3.org/1999/xhtml);i{}"),
        (
            "p{background:image-set('a.png' type('image/png') 1x, url(a.png) 2x)}",
            f'p{{background:image-set(url("{PIXEL_URL}") type(\'image/png\') 1x, url("{PIXEL_URL}") 2x)}}',
        ),
        ("p{background:-webkit-image-set('data:,x' 1x)}", "p{background:-webkit-image-set('data:,x' 1x)}"),
    ],
)
def test_what_a_sheet_names_in_other_ways(tmp_path: Path, sheet: str, made: str) -> None:
    """Imports that minifiers write, or that the sheet ends with, and pictures of a set."""
    folder = write(tmp_path, b__css="b{}", a__png=PIXEL)
    assert body(packed(folder, index__html=f"<style>{sheet}</style>")) == f"<style>{made}</style>"


@pytest.mark.parametrize(
    ("sheet", "place"),
    [
        ("\n@import 'no.css'", "2:9: no.css"),
        ('@import"no.css"', "1:15: no.css"),
        ("p{background:image-set('no.png' 1x)}", "1:31: no.png"),
    ],
)
def test_what_is_missing_is_named_in_every_way(tmp_path: Path, sheet: str, place: str) -> None:
    """With its line and column."""
    [found] = problems(tmp_path, index__html=f"<style>{sheet}</style>")
    assert found == f"index.html:{place}: there is no such file in the app's folder"


def test_scripts_stand_where_they_ran(tmp_path: Path) -> None:
    """A classic script in its place, a module as a module, a deferred one behind the body."""
    page = (
        '<head><script src=a.js></script><script defer src="b.js"></script>'
        '<script type="module" src=c.mjs id=m></script>'
        "</head><body><p></body>"
    )
    text = body(packed(tmp_path, index__html=page, a__js="a()", b__js="b()", c__mjs="export const c = 1"))
    assert text == (
        '<head><script>a()</script><script type="module" id=m>export const c = 1</script></head>'
        "<body><p><script>b()</script></body>"
    )


@pytest.mark.parametrize(
    "code, inlined",
    [
        ('x = "</script>"', 'x = "\\x3C/script>"'),
        ("x = `</SCRIPT ${a}`", "x = `\\x3C/SCRIPT ${a}`"),
        ("/<!--/u.test(y)", "/\\x3C!--/u.test(y)"),
        ("// </script>", "// \\x3C/script>"),
        ("a</script>/.exec(b)", "a< /script>/.exec(b)"),
        ("<!-- old\nx = 1", "// old\nx = 1"),
    ],
)
def test_a_script_cannot_end_its_element(tmp_path: Path, code: str, inlined: str) -> None:
    """What HTML would read inside a script element is written in another way that means the same."""
    assert f"<script>{inlined}</script>" in packed(tmp_path, index__html="<script src=a.js></script>", a__js=code).html


def test_imports_of_classic_scripts_are_named_with_their_places(tmp_path: Path) -> None:
    """Each way to import another file is an error with file, line and column, all at once."""
    code = (
        "// import 'comment'\nconst s = \"import 'string'\", r = /import '/;\n"
        "a.import('x');\nconst d = () => import('./d.js');\n"
        "class E { import(x) { return `${x} import 'y'`; } }"
    )
    page = "<script src=a.js></script>\n<script>\n  import('./x.js')\n</script>"
    found = problems(tmp_path, index__html=page, a__js=code)
    assert [each.split(" ")[0] for each in found] == ["a.js:4:17:", "index.html:3:3:"]
    assert all("build the app with a bundler" in each for each in found)


def test_words_like_import_in_code_are_no_imports(tmp_path: Path) -> None:
    """Comments, strings, expressions in templates, regular expressions and properties hide no import."""
    code = (
        "const from = {import: 1, from: 2}; if (from) /'/.test(`${'import \"a\"'}`); x = 4 / 2; // import 'a'\n"
        "Array.from ('b')"
    )
    assert code in packed(tmp_path, index__html="<script src=a.js></script>", a__js=code).html


@pytest.mark.parametrize(
    "page, message",
    [
        ('<p>\n  <img src="no.png">', "index.html:2:8: no.png: there is no such file in the app's folder"),
        ("<img src=../secret.png>", "index.html:1:6: ../secret.png lies outside of the app's folder"),
        ("<img src=%2e%2e/secret.png>", "index.html:1:6: %2e%2e/secret.png lies outside of the app's folder"),
        (
            "<script src=https://cdn.example/x.js></script>",
            "index.html:1:9: https://cdn.example/x.js is on another site",
        ),
        ("<script src=//cdn.example/x.js></script>", "index.html:1:9: //cdn.example/x.js is on another site"),
        ("<img src=a.exe>", "index.html:1:6: a.exe: files named .exe cannot be embedded"),
        ("<script src=a.tsx></script>", "index.html:1:9: a.tsx is no JavaScript: build the app"),
        ("<iframe src=a.html></iframe>", "index.html:1:9: <iframe src> of a file cannot be packed"),
        ("<style>\n\n@import 'no.css';</style>", "index.html:3:9: no.css: there is no such file"),
        ("<base href=https://a.example/>", "index.html:1:7: <base href> must be a path"),
        ("<link rel=stylesheet href=loop.css>", "loop.css:1:9: loop.css imports itself"),
        ("<img src=//[x>", "index.html:1:6: //[x can name no file: Invalid IPv6 URL"),
        ("<img src=a%00.png>", "index.html:1:6: a%00.png can name no file: embedded null byte"),
        (f"<img src={'a' * 5000}.png>", f"index.html:1:6: {'a' * 80} can name no file: "),
        ("<img src=turning.png>", "index.html:1:6: turning.png"),
        (r"<style>a{background:url('\ffffff\d800')}</style>", "index.html:1:25: \ufffd\ufffd: there is no such file"),
        ("<iframe src=//[x></iframe>", "index.html:1:9: //[x can name no file: Invalid IPv6 URL"),
        (
            "<iframe src=//maps.example/x></iframe>",
            "index.html:1:9: <iframe> of another site, which hosts block: name https://maps.example under `frames`",
        ),
        ("<object data=https://maps.example/x></object>", "index.html:1:9: <object> of another site"),
        ("<svg><use href=https://maps.example/x#a></svg>", "index.html:1:11: <use> of another site"),
        ("<base href=http://[x>", "index.html:1:7: <base href> must be a path"),
        ("<base href=/\\[x>", "index.html:1:7: <base href> must be a path"),
    ],
)
def test_what_cannot_be_packed_is_an_error_with_its_place(tmp_path: Path, page: str, message: str) -> None:
    """Nothing is left behind silently."""
    folder = write(tmp_path / "app", a__exe=b"", a__tsx="", a__html="", loop__css='@import "loop.css";')
    write(tmp_path, secret__png=PIXEL)
    (folder / "turning.png").symlink_to("turning.png")
    [found] = problems(folder, index__html=page)
    assert found.startswith(message)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """A symbolic link does not widen the folder."""
    write(tmp_path, secret__png=PIXEL)
    folder = write(tmp_path / "app")
    folder.mkdir(exist_ok=True)
    (folder / "a.png").symlink_to(tmp_path / "secret.png")
    assert problems(folder, index__html="<img src=a.png>") == ["index.html:1:6: a.png lies outside of the app's folder"]


def test_a_page_that_is_a_link_out_of_the_folder_is_an_error(tmp_path: Path) -> None:
    """As any other file, and with its remedy."""
    write(tmp_path, other__html="<p>")
    folder = write(tmp_path / "app")
    folder.mkdir(exist_ok=True)
    (folder / "index.html").symlink_to(tmp_path / "other.html")
    with pytest.raises(DocumentError, match=r"index\.html:1:1: the page is a link to a file elsewhere"):
        pack(folder, app="cart", title="", runtime="")


def test_a_file_that_goes_while_it_is_packed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Editors replace files: what is gone at that moment is told, and ends nothing."""
    folder = write(tmp_path, a__png=PIXEL)
    found = Folder.find

    def gone(self: Folder, reference: Reference, beside: Path) -> Path:
        path = found(self, reference, beside)
        path.unlink()
        return path

    monkeypatch.setattr(Folder, "find", gone)
    [problem] = problems(folder, index__html="<img src=a.png>")
    assert problem.startswith("index.html:1:6: a.png cannot be read: No such file")


def test_small_files_that_name_each_other_fill_no_memory(tmp_path: Path) -> None:
    """Each style sheet is packed once, and a page of more than 64 MiB is an error where it becomes that."""
    sheets = {f"c{n}__css": f'@import "c{n + 1}.css";' * 2 for n in range(40)}
    folder = write(tmp_path / "app", **sheets, c40__css="", a__png=bytes(1024 * 1024))
    packed(folder, index__html="<link rel=stylesheet href=c0.css>")
    write(folder, c40__css="a{}")
    [found] = problems(folder, index__html="<link rel=stylesheet href=c0.css>")
    assert found.endswith("with this the packed page has more than 64 MiB")
    [found] = problems(folder, index__html="<img src=a.png>\n" * 100)
    assert found == "index.html:48:1: with this the packed page has more than 64 MiB"


def test_a_folder_without_a_page_is_an_error(tmp_path: Path) -> None:
    """The error says what an app is."""
    with pytest.raises(DocumentError, match=r"an app is a folder with an index\.html"):
        pack(tmp_path, app="cart", title="", runtime="")


def test_one_html_file_is_an_app(tmp_path: Path) -> None:
    """A file that is not called index.html can be named itself."""
    write(tmp_path, shop__html="<img src=a.png>", a__png=PIXEL)
    assert PIXEL_URL in pack(tmp_path / "shop.html", app="cart", title="", runtime="").html


def test_a_base_element_becomes_the_base_of_the_apps_urls(tmp_path: Path) -> None:
    """The element itself would point into the host's page."""
    resource = packed(tmp_path, index__html="<base href='/shop/'><img src=/shop/a.png>", a__png=PIXEL)
    assert "&quot;base&quot;: &quot;/shop/&quot;" in resource.html
    assert body(resource) == f'<img src="{PIXEL_URL}">'


def test_hints_and_the_pages_own_csp_are_left_out(tmp_path: Path) -> None:
    """Neither can work where nothing is fetched and all is inline."""
    page = (
        "<link rel=preload href=a.js as=script>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'self'\"><p>"
    )
    resource = packed(tmp_path, index__html=page)
    assert body(resource) == "<p>"
    assert "content security policy" in resource.notes[1]


def test_the_cart_example_packs(tmp_path: Path) -> None:
    """The example app needs nothing from outside once it is packed."""
    web = Path(__file__).parents[2] / "examples" / "cart_app" / "web"
    resource = pack(web, app="cart", title="Cart", runtime=RUNTIME)
    assert not re.search(r'\b(src|href)="(?!data:|#|")', resource.html)
    assert resource.html.count("data:image/svg+xml;base64,") >= 9


def test_pages_with_declarative_forms_get_the_part_for_them(tmp_path: Path) -> None:
    """Wherever the attribute stands, in the page or in a script of it; other pages do not carry it."""
    forms = "console.log('forms')"
    write(tmp_path / "a", **{"index.html": "<form toolname=find></form>"})
    write(
        tmp_path / "b", **{"index.html": "<script src=x.js></script>", "x.js": "form.setAttribute('toolname', 'find')"}
    )
    write(tmp_path / "c", **{"index.html": "<form></form>"})
    parts = {"toolname": forms}
    html = [pack(tmp_path / name, app="cart", title="", runtime=RUNTIME, parts=parts).html for name in "abc"]
    assert [forms in page for page in html] == [True, True, False]


def test_a_part_is_added_once_and_to_all_pages_with_scripts_of_the_backend(tmp_path: Path) -> None:
    """One part may have several words; what the scripts of the backend name, nobody can see before they run."""
    write(tmp_path / "a", **{"index.html": "<script>sheet.insertRule(sheet.cssRules[0])</script>"})
    write(tmp_path / "b", **{"index.html": "<script src=/api/x.js></script>"})
    parts = {"insertRule": "sheets()", "cssRules": "sheets()", "EventSource": "events()", WAITS: "start()"}
    html = [
        pack(tmp_path / name, app="cart", title="", runtime=RUNTIME, parts=parts, routed=lambda _: True).html
        for name in "ab"
    ]
    assert f"<script>{RUNTIME};sheets()</script>" in html[0]
    assert f"<script>{RUNTIME};sheets();events();start()</script>" in html[1]


def test_scripts_that_no_browser_can_read_are_noted(tmp_path: Path) -> None:
    """For the author, with their places; the page is packed as it is, and goes on without them as on its own site."""
    page = "<!doctype html>\n<script>let a = ;</script><script>fine()</script><script src=x.js></script>\n"
    page += "<script type=module>await 1;\nlet b = ;</script><script type=module src=m.js></script>"
    folder = write(tmp_path, index__html=page, x__js="\n\nlet c = ;", m__js="export const d = 1;")

    def made(*, checked: bool) -> Resource:
        return pack(folder, app="cart", title="", runtime=RUNTIME, checked=checked)

    places = [note.partition(": ")[0].removeprefix(f"{folder}/") for note in made(checked=True).notes[1:]]
    assert places == ["index.html:2:17", "x.js:3:9", "index.html:4:9"]
    assert made(checked=False).notes[1:] == ()
    assert made(checked=True).html == made(checked=False).html


def test_workers_are_noted_with_their_places(tmp_path: Path) -> None:
    """The first of each script: the page may go on without, so that it is no error."""
    page = "<script>\n  f(new  Worker(url)); new Worker(u)</script><script type=module src=m.js></script>"
    resource = packed(tmp_path, index__html=page, m__js="new SharedWorker('data:,1'); newWorker('x.js')")
    assert [note.removeprefix(f"{tmp_path}/") for note in resource.notes[1:]] == [
        "index.html:2:5: starts a worker, which hosts block",
        "m.js:1:1: starts a worker, which hosts block",
    ]


@pytest.mark.parametrize(
    "started",
    [
        "new Worker('w.js')",
        "new SharedWorker(`w.js`, {type: 'module'})",
        "new Worker(new URL('w.js', location.href))",
        "new Worker(new URL('w.js', import.meta.url))",
        "new Worker(\n'/assets/w.js')",
    ],
)
def test_a_worker_of_another_file_is_an_error_with_its_place(tmp_path: Path, started: str) -> None:
    """In scripts of the page, linked ones and what those import: none of them could load it."""
    scripts = {"c__js": f"\n {started}", "m__js": f"\n {started}", "n__js": "import './o.js'", "o__js": f"\n {started}"}
    page = "<script src=c.js></script><script type=module src=m.js></script><script type=module src=n.js></script>"
    files = {name: text for name, text in scripts.items() if name != "c__js" or "import.meta" not in started}
    page = page if "c__js" in files else page.partition("</script>")[2]
    with pytest.raises(DocumentError) as refused:
        packed(tmp_path, index__html=page, **files)
    told = [(problem.file.rpartition("/")[2], problem.line, problem.column) for problem in refused.value.problems]
    assert told == [(name, 2, 2) for name in ("c.js", "m.js", "o.js") if name.replace(".", "__") in files]
    assert all("starts a worker of another file" in problem.message for problem in refused.value.problems)


def test_what_the_backend_has_stays_where_it_is(tmp_path: Path) -> None:
    """Pictures, films, sheets and url() of paths that a route answers, unless the folder has such a file."""
    page = (
        '<img src="/api/a.png" srcset="/api/b.png 2x"><video poster="/api/p.png"></video>'
        '<link rel="icon" href="/api/i.png"><link rel="stylesheet" href="/api/t.css">'
        "<style>p { background: url('/api/d.png') }</style>"
    )

    def made(html: str, routed: bool = True) -> str:
        folder = write(tmp_path, index__html=html)
        return body(
            pack(folder, app="cart", title="", runtime=RUNTIME, routed=lambda path: routed and path.startswith("/api/"))
        )

    assert made(page) == page
    with pytest.raises(DocumentError) as refused:
        made(page, routed=False)
    assert len(refused.value.problems) == 5
    with pytest.raises(
        DocumentError, match=r"html:1:23: /api/x\.js is a module of the backend, which cannot be linked"
    ):
        made('<script type="module" src="/api/x.js"></script>')
    with pytest.raises(DocumentError, match="is on another site"):
        made('<img src="https://cdn.example/api/a.png">')
    write(tmp_path, css_of_s__css="p { background: url(../api/e.png) }")
    assert made("<link rel=stylesheet href=css/s.css><img src='api/a.png?x#y'>") == (
        '<style>p { background: url("/api/e.png") }</style><img src="/api/a.png?x#y">'
    )
    write(tmp_path, api_of_a__png=b"x")
    assert made('<img src="/api/a.png">') == '<img src="data:image/png;base64,eA==">'


def test_what_a_backend_has_at_an_origin_of_its_own_stays_there(tmp_path: Path) -> None:
    """As its policy says: no other site, no path that no route has, and no other backend's."""
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
    assert made(page) == page
    for url in (
        "https://files.example/else/a.png",
        "https://other.example/img/a.png",
        "https://x.example/img/a.png",
        "http://files.example/img/a.png",
        "ftp://files.example/img/a.png",
        "//[x/img/a.png",
    ):
        with pytest.raises(DocumentError):
            made(f'<img src="{url}">')


def test_scripts_wait_for_those_of_the_backend(tmp_path: Path) -> None:
    """All of the page, so that each runs in its turn; what waits for the page stands at its end."""
    page = (
        '<body><script>one()</script><script defer src="/api/x.js"></script><script src="/api/y.js" id=y></script>'
        '<template><script src="/api/z.js"></script></template></body>'
    )
    folder, parts = write(tmp_path, index__html=page), {WAITS: "start()"}
    resource = pack(folder, app="cart", title="", runtime=RUNTIME, parts=parts, routed=lambda _: True)
    waits = '<script type="webmcp-gateway-waits" webmcp-gateway-waits=""'
    assert f"<script>{RUNTIME};start()</script>" in resource.html
    assert body(resource) == (
        f'<body>{waits}>one()</script>{waits} webmcp-gateway-src="/api/y.js" id=y></script>'
        f'<template><script src="/api/z.js"></script></template>'
        f'{waits} defer webmcp-gateway-src="/api/x.js"></script></body>'
    )
    write(tmp_path, index__html="<script>one()</script>")
    without = pack(folder, app="cart", title="", runtime=RUNTIME, parts=parts, routed=lambda _: True)
    assert body(without) == "<script>one()</script>"


def test_frames_of_other_sites_are_those_that_the_page_names_and_the_policy_allows(tmp_path: Path) -> None:
    """In the page or in its scripts; the runtime's own code counts for nothing."""
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


def test_scripts_of_a_template_stay_in_it(tmp_path: Path) -> None:
    """Deferred ones and modules, too, each by itself; they do not wait, for they run when the page wants it."""
    page = (
        "<template><script defer src=a.js></script><script type=module src=m.js></script><template></template>"
        "<script>two()</script></template><script>last()</script>"
        "<div><template shadowrootmode=open><script>shadow()</script></template></div>"
    )
    folder = write(tmp_path, index__html=page, a__js="one()", m__js="import './b.js'", b__js="linked()")
    packed = body(pack(folder, app="cart", title="Cart", runtime=RUNTIME, storage="keep()"))
    waits = '<script type="webmcp-gateway-waits" webmcp-gateway-waits="">'
    assert re.sub(r'(<script type="module">)\s*(linked\(\);?)\s*', r"\1linked();", packed) == (
        '<template><script>one()</script><script type="module">linked();</script><template></template>'
        f"<script>two()</script></template>{waits}last()</script>"
        f"<div><template shadowrootmode=open>{waits}shadow()</script></template></div>"
    )


def test_scripts_wait_for_storage_that_the_gateway_keeps(tmp_path: Path) -> None:
    """All that would run, with the attributes that they have; what is no script for a browser stays."""
    page = (
        '<script>one()</script><SCRIPT id=a TYPE="text/javascript">two()</SCRIPT><script type=module>three()</script>'
        '<script type="application/json">{}</script>'
    )
    packed = pack(write(tmp_path, index__html=page), app="cart", title="Cart", runtime=RUNTIME, storage="keep()")
    assert f"<script>{RUNTIME};keep()</script>" in packed.html
    waits = ' type="webmcp-gateway-waits" webmcp-gateway-waits="'
    assert body(packed) == (
        f'<script{waits}">one()</script><SCRIPT{waits}" id=a TYPE="text/javascript">two()</SCRIPT>'
        f'<script{waits}module" type=module>three()</script><script type="application/json">{{}}</script>'
    )


def test_a_page_that_speaks_of_waiting_scripts_has_none_started(tmp_path: Path) -> None:
    """What starts them comes with a script of the backend, once, and not with a word of the page."""
    (tmp_path / "index.html").write_text("<!doctype html><p>webmcp-gateway-waits</p><script>f()</script>")
    parts = {"webmcp-gateway-waits": "START()"}
    assert "START()" not in pack(tmp_path, app="cart", title="Cart", runtime="RUN()", parts=parts).html
    (tmp_path / "index.html").write_text('<!doctype html><p>webmcp-gateway-waits</p><script src="/api/x.js"></script>')
    routed = pack(tmp_path, app="cart", title="Cart", runtime="RUN()", parts=parts, routed=lambda _: True)
    assert routed.html.count("START()") == 1
