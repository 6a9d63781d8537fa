"""The scripts of a packed page: their position, their order, and the ones that cannot be packed."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from gateway.apps import PARTS, pack
from gateway.apps.node import node
from gateway.apps.page_scripts import WAITS
from gateway.apps.scripts import as_element_text
from gateway.model import Resource
from tests.apps.packing import RUNTIME, body, pack_files, problems, write


def deferred_script(code: str, attributes: str = "") -> str:
    """A deferred script, and the module that starts it."""
    kept = "webmcp-gateway-deferred"
    return (
        f'<script type="{kept}"{attributes}>{code}</script><script type="module">'
        f'{{const kept=document.querySelector("script[type={kept}]"),run=kept.cloneNode(!0);'
        'run.removeAttribute("type");kept.replaceWith(run);run.dispatchEvent(new Event("load"))}</script>'
    )


def test_scripts_stand_where_they_ran(tmp_path: Path) -> None:
    """A classic script keeps its place, a module stays a module, and a module starts a deferred script in its turn."""
    page = (
        '<head><script src=a.js></script><script defer src="b.js"></script>'
        '<script type="module" src=c.mjs id=m></script>'
        "</head><body><p></body>"
    )
    text = body(pack_files(tmp_path, index__html=page, a__js="a()", b__js="b()", c__mjs="export const c = 1"))
    assert text == (
        "<head><script>a()</script>"
        f'{deferred_script("b()")}<script type="module" id=m>export const c = 1</script></head>'
        "<body><p></body>"
    )


@pytest.mark.parametrize(
    "code, inlined",
    [
        ('x = "</script>"', 'x = "\\x3C/script>"'),
        ("x = `</SCRIPT ${a}`", "x = `\\x3C/SCRIPT ${a}`"),
        ("/<!--<script/u.test(y)", ' RegExp("\\u003c!--\\u003cscript","u").test(y)'),
        ("// </script>", "// \\x3C/script>"),
        ("a</script>/.exec(b)", "a< /script>/.exec(b)"),
        ("<!-- old <script>\nx = 1", "// old < script>\nx = 1"),
        ("/<!--/u.test(y) // <script>", ' RegExp("\\u003c!--","u").test(y) // \\x3Cscript>'),
        ("/<!--/u.test(y)", "/<!--/u.test(y)"),
        ("x = '<script>'", "x = '<script>'"),
    ],
)
def test_a_script_cannot_end_its_element(tmp_path: Path, code: str, inlined: str) -> None:
    """Text that HTML would interpret inside a script element is escaped without a change of meaning, and noted."""
    page = "<template><script src=a.js></script></template>"
    made = pack_files(tmp_path, index__html=page, a__js=code)
    assert f"<template><script>{inlined}</script></template>" in made.html
    noted = [note for note in made.notes if "text that ends a <script>" in note]
    assert [note.split(": ")[0].rpartition("/")[2] for note in noted] == ([] if inlined == code else [place(code)])


def place(code: str) -> str:
    """The file, line and column of the text that no script element may contain."""
    found = re.search(r"<(/?script|!--)", code, re.IGNORECASE)
    assert found is not None
    return f"a.js:1:{found.start() + 1}"


@pytest.mark.parametrize("code", ["f('</script>')", "// </SCRIPT x", "/<!--<script>/", "f('\0')", "f(`a\r\nb`)"])
def test_a_script_that_no_element_can_hold_stands_there_as_data(tmp_path: Path, code: str) -> None:
    """The script is stored as JSON; its runner keeps attributes and order. Other scripts keep their place and bytes."""
    page = "<script src=a.js id=one></script><script defer src=a.js onload=f()></script>"
    made = pack_files(tmp_path, index__html=page, a__js=code)
    blocks = re.findall(r'<script type="webmcp-gateway-exact"( .*?)>(".*?")</script><script(.*?)>', made.html)
    assert [(attributes, json.loads(text), kind) for attributes, text, kind in blocks] == [
        (" id=one", code, ""),
        (" onload=f()", code, ' type="module"'),
    ]
    assert len(made.notes) == 1


@pytest.mark.parametrize(
    "page",
    [
        "<p><template shadowrootmode=open><script src=a.js></script></template></p>",
        "<script type=module src=a.js></script>",
    ],
)
def test_what_is_changed_of_a_script_is_said(tmp_path: Path, page: str) -> None:
    """Text is escaped where data is impossible: in shadow trees, which have no `currentScript`, and in modules."""
    made = pack_files(tmp_path, index__html=page, a__js="f()\n  // </script>")
    assert "f()\n  // \\x3C/script>" in made.html
    assert [note for note in made.notes if "a.js:2:6: " in note]


def test_a_script_that_asks_where_it_came_from_is_told(tmp_path: Path) -> None:
    """Bundles locate their other files by it; strict mode is kept, and other scripts keep their bytes."""
    page = "<script src='js/a.js?x</script>'></script><script src=b.js></script><script src=c.js></script>"
    files = {"a": "'use strict'; f(document.currentScript.src)", "b": "f(document.currentScript)", "c": "f()"}
    write(tmp_path, index__html=page, js_of_a__js=files["a"], b__js=files["b"], c__js=files["c"])

    def told(url: str) -> str:
        put = f'(a=>{{a.value="{url}";document.currentScript.setAttributeNode(a)}})'
        return f'document.currentScript&&{put}(document.createAttribute("src"));'

    ended = r"js/a.js?x\u003c/script>"
    assert body(pack(tmp_path, app="cart", title="", runtime=RUNTIME, base="/shop/")) == (
        f"<script>'use strict';{told(ended)}{files['a']}</script>"
        f"<script>{told('b.js')}{files['b']}</script><script>f()</script>"
    )


def test_a_script_of_the_page_that_hears_of_its_loading_does_so(tmp_path: Path) -> None:
    """A script without a `src` has no load event, so one is dispatched right after it."""
    page = '<head><script defer src=a.js onload="go()"></script><script src=a.js onload="go()"></script></head><p>'
    loaded = '<script>document.currentScript.previousElementSibling.dispatchEvent(new Event("load"))</script>'
    at_once = f'<script onload="go()">a()</script>{loaded}'
    later = deferred_script("a()", ' onload="go()"')
    assert body(pack_files(tmp_path, index__html=page, a__js="a()")) == f"<head>{later}{at_once}</head><p>"


def test_imports_of_classic_scripts_are_named_with_their_places(tmp_path: Path) -> None:
    """Each kind of import is an error with file, line and column, all at once."""
    code = (
        "// import 'comment'\nconst s = \"import 'string'\", r = /import '/;\n"
        "a.import('x');\nconst d = () => import('./d.js');\n"
        "class E { import(x) { return `${x} import 'y'`; } }"
    )
    page = "<script src=a.js></script>\n<script>\n  import('./x.js')\n{ /* a block */ }</script>"
    found = problems(tmp_path, index__html=page, a__js=code)
    assert [each.split(" ")[0] for each in found] == ["a.js:4:17:", "index.html:3:3:"]
    assert all("there is no such file in the app's folder" in each for each in found)


def test_words_like_import_in_code_are_no_imports(tmp_path: Path) -> None:
    """Comments, strings, template expressions, regular expressions and properties are told apart from imports."""
    code = (
        "const from = {import: 1, from: 2}; if (from) /'/.test(`${'import \"a\"'}`); x = 4 / 2; // import 'a'\n"
        "Array.from ('b')"
    )
    assert code in pack_files(tmp_path, index__html="<script src=a.js></script>", a__js=code).html


def test_pages_with_declarative_forms_get_the_part_for_them(tmp_path: Path) -> None:
    """The attribute is found in the page and in its scripts; other pages do not contain the part."""
    forms = "console.log('forms')"
    write(tmp_path / "a", **{"index.html": "<form toolname=find></form>"})
    write(
        tmp_path / "b", **{"index.html": "<script src=x.js></script>", "x.js": "form.setAttribute('toolname', 'find')"}
    )
    write(tmp_path / "c", **{"index.html": "<form></form>"})
    parts = {"toolname": [forms]}
    html = [pack(tmp_path / name, app="cart", title="", runtime=RUNTIME, parts=parts).html for name in "abc"]
    assert [forms in page for page in html] == [True, True, False]


def test_pages_that_may_close_shadow_roots_get_the_part_for_them(tmp_path: Path) -> None:
    """The part is added also if a variable holds the mode."""
    parts = {word: [f"'{name}'" for name in names] for word, names in PARTS.items()}
    given = []
    for kind in ("open", "closed"):
        page = f"<script>const mode = '{kind}'; p.attachShadow({{ mode }})</script>"
        write(tmp_path / kind, index__html=page)
        given.append("seldom.js" in pack(tmp_path / kind, app="cart", title="", runtime=RUNTIME, parts=parts).html)
    assert given == [False, True]


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ("fetch('/a'); new Request(`/a/${id}`)", False),
        ("fetch(url, {method: 'PUT', headers: {accept: 'text/plain'}, body: JSON.stringify(x)})", False),
        ("fetch('/a', options)", True),
        ("fetch('/a', {...options})", True),
        ("fetch('/a', {[name]: value})", True),
        ("new Request(url, init)", True),
        ("const ask = fetch", True),
        ("window.fetch.apply(window, given)", True),
    ],
)
def test_pages_whose_options_come_as_data_get_the_part_for_digests(tmp_path: Path, script: str, *, given: bool) -> None:
    """They need not contain the name of the option."""
    write(tmp_path, index__html=f"<script>{script}</script>")
    parts = {word: [f"'{name}'" for name in names] for word, names in PARTS.items()}
    assert ("integrity.js" in pack(tmp_path, app="cart", title="", runtime=RUNTIME, parts=parts).html) is given


def test_what_the_runtime_builds_on_stands_before_it(tmp_path: Path) -> None:
    """Pages that send or may send forms with files have that part first; the other parts follow the runtime."""
    write(tmp_path, index__html="<!doctype html><script>new FormData(); new EventSource('/x')</script>")
    parts = {"FormData": ["files()"], "EventSource": ["events()", "files()"]}
    html = pack(tmp_path, app="cart", title="", runtime=RUNTIME, parts=parts).html
    assert f"<script>files();{RUNTIME};events()</script>" in html


def test_a_part_is_added_once_and_to_all_pages_with_scripts_of_the_backend(tmp_path: Path) -> None:
    """Parts and words are many-to-many; scripts of the backend may use any of them, so their pages get all."""
    write(tmp_path / "a", **{"index.html": "<script>sheet.insertRule(sheet.cssRules[0])</script>"})
    write(tmp_path / "b", **{"index.html": "<script src=/api/x.js></script>"})
    parts = {
        "insertRule": ["sheets()"],
        "cssRules": ["sheets()", "more()"],
        "EventSource": ["events()"],
        WAITS: ["start()"],
    }
    html = [
        pack(tmp_path / name, app="cart", title="", runtime=RUNTIME, parts=parts, routed=lambda _: True).html
        for name in "ab"
    ]
    assert f"<script>{RUNTIME};sheets();more()</script>" in html[0]
    assert f"<script>{RUNTIME};sheets();more();events();start()</script>" in html[1]


def test_a_picture_of_the_backend_takes_a_small_part_alone(tmp_path: Path) -> None:
    """The part shows the image if the page has no host."""
    write(tmp_path, index__html="<!doctype html><img src=/api/x.png>")
    parts = {word: [f"part('{name}')" for name in names] for word, names in PARTS.items()}
    html = pack(tmp_path, app="cart", title="", runtime=RUNTIME, parts=parts, routed=lambda _: True).html
    assert re.findall(r"part\('(\w+)/", html) == ["alone"]


def test_scripts_that_no_browser_can_read(tmp_path: Path) -> None:
    """They are reported with their places; the page is packed unchanged, and runs without them as on its own site."""
    page = "<!doctype html>\n<script>let a = ;</script><script>fine()</script><script src=x.js></script>\n"
    page += "<script type=module>await 1;\nlet b = ;</script><script type=module src=m.js></script>"
    page += "<script src=y.js></script>"
    long = f"\n{'a;' * 1000}let = ;"
    folder = write(tmp_path, index__html=page, x__js="\n\nlet c = ;", m__js="export const d = 1;", y__js=long)

    def made(*, checked: bool) -> Resource:
        return pack(folder, app="cart", title="", runtime=RUNTIME, checked=checked)

    places = [(problem.file, problem.line, problem.column) for problem in made(checked=True).unread]
    page_file = str(folder / "index.html")
    assert places == [(page_file, 2, 17), (str(folder / "x.js"), 3, 9), (str(folder / "y.js"), 2, 1), (page_file, 4, 9)]
    assert made(checked=False).unread == []
    assert made(checked=True).html == made(checked=False).html


def test_webassembly_is_noted_with_its_place(tmp_path: Path) -> None:
    """Compilation requires a keyword in the content security policy, which no host sends."""
    resource = pack_files(tmp_path, index__html="<script>let a;\nWebAssembly.instantiateStreaming(f)</script>")
    assert [note.removeprefix(f"{tmp_path}/") for note in resource.notes[1:]] == [
        "index.html:2:1: compiles WebAssembly, which most hosts block; the gateway's own does not"
    ]


MAKES = "f = document.createElement('iframe'); document.body.append(f);"


@pytest.mark.parametrize(
    "looks", ["f.contentDocument.write(x)", "f.contentWindow.document.body", "f.contentWindow?.document"]
)
def test_a_page_that_looks_into_its_own_frames_is_noted(tmp_path: Path, looks: str) -> None:
    """It needs an origin of its own; one that makes no frames, or has an origin, does not."""
    resource = pack_files(tmp_path, index__html=f"<script>{MAKES}\n{looks}</script>")
    [note] = [note for note in resource.notes if "looks into a frame" in note]
    assert ":2:" in note
    assert "set `sandbox: dedicated` for the app" in note
    (tmp_path / "other").mkdir()
    assert not any(
        "looks into" in note for note in pack_files(tmp_path / "other", index__html=f"<script>{looks}</script>").notes
    )
    has = pack(tmp_path, app="a", title="a", runtime="", dedicated=True)
    assert not any("looks into" in note for note in has.notes)


@pytest.mark.parametrize("code", ["location.href = '#/a'", 'window.location="#"', "location\n.replace( `#${at}`)"])
def test_a_fragment_by_an_address_is_noted(tmp_path: Path, code: str) -> None:
    """In a view the link resolves against the host's URL, and nothing can keep the page from navigating there."""
    fine = "location.hash = '#/a'; if (location.href == '#') fine(location.href = url, '#');"
    resource = pack_files(tmp_path, index__html=f"<script>{fine}\n{code}</script>")
    place = f"index.html:2:{code.index('location') + 1}"
    assert [note.removeprefix(f"{tmp_path}/") for note in resource.notes[1:]] == [
        f"{place}: goes to a fragment by an address, which leads out of a view: set location.hash"
    ]


def test_workers_are_noted_with_their_places(tmp_path: Path) -> None:
    """The first worker of each script is noted, not refused: the page may work without it."""
    page = "<script>\n  f(new  Worker(url)); new Worker(u)</script><script type=module src=m.js></script>"
    resource = pack_files(tmp_path, index__html=page, m__js="new SharedWorker('data:,1'); newWorker('x.js')")
    assert [note.removeprefix(f"{tmp_path}/") for note in resource.notes[1:]] == [
        "index.html:2:5: starts a worker, which most hosts block; the gateway's own does not",
        "m.js:1:1: starts a worker, which most hosts block; the gateway's own does not",
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
def test_a_worker_of_another_file_is_reported_with_its_place(tmp_path: Path, started: str) -> None:
    """Inline, external and imported scripts are checked: none of them could load the worker."""
    scripts = {"c__js": f"\n {started}", "m__js": f"\n {started}", "n__js": "import './o.js'", "o__js": f"\n {started}"}
    page = "<script src=c.js></script><script type=module src=m.js></script><script type=module src=n.js></script>"
    files = {name: text for name, text in scripts.items() if name != "c__js" or "import.meta" not in started}
    page = page if "c__js" in files else page.partition("</script>")[2]
    warnings = pack_files(tmp_path, index__html=page, **files).warnings
    told = [(problem.file.rpartition("/")[2], problem.line, problem.column) for problem in warnings]
    assert told == [(name, 2, 2) for name in ("c.js", "m.js", "o.js") if name.replace(".", "__") in files]
    assert all("starts a worker of another file" in problem.message for problem in warnings)


@pytest.mark.parametrize(
    "started",
    ["new Worker('' + made)", "new Worker('/w/' + n)", "new Worker(new URL('w' + n, at))", "new Worker(", "new Worker"],
)
def test_a_worker_of_no_named_file_is_no_error(tmp_path: Path, started: str) -> None:
    """A URL that is computed at run time is not checked."""
    assert started in pack_files(tmp_path, index__html="<script src=c.js></script>", c__js=started).html


@pytest.mark.parametrize("kind", ["", " type=module"])
def test_an_import_of_what_a_variable_holds_is_no_error(tmp_path: Path, kind: str) -> None:
    """React Router has such imports for other kinds of apps; they are noted with their places, and stay unchanged."""
    code = "a.import(x);\n  const load = async ({ module }) => import(/* @vite-ignore */ module);"
    made = pack_files(tmp_path, index__html=f"<script{kind} src=a.js></script>", a__js=code)
    assert f">{code}</script>" in made.html
    [note] = [note for note in made.notes if "imports" in note]
    assert "a.js:2:38: imports a module whose name is only known at run time, which fails for a file" in note


def test_scripts_wait_for_those_of_the_backend(tmp_path: Path) -> None:
    """All scripts of the page wait, which keeps their order; a note lists those that wait for the parsed page."""
    page = (
        '<body><script>one()</script><script defer src="/api/x.js"></script><script src="/api/y.js" id=y></script>'
        '<template><script src="/api/z.js"></script></template></body>'
    )
    folder, parts = write(tmp_path, index__html=page), {WAITS: ["start()"]}
    resource = pack(folder, app="cart", title="", runtime=RUNTIME, parts=parts, routed=lambda _: True)
    waits = '<script type="webmcp-gateway-waits" webmcp-gateway-waits="'
    assert f"<script>{RUNTIME};start()</script>" in resource.html
    assert body(resource) == (
        f'<body>{waits}">one()</script>{waits}defer" defer webmcp-gateway-src="/api/x.js"></script>'
        f'{waits}" webmcp-gateway-src="/api/y.js" id=y></script>'
        f'<template><script src="/api/z.js"></script></template></body>'
    )
    write(tmp_path, index__html="<script>one()</script>")
    without = pack(folder, app="cart", title="", runtime=RUNTIME, parts=parts, routed=lambda _: True)
    assert body(without) == "<script>one()</script>"


def test_scripts_of_a_template_stay_in_it(tmp_path: Path) -> None:
    """Deferred scripts and modules stay there, too, separately; they do not wait, as the page runs them itself."""
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
    """All executable scripts wait, with their attributes; data blocks are left as they are."""
    page = (
        '<script>one()</script><SCRIPT id=a TYPE="text/javascript">two()</SCRIPT><script type=module>three()</script>'
        '<script type="application/json">{}</script>'
    )
    packed = pack(write(tmp_path, index__html=page), app="cart", title="Cart", runtime=RUNTIME, storage="keep()")
    assert f"<script>{RUNTIME};keep()</script>" in packed.html
    waits = ' type="webmcp-gateway-waits" webmcp-gateway-waits="'
    assert body(packed) == (
        f'<script{waits}">one()</script><SCRIPT{waits}" id=a webmcp-gateway-TYPE="text/javascript">two()</SCRIPT>'
        f'<script{waits}module" webmcp-gateway-type=module>three()</script>'
        '<script type="application/json">{}</script>'
    )


def test_a_page_that_speaks_of_waiting_scripts_has_none_started(tmp_path: Path) -> None:
    """The starter is added once, for a script of the backend, and not for a word in the page."""
    (tmp_path / "index.html").write_text("<!doctype html><p>webmcp-gateway-waits</p><script>f()</script>")
    parts = {"webmcp-gateway-waits": ["START()"]}
    assert "START()" not in pack(tmp_path, app="cart", title="Cart", runtime="RUN()", parts=parts).html
    (tmp_path / "index.html").write_text('<!doctype html><p>webmcp-gateway-waits</p><script src="/api/x.js"></script>')
    routed = pack(tmp_path, app="cart", title="Cart", runtime="RUN()", parts=parts, routed=lambda _: True)
    assert routed.html.count("START()") == 1


RAW = r"""
const seen = [];
const tag = (t, ...v) => { seen.push([[...t], [...t.raw], v, Object.isFrozen(t), Object.isFrozen(t.raw)]); return t; };
const o = { t: tag, m(t) { seen.push([this === o, t.raw[0]]); return t; } };
seen.push(String.raw`</script>`, String.raw`<!-- <script>`, '</script>', `</script>${1}`);
seen.push(String.raw`a</script>${"x", "y"}b${`<script>${2}`}c\n</SCRIPT>\u0041`, String.raw/* <script> */`<script>`);
tag`\user</script>\x3c`; tag`\1<!--`; tag`plain`; tag`a</script>
b`; o.m`</script>`; o["t"]`<script>${o.t}`; (tag)`<!--`; o.t`${1}<script>`;
const twice = (t) => { tag(t); return tag; }; twice`a``</script>`; twice`</script>``<!--${1}`;
const site = () => tag`</script>`; seen.push(site() === site());
seen.push(/<script>[/"</script>"]/gi.source, /<!--/.flags, /a<\/script>/.source);
seen.push(typeof /<script>/u, [/<script>/][0].source);
for (const x of [1]) if (x) seen.push(/<!--\//.source);
const back = () => { return/<script>/g.flags }; seen.push(back());
let a = 1, b = 2; seen.push(a <!--b
);
class C { static x = String.raw`<script>`; static y = `<script>` } seen.push(C.x, C.y);
// </script> comment
/* <!-- <script> */
process.stdout.write(JSON.stringify(seen));
"""


@pytest.mark.parametrize("module", [False, True])
def test_a_script_reads_the_same_of_its_own_text(*, module: bool) -> None:
    """Raw strings and sources of regular expressions read the same, whatever characters were escaped."""
    program = node()
    assert program is not None
    code = RAW.replace("<!--b", "< !--b") if module else RAW  # an HTML-like comment, which is a syntax error in modules
    packed = as_element_text(code, module=module)
    assert re.search(r"<(/?script|!--)", packed, re.IGNORECASE) is None
    kind = "module" if module else "commonjs"

    def said(script: str) -> str:
        command = [program, f"--input-type={kind}", "-e", script]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said(packed) == said(code) != ""
