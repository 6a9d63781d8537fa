"""Makes an app of a test page: the page as it is served, with the scripts that it names, for the packer."""

from __future__ import annotations

import json
import re
from html import escape as html_of
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import aiohttp

_SCRIPT = re.compile(r"""(<script\b[^>]*?\bsrc=)(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.I)
_IMPORT = re.compile(r"""^\s*import\b[^"';]*["'](\.{0,2}/[^"']+\.js)["']""", re.M)
_START = re.compile(r"\s*(?:<!--.*?-->\s*)*(?:<!doctype[^>]*>)?\s*(?:<html[^>]*>\s*)?(?:<head[^>]*>)?", re.I | re.S)


class Unpackable(Exception):
    """The page cannot be made an app; the message is the reason."""


async def write_app(client: aiohttp.ClientSession, origin: str, url: str, folder: Path) -> None:
    """Write the page at `url` and its scripts into `folder`, as an app whose address is the page's own.

    Scripts that a server program generates are left to it, as the scripts of a backend.
    """
    async with client.get(origin + url) as response:
        if response.status != 200:
            raise Unpackable(f"the server answers {response.status}")
        html = await response.text("utf-8", "replace")
    if re.search(r"^\s*<\?xml|xmlns=", html[:400]) and url.partition("?")[0].endswith((".xhtml", ".xht")):
        raise Unpackable("it is XML")
    declared = re.search(r"<base\b", html, re.I)
    names: dict[str, str] = {}
    for found in _SCRIPT.finditer(html):
        named = found[2] or found[3] or found[4]
        target = urlsplit(urljoin(origin + url, named))
        if f"{target.scheme}://{target.netloc}" == origin and target.path.endswith(".js"):
            names[found[0]] = found[1] + f'"{target.path}"'
            place = folder / unquote(target.path).lstrip("/")
            await _copy(client, origin + target.path, target.query, place)
    for named in _IMPORT.findall(html):
        path = urlsplit(urljoin(origin + url, named)).path
        await _copy(client, origin + path, "", folder / unquote(path).lstrip("/"))
    for written, rooted in names.items():
        html = html.replace(written, rooted)
    moved = "<script>history.replaceState(null, '', {})</script>".format(json.dumps(url).replace("<", "\\u003c"))
    base = "" if declared else f'<base href="{html_of(url)}">'
    start = _START.match(html)
    at = start.end() if start else 0
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(html[:at] + moved + base + html[at:], "utf-8")


async def _copy(client: aiohttp.ClientSession, url: str, query: str, path: Path) -> None:
    if path.exists():
        return
    async with client.get(f"{url}?{query}" if query else url) as response:
        if response.status == 200:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(await response.text("utf-8", "replace"), "utf-8")
