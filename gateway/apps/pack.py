"""Packs a whole folder into one HTML file, as a `ui://` resource."""

from __future__ import annotations

import gzip
import hashlib
import html
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from gateway.apps.elements import HELD, Packing
from gateway.apps.files import INDEX, Folder, Splice, own_files, splice
from gateway.apps.markup import parse
from gateway.apps.node import ASKS, WORD, location_changes
from gateway.apps.page_scripts import CLASSIC, IMPORT, WAITS, hold_back
from gateway.apps.scripts import as_element_text, match_of
from gateway.apps.vendor import read_vendored
from gateway.errors import DocumentError, Problem
from gateway.jsontext.writing import compact_json_utf8, plain_json, plain_json_utf8
from gateway.model import FolderSite, Json, Resource
from gateway.policy.page_rules import NO_EXTERNAL, External

PERMISSIONS: Final = {
    "camera": ("camera", "getUserMedia", re.compile(r"\bgetUserMedia\b")),
    "microphone": ("microphone", "getUserMedia", re.compile(r"\bgetUserMedia\b")),
    "geolocation": (
        "geolocation",
        "geolocation",
        re.compile(r"\bgeolocation\s*\.\s*(getCurrentPosition|watchPosition)\b"),
    ),
    "clipboard-write": ("clipboardWrite", "clipboard", re.compile(r"\bclipboard\s*\??\.\s*write(Text)?\b")),
}
"""By name in the permissions policy: the name in MCP Apps, the first word of the use, and its pattern.

The names are those of `_meta.ui.permissions` (MCP Apps 2026-01-26).
"""


def grant_permissions(page: str, allowed: Collection[str]) -> dict[str, Json]:
    """Return the permissions that the page uses and `allowed` contains, as `_meta.ui.permissions`."""
    return {PERMISSIONS[name][0]: {} for name in permissions_of(page) if name in allowed}


def notes(page: str, allowed: Collection[str]) -> list[str]:
    """Return a note about permissions that the page uses without being allowed to."""
    missing = [name for name in permissions_of(page) if name not in allowed]
    return [f"it asks for {', '.join(missing)}, which the app's `permissions` do not name"] if missing else []


def permissions_of(page: str) -> list[str]:
    """Return the names of the permissions that the page uses."""
    return [name for name, (_, word, use) in PERMISSIONS.items() if match_of(page, use, word)]


PAGES: Final = "webmcp-gateway-pages"
"""The id of the element that holds them, by their paths."""

MOST: Final = 14 * 1024 * 1024
"""Bytes of all of them in a message, out of the console's 16 MiB, which also hold the runtime and a snapshot."""

CARRIED: Final = 15 * 1024 * 1024
"""Bytes of a page in a message beyond which no view gets it: it and all else that is sent with it have 16 MiB."""

_NAMED = re.compile(r"""(?<![^\s"'`/\\?#=()<>,;])[^\s"'`/\\?#=()<>,;]+\.html?\b""")

_LED_TO = re.compile(r"""\b(?:href|action)\s*=\s*["']?([^\s"'>?#]+)""")


@dataclass(frozen=True, slots=True)
class PackResult:
    """A packed page without its head, which begins at `start`; `own_location` rewrites its uses of `location`."""

    packing: Packing
    text: str
    start: int
    own_location: list[Splice] | None

    def whole(self, head: str = "") -> str:
        """Return the page with its style sheets behind `head`."""
        head += "".join(self.packing.scripts.sheets)
        return splice(self.text, [Splice(self.start, self.start, head), *(self.own_location or [])])


@dataclass(frozen=True, slots=True)
class OtherPages:
    """The pages beside the first, by their paths on the app's site; `own` are the paths of the first."""

    pages: Mapping[str, PackResult] = field(default_factory=dict)
    own: tuple[str, ...] = ()

    def write(self, change: Callable[[str], str]) -> str:
        """Return the element that holds them, each changed by `change`; empty if there are none."""
        if not self.pages:
            return ""
        texts: dict[str, str | list[str]] = dict.fromkeys(self.own, "")
        for path, page in self.pages.items():
            # A folder's page is stored at the folder's address; two aliases refer to it.
            at = path.removesuffix(INDEX) if path.endswith(f"/{INDEX}") else path
            texts |= {at.rstrip("/"): [at], path: [at], at: change(page.whole())}
        return f'<script type="application/json" id="{PAGES}">{_write(texts)}</script>'


def others(source: Path, first: Path, main: PackResult, make: Callable[[Path], PackResult]) -> OtherPages:
    """Pack the pages of the folder `source` that `main`, of the file `first`, or one of them mentions.

    `make` packs one file.

    One that cannot be packed is omitted, and a note of `main` tells why.
    """
    files = own_files(source)
    left = {path for path in files.values() if path.suffix.lower() in (".html", ".htm") and path != first}
    results: dict[str, PackResult] = {}
    size, hold_back = _count_carried(main.text), [main]
    while hold_back and left:
        is_named = _names_in(hold_back.pop().text)
        for path in sorted(filter(is_named, left)):
            left.remove(path)
            name = path.relative_to(source.resolve()).as_posix()
            try:
                result = make(path)
            except DocumentError as error:
                main.packing.notes.append(f"its page {name} is left out: {error.problems[0]}")
                continue
            more = _count_carried(_write({"": result.whole()}))
            if size + more > MOST or result.packing.base != main.packing.base:
                why = "with it, the app is too large for the console" if size + more > MOST else "it has another <base>"
                main.packing.notes.append(f"its page {name} is left out: {why}")
                continue
            size += more
            results[main.packing.url(path)] = result
            hold_back.append(result)
    url = main.packing.url(first)
    own = (url.removesuffix(INDEX), url) if first.name == INDEX else (url,)
    return OtherPages(results, own if files else ())


def _write(pages: object) -> str:
    return compact_json_utf8(pages).replace("<", r"\u003c")


def _count_carried(text: str) -> int:
    """Return the bytes of a text in a message."""
    return len(plain_json_utf8(text).encode())


def _names_in(text: str) -> Callable[[Path], bool]:
    """Return whether `text` contains the name of a page; that of a folder means the folder's page."""
    names = {unquote(name) for name in _NAMED.findall(text)}
    folders = {unquote(link.rstrip("/").rpartition("/")[2]) for link in _LED_TO.findall(text)}
    return lambda page: page.name in names or (page.name == INDEX and page.parent.name in folders)


SECRET_ROUTES = '"secret":['  # noqa: S105  no password
"""The key in that element of the routes whose bodies are secret; absent without any."""

SNAPSHOT = "webmcp-gateway-snapshot"
"""The id of the element in which the view runtime finds snapshot responses."""

_ABSENT = (".locks", ".storage")
_REFUSED = (
    "localStorage",
    "sessionStorage",
    "cookie",
    "pushState",
    "replaceState",
    "caches",
    "serviceWorker",
    *_ABSENT,
)
_ADDS_SCRIPTS = ('"script"', "'script'", "`script`", "document.write")
_ADDS_MARKUP = (
    *("innerHTML", "outerHTML", "insertAdjacentHTML", "createContextualFragment", "DOMParser", "responseXML"),
    *("setHTML", "parseHTML", "document.write(", "document.writeln("),
)
"""Ways to add forms by markup that the packer does not see; the forms may be tools."""
_CLOSED = "attachShadow closed"
"""Two words: the mode of a shadow root may come from a variable."""
_SELDOM = (
    "sendBeacon",
    "createObjectURL",
    "Audio(",
    "decode()",
    "decode?.()",
    "canParse",
    "URL.parse",
    "getHTML",
    "XMLSerializer",
    "shadowrootmode",
    "HTMLUnsafe",
    *("MouseEvent(", "PointerEvent(", "initEvent(", "initMouseEvent("),
    *(f"Event({quote}click" for quote in "\"'`"),
    _CLOSED,
    "contentWindow",
    *("cancelBubble", "returnValue"),
    *("Propagation(); return false", "Propagation();return false", "Propagation(),!1"),
    "keepalive",
    "currentSrc",
    *("new MessageEvent", "initMessageEvent", "extends MessageEvent"),
    *(".attributes", "getAttributeNode", "getNamedItem"),
    *('"lazy"', "'lazy'", "`lazy`", "=lazy"),
    *(f"{before}{refresh}" for refresh in ("refresh", "Refresh", "REFRESH") for before in "\"'`="),
    "toDataURL",
    "permissionsPolicy",
    "featurePolicy",
    *(f"{before}referrer{after}" for before in "\"'" for after in "\"'" if before == after),
    *(f"referrer{after}" for after in (":", " :", ",", "}", " }", "=", " =")),
    *("window.stop", "self.stop", "globalThis.stop"),
)
_MAKES_CODE = (
    *("new Function", "return Function(", "=Function(", "= Function(", "eval(", "eval)(", ").constructor"),
    *(f"{timer}({quote}" for timer in ("setTimeout", "setInterval") for quote in "\"'`"),
)
_WRITES = ".write("
_FORMS = "FormData"
_OPTIONS: Final = "webmcp-gateway-options"
"""Stands for pages whose requests may have options that come as data, such as an integrity."""

_FETCH: Final = re.compile(r"\b(?:fetch|Request)\b")
_PLAIN_FETCH: Final = re.compile(
    r"""\b(?:fetch|Request)\(\s*(?:"[^"\n]*+"|'[^'\n]*+'|`[^`]*+`|[\w$.]++)\s*"""
    r"(?:,\s*\{(?:[^{}\[.]|\.(?!\.)|\{[^{}\[.]*+\}){0,2000}+\}\s*)?\)"
)
"""A request without options, or whose options stand there as written."""

_RESOLVED: Final = re.compile(
    r"\.(?:pathname|baseURI|documentURI|formAction)\b|\bdocument\.URL\b|\.(?:href|action)\b(?!\s*=(?!=))"
)
"""Matches the places where a script may read a URL that a browser resolves against the address of the page."""

_ALLOWS = {"Worker(": "blob-workers", "WebAssembly": "wasm"}
"""The permissions that our host gives to pages that contain these strings."""
FRAME_WORDS: Final = (
    *("<iframe", "<object", "<embed"),
    *(f"({quote}{name}" for name in ("iframe", "embed") for quote in "\"'`"),
    *(f"createElement({quote}object" for quote in "\"'`"),
)
"""The strings in pages that show or make frames, or elements for which the runtime makes one."""
EXTERNAL: Final = "webmcp-gateway-external"
"""Stands for pages whose policy has `external`."""
_TOOLS = "odelContext"
"""Matches `modelContext` and `ModelContext`."""
PARTS = {
    **dict.fromkeys((_TOOLS, "ToolActivatedEvent", "ToolCancelEvent", "agentInvoked"), ("tools/tools.js",)),
    **dict.fromkeys((_WRITES, ".writeln(", "document.open", ".open()"), ("rewritten/rewritten.js",)),
    **dict.fromkeys((_FORMS, "multipart/form-data"), ("files/files.js",)),
    # Before the part for declarative shadow roots.
    **dict.fromkeys(("toolname", *_ADDS_MARKUP), ("tools/tools.js", "forms/forms.js")),
    **dict.fromkeys(_SELDOM, ("seldom/seldom.js",)),
    "EventSource": ("events/events.js",),
    **dict.fromkeys(("assword", "uthorization", SECRET_ROUTES), ("logins/logins.js",)),
    **dict.fromkeys(("integrity", _OPTIONS), ("integrity/integrity.js",)),
    **dict.fromkeys(("arrayBuffer", ".bytes("), ("buffers/buffers.js",)),
    "XMLHttpRequest": ("xhr/xhr.js",),
    "WebSocket": ("sockets/sockets.js",),
    **dict.fromkeys(_ALLOWS, ("workers/workers.js",)),
    **dict.fromkeys(("CSSStyleSheet", "cssRules", "insertRule", "@import", "stylesheet"), ("sheets/sheets.js",)),
    **dict.fromkeys(_REFUSED, ("shims/shims.js",)),
    "indexedDB": ("shims/shims.js", "indexeddb/indexeddb.js"),
    **dict.fromkeys(
        _ADDS_SCRIPTS,
        (
            "files/files.js",
            "integrity/integrity.js",
            "seldom/seldom.js",
            "shims/shims.js",
            "tools/tools.js",
            "xhr/xhr.js",
        ),
    ),
    **dict.fromkeys(_MAKES_CODE, ("code/code.js", "tools/tools.js")),
    **dict.fromkeys(("alert(", "confirm(", "prompt("), ("dialogs/dialogs.js",)),
    IMPORT: ("modules/modules.js",),
    WAITS: ("late/late.js",),
    HELD: ("alone/alone.js",),
    ASKS: ("location/location.js",),
    PAGES: ("location/location.js", "pages/pages.js"),
    **dict.fromkeys(FRAME_WORDS, ("frames/frames.js",)),
    EXTERNAL: ("external/external.js",),
}
"""Optional parts of the view runtime: their files, by the string in a page that requires them.

In order: the last one wraps what earlier ones define.
"""

UNGUESSED = frozenset({ASKS, PAGES, WAITS, IMPORT, EXTERNAL})
"""The strings among them that occur only in packed pages."""

STORAGE_PART = "storage/storage.js"
"""The part that stores `localStorage` on the gateway, for the apps that are configured so."""

_UNASKED = (
    "routers of the history do not work in it: Node 20 or later makes `location` the app's own when it is packed (pip "
    "install 'webmcp-gateway[pack]', or put node on the PATH)"
)
_OURS = '<meta name="webmcp-gateway"'


def pack(
    source: Path,
    *,
    app: str,
    title: str,
    runtime: str,
    parts: Mapping[str, Collection[str]] | None = None,
    storage: str | None = None,
    base: str = "/",
    start: str = "/",
    permissions: Collection[str] = (),
    frames: Collection[str] = (),
    routed: Callable[[str], bool] = lambda _: False,
    external: External = NO_EXTERNAL,
    secret: bool = False,
    checked: bool = False,
    dedicated: bool = False,
) -> Resource:
    """Pack the web app in the folder (or HTML file) `source` into one HTML file.

    `runtime` is the view runtime's JavaScript, `parts` are its optional parts by the string in a page that requires
    them (`PARTS` lists the files); pages with scripts of the backend get all of them. `base` is the base of the app's
    relative URLs: a path, or the absolute URL of its own site; a `<base href>` of the page overrides its path. `start`
    is the path, query and fragment at which the app begins: a page of the folder, or a path of its router.
    `storage` is the script that stores the page's storage on the gateway: the page's own scripts then wait until it
    starts them. `permissions` are those that the page gets if it uses them, `frames` the origins of other sites that it
    may show if it contains them, `external` what it may load from them. `routed` tells which paths the backend answers:
    images, videos, style sheets and scripts at these are loaded at run time; with such a script, all of them wait, to
    run in order. `secret` means that some routes have secret bodies. `checked` reports scripts with syntax errors.
    `dedicated`: in our host, its frames have an origin of their own.
    Unchanged parts keep their bytes. What cannot be packed is left out as in a browser that cannot load it, with a
    warning. Raises `DocumentError` if there is no page.
    """
    first = find_page(source, start)
    root, path, start = first.root, first.path, first.url
    base = base if first.named else urljoin(base, start) if start != "/" else base
    refusals: list[Problem] = []
    vendored = read_vendored(source, refusals.append)
    asks = ASKS in (parts or {})
    replacements: dict[tuple[str, str], str | None] = {}

    def make(path: Path) -> PackResult:
        misread: list[Problem] = []
        page = parse(Folder(root, warn=misread.append).text(path))
        packing = Packing(page, path, root, base, app, routed, frames, external, vendored)
        packing.warnings += misread
        splices = packing.splices()
        text = splice(page.text.whole, splices)
        start = len(splice(page.text.whole[: page.head], [each for each in splices if each.start < page.head]))
        return PackResult(packing, text, start, location_changes(text, CLASSIC, replacements) if asks else None)

    main = make(path)
    packing, own_location = main.packing, main.own_location
    beside = others(source, path, main, make) if asks and own_location is not None else OtherPages()
    made = [main, *beside.pages.values()]
    packings = [one.packing for one in made]
    pages = beside.write(lambda text: text)
    data = [text for one in packings for text in one.scripts.texts]
    whole = "\n".join([*(one.whole() for one in made), *data, *([PAGES] if pages else [])])
    if any(one.scripts.fetches for one in packings):
        whole += IMPORT
    fetches = IMPORT in whole
    if own_location is not None and (
        fetches or _RESOLVED.search(whole) or (WORD in whole and any(word in whole for word in _MAKES_CODE))
    ):
        whole += ASKS  # so do scripts that are made from a text
    if all(word in whole for word in _CLOSED.split()):
        whole += _CLOSED
    if external:
        whole += EXTERNAL
    if _FETCH.search(_PLAIN_FETCH.sub("", whole)):
        whole += _OPTIONS
    # Scripts of the backend cannot be searched here, nor modules that the page fetches.
    waits = any(one.scripts.waits for one in packings)
    if secret:
        whole += SECRET_ROUTES
    guessed = frozenset(parts or {}) - UNGUESSED if waits or fetches else frozenset()
    words = [word for word in parts or {} if word != WAITS and (word in whole or word in guessed)]
    if not words and not any(one.scripts.any for one in packings):
        words = [word for word in parts or {} if word == _TOOLS]  # for scripts from elsewhere, such as a console's
    scripts = [script for word in words for script in (parts or {})[word]]
    runtime = with_parts(runtime, scripts, parts or {})
    snippets = [storage] if storage is not None else []
    starters = (parts or {}).get(WAITS, ()) if waits and not snippets else snippets
    if starters:
        runtime = ";".join([runtime, *starters])
        pages = beside.write(lambda text: hold_back(text, 0))
    about: dict[str, Json] = {"app": app, "title": title, "base": packing.base}
    if packing.declared_base is not None:
        about["declared"] = packing.declared_base
        # The page is not at a base that leads into a folder of the app.
        within = packing.prefix == "/" and urlsplit(packing.base).path != "/"
        about |= {"start": start} if start != "/" or within else {}
    elif first.named:
        about["base"] = urljoin(packing.base, start)
    if external:
        about["external"] = external_sites(external)
    head = pages + head_of(about, runtime)
    packed = main.whole(head)
    if starters:
        packed = hold_back(packed, packed.index(head) + len(head))
    raw = packed.encode()
    digest = hashlib.sha256(raw).hexdigest()
    size = size_note(packed, _ours(packed))
    if len(raw) > MOST:
        packing.notes.append(f"it is too large for the console, which shows pages of {MOST // 1024**2} MiB at most")
    if "data:font/" in packed:
        packing.notes.append("its fonts are embedded; hosts whose policy names no font source show others")
    csp: dict[str, Json] = {
        "connectDomains": [*external.connects()],
        "resourceDomains": [*external.resources()],
    }
    frame_origins = {origin for one in packings for origin in one.frame_origins}
    if allowed_frames := [origin for origin in frames if origin in frame_origins or origin in whole]:
        csp["frameDomains"] = [*allowed_frames]
    meta: dict[str, Json] = {"csp": csp}
    if granted := grant_permissions(whole, permissions):
        meta["permissions"] = granted
    syntax_errors = [problem for one in packings for problem in one.scripts.syntax_errors()] if checked else []
    if own_location is None and parts and WORD in main.text and "pushState" in main.text:
        packing.notes.append(_UNASKED)
    blocked = [
        problem
        for one in packings
        for problem in one.scripts.blocked_uses(asking=own_location is not None, dedicated=dedicated)
    ]
    noted = [note for one in packings for note in (*one.notes, *map(str, dict.fromkeys(one.scripts.notes)))]
    notices = (size, *noted, *notes(whole, permissions), *map(str, blocked))
    warnings = refusals + [problem for one in packings for problem in (*one.warnings, *one.scripts.warnings)]
    warnings.sort(key=lambda each: (each.file, each.line, each.column))
    return Resource(
        f"ui://{app}/{digest[:12]}.html",
        packed,
        meta,
        notices,
        _ours(packed),
        syntax_errors,
        [*dict.fromkeys(warnings)],
        external,
        FolderSite(packing.prefix, path),
        [*dict.fromkeys(url for one in packings for url in one.findings.foreign if url[0] != "icons")],
        [start for one in packings for start in one.findings.starts],
        [allowed for word, allowed in _ALLOWS.items() if word in whole or waits or fetches],
    )


def size_problem(resource: Resource) -> Problem | None:
    """Return the problem of a packed page that does not fit into the message that brings it to a view, or None."""
    size = _count_carried(resource.html) if len(resource.html) > CARRIED // 6 else 0  # JSON writes 6 bytes at most
    if size <= CARRIED or resource.folder is None:
        return None
    why = (
        f"the packed page is too large: {size:,} bytes as JSON, and a view gets {CARRIED:,} at most; "
        "move data, pictures and fonts out of the HTML into files that a backend serves under a route of the "
        "policy: they are loaded when the page runs"
    )
    return Problem(str(resource.folder.page), 1, 1, why)


def stand_in(resource: Resource, app: str, title: str, problem: Problem) -> Resource:
    """Return what views show instead of a page that no view can get: `problem` in words. The app's site keeps it."""
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_OURS} content="">'
        f"<title>{html.escape(title)}</title></head><body><h1>{html.escape(title)} cannot be shown here</h1>"
        f"<p>On its own site it works. In a view it does not: {html.escape(problem.message)}.</p></body></html>"
    )
    digest = hashlib.sha256(page.encode()).hexdigest()
    return Resource(
        f"ui://{app}/{digest[:12]}.html",
        page,
        {"csp": {"connectDomains": [], "resourceDomains": []}},
        head=_ours(page),
        warnings=resource.warnings,
        folder=resource.folder,
        unshown=problem,
    )


class FirstPage(NamedTuple):
    """The first page of the app in the folder `root`, and its URL on the app's site.

    `named`: the URL is that of the page's file; else it is a path of the app's router, at which the folder is served.
    """

    root: Path
    path: Path
    url: str
    named: bool


def find_page(source: Path, start: str = "/") -> FirstPage:
    """Return the page at `start` of the app in a folder or file, else the folder's own. Raises `DocumentError`."""
    root = source if source.is_dir() else source.parent
    named_page = _named_page(root, start) if source.is_dir() and start != "/" else None
    page = named_page or (source / INDEX if source.is_dir() else source)
    if not page.is_file():
        raise DocumentError([Problem(str(page), 1, 1, "there is no such file: an app is a folder with an index.html")])
    if not page.resolve().is_relative_to(page.parent.resolve()):
        raise DocumentError([Problem(str(page), 1, 1, "the page is a link to a file elsewhere: put the file here")])
    url = urlsplit(start)
    if named_page is not None and named_page.name == INDEX and not url.path.endswith(("/", INDEX)):
        start = url._replace(path=f"{url.path}/").geturl()  # the site leads there, too
    return FirstPage(root, page.resolve(), start, named_page is not None)


def _named_page(root: Path, start: str) -> Path | None:
    """Return the page of the folder at the path of `start`, or None."""
    path = unquote(urlsplit(start).path).lstrip("/")
    if "\0" in path or "\\" in path:
        return None
    named = root / path / INDEX if path.endswith("/") or (root / path).is_dir() else root / path
    is_page = named.suffix.lower() in (".html", ".htm") and named.is_file()
    return named if is_page and named.resolve().is_relative_to(root.resolve()) else None


def size_note(page: str, head: int) -> str:
    """Return a note about the size of a packed page, in which the gateway's additions begin at `head`."""
    end = "</script>"
    ours = page[head : page.index(end, page.index(_OURS)) + len(end)].encode()
    size = f"{len(page.encode()):,} bytes, of which {len(ours):,} are the view runtime with the parts for this page"
    return f"{size} ({len(gzip.compress(ours)):,} gzipped)"


def with_parts(runtime: str, scripts: Iterable[str], parts: Mapping[str, Collection[str]]) -> str:
    """Return the runtime with the requested parts: behind it, except those that it builds on."""
    requests = dict.fromkeys(scripts)
    first = [script for word in (_WRITES, _FORMS, _TOOLS, EXTERNAL) for script in parts.get(word, ())]
    behind = [script for script in requests if script not in first]
    return ";".join([*(script for script in first if script in requests), runtime, *behind])


def with_snapshot(
    resource: Resource, responses: Mapping[str, Json], tools: Collection[str] = (), secret: Sequence[Json] = ()
) -> str:
    """Return the page of `resource` with data for hosts that carry no calls; unchanged if there is none.

    The data are responses by URL, the names of the page's tools that the host may offer to models, and the routes whose
    bodies are secret.
    """
    return resource.html[: resource.head] + _snapshot(responses, tools, secret) + resource.html[resource.head :]


def _snapshot(responses: Mapping[str, Json], tools: Collection[str], secret: Sequence[Json]) -> str:
    if not responses and not tools and not secret:
        return ""
    snapshot = {"version": 1, "responses": responses, "tools": [*tools], **({"secret": [*secret]} if secret else {})}
    text = compact_json_utf8(snapshot)
    safe = text.replace("<", r"\u003c")
    return f'<script type="application/json" id="{SNAPSHOT}">{safe}</script>'


def _ours(packed: str) -> int:
    return packed.index(_OURS)


def external_sites(external: External) -> Json:
    """Return the other sites that a page may use, for the part of the runtime that lets it."""
    return {
        "files": [origin for kind in ("fonts", "images", "styles") for origin in external.origins.get(kind, ())],
        "connect": [*external.origins.get("connect", ())],
        "scripts": {**external.scripts},
    }


def head_of(about: Mapping[str, Json], runtime: str) -> str:
    """Return what comes first in a page: the data about the app, and the runtime."""
    config = html.escape(plain_json(about), quote=True)
    return f'{_OURS} content="{config}"><script>{as_element_text(runtime)}</script>'
