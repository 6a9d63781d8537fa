"""The modules of a page are linked into one script with the same behaviour."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import pytest

from gateway.apps import pack
from gateway.apps.page_scripts import IMPORT
from tests.apps.packing import pack_files, problems, write

MODULE = re.compile(r'<script type="module"[^>]*>(.*?)</script>', re.DOTALL)


def module_output(page: str, folder: Path) -> str:
    """The output of the module scripts of a page, run by Node one after the other."""
    found = MODULE.findall(page)
    program = folder / "printed.mjs"
    program.write_text("\n;".join(found), "utf-8")
    return subprocess.run(["node", str(program)], capture_output=True, text=True, check=True).stdout


def test_modules_are_linked_with_their_bindings_alive(tmp_path: Path) -> None:
    """Order, cycles, live exports, namespaces, JSON, dynamic imports, and a module shared by two scripts are kept."""
    page = pack_files(
        tmp_path / "app",
        index__html=(
            '<script type=importmap>{"imports": {"lib/": "/js/lib/", "counter": "./js/counter.js"}}</script>'
            "<script type=module src=js/main.js></script><script type=module>import { count } from 'counter';"
            "console.log('inline', count);</script>"
        ),
        js_of_main__js=(
            "import add, { count } from './counter.js';\nimport * as lib from 'lib/a.js';\n"
            "import data from './data.json' with { type: 'json' };\nexport * from './lib/a.js';\n"
            "add(); console.log(count, lib.both(), data.list.length);\n"
            "console.log((await import('./later.js?v=1')).default);"
        ),
        js_of_counter__js="export let count = 0; export default () => { count += 1; };",
        js_of_lib_of_a__js="import { b } from './b.js'; export const both = () => 'a' + b();",
        js_of_lib_of_b__js="import { both } from '../lib/a.js'; export const b = () => typeof both;",
        js_of_data__json='{"list": [1, 2]}',
        js_of_later__js="export default import.meta.url;",
    ).html
    assert "importmap" not in page
    lines = module_output(page, tmp_path).split("\n")
    assert lines[:3] == ["1 afunction 2", "https://cart.invalid/js/later.js", "inline 1"]


def test_what_is_imported_when_the_page_runs_runs_then(tmp_path: Path) -> None:
    """A dynamic import runs once, on demand; each importer gets its failure, and live bindings change for all."""
    page = pack_files(
        tmp_path / "app",
        index__html="<script type=module src=main.js></script>",
        main__js=(
            "export let count = 1; export const raise = () => { count += 1; }; console.log('main');\n"
            "const asked = import('./later.js'); console.log('asked');\n"
            "if (globalThis.never) import('./never.js');\n"
            "asked.then(async (later) => {\n"
            "console.log(later.seen(), Object.keys(later).join(), (await import('./later.js')) === later);\n"
            "console.log(later[Symbol.toStringTag], (await import(`./waits.js`)).default);\n"
            "for (const at of [1, 2]) await import('./fails.js').catch((error) => console.log(at, error.message)); })"
        ),
        later__js=(
            "import { count, raise } from './main.js'; import { both } from './both.js';\n"
            "console.log('later', both); raise(); export const seen = () => count;"
        ),
        both__js="console.log('both runs'); export const both = 'both' // the end",
        waits__js="import './both.js'; const ready = await Promise.resolve('waited'); export { ready as default }",
        fails__js="throw new Error('fails')",
        never__js="console.log('never')",
    ).html
    assert module_output(page, tmp_path).splitlines() == [
        "main",
        "asked",
        "both runs",
        "later both",
        "2 seen true",
        "Module waited",
        "1 fails",
        "2 fails",
    ]


def test_modules_end_where_their_files_end(tmp_path: Path) -> None:
    """A module may end without a semicolon or a line end, or in a comment."""
    files = {
        "a__js": "console.log('a'); if (globalThis.never) throw 1",
        "b__js": "console.log('b') // the end",
        "c__js": "(console.log)('c')",
    }
    page = pack_files(
        tmp_path / "app",
        index__html="<script type=module>import './a.js'; import './b.js'; import './c.js'</script>",
        **files,
    ).html
    assert module_output(page, tmp_path).split() == ["a", "b", "c"]


def test_a_module_that_two_elements_name_runs_once(tmp_path: Path) -> None:
    """The module runs once, as in browsers, also if it imports nothing."""
    page = pack_files(tmp_path, index__html="<script type=module src=a.js></script>" * 2, a__js="console.log('a')").html
    assert MODULE.findall(page) == ["console.log('a')"]


def test_classic_scripts_import_modules(tmp_path: Path) -> None:
    """Each dynamic import of a classic script runs on demand and once, also if modules import it; as in SvelteKit."""
    page = pack_files(
        tmp_path / "app",
        index__html=(
            "<script>console.log('first')\nimport('./a.js').then(({ a }) => console.log('inline', a))</script>"
            "<script src=js/b.js></script><script type=module>import { a } from './a.js'; console.log('own')</script>"
        ),
        js_of_b__js="if (0) import('./never.js'); import(`../a.js`).then(({ a }) => console.log('b', a))",
        js_of_never__js="console.log('never')",
        a__js="console.log('once'); export const a = 'a';",
    ).html
    classic = re.findall(r"<script>(.*?)</script>", page.partition('type="module"')[0], re.DOTALL)
    (tmp_path / "classic.mjs").write_text("\n;".join(classic[1:]), "utf-8")
    lines = module_output(f'<script type="module">import "./classic.mjs"</script>{page}', tmp_path).splitlines()
    assert lines[:2] == ["first", "once"]
    assert sorted(lines[2:]) == ["b a", "inline a", "own"]


def test_what_a_classic_script_imports_and_is_not_there(tmp_path: Path) -> None:
    """The problem is reported with its place, also for a bare specifier."""
    missing, bare = problems(tmp_path, index__html="<script>\n  import('./none.js');\nimport('bare')</script>")
    assert missing == "index.html:2:3: ./none.js: there is no such file in the app's folder"
    assert re.fullmatch("index.html:3:[0-9]+: imports bare, which is no path.*", bare)


def test_an_import_map_is_relative_to_the_page_and_has_scopes(tmp_path: Path) -> None:
    """The map applies to every importing file; the innermost scope wins, and other names fall back to the top level."""
    imports = '"imports": {"x": "./x.js", "y": "./y.js", "away": "https://cdn.test/a.js", "odd": "http://["}'
    scopes = '"scopes": {"./js/": {"y": "./js/y.js"}, "./js/in/": {"y": "./js/in/y.js"}, "./z/": {"x": ""}, "//[": {}}'
    files = {name: f"console.log('{name}')" for name in ("x__js", "y__js", "js_of_y__js", "js_of_in_of_y__js")}
    page = pack_files(
        tmp_path / "app",
        index__html=f"<script type=importmap>{{{imports}, {scopes}}}</script><script type=module src=js/a.js></script>",
        js_of_a__js="import 'x'; import 'y'; import './in/b.js'",
        js_of_in_of_b__js="import 'x'; import 'y'",
        **files,
    ).html
    assert module_output(page, tmp_path).split() == ["x__js", "js_of_y__js", "js_of_in_of_y__js"]
    [found] = problems(
        tmp_path / "app",
        index__html=f"<script type=importmap>{{{imports}}}</script><script type=module>import 'away'</script>",
    )
    assert found.startswith("index.html:1:")
    assert "imports away of another site" in found


@pytest.mark.parametrize("written", ["", "{", "[]", '{"imports": [], "scopes": {"/": 1}}', "[" * 100_000])
def test_a_broken_import_map_is_none(tmp_path: Path, written: str) -> None:
    """A broken import map is ignored, as in browsers."""
    page = f"<script type=importmap>{written}</script><script type=module>import './a.js'</script>"
    assert (
        module_output(pack_files(tmp_path / "app", index__html=page, a__js="console.log('a')").html, tmp_path) == "a\n"
    )


def test_a_page_asks_its_import_map_where_a_file_lies(tmp_path: Path) -> None:
    """Bundles of Parcel resolve the URLs of files that they load later."""
    page = pack_files(
        tmp_path / "app",
        index__html=(
            '<script type=importmap>{"imports": {"aXlEB": "/pic.26e5.png"}}</script>'
            "<script type=module src=js/a.js></script>"
        ),
        js_of_a__js="console.log(import.meta.resolve('aXlEB'), import.meta.resolve('./b.png'))",
    ).html
    assert module_output(page, tmp_path).split() == [
        "https://cart.invalid/pic.26e5.png",
        "https://cart.invalid/js/b.png",
    ]


def test_a_page_asks_its_import_map_as_browsers_do(tmp_path: Path) -> None:
    """Names that end in a slash match prefixes, longest first, scopes before the top level; other bare names fail."""
    imports = '"imports": {"lib/": "/js/lib/", "lib/deep/": "./far/", "lib/deep/x.js": "/x.js", "a": "/a.js"}'
    scopes = '"scopes": {"/js/": {"a": "/scoped.js"}, "/js/in/": {"lib/": "/other/"}}'
    asked = ["lib/a.js", "lib/deep/b.js", "lib/deep/x.js", "lib/", "a", "./c.js", "data:,x", "lib", "toString", ""]
    ask = (
        f"for (const name of {json.dumps(asked)}) try {{ console.log(import.meta.resolve(name)); }}"
        " catch (error) { console.log(error.name); }"
    )
    page = pack_files(
        tmp_path / "app",
        index__html=(
            f"<script type=importmap>{{{imports}, {scopes}}}</script><script type=module>{ask}</script>"
            "<script type=module src=js/in/b.js></script>"
        ),
        js_of_in_of_b__js="console.log(import.meta.resolve('a'), import.meta.resolve('lib/deep/x.js'))",
    ).html
    site = "https://cart.invalid"
    assert module_output(page, tmp_path).split() == [
        *(f"{site}{path}" for path in ("/js/lib/a.js", "/far/b.js", "/x.js", "/js/lib/", "/a.js", "/c.js")),
        *("data:,x", "TypeError", "TypeError", "TypeError", f"{site}/scoped.js", f"{site}/other/deep/x.js"),
    ]


def test_modules_that_elements_name_are_there_for_a_script_that_asks(tmp_path: Path) -> None:
    """Islands of Astro import by any form of the URL; a file that no custom element names is not found."""
    names = ["/js/a.js", "js/b.mjs?v=1", "https://cart.invalid/js/a.js", "/js/c.js", "/constructor", "http://["]
    script = (
        f"class Of {{ import(name) {{ return name; }} }};\n(async () => {{ for (const name of {json.dumps(names)}) "
        "await (async () => (await import(name)).a)().then(console.log, () => console.log('none')); })()"
    )
    element = "<the-island first=/js/a.js other='./js/b.mjs#x' no=gone.js></the-island><p title=/js/c.js>"
    files = {"js_of_a__js": "export const a = 'a'", "js_of_b__mjs": "export { a } from './a.js'", "js_of_c__js": ""}
    app = pack_files(tmp_path / "app", index__html=f"{element}<script>{script}</script>", **files)
    [classic] = re.findall(r"<script>(class.*?)</script>", app.html, re.DOTALL)
    assert module_output(f'<script type="module">{classic}</script>{app.html}', tmp_path).split() == [
        *"aaa",
        *["none"] * 3,
    ]
    assert not any("imports a module whose name" in note for note in app.notes)


def test_modules_without_imports_keep_their_bytes(tmp_path: Path) -> None:
    """The output of another bundler stays unchanged."""
    page = pack_files(tmp_path, index__html="<script type=module src=a.js></script>", a__js="let  a = 1 // a").html
    assert '<script type="module">let  a = 1 // a</script>' in page


def test_every_import_that_cannot_be_linked_is_named_with_its_place(tmp_path: Path) -> None:
    """File, line and column are reported for all files at once."""
    (tmp_path / "outside.js").write_text("", "utf-8")
    found = problems(
        tmp_path / "app",
        index__html="<script type=module src=a.js></script>\n<script type=module>\n  import './x.js'\n</script>",
        a__js=(
            "import b from './b.js';\nimport 'react';\nexport { c } from 'https://cdn.test/c.js';\n"
            "  import('../outside.js');\nimport('./' + location.hash);"
        ),
        b__js="export default 1;\nexport * from './missing.js';",
    )
    assert found == [
        "a.js:2:1: imports react, which is no path: build the app with a bundler, and pack what it wrote",
        "a.js:3:1: imports https://cdn.test/c.js of another site, which hosts block: save it in the app's folder, "
        "or take it in once by `pack --vendor`",
        "a.js:4:3: imports ../outside.js, which lies outside of the app's folder",
        "b.js:2:1: imports ./missing.js: there is no such file in the app's folder",
        "index.html:3:3: imports ./x.js: there is no such file in the app's folder",
    ]


def test_a_syntax_error_is_named_with_its_place(tmp_path: Path) -> None:
    """The linker parses every module, and reports syntax errors."""
    files = {
        "index__html": "<script type=module src=a.js></script>",
        "a__js": "import './b.js';",
        "b__js": "\nlet = = 1",
    }
    (found,) = problems(tmp_path, **files)
    assert found.startswith("b.js:2:")


def test_without_node_modules_say_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem is reported at the import, with the remedy."""
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    (found,) = problems(
        tmp_path, index__html="<script type=module src=a.js></script>", a__js="import './b.js'", b__js=""
    )
    assert found == (
        "a.js:1:1: imports another file; linking modules needs Node 20 or later: "
        "pip install 'webmcp-gateway[pack]', or put node on the PATH"
    )


def test_a_build_of_vite_with_parts_that_load_later(tmp_path: Path) -> None:
    """Its chunks and their styles are in the page; no reference to a separate file is left."""
    repository = Path(__file__).parents[2]
    write(
        tmp_path / "src",
        index__html="<!doctype html><html><head></head><body><script type=module src=/main.js></script></body></html>",
        main__js="import './main.css'; const { name } = await import('./later.js'); console.log(name);",
        later__js="import './later.css'; export const name = 'later';",
        main__css="p { color: red }",
        later__css="p { color: tan }",
    )
    vite = repository / "browser" / "node_modules" / ".bin" / "vite"
    command = [str(vite), "build", "--outDir", str(tmp_path / "dist"), "--logLevel", "error"]
    subprocess.run(command, cwd=tmp_path / "src", check=True, capture_output=True)
    assert len(list((tmp_path / "dist" / "assets").glob("*.js"))) > 1
    page = pack(tmp_path / "dist", app="cart", title="The cart", runtime="").html
    assert len(MODULE.findall(page)) == 1
    assert re.findall(r"color:\s*(\w+)", page) == ["tan", "red"]
    assert "later-" not in MODULE.findall(page)[0]
    [*unbuilt] = pack(tmp_path / "src", app="cart", title="The cart", runtime="").warnings
    assert "imports ./main.css, which is not JavaScript" in " ".join(one.message for one in unbuilt)
    assert json.loads(html.unescape(re.findall(r'content="([^"]*)"', page)[0]))["app"] == "cart"


def test_what_is_not_utf_8_is_reported_with_its_place(tmp_path: Path) -> None:
    """Browsers decode modules as UTF-8 only, and replace other bytes; so does the packer."""
    found = problems(
        tmp_path,
        index__html="<script type=module src=main.js></script>",
        main__js="import './old.js'; import './data.json'; import './marked.js'; console.log('\ufffd')",
        old__js="// Umlaute\nconsole.log('schön');".encode("latin-1"),
        data__json=b'["\xfc"]',
        marked__js=b"\xef\xbb\xbfexport const a = '\xc3\xbc';",
    )
    said = "this is not UTF-8, as modules are: browsers replace such characters; save it as UTF-8"
    assert found == [f"data.json:1:3: {said}", f"old.js:2:17: {said}"]


ADDING = "<script>const s = document.createElement('script'); s.type = 'module'; s.src = './a.js';</script>"


@pytest.mark.parametrize(
    ("page", "beside", "is_added"),
    [
        (ADDING, {"a__js": "import './b.js'", "b__js": ""}, True),
        (ADDING.replace("'script'", '"SCRIPT"').replace("'module'", "`module`"), {"a__js": ""}, True),
        (ADDING, {}, False),
        (ADDING.replace("'module'", "''"), {"a__js": ""}, False),
        ("<script>const a = 'module', b = 'script'</script>", {"a__js": ""}, False),
        (ADDING.replace("<script>", "<script type=module>"), {"a__js": ""}, True),
        (f'<script src="http://["></script>{ADDING}', {"a__js": ""}, True),
    ],
)
def test_a_page_that_adds_module_scripts_gets_what_they_need(
    tmp_path: Path, page: str, beside: dict[str, str], is_added: bool
) -> None:
    """The part of the runtime that links modules, if the folder has files to load."""
    parts = {IMPORT: ["/* the part for modules */"]}
    (tmp_path / "index.html").write_text(page, "utf-8")
    for name, code in beside.items():
        (tmp_path / name.replace("__", ".")).write_text(code, "utf-8")
    packed = pack(tmp_path, app="cart", title="Cart", runtime="0", parts=parts).html
    assert ("the part for modules" in packed) is is_added
