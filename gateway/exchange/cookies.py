"""Cookies of backends, kept for their callers: only pages that the backend renders see and set some of them."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Sequence
from typing import Final

from yarl import URL

from gateway.errors import Reason, Refusal
from gateway.exchange.decided_request import DecidedRequest
from gateway.model import Caller, Headers, PageContext, Request, person_of
from gateway.policy import SAFE_METHODS, BackendSpec, Cookies
from gateway.ports.cookies import ANY_SITE, EACH, FULL, JARS, CookieJars, Jar, JarKey

_LINKED: Final = frozenset({"lax", "none"})
"""The values of `SameSite` with which cookies are sent when a whole window navigates there from another site,"""

_ELSEWHERE: Final = frozenset({"none"})
"""and with any other request of another site (RFC 6265bis, 5.8.3)."""

_SENT: Final = "This was sent, but its answer cannot be shown. See whether it was done before you try again."


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


log = logging.getLogger(__name__)


class MemoryCookieJars:
    """The port `CookieJars` of one process: `each` jars of a principal, `most` in all."""

    def __init__(self, each: int = EACH, most: int = JARS) -> None:
        self._each = each
        self._most = most
        self._jars: OrderedDict[JarKey, Jar] = OrderedDict()
        self._count = Counter[str]()

    async def load(self, key: JarKey) -> Jar:
        """Return a jar as it is now; an empty one if there is none."""
        if key not in self._jars:
            return Jar()
        self._jars.move_to_end(key)
        return self._jars[key]

    async def keep(self, key: JarKey, url: str, fields: Sequence[str], *, of_page: bool = False) -> Jar:
        """Store `set-cookie` fields, and return the jar; evict the least recently used one beyond the bounds."""
        before = self._jars.get(key)
        jar = (before or Jar()).with_fields(key, url, fields, time.time(), of_page=of_page)
        if before is None and not jar.cookies:
            return jar
        self._jars[key] = jar
        self._jars.move_to_end(key)
        if before is not None:
            return jar
        self._count[key.principal] += 1
        if self._count[key.principal] > self._each:
            FULL.report(key.principal)
            self._drop(next(old for old in self._jars if old.principal == key.principal))
        elif len(self._jars) > self._most:
            FULL.report(key.principal)
            most = max(self._count.values())
            self._drop(next(old for old in self._jars if self._count[old.principal] == most))
        return jar

    async def empty_person(self, person: str, credential: str | None = None) -> None:
        """Delete the jars of a person at each of their clients: all, or those of one account."""
        for key in [key for key in self._jars if credential in (None, key.credential)]:
            if person_of(key.principal) == person:
                self._drop(key)

    def _drop(self, key: JarKey) -> None:
        del self._jars[key]
        self._count[key.principal] -= 1
        if not self._count[key.principal]:
            del self._count[key.principal]


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


async def open_jar(jars: CookieJars, key: JarKey, url: str, page: PageContext | None) -> Jar:
    """Return the jar for a request, with what the scripts of its page have set. Raises `Refusal`."""
    if page is not None and page.cookies:
        return await _reach(jars.keep(key, url, page.cookies, of_page=True), "nothing was sent")
    return await _reach(jars.load(key), "nothing was sent")


async def store_answer(jars: CookieJars, key: JarKey, url: str, headers: Headers) -> None:
    """Store the cookies of a backend's answer. Raises `Refusal` if they would be lost."""
    fields = [value for name, value in headers if name == "set-cookie"]
    if fields:
        effect = "the backend has answered, but what it set would be lost"
        await _reach(jars.keep(key, url, fields), effect, Reason.CONNECTION_LOST)


async def visible_cookies(jars: CookieJars, key: JarKey, url: str) -> str:
    """Return what scripts of the page at `url` may read now, also of other requests. Raises `Refusal`."""
    effect = "the backend has answered, but its cookies are unknown"
    jar = await _reach(jars.load(key), effect, Reason.CONNECTION_LOST)
    return jar.visible(url, time.time())


async def _reach(work: Awaitable[Jar], effect: str, reason: Reason = Reason.STATE_UNAVAILABLE) -> Jar:
    """Return the jar. Raises `Refusal`; `state-unavailable` says that nothing was sent, so that callers repeat it."""
    try:
        return await work
    except OSError as error:
        log.error("cookies of a backend cannot be reached: %s", error)
        detail = f"The cookies of this backend cannot be reached at present; {effect}."
        if reason is Reason.CONNECTION_LOST:
            raise Refusal(reason, detail, words=_SENT) from error
        raise Refusal(reason, detail, headers=(("retry-after", "5"),)) from error
