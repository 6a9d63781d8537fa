"""The modules of a page become one script that does what they did."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import pytest

from gateway.apps import pack
from gateway.errors import DocumentError
from tests.apps.packing import packed, problems, write

MODULE = re.compile(r'<script type="module"[^>]*>(.*?)</script>', re.DOTALL)


def printed(page: str, folder: Path) -> str:
    """What the module scripts of a page print, run by Node one after the other."""
    found = MODULE.findall(page)
    program = folder / "printed.mjs"
    program.write_text("\n;".join(found), "utf-8")
    return subprocess.run(["node", str(program)], capture_output=True, text=True, check=True).stdout


def test_modules_are_linked_with_their_bindings_alive(tmp_path: Path) -> None:
    """Order, cycles, exports that change, namespaces, JSON, dynamic imports, and a module that two scripts share."""
    page = packed(
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
    assert len(MODULE.findall(page)) == 1
    lines = printed(page, tmp_path).split("\n")
    assert lines[:3] == ["1 afunction 2", "https://cart.invalid/js/later.js", "inline 1"]


def test_modules_without_imports_keep_their_bytes(tmp_path: Path) -> None:
    """What one bundler wrote another one need not touch."""
    page = packed(tmp_path, index__html="<script type=module src=a.js></script>", a__js="let  a = 1 // a").html
    assert '<script type="module">let  a = 1 // a</script>' in page


def test_every_import_that_cannot_be_linked_is_named_with_its_place(tmp_path: Path) -> None:
    """File, line and column, of all files at once."""
    (tmp_path / "outside.js").write_text("", "utf-8")
    found = problems(
        tmp_path / "app",
        index__html="<script type=module src=a.js></script>\n<script type=module>\n  import './x.js'\n</script>",
        a__js=(
            "import b from './b.js';\nimport 'react';\nexport { c } from 'https://cdn.test/c.js';\n"
            "  import('../outside.js');\nimport(location.hash);"
        ),
        b__js="export default 1;\nexport * from './missing.js';",
    )
    assert found == [
        "a.js:2:1: imports react, which is no path: build the app with a bundler, and pack what it wrote",
        "a.js:3:1: imports https://cdn.test/c.js of another site, which hosts block: save it in the app's folder",
        "a.js:4:3: imports ../outside.js, which lies outside of the app's folder",
        "a.js:5:1: imports a file whose name is only known when it runs, which cannot be packed",
        "b.js:2:1: imports ./missing.js: there is no such file in the app's folder",
        "index.html:3:3: imports ./x.js: there is no such file in the app's folder",
    ]


def test_a_syntax_error_is_named_with_its_place(tmp_path: Path) -> None:
    """The linker reads every module; what it cannot read it says."""
    files = {
        "index__html": "<script type=module src=a.js></script>",
        "a__js": "import './b.js';",
        "b__js": "\nlet = = 1",
    }
    (found,) = problems(tmp_path, **files)
    assert found.startswith("b.js:2:")


def test_without_node_modules_say_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy, at each import."""
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    (found,) = problems(
        tmp_path, index__html="<script type=module src=a.js></script>", a__js="import './b.js'", b__js=""
    )
    assert found == (
        "a.js:1:1: imports another file; linking modules needs Node 20 or later: "
        "pip install 'webmcp-gateway[pack]', or put node on the PATH"
    )


def test_a_build_of_vite_with_parts_that_load_later(tmp_path: Path) -> None:
    """Its chunks and their styles are in the page; nothing is left that would be looked for beside it."""
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
    with pytest.raises(DocumentError):
        pack(tmp_path / "src", app="cart", title="The cart", runtime="")
    assert json.loads(html.unescape(re.findall(r'content="([^"]*)"', page)[0]))["app"] == "cart"
