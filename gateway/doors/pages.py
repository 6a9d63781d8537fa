"""The few pages that a login shows: they hold no script, and nothing of them may be framed."""

from __future__ import annotations

import re
from html import escape

from aiohttp import web

from gateway.doors.answers import SECURE

_LOCAL = re.compile(r"/(?![/\\])[!-~]{0,8000}", re.ASCII)
_HEADERS = {
    **SECURE,
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


def local(path: str | None) -> str:
    """A place on the same site to go to; `/` for what is none."""
    return path if path is not None and _LOCAL.fullmatch(path) else "/"


def page(title: str, text: str, status: int = 200, link: tuple[str, str] | None = None) -> web.Response:
    """A page that says one thing; `link` is a path of the site, and its words."""
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><h1>{escape(title)}</h1><p>{escape(text)}</p>"
    )
    html += f'<p><a href="{escape(link[0])}">{escape(link[1])}</a></p>' if link is not None else ""
    return web.Response(status=status, text=html, content_type="text/html", headers=_HEADERS)


def onwards(path: str) -> web.Response:
    """A page that goes to `path` of its own site at once.

    Browsers send `SameSite=Strict` cookies with what a page of the site asks for, not where another site leads to it.
    """
    to = escape(local(path))
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={to}">'
        f'<title>One moment</title><p><a href="{to}">Go on</a></p>'
    )
    return web.Response(text=html, content_type="text/html", headers=_HEADERS)
