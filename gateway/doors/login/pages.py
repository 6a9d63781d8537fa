"""The few pages of a login: without scripts, and never in a frame."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from typing import Any, Final

from aiohttp import web

from gateway.doors.responses import SECURE, RefusedResponse

_LOCAL = re.compile(r"/(?![/\\])[!-~]{0,8000}", re.ASCII)
_CODE: Final = re.compile("`([^`<>]*)`")
"""Text that a person types, as every message marks it."""
_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{max-width:30rem;margin:20vh auto 0;padding:0 1rem;font:1rem/1.5 system-ui,sans-serif;"
    "background:light-dark(#f4f5f7,#0e1014);color:light-dark(#171a21,#e8eaef);overflow-wrap:anywhere}"
    "h1{font-size:1.4rem}a{color:light-dark(#4050d8,#8c9aff)}code{font:0.9em ui-monospace,monospace}"
)
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_CSP: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    **SECURE,
    "cache-control": "no-store",
    "content-security-policy": f"{_CSP}; style-src 'sha256-{_DIGEST}'",
}
_HEAD: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    f"<style>{_STYLE}</style>"
)


def local(path: str | None) -> str:
    """Return `path` if it is one of the same site, else `/`."""
    return path if path is not None and _LOCAL.fullmatch(path) else "/"


def page(title: str, text: str, status: int = 200, link: tuple[str, str] | None = None) -> web.Response:
    """Return a page with one text; `link` is a path of the site, and its label."""
    words = _CODE.sub(r"<code>\1</code>", escape(text))
    html = f"{_HEAD}<title>{escape(title)}</title><main><h1>{escape(title)}</h1><p>{words}</p>"
    html += f'<p><a href="{escape(link[0])}">{escape(link[1])}</a></p>' if link is not None else ""
    html += "</main>"
    fields: dict[str, Any] = {"status": status, "text": html, "content_type": "text/html", "headers": _HEADERS}
    return web.Response(**fields) if status < 400 else RefusedResponse(title.lower().replace(" ", "-"), text, **fields)


def onwards(path: str) -> web.Response:
    """Return a page that continues to `path` on the same site at once.
    Browsers send `SameSite=Strict` cookies with same-site requests, but not with a navigation from another site.
    """
    to = escape(local(path))
    html = (
        f'{_HEAD}<meta http-equiv="refresh" content="0; url={to}">'
        f'<title>One moment</title><main><h1>One moment</h1><p><a href="{to}">Go on</a></p></main>'
    )
    return web.Response(text=html, content_type="text/html", headers=_HEADERS)
