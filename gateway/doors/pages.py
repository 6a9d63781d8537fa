"""Small pages of text for persons: around a login, and in place of an error that a browser would show as JSON."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from gateway.doors.access import IncomingRequest
from gateway.doors.responses import SECURE, RefusedResponse
from gateway.jsontext.reading import parse_json

_LOCAL: Final = re.compile(r"/(?![/\\])[!-~]{0,8000}", re.ASCII)
_CODE: Final = re.compile("`([^`<>]*)`")
"""Text that a person types, as every message marks it."""
_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{max-width:30rem;margin:20vh auto 0;padding:0 1rem;font:1rem/1.5 system-ui,sans-serif;"
    "background:light-dark(#f4f5f7,#0e1014);color:light-dark(#171a21,#e8eaef);overflow-wrap:anywhere}"
    "h1{font-size:1.4rem}small{color:light-dark(#5b6270,#a2a9b8)}"
    "a{color:light-dark(#4050d8,#8c9aff)}code{font:0.9em ui-monospace,monospace}"
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


def page(title: str, text: str, status: int = 200, *links: tuple[str, str], note: str = "") -> web.Response:
    """Return a page with one text; a link is a URL or a path of the site, and its label. `note` is for developers."""
    words = _CODE.sub(r"<code>\1</code>", escape(text))
    html = f"{_HEAD}<title>{escape(title)}</title><main><h1>{escape(title)}</h1><p>{words}</p>"
    for url, label in links:
        html += f'<p><a href="{escape(url)}">{escape(label)}</a></p>'
    html += f"<p><small>{escape(note)}</small></p>" if note else ""
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


_TITLES: Final = {
    400: "This request is not valid",
    403: "Not allowed",
    404: "Nothing here",
    405: "Nothing here",
    413: "Too large",
    421: "Not an address of this gateway",
    429: "Too many requests",
    502: "The app's server did not answer",
    504: "The app's server did not answer in time",
}
"""The headings of error pages; other errors are named as in RFC 9110."""
_NOTHING: Final = "There is no page at this address of the gateway."
_OWN: Final = frozenset(("content-type", "content-length", "content-security-policy", *SECURE))


def is_navigation(request: IncomingRequest) -> bool:
    """Return whether a browser navigates to a page."""
    headers = request.headers
    going = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return request.method == "GET" and going


def readable(request: web.Request, answer: web.StreamResponse | web.HTTPException) -> web.StreamResponse:
    """Return `answer`, or a page that says the same if a person navigated to an error of the gateway itself."""
    if answer.status < 400 or not is_navigation(request):
        return answer
    problem: dict[str, Any] = {}
    if isinstance(answer, web.HTTPException):
        problem["detail"] = _NOTHING if answer.status in (404, 405) else answer.reason
    elif isinstance(answer, web.Response) and answer.content_type == "application/problem+json" and _is_own(answer):
        problem = parse_json(answer.body) if isinstance(answer.body, bytes) else {}
    else:
        return answer
    url, title = problem.get("connect_url"), _TITLES.get(answer.status) or HTTPStatus(answer.status).phrase
    html = page(
        title,
        problem.get("detail", title),
        answer.status,
        *([(url, "Connect the account")] if isinstance(url, str) else []),
        note=_note(problem),
    )
    for name, value in answer.headers.items():
        if name.lower() not in _OWN:
            html.headers[name] = value
    if not answer.keep_alive:
        html.force_close()
    return html


def _is_own(answer: web.Response) -> bool:
    """Return whether an answer is of the gateway, not of a backend."""
    return isinstance(answer, RefusedResponse) or "gateway-reason" in answer.headers


def _note(problem: Mapping[str, str]) -> str:
    """Return the reason code, and what helps to find the cause in the policy and in the record."""
    code = problem.get("type", "").rpartition(":")[2]
    entry = f"entry {problem['instance']} of the record" if "instance" in problem else None
    return "; ".join(filter(None, (code, problem.get("cause"), entry)))
