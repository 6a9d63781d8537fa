"""Cookies of backends, kept for their callers: only pages that the backend renders see and set some of them."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aiohttp import CookieJar
from yarl import URL

from gateway.bounds import Area, Bound
from gateway.exchange.decided_request import DecidedRequest
from gateway.model import Caller, Headers, PageContext, Request, person_of
from gateway.policy import SAFE_METHODS, BackendSpec, Cookies

JARS: Final = 10_000
"""Jars that are kept; then the least recently used one of the principal with most is evicted."""

EACH: Final = 256
"""Jars of one principal, such as of the views of a shared one."""

COOKIES: Final = 180
"""Cookies of one jar, as in browsers: aiohttp's limit per host; the first ones are dropped."""

LONGEST: Final = 4096
"""Bytes of the longest `set-cookie` field that is accepted."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "cookie jars",
        f"{EACH} per principal, {JARS:,} in all",
        "the least recently used jar of that principal, or of the largest holder, is evicted",
    ),
    Bound(
        Area.EXCHANGE,
        "cookies of a jar",
        f"{COOKIES} per jar, {LONGEST:,} bytes each",
        "the oldest are evicted; longer ones are ignored",
    ),
)

_JARS, _COOKIES = BOUNDS

# The usual expiry date to delete a cookie, and the one second that aiohttp's jar treats as unset.
_EPOCH = re.compile(r"(;\s*expires\s*=[^;]*\b0?1[\s-]+jan[\s-]+(?:19)?70\s+0?0:00:0)0", re.IGNORECASE)
_HTTP_ONLY = re.compile(r";\s*httponly\s*(?:;|=|$)", re.IGNORECASE)
_DOMAIN = re.compile(r";\s*domain\s*=\s*[^;\s]", re.IGNORECASE)


ANY_SITE: Final = frozenset({"strict", "lax", "none"})
"""The values of `SameSite` with which cookies are sent to the page's own site,"""

_LINKED: Final = frozenset({"lax", "none"})
"""with the navigation of a whole window to it from another site,"""

_ELSEWHERE: Final = frozenset({"none"})
"""and with any other request of another site (RFC 6265bis, 5.8.3)."""


def allowed_sites(request: Request, method: str) -> frozenset[str]:
    """Return the values of `SameSite` with which cookies are sent with a request, by its Fetch Metadata.

    A request of a view has none, or those of the shell: it is one of the app's own pages.
    """
    fields = {name.lower(): value for name, value in request.headers if name.lower().startswith("sec-fetch-")}
    page = request.page or PageContext(
        mode=fields.get("sec-fetch-mode", ""),
        destination=fields.get("sec-fetch-dest", ""),
        site=fields.get("sec-fetch-site", ""),
    )
    if page.site != "cross-site":
        return ANY_SITE
    leads = page.mode == "navigate" and page.destination == "document" and method in SAFE_METHODS
    return _LINKED if leads else _ELSEWHERE


def _site(attribute: str | None) -> str:
    """Return the value of `SameSite` that applies: `Lax` if there is none that browsers know."""
    return attribute if attribute in ANY_SITE else "lax"


@dataclass(frozen=True, slots=True)
class JarKey:
    """The key of a jar: a principal in an app at one origin with one version of a credential.

    `view` is set for principals that several people share.
    """

    principal: str
    app: str
    origin: str
    credential: str
    view: str | None


class CookieJars:
    """The jars of a process, in memory."""

    def __init__(self) -> None:
        self._jars: OrderedDict[JarKey, CookieJar] = OrderedDict()
        self._count = Counter[str]()

    def cookies(self, key: JarKey, url: str, allowed: frozenset[str] = ANY_SITE) -> Headers:
        """Return the `cookie` field of a request to `url`, if there is something to send (RFC 6265 5.4).

        `allowed` are the values of `SameSite` with which cookies are sent.
        """
        jar = self._jars.get(key)
        if jar is None:
            return ()
        self._jars.move_to_end(key)
        # The jar decodes quoted values; backends get them back as they sent them.
        coded_values = {(entry.key, entry.value): entry.coded_value for entry in jar}
        sites = {(entry.key, entry.value): str(entry["samesite"]).lower() for entry in jar if allowed is not ANY_SITE}
        matching = jar.filter_cookies(URL(url, encoded=True)).values()
        sent = [one for one in matching if allowed is ANY_SITE or _site(sites.get((one.key, one.value))) in allowed]
        pairs = [f"{cookie.key}={coded_values.get((cookie.key, cookie.value), cookie.coded_value)}" for cookie in sent]
        return (("cookie", "; ".join(pairs)),) if pairs else ()

    def keep(self, key: JarKey, url: str, headers: Headers) -> None:
        """Store the cookies of a backend's answer, for its own host alone: cookies with a `Domain` are ignored."""
        lines = [value for name, value in headers if name == "set-cookie"]
        if any(len(value) > LONGEST for value in lines):
            _COOKIES.report(key.principal)
        fields = [_EPOCH.sub(r"\g<1>1", value) for value in lines if _is_accepted(value)]
        if not fields:
            return
        jar = self._jars.get(key)
        if jar is None:
            # IP addresses are hosts like any other here: each jar has one origin.
            jar = self._jars[key] = CookieJar(unsafe=True, quote_cookie=False)
            self._count[key.principal] += 1
        known = {cookie.key for cookie in jar}
        if len(known | {field.partition("=")[0].strip() for field in fields}) > COOKIES:
            _COOKIES.report(key.principal)
        jar.update_cookies_from_headers(fields, URL(url, encoded=True))
        self._jars.move_to_end(key)
        if self._count[key.principal] > EACH or len(self._jars) > JARS:
            _JARS.report(key.principal)
        if self._count[key.principal] > EACH:
            self._drop(next(old for old in self._jars if old.principal == key.principal))
        elif len(self._jars) > JARS:
            most = max(self._count.values())
            self._drop(next(key for key in self._jars if self._count[key.principal] == most))

    def keep_of_page(self, key: JarKey, url: str, lines: Iterable[str]) -> None:
        """Store what scripts of the backend's page set: neither new `HttpOnly` cookies, nor others in their place."""
        http_only = {cookie.key for cookie in self._jars.get(key, ()) if cookie["httponly"]}
        clean = [one for one in lines if one.isprintable() and not _HTTP_ONLY.search(one)]  # nothing ends a header
        fields = [one for one in clean if one.partition("=")[0].strip() not in http_only]
        self.keep(key, url, tuple(("set-cookie", field) for field in fields))

    def visible(self, key: JarKey, url: str) -> str:
        """Return the cookies that scripts of the page at `url` may read, as `document.cookie` does."""
        http_only = {cookie.key for cookie in self._jars.get(key, ()) if cookie["httponly"]}
        pairs = [pair for _, value in self.cookies(key, url) for pair in value.split("; ")]
        return "; ".join(pair for pair in pairs if pair.partition("=")[0] not in http_only)

    def secrets(self, key: JarKey) -> list[str]:
        """Return the values of the cookies that scripts must not read (`HttpOnly`)."""
        jar = self._jars.get(key)
        return [cookie.value for cookie in jar if cookie["httponly"]] if jar is not None else []

    def empty(self, principal: str, credential: str | None = None) -> None:
        """Delete the cookies of a principal: all (logout), or those of one version of a credential."""
        for key in [key for key in self._jars if key.principal == principal and credential in (None, key.credential)]:
            self._drop(key)

    def _drop(self, key: JarKey) -> None:
        del self._jars[key]
        self._count[key.principal] -= 1
        if not self._count[key.principal]:
            del self._count[key.principal]

    def empty_person(self, person: str, credential: str | None = None) -> None:
        """Call `empty` for a person at each of their clients: all at their logout, or those of one account."""
        for principal in {key.principal for key in self._jars if person_of(key.principal) == person}:
            self.empty(principal, credential)


def jar_key(decided_request: DecidedRequest, caller: Caller, spec: BackendSpec, account: str) -> JarKey | None:
    """Return the jar of this request with that account; None if policy or request use no cookies.

    A principal that several people share has one for each view, and none without a view.
    """
    if decided_request.obligations.cookies is not Cookies.JAR or not decided_request.request.send_cookies:
        return None
    if caller.principal.shared and caller.view is None:
        return None
    view = caller.view if caller.principal.shared else None
    credential = f"{spec.credential}\n{account}" if spec.credential is not None else ""
    return JarKey(caller.principal.id, caller.app, str(URL(spec.url, encoded=True).origin()), credential, view)


def _is_accepted(field: str) -> bool:
    return len(field) <= LONGEST and field.isascii() and not _DOMAIN.search(field)
