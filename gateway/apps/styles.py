"""Packs style sheets: inlines their imports, and embeds their files as data: URLs."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from urllib.parse import quote

from gateway.apps.files import LARGEST, TOO_LARGE, Folder, Reference, Text, is_embedded
from gateway.errors import DocumentError

_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_URL = rf"url\(\s*(?:(?P<quoted>{_QUOTED})|(?P<bare>[^\s\"'()]+))\s*\)"
_GAP = r"(?:\s|(?>/\*.*?\*/))"
_IMPORT = (
    rf"@import(?:{_GAP}+|(?=[\"']))"
    rf"(?:(?P<string>{_QUOTED})|{_URL.replace('quoted', 'url_quoted').replace('bare', 'url_bare')})"
    r"(?P<condition>[^;{]*)(?:;|\Z)"
)
_SET = rf"image-set\((?P<set>(?:[^()\"']|{_QUOTED}|\((?:[^()\"']|{_QUOTED})*\))*)\)"
_TOKEN = re.compile(
    rf"/\*.*?\*/|@(?:namespace|charset)[^;]*;|{_IMPORT}|{_URL}|{_SET}|{_QUOTED}", re.DOTALL | re.IGNORECASE
)
_OF_SET = re.compile(rf"{_URL}|type\([^)]*\)|(?P<string>{_QUOTED})", re.IGNORECASE)
_NESTED = r"(?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*"
_CONDITION = re.compile(
    rf"(?P<layered>layer(?:\((?P<layer>[^)]*)\)|(?![\w(-])))?\s*"
    rf"(?:supports\((?P<supports>{_NESTED})\))?\s*(?P<media>.*)",
    re.DOTALL | re.IGNORECASE,
)
_KEPT = "!#$&*+,-./:;=?@_~%[]"
"""The characters of a URL that a quoted `url()` can contain as they are."""

_FONT = re.compile(r"\.(?:eot|otf|ttf|woff2?)(?:[?#]|\Z)", re.IGNORECASE)


def _in_font_face(css: str, at: int) -> bool:
    """Return whether the rule around a position declares a font."""
    start = css.rfind("{", 0, at)
    return css[:start].rstrip()[-10:].lower() == "@font-face"


_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-9a-fA-F]{1,6})\s?|\\(.)", re.DOTALL)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _character(int(match[1], 16)) if match[1] else match[2], text)


def _character(code: int) -> str:
    """Return a character, or U+FFFD for an invalid code (CSS Syntax 3, 4.3.7)."""
    return "\ufffd" if code == 0 or 0xD800 <= code <= 0xDFFF or code > 0x10FFFF else chr(code)


def _value(match: re.Match[str], *groups: str) -> tuple[str, int]:
    """Return the value of the first of `groups` that matched, and its position."""
    group = next(name for name in groups if match[name] is not None)
    text = match[group]
    return _unescape(text[1:-1] if text[0] in "\"'" else text), match.start(group)


def pack_styles(
    text: Text,
    css: str,
    beside: Path,
    folder: Folder,
    within: tuple[Path, ...] = (),
    packed: dict[Path | None, str] | None = None,
) -> str:
    """Pack `css`, the content of `text` in the file `beside`. Raises `DocumentError` if it becomes too large.

    `within` are the files that import it; `packed` caches the results of imports, and the first imports of other sites
    under `None`, which the outermost sheet begins with: browsers ignore them elsewhere.
    """
    known: dict[Path | None, str] = packed if packed is not None else {None: ""}

    def replace(match: re.Match[str]) -> str:
        if match["condition"] is not None:
            try:
                return _import(text, match, beside, folder, within, known)
            except DocumentError as error:
                for problem in error.problems:
                    folder.warn(problem)
                return ""
        if match["set"] is not None:
            before = match[0][: match.start("set") - match.start()]
            return f"{before}{_OF_SET.sub(partial(fill, match.start('set')), match['set'])})"
        return fill(0, match)

    def fill(start: int, match: re.Match[str]) -> str:
        groups = [name for name in ("quoted", "bare", "string") if match.groupdict().get(name) is not None]
        if not groups:
            return match[0]
        url, at = _value(match, *groups)
        url = folder.absolute(url, beside)
        if folder.opens(url, "images", "fonts"):
            return match[0]
        if (left := folder.url_to_write(url, beside)) is not None:
            # The view runtime loads the files of url().
            if left == _value(match, *groups)[0] and (groups[0] != "string" or is_embedded(url)):
                return match[0]
            return 'url("{}")'.format(left.replace("\\", "%5C").replace('"', "%22"))
        kind = "fonts" if _FONT.search(url) or _in_font_face(css, match.start()) else "images"
        try:
            return f'url("{folder.data_url(Reference(url, text, start + at), beside, kind)}")'
        except DocumentError as error:
            for problem in error.problems:
                folder.warn(problem)
            # As the view runtime writes a file that it cannot load.
            return f'url("#{quote(url, safe=_KEPT)}")'

    whole = _TOKEN.sub(replace, css)
    if len(whole) > LARGEST:
        raise text.error(0, TOO_LARGE)
    return known[None] + whole if packed is None else whole


def _import(
    text: Text,
    match: re.Match[str],
    beside: Path,
    folder: Folder,
    within: tuple[Path, ...],
    packed: dict[Path | None, str],
) -> str:
    written, at = _value(match, "string", "url_quoted", "url_bare")
    url = folder.absolute(written, beside)
    reference = Reference(url, text, at)
    condition = _COMMENT.sub(" ", match["condition"]).strip()
    if folder.opens(url, "styles"):
        packed[None] += f'@import url("{quote(url, safe=_KEPT)}") {condition};'
        return ""
    if not is_embedded(url) and folder.url_to_write(url, beside) is not None:
        raise reference.error(f"{url} is a sheet of the backend, which cannot be imported: name it in a <link>")
    path = folder.find(reference, beside, "styles", routable=False)
    if path in within:
        raise reference.error(f"{url} imports itself, which has no effect")
    if path not in packed:
        packed[path] = ""  # its problems are reported once, also if it is too large
        style_sheet = folder.text(path, reference)
        packed[path] = pack_styles(style_sheet, style_sheet.whole, path, folder, (*within, path), packed)
    return _under(condition, packed[path])


def _under(condition: str, css: str) -> str:
    """Wrap `css` in blocks for the condition of an `@import` (CSS Cascade 5, 2)."""
    parsed = _CONDITION.fullmatch(condition)
    if parsed is None:
        return css
    if parsed["media"]:
        css = f"@media {parsed['media']} {{\n{css}\n}}"
    if parsed["supports"]:
        css = f"@supports ({parsed['supports']}) {{\n{css}\n}}"
    return f"@layer {(parsed['layer'] or '').strip()} {{\n{css}\n}}" if parsed["layered"] else css


def as_element_text(css: str) -> str:
    """Escape `css` so that it cannot end its `<style>` element."""
    return re.sub(r"</(?=style)", r"<\\/", css, flags=re.IGNORECASE)
