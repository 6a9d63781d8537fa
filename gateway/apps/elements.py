"""Packs each element of a page: keeps it, embeds its file, or removes it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from gateway.apps.files import (
    LARGEST,
    MEDIA_TYPES,
    TOO_LARGE,
    FileFindings,
    Folder,
    Reference,
    Splice,
    VendorFiles,
    encoding_of,
    is_embedded,
)
from gateway.apps.markup import Attribute, Element, Page
from gateway.apps.page_scripts import OF_BACKEND, PageScripts, check_integrity, remove_element
from gateway.apps.styles import as_element_text as style_text
from gateway.apps.styles import pack_styles
from gateway.errors import DocumentError, Problem
from gateway.policy.destinations import canonical_origin
from gateway.policy.page_rules import External

_SOURCES = {
    "audio": ("src",),
    "body": ("background",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "source": ("src", "srcset"),
    "svg:feimage": ("href", "xlink:href"),
    "svg:image": ("href", "xlink:href"),
    "table": ("background",),
    "td": ("background",),
    "th": ("background",),
    "track": ("src",),
    "video": ("src", "poster"),
}
"""The attributes with the URL of an image, a sound or a video."""

_FRAMES = {"iframe": "src", "frame": "src", "embed": "src", "object": "data", "svg:use": "href"}
_OF_FILE = {"svg:use": "put its <symbol> into the page"}
"""The remedy for such an element that shows a file of the app."""
_PLUGINS: Final = re.compile(
    r"[^?#]*\.(?:pdf|swf|jar|class)(?:[?#]|$)|application/(?:pdf|x-shockwave|x-java|java)", re.IGNORECASE
)
"""Matches the URLs and the types that only plugins show, which no frame of a host may load."""

HELD = "#webmcp-gateway:"
"""The marker in an attribute that the packer wrote; the page's original value follows, nothing if it had none."""

_NO_PICTURE = f"data:image/svg+xml,<svg%20xmlns='http://www.w3.org/2000/svg'%20width='0'/>{HELD}"
_NO_FILE = f"data:,x{HELD}"
"""The placeholders for a file of the backend, which a browser would otherwise request in vain, with an error."""

_KEPT = "!#$&'()*+,-./:;=?@_~"
"""The characters that JavaScript's `encodeURI` does not escape, beside letters and digits."""

EMBEDDED = 9 * 1024 * 1024
"""Characters of all pictures, films and sounds that are embedded: the console shows pages of 14 MiB."""

_NOT_EMBEDDED = (
    f"is loaded when the page runs: more than {EMBEDDED // 1024**2} MiB of pictures and films are not embedded"
)

_FOREIGN_BASE = "<base href> of another site counts as its path on the app's own: write a path like /shop/ or docs/"

_BLANK = "".join(map(chr, range(0x21)))
"""Spaces and control characters around a URL."""

_HINTS = frozenset({"preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "manifest"})
_ICONS = frozenset({"icon", "apple-touch-icon", "mask-icon"})
_LINKING = frozenset({"rel", "href", "type", "integrity", "crossorigin", "fetchpriority", "referrerpolicy"})
_CANDIDATE = re.compile(r"[\s,]*(\S*[^\s,])(\s[^,]*)?,?")


class Packing:
    """One page that is packed: the changes to make, and a warning for everything that is left out.

    `base` is the base of the app's URLs, `declared_base` the page's own `<base href>`; `frame_origins` are the
    other sites of `frames` that its elements show.
    """

    def __init__(
        self,
        page: Page,
        path: Path,
        root: Path,
        base: str,
        app: str,
        routed: Callable[[str], bool],
        frames: Collection[str],
        external: External,
        vendored: VendorFiles,
    ) -> None:
        self._frames = frames
        self._page = page
        self._embedded_bytes = 0
        self.warnings: list[Problem] = []
        self.notes: list[str] = []
        self.frame_origins: set[str] = set()
        self.declared_base: str | None = None
        self.base = urljoin(base, self._declared_base())
        self._path, prefix = _place(path, root, urlsplit(self.base).path)
        self.prefix = prefix
        """The URL path at which the folder is served."""
        self.findings = FileFindings()
        self._folder = Folder(root, prefix, routed, self.warnings.append, external, self.findings, vendored)
        self.scripts = PageScripts(
            page, self._path, self._folder, home=urljoin(f"https://{app}.invalid/", self._home())
        )

    def url(self, path: Path) -> str:
        """Return the path on the app's site of the file `path`, which is in the folder."""
        return self._folder.url(path)

    def splices(self) -> list[Splice]:
        """Return the changes to the page's text."""
        all_splices: list[Splice] = []
        size = 0
        for element in self._page.elements:
            try:
                element_splices = self._element(element)
            except DocumentError as error:
                self.warnings += error.problems
                continue
            growth = sum(len(splice.text) for splice in element_splices)
            if size + growth > LARGEST:
                self.warnings.append(self._page.text.problem(element.start, TOO_LARGE))
                element_splices = [remove_element(element)] if element.name in ("script", "style", "link") else []
                growth = 0
            size += growth
            all_splices += element_splices
        return [*all_splices, *self.scripts.link_changes()]

    def _home(self) -> str:
        """Return the path or URL from which the folder's files are addressed.

        That is the root if scripts and sheets are named from there, though the app begins at a path of its router.
        """
        loading = [element for element in self._page.elements if element.name in ("script", "link")]
        urls = [element.get("src") or element.get("href") or "" for element in loading]
        rooted_urls = [url for url in urls if url.startswith("/") and not url.startswith("//")]
        below = any(url.startswith(self.prefix) for url in rooted_urls)
        return self.base if below or not rooted_urls else "/"

    def _declared_base(self) -> str:
        for element in self._page.elements:
            href = element.attributes.get("href")
            if element.name != "base" or href is None:
                continue
            # As URL parsers of browsers read it: these characters are no part of it.
            url = re.sub(r"[\t\n\r]", "", href.value.strip(_BLANK))
            self.declared_base = url
            if url in (".", "./"):
                return ""
            if re.fullmatch(r"/?(?![a-zA-Z][a-zA-Z0-9+.-]*:)([^/\\][^\\]*)?", url):
                return url
            self.declared_base = _path_of(url)
            self.warnings.append(self._page.text.problem(href.start, _FOREIGN_BASE))
            return self.declared_base
        return ""

    def _element(self, element: Element) -> list[Splice]:
        styled_splice = self._style_attribute(element)
        match element.name:
            case "meta" if self._charset(element) is not None:
                return [*styled_splice, *self._in_utf_8(element)]
            case "base" if "href" in element.attributes:
                return [remove_element(element)]  # it would lead to the host's site
            case "script":
                return self.scripts.take(element)
            case "svg:script":
                return self._script_of_svg(element)
            case "style" | "svg:style":
                return [*styled_splice, self._style(element)]
            case "link":
                return self._link(element)
            case "meta" if (element.get("http-equiv") or "").lower() == "content-security-policy":
                self.notes.append("its <meta> content security policy is left out: the host's applies")
                return [remove_element(element)]
            case name if name in _FRAMES:
                return [*styled_splice, *self._frame(element, _FRAMES[name]), *self._sources(element)]
            case _:
                pass
        return [*styled_splice, *self._sources(element)]

    def _reference(self, attribute: Attribute, url: str | None = None) -> Reference:
        return Reference(attribute.value if url is None else url, self._page.text, attribute.start)

    def _sources(self, element: Element) -> list[Splice]:
        splices: list[Splice] = []
        for name in _SOURCES.get(element.name, ()):
            attribute = element.attributes.get(name)
            if attribute is None:
                continue
            packed = self._srcset(attribute) if name == "srcset" else self._file(attribute, attribute.value)
            if self._waits(element, *(_urls_of(packed) if name == "srcset" else [packed])):
                splices.append(Splice(attribute.start, attribute.end, _hold(element, name, packed)))
            elif packed != attribute.value:
                splices.append(Splice(attribute.start, attribute.end, f'{name}="{html.escape(packed)}"'))
        return splices

    def _waits(self, element: Element, *urls: str, kind: str = "images") -> bool:
        """Return whether `element` contains the URL of a file that no browser should load by itself.

        Those are files of the backend, and what is missing: the page asks the gateway for them.
        """
        return not element.inert and not all(is_embedded(url) or self._folder.opens(url, kind) for url in urls)

    def _file(self, attribute: Attribute, url: str) -> str:
        if self._folder.opens(url, "images"):
            return url
        if (left := self._folder.url_to_write(url, self._path)) is not None:
            return left
        try:
            data = self._folder.data_url(self._reference(attribute, url), self._path)
        except DocumentError as error:  # continue: other URLs of the element may be wrong, too
            self.warnings += error.problems
            return self._folder.path_from_root(url, self._path)
        if self._embedded_bytes + len(data) > EMBEDDED:
            self.warnings.append(self._page.text.problem(attribute.start, f"{url[:200]} {_NOT_EMBEDDED}"))
            return self._folder.path_from_root(url, self._path)
        self._embedded_bytes += len(data)
        return data

    def _srcset(self, attribute: Attribute) -> str:
        candidates = _CANDIDATE.findall(attribute.value)
        return ", ".join(self._file(attribute, url) + size.rstrip() for url, size in candidates)

    def _style_attribute(self, element: Element) -> list[Splice]:
        attribute = element.attributes.get("style")
        if attribute is None:
            return []
        css = pack_styles(self._page.part(attribute.start + len('style="')), attribute.value, self._path, self._folder)
        return [Splice(attribute.start, attribute.end, f'style="{html.escape(css)}"')] if css != attribute.value else []

    def _style(self, element: Element) -> Splice:
        css = self._page.text.whole[element.end : element.text_end]
        packed = pack_styles(self._page.part(element.end), css, self._path, self._folder)
        return Splice(element.end, element.text_end, style_text(packed))

    def _link(self, element: Element) -> list[Splice]:
        rel = element.tokens("rel")
        href = element.attributes.get("href")
        # A preloaded sheet may activate itself: `onload="this.rel='stylesheet'"`.
        late = "preload" in rel and "stylesheet" in (element.get("onload") or "")
        if rel & _HINTS and not late:
            return [remove_element(element)]
        if href is None:
            return []
        sheet = late or "stylesheet" in rel
        if sheet and self._folder.opens(href.value, "styles"):
            return []
        if self._folder.url_to_write(href.value, self._path) is not None:
            return [self._untype(element, href)] if sheet and self._waits(element, href.value) else []
        if "stylesheet" in rel and "alternate" in rel:
            self.notes.append(f"the alternate style sheet {href.value} is left out")
            return [remove_element(element)]
        if sheet:
            try:
                return [Splice(element.start, element.end, self._sheet(element, href))]
            except DocumentError as error:
                self.warnings += error.problems
                return self._in_vain(element, href)
        if rel & _ICONS:
            return self._icon(element, href)
        return []

    def _in_vain(self, element: Element, href: Attribute) -> list[Splice]:
        """Keep the link of a missing sheet: the page asks the gateway for it, and the link reports an error."""
        url = self._folder.path_from_root(href.value, self._path)
        changes = [] if element.inert else [self._untype(element, href)]
        if url == href.value:
            return changes
        if changes and changes[0].start == href.start:
            return [Splice(href.start, href.end, f'{changes[0].text}href="{html.escape(url)}"')]
        return [*changes, Splice(href.start, href.end, f'href="{html.escape(url)}"')]

    def _icon(self, element: Element, href: Attribute) -> list[Splice]:
        """Embed an icon, which scripts may read; without a word if that is not possible, since no view shows one."""
        try:
            packed = self._folder.data_url(self._reference(href), self._path, "icons")
        except DocumentError:
            return [remove_element(element)]
        return [Splice(href.start, href.end, f'href="{html.escape(packed)}"')]

    def _charset(self, element: Element) -> str | None:
        """Return the encoding that a `<meta>` declares, if it declares another one than that of packed pages."""
        charset = element.get("charset") or ""
        if (element.get("http-equiv") or "").lower() == "content-type":
            charset = (element.get("content") or "").lower().rpartition("charset=")[2]
        return charset if charset and encoding_of(charset) not in ("utf-8", "") else None

    def _in_utf_8(self, element: Element) -> list[Splice]:
        return [Splice(element.start, element.close_end, '<meta charset="utf-8">')]

    def _untype(self, element: Element, href: Attribute) -> Splice:
        """Give a stylesheet link an unknown type: a browser would otherwise request it in vain, with an error."""
        kind = element.attributes.get("type")
        if kind is None:
            return Splice(href.start, href.start, f'type="{HELD}" ')
        return Splice(kind.start, kind.end, f'type="{HELD}{quote(kind.value, safe=_KEPT)}"')

    def _sheet(self, element: Element, href: Attribute) -> str:
        path = self._folder.find(self._reference(href), self._path, "styles")
        check_integrity(self._folder, element, path, self._reference(href))
        text = self._folder.text(path, self._reference(href), element.get("charset") or "")
        css = pack_styles(text, text.whole, path, self._folder, (path,))
        unsaid = _LINKING if "preload" not in element.tokens("rel") else _LINKING | {"as", "onload"}
        return f"<style{element.source_text(without=unsaid)}>{style_text(css)}</style>"

    def _frame(self, element: Element, source: str) -> list[Splice]:
        """Return the changes for an element that shows another document."""
        attribute = element.attributes.get(source) or element.attributes.get(f"xlink:{source}")
        if attribute is None or is_embedded(attribute.value):
            return []
        name = element.name.rpartition(":")[2]
        try:
            site = urlsplit(attribute.value.strip())
        except ValueError as error:
            return self._shows_nothing(attribute, f"{attribute.value[:80]} can name no file: {error}")
        if not site.netloc and not site.scheme and element.name == "iframe":
            return self._own_frame(attribute)
        if not site.netloc and not site.scheme and element.name in ("object", "embed"):
            return self._shown_by_runtime(element, attribute)
        if not site.netloc:
            remedy = _OF_FILE.get(element.name, "put what it shows into the page")
            message = f"<{name} {attribute.name}> of a file cannot be packed into one HTML, and shows nothing: {remedy}"
            return self._shows_nothing(attribute, message)
        origin = canonical_origin(site.scheme or "https", site.netloc)
        if element.name == "iframe" and origin in self._frames:
            self.frame_origins.add(origin)
            return []
        remedies = {"iframe": f"name {origin} under `frames` in the policy", "use": _OF_FILE["svg:use"]}
        remedy = remedies.get(name, "use an <iframe>")
        return self._shows_nothing(attribute, f"<{name}> of another site, which hosts block, shows nothing: {remedy}")

    def _own_frame(self, attribute: Attribute) -> list[Splice]:
        """Return the change for a frame that shows a page of the backend or the folder: the runtime loads it."""
        named = urlsplit(attribute.value.strip()).path
        try:
            if named and self._folder.url_to_write(attribute.value, self._path) is None:
                self._folder.find(self._reference(attribute), self._path, "frames")
        except DocumentError as error:
            self.warnings += error.problems
        return [Splice(attribute.start, attribute.start, OF_BACKEND)]

    def _shown_by_runtime(self, element: Element, attribute: Attribute) -> list[Splice]:
        """Return the change for an <object> or <embed>: the runtime shows its picture or page, since no plugin runs."""
        url, name = attribute.value, element.name
        if _PLUGINS.match(url.strip()) or _PLUGINS.match((element.get("type") or "").strip()):
            remedy = "link to the file with <a href>: the host opens it"
            return self._shows_nothing(attribute, f"<{name}> of a file for a plugin shows nothing: {remedy}")
        if MEDIA_TYPES.get(Path(urlsplit(url.strip()).path).suffix.lower(), "").startswith("image/"):
            packed = html.escape(self._file(attribute, url))
            return [Splice(attribute.start, attribute.end, f'{OF_BACKEND}{attribute.name}="{packed}"')]
        return self._own_frame(attribute)

    def _shows_nothing(self, attribute: Attribute, message: str) -> list[Splice]:
        """Rename the attribute, so that no host loads what the policy does not name."""
        self.warnings.append(self._page.text.problem(attribute.start, message))
        return [Splice(attribute.start, attribute.end, f'data-left-out="{html.escape(attribute.value)}"')]

    def _script_of_svg(self, element: Element) -> list[Splice]:
        source = element.attributes.get("href") or element.attributes.get("xlink:href")
        if source is None or is_embedded(source.value):
            return []
        message = "a <script> of an SVG cannot be packed, and is left out: write <script src> outside of it"
        return self._shows_nothing(source, message)


def _path_of(url: str) -> str:
    """Return the path of a URL of another site."""
    try:
        path = urlsplit(url.replace("\\", "/")).path
    except ValueError:
        return "/"
    return f"/{path.lstrip('/')}" if path.startswith("/") else "/"


def _place(page: Path, root: Path, base: str) -> tuple[Path, str]:
    """Return the place from which a page's relative URLs lead to files, and the URL path of the folder.

    A `base` that is no folder in `root` is the URL path at which `root` itself is served.
    """
    folder = (root / unquote(base.rpartition("/")[0]).lstrip("/")).resolve()
    if folder == root.resolve() or not (folder.is_dir() and folder.is_relative_to(root.resolve())):
        return page, base.rpartition("/")[0] + "/"
    return folder / page.name, "/"


def _urls_of(srcset: str) -> list[str]:
    return [url for url, _ in _CANDIDATE.findall(srcset)]


def _hold(element: Element, name: str, value: str) -> str:
    """Return the attribute `name` with the backend's URL `value` hidden from browsers, for the view runtime to read."""
    attribute_text = f'{name}="{html.escape(value)}"'
    if (element.name, name) == ("img", "src"):
        return attribute_text if "srcset" in element.attributes else f'{attribute_text} srcset="{_NO_PICTURE}"'
    if ":" in element.name:
        return attribute_text
    nothing = _NO_FILE if name == "src" and element.name != "input" else _NO_PICTURE
    return f'{name}="{nothing}{html.escape(quote(value, safe=_KEPT))}"'
