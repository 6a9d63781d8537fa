"""Pages built by bundlers behave the same on a plain server and packed, in the frame that hosts provide."""

from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Page

from tests.apps.packing import write
from tests.browser.runtime_host import Host, host_server, pack_html
from tests.browser.twins.backend import Backend
from tests.world import Server, serving

PAGES: dict[str, tuple[str, dict[str, str]]] = {
    "a bundle that looks for the place of its script, as webpack's do": (
        "<script defer src=js/main.js></script>",
        {
            "js_of_main__js": "const { src } = document.currentScript; if (!src) throw new Error('no src');"
            "seen.push(src.slice(src.indexOf('/js/')), 'end')"
        },
    ),
    "a bundle that looks for the attribute of its script, as Turbopack's do": (
        "<script async src='js/main.js?v=1'></script>",
        {
            "js_of_main__js": "const main = document.currentScript; seen.push(main.getAttribute('src'));"
            "seen.push(document.querySelectorAll('script[src^=\"js/main.js?\"]').length, new URL(main.src).search);"
            # A request after all those that the script itself might have caused.
            "setTimeout(() => fetch('/api/last').then(({ status }) => seen.push(status, 'end')))"
        },
    ),
    "scripts that are told of their loading": (
        "<script src=a.js onload=\"seen.push('loaded')\"></script><script>seen.push('after', 'end')</script>",
        {"a__js": "seen.push('a')"},
    ),
    "scripts that no element can hold": (
        "<script src=a.js id=a data-what=kept></script><script src=b.js onload=\"seen.push('loaded')\"></script>"
        "<script>seen.push(declared(), later, typeof constant)</script>"
        "<script defer src=d.js onload=\"seen.push('d loaded')\"></script><script type=module>seen.push('m')</script>"
        "<script defer src=last.js></script><script>addEventListener('error', ({ message }) => seen.push(message))"
        "</script>",
        {
            "a__js": "const constant = '</script>'; let later = 1; function declared() { return this === window }\r\n"
            "function told() { /* </script> */\r\n return `<!-- <script>` /* \0 */ }; class Tag { constructor(t)"
            "{ this.raw = t.raw[0] } }\n// </script>\nseen.push(String(told), told.toString(), told(), constant);"
            "const tag = () => Tag; seen.push(new Tag`</script>`.raw === undefined, String.raw`</script>`);"
            "const { currentScript: own, scripts } = document;"
            "seen.push(own.id, own.dataset.what, own === scripts[scripts.length - 1], own.parentNode.localName);"
            "seen.push(own.previousElementSibling.localName, document.head.childNodes.length);"
            "document.write('<b>written</b>'); seen.push(location.hash, 'a\0b'.length, 'a\0b'.charCodeAt(1))",
            "b__js": "'use strict'; seen.push((() => this === window)(), later++, '</script>');"
            "seen.push(document.querySelector('b')?.textContent)",
            "d__js": "seen.push('d', document.readyState, constant, document.body.id); throw new Error('</script>')",
            "last__js": "seen.push('</script>', 'end')",
        },
    ),
    "parts that are loaded later": (
        "<script type=module src=m.js></script>",
        {
            "m__js": "seen.push('m'); const { later } = await import('./later.js'); seen.push(later);"
            "await import('./fails.js').catch(({ message }) => seen.push(message));"
            "if (seen.never) await import('./never.js'); const none = { file: './none.js' };"
            "await import(none.file).catch(({ name }) => seen.push(name)); seen.push('end')",
            "later__js": "import data from './data.json' with { type: 'json' }; seen.push('runs');"
            "export const later = data.word",
            "data__json": '{"word": "later"}',
            "fails__js": "throw new Error('fails')",
            "never__js": "seen.push('never')",
        },
    ),
    "module scripts of which some fail": (
        "<script type=module src=a.js></script><script type=module>import './c.js'; seen.push('never')</script>"
        "<script type=module id=b src=b.js></script><script type=module>import './c.js'; seen.push('never')</script>"
        "<script type=module>seen.push(document.querySelector('#b').type, 'end')</script>"
        "<script>addEventListener('error', ({ message }) => seen.push(message))</script>",
        {
            "a__js": "import './own.js'; import { shared } from './shared.js'; seen.push('a', shared);"
            "throw new Error('a fails')",
            "own__js": "seen.push('own')",
            "shared__js": "seen.push('shared'); export const shared = { count: 1 }",
            "b__js": "import { shared } from './shared.js'; seen.push('b', ++shared.count)",
            "c__js": "seen.push('c'); throw new Error('c fails')",
        },
    ),
    "scripts and modules that wait for the page": (
        "<script defer src=a.js onload=\"seen.push('loaded')\"></script><script type=module src=m.js></script>"
        "<script defer id=b data-what=kept src=b.js></script><script type=module>seen.push('inline')</script>"
        "<script defer src=fails.js></script><script defer src=last.js></script><script>seen.push('first')</script>"
        "<script>addEventListener('error', ({ message }) => seen.push(message));"
        "addEventListener('DOMContentLoaded', () => seen.push('DOMContentLoaded'));"
        "addEventListener('load', () => seen.push('end'))</script>",
        {
            "a__js": "var global = 'global'; seen.push('a', document.readyState, document.body.id)",
            "m__js": "import { d } from './d.js'; seen.push('m', d, global)",
            "d__js": "export const d = 'd'",
            "b__js": "seen.push('b', document.currentScript.id, document.currentScript.dataset.what);"
            "document.write('<p>gone</p>')",
            "fails__js": "throw new Error('fails')",
            "last__js": "seen.push('last', document.body.textContent)",
        },
    ),
    "sheets in layers": (
        "<link rel=stylesheet href=a.css><p>p</p>"
        "<script>seen.push(getComputedStyle(document.querySelector('p')).color, 'end')</script>",
        {
            "a__css": "@layer one, two; @import 'b.css' layer(two); @import 'c.css' layer(one) supports(color: red);"
            "@import 'd.css' supports(no: such);",
            "b__css": "p { color: rgb(1, 2, 3) }",
            "c__css": "p { color: red }",
            "d__css": "p { color: tan }",
        },
    ),
}

LACKING: dict[str, tuple[str, dict[str, str | bytes]]] = {
    "scripts that are not there, or cannot be read": (
        "<script src=https://cdn.invalid/a.js onerror=\"seen.push('foreign')\"></script><script src=b.js></script>"
        "<script src=none.js onerror=\"seen.push('missing')\"></script><script src=wrong.js></script>"
        "<script src=latin.js charset=latin1></script><script>seen.push(typeof foreign, b, sharp)</script>"
        "<script type=module src=none.mjs onerror=\"seen.push('no module')\"></script>"
        "<script type=module src=lost.js></script><script type=module src=round.js></script>"
        "<script type=module src=broken.js></script>"
        "<script type=module>await import('./nowhere.js').catch(({ name }) => seen.push(name)); seen.push('end')"
        "</script>",
        {
            "b__js": "const b = 'b'",
            "wrong__js": "seen.push('never'); let = = 1",
            "latin__js": "const sharp = 'ß'".encode("latin-1"),
            "lost__js": "import './gone.js'; seen.push('never')",
            "round__js": "import { two } from './two.js'; export const one = () => 'one'; seen.push(two())",
            "two__js": "import { one } from './round.js'; export const two = () => `two ${one()}`",
            "broken__js": "import { none } from './two.js'; seen.push('never'); let = 1",
        },
    ),
    "pictures and sheets that are not there": (
        "<link rel=manifest href=none.json><link rel=icon href=none.ico><link rel=preload as=script href=none.js>"
        "<link rel=stylesheet href=none.css onerror=\"told('sheet')\"><link rel=stylesheet href=a.css>"
        "<img src=none.png onerror=\"told('picture')\"><img src=. onerror=\"told('folder')\">"
        "<img src=https://cdn.invalid/x.png onerror=\"told('foreign')\"><iframe src=about:blank></iframe><p>p</p>"
        "<script>const all = [], loaded = new Promise((go) => addEventListener('load', go));"
        "const told = (what) => void (all.push(what) === 4 && loaded.then(() => seen.push(...all.sort(),"
        "getComputedStyle(document.querySelector('p')).color, document.images[0].naturalWidth, 'end')))</script>",
        {
            "a__css": "@import 'b.css'; @import 'https://cdn.invalid/c.css';"
            "@font-face { font-family: f; src: url(none.woff2) }"
            "p { font-family: f; background: url(none.png) }",
            "b__css": "@import 'a.css'; @import 'none.css'; p { color: rgb(1, 2, 3) }",
        },
    ),
}

_ENDED = "() => seen.at(-1) === 'end'"


@pytest.mark.parametrize("name", PAGES)
async def test_a_packed_page_does_what_it_did(page: Page, tmp_path: Path, name: str) -> None:
    """The observations agree in content and order, and packed files are not requested from the backend."""
    html, files = PAGES[name]
    html = f"<!doctype html><html><head><script>window.seen = []</script>{html}</head><body id=body></body></html>"
    app, door = web.Application(), Server()
    app.router.add_static("/", write(tmp_path, index__html=html, **files))
    await door.start(app)
    try:
        await page.goto(f"http://127.0.0.1:{door.port}/index.html")
        await page.wait_for_function(_ENDED)
        native = await page.evaluate("() => seen")
    finally:
        await door.stop()
    async with host_server() as url:
        await page.goto(url)
        host = Host(page)
        await host.in_our_host()
        await host.answers("return { status: 404 }")
        frame = await host.show(pack_html(tmp_path, html))
        await frame.wait_for_function(_ENDED)
        assert await frame.evaluate("() => seen") == native
        called = await host.run("() => host.calls('http_request').map(({ url }) => url)")
        assert {*called} <= {"/api/last", "/none.js"}


@pytest.mark.parametrize("name", LACKING)
async def test_what_is_not_there_is_missing_as_in_a_browser(page: Page, tmp_path: Path, name: str) -> None:
    """The rest of the page runs in its order, and failed elements report their errors, as on a plain server."""
    html, files = LACKING[name]
    # Functions of the page are defined before the elements that call them.
    first, _, told = html.rpartition("<script>const all")
    html = f"<script>const all{told}{first}" if first else html
    html = f"<!doctype html><html><head><script>window.seen = []</script></head><body>{html}</body></html>"
    app, door = web.Application(), Server()
    app.router.add_static("/", write(tmp_path, index__html=html, **files))
    await door.start(app)
    try:
        await page.goto(f"http://127.0.0.1:{door.port}/index.html")
        await page.wait_for_function(_ENDED)
        native = await page.evaluate("() => seen")
    finally:
        await door.stop()
    async with host_server() as url:
        await page.goto(url)
        host = Host(page)
        await host.in_our_host()
        await host.answers("return { status: 404 }")
        frame = await host.show(pack_html(tmp_path, html))
        await frame.wait_for_function(_ENDED)
        assert await frame.evaluate("() => seen") == native


async def test_a_declared_shadow_root_has_its_pictures_on_its_own_site(page: Page, tmp_path: Path) -> None:
    """Images that the packer deferred for a view are loaded if the packed page is served beside its backend."""
    declared = '<template shadowrootmode=open><img src="/api/pixel.png"></template>'
    html = pack_html(tmp_path, f"<!doctype html><div>{declared}</div>")
    async with serving(Backend(write(tmp_path, index__html=html)).app()) as port:
        await page.goto(f"http://localhost:{port}/index.html")
        picture = "document.querySelector('div').shadowRoot.querySelector('img')"
        await page.wait_for_function(f"{picture}.naturalWidth === 1")
        assert await page.evaluate(f"{picture}.getAttribute('src')") == "/api/pixel.png"
