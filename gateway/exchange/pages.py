"""Requests of pages that a backend renders: what a browser on the backend's own site adds to them, and reads."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from msgspec.structs import replace
from yarl import URL

from gateway.jsontext.reading import parse_json
from gateway.model import Headers, Json, PageContext, Request
from gateway.policy import SAFE_METHODS, without

FIELD: Final = "webmcp-gateway-page"
"""The header in which a shell, or a packed page for its frames, describes the page that makes the request.

It is never sent on.
"""

COOKIES: Final = "webmcp-gateway-cookies"
"""The header with the cookies that the page's scripts may read; no backend can send it."""

POLICY: Final = "webmcp-gateway-csp"
"""The header with the backend's own content security policy, for its page alone."""

NAME: Final = "webmcp-gateway"
"""The beginning of the names of the gateway's own cookies."""

LONGEST: Final = 2048
"""Characters of the path in a `Referer`; a longer one is the origin alone, as in browsers (Referrer Policy, 8.4)."""

_MEANT: Final = re.compile(rb"_method=(put|patch|delete)", re.IGNORECASE)
_MEANT_PART: Final = rb'--%b\r\ncontent-disposition: form-data; name="_method"\r\n\r\n(put|patch|delete)\r\n(?=--)'
_BOUNDARY: Final = re.compile(r'^multipart/form-data\s*;.*?boundary="?([^";,\s]+)', re.IGNORECASE)

_MODES: Final = ("navigate", "cors", "no-cors", "same-origin")
_ELSEWHERE: Final = ("cross-site", "same-site")
_DESTINATIONS: Final = ("document", "empty", "script", "style", "image", "font", "audio", "video", "iframe")


def is_of_page(request: Request) -> bool:
    """Return whether its header describes the page that makes the request."""
    return any(name.lower() == FIELD for name, _ in request.headers)


def with_page(request: Request, *, shares_cookies: bool) -> Request:
    """Return the request with the context that its header describes, without that header.

    `shares_cookies`: scripts of the app's pages share cookies with its jar. Those of packed apps never do.
    """
    values = [value for name, value in request.headers if name.lower() == FIELD]
    context = _read(values[0]) if len(values) == 1 else PageContext()
    if not shares_cookies:
        context = replace(context, cookies=(), shares_cookies=False)
    return replace(request, headers=without(request.headers, (FIELD,)) if values else request.headers, page=context)


def after_redirect(request: Request) -> Request:
    """Return the request after a redirect: what the page's scripts set was stored by the first one."""
    return replace(request, page=replace(request.page, cookies=())) if request.page is not None else request


def page_of_browser(headers: Headers) -> PageContext:
    """Return the context of a request that a browser makes at the app's own site.

    A page of another origin is not one of the app's: the backend must not take its link for one of its own.
    """
    fields = {name.lower(): value for name, value in headers}
    site = fields.get("sec-fetch-site", "")
    try:
        referer = urlsplit(fields.get("referer", ""))
    except ValueError:  # not a URL, such as `http://[`
        referer = urlsplit("")
    is_own = bool(referer.netloc) and referer.netloc == fields.get("host", referer.netloc) and site not in _ELSEWHERE
    path = f"{referer.path or '/'}{'?' if referer.query else ''}{referer.query}" if is_own else ""
    mode, destination = fields.get("sec-fetch-mode", ""), fields.get("sec-fetch-dest", "")
    return PageContext(
        path=path,
        mode=mode if mode in _MODES else "",
        destination=destination if destination in _DESTINATIONS else "",
        user="sec-fetch-user" in fields,
        site=site if site in _ELSEWHERE else "",
    )


def with_meant_method(request: Request) -> Request:
    """Return the request of a form with the method that its field `_method` means (Rails, Laravel), without that field.

    The policy decides on the method that is sent; the shell does the same with forms in a view.
    """
    body = request.body
    if request.method.upper() != "POST" or b"_method" not in body:
        return request
    kind = next((value for name, value in request.headers if name.lower() == "content-type"), "")
    if kind.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        fields = body.split(b"&")
        matches = [match for field in fields if (match := _MEANT.fullmatch(field))]
        rest = b"&".join(field for field in fields if _MEANT.fullmatch(field) is None)
    elif (boundary := _BOUNDARY.search(kind)) is not None:
        part = re.compile(_MEANT_PART % re.escape(boundary[1].encode("latin-1")), re.IGNORECASE)
        matches, rest = [*part.finditer(body)], part.sub(b"", body)
    else:
        return request
    if len(matches) != 1:
        return request
    return replace(
        request,
        method=matches[0][1].decode().upper(),
        body=rest,
        headers=without(request.headers, ("content-length",)),
    )


def page_fields(context: PageContext, method: str, origin: str) -> Headers:
    """Return the header fields that tell the backend which of its pages makes the request (Fetch, Fetch Metadata)."""
    fields: list[tuple[str, str]] = []
    if method not in SAFE_METHODS:
        fields.append(("origin", origin))
    if context.path.startswith("/"):
        path = quote(context.path.partition("#")[0], safe="!#$%&'()*+,/:;=?@[]~")
        fields.append(("referer", f"{origin}{path if len(path) <= LONGEST else '/'}"))
    if context.mode:
        fields += [
            ("sec-fetch-site", context.site or ("same-origin" if context.path else "none")),
            ("sec-fetch-mode", context.mode),
            ("sec-fetch-dest", context.destination or "empty"),
        ]
    if context.mode == "navigate":
        fields.append(("upgrade-insecure-requests", "1"))
        if context.user:
            fields.append(("sec-fetch-user", "?1"))
    return tuple(fields)


def origin_of(url: str) -> str:
    """Return the origin of a backend's URL."""
    return str(URL(url, encoded=True).origin())


def page_url(context: PageContext, url: str) -> str:
    """Return the URL of the page whose scripts read the answer to a request to `url`."""
    return url if context.mode == "navigate" or not context.path else origin_of(url) + context.path.partition("#")[0]


def page_answer(cookies: str | None, headers: Headers) -> Headers:
    """Return the fields of an answer that are for the shell of the app; `cookies` are those that scripts may read."""
    policies = [value for name, value in headers if name.lower() == "content-security-policy"]
    fields = [(POLICY, ", ".join(policies))] if policies else []
    if cookies is not None and cookies.isascii():
        fields.append((COOKIES, cookies))
    return tuple(fields)


SHOWN: Final = "webmcp-gateway-shown"
"""The cookie at an app's own site with the names of the cookies that its browser was given for its scripts."""

_MOST_SHOWN: Final = 3072
"""Bytes of those names; the cookies of others are not given to scripts there."""


def browser_cookies(headers: Headers, visible: str, *, secure: bool) -> Headers:
    """Return the fields that make the cookies of a browser at the app's own site those that scripts may read.

    `headers` are those of its request, `visible` as in `page_answer`. What the browser sends is never taken for the
    backend's: it may have cookies of the domain around the site.
    """
    sent: dict[str, str] = {}
    for pair in "; ".join(value for name, value in headers if name.lower() == "cookie").split(";"):
        name, _, value = pair.strip().partition("=")
        sent.setdefault(name, value)
    shown_names = set(filter(None, map(unquote, sent.get(SHOWN, "").split("."))))
    result: dict[str, str] = {}
    size = 0
    for name, _, value in (pair.partition("=") for pair in visible.split("; ") if pair):
        size += len(quote(name, safe="")) + 1
        if size <= _MOST_SHOWN and not name.lower().removeprefix("__host-").startswith(NAME):
            result[name] = value
    attributes = f"; Path=/; SameSite=Strict{'; Secure' if secure else ''}"
    fields = [f"{name}={value}{attributes}" for name, value in result.items() if sent.get(name) != value]
    fields += [f"{name}={attributes}; Max-Age=0" for name in sorted(shown_names & set(sent) - set(result))]
    if set(result) != shown_names:
        names = ".".join(quote(name, safe="").replace(".", "%2E") for name in sorted(result))
        fields.append(f"{SHOWN}={names}{attributes}; HttpOnly")
    return tuple(("set-cookie", field) for field in fields)


def _read(text: str) -> PageContext:
    """Return the context; whatever is not understood is left out, as no page gains anything by it."""
    try:
        value: Json = parse_json(text)
    except (ValueError, RecursionError):
        return PageContext()
    if not isinstance(value, dict):
        return PageContext()
    path, mode, destination, cookies = (value.get(name) for name in ("path", "mode", "dest", "cookies"))
    return PageContext(
        path=path if isinstance(path, str) and path.startswith("/") else "",
        mode=mode if isinstance(mode, str) and mode in _MODES else "cors",
        destination=destination if isinstance(destination, str) and destination in _DESTINATIONS else "empty",
        user=value.get("user") is True,
        cookies=tuple(one for one in cookies if isinstance(one, str)) if isinstance(cookies, list) else (),
    )
