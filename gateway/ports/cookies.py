"""Cookie jars: the cookies of one caller at one backend (RFC 6265), without I/O, and the protocol of their store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.cookies import SimpleCookie
from typing import Final, Protocol

from yarl import URL

from gateway.bounds import Area, Bound
from gateway.model import Headers

JARS: Final = 10_000
"""Jars that are kept; then the least recently used one of the principal with most is evicted."""

EACH: Final = 256
"""Jars of one principal, such as of the views of a shared one."""

COOKIES: Final = 180
"""Cookies of one jar, as in browsers; the ones that were set longest ago are evicted."""

LONGEST: Final = 4096
"""Bytes of the longest `set-cookie` field that is accepted."""

SENT: Final = 8190
"""Bytes of the longest `cookie` field that is sent, as most servers read: cookies that no longer fit are left out."""

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

FULL, _COOKIES = BOUNDS

ANY_SITE: Final = frozenset({"strict", "lax", "none"})
"""The values of `SameSite` with which cookies are sent to the page's own site."""

_MAX_AGE: Final = 400 * 86400
"""Seconds after which each cookie with an expiry ends at the latest, as in browsers (RFC 6265bis, 5.5)."""

_SEPARATORS: Final = re.compile(r"[\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME: Final = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\D|$)")
_DAY: Final = re.compile(r"(\d{1,2})(?:\D|$)")
_YEAR: Final = re.compile(r"(\d{2,4})(?:\D|$)")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


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


@dataclass(frozen=True, slots=True)
class Cookie:
    """One cookie, with the value as the backend has sent it. `expires` is in seconds since the epoch."""

    name: str
    value: str
    path: str
    expires: float | None
    secure: bool
    http_only: bool
    same_site: str

    def matches(self, url: URL, now: float, allowed: frozenset[str]) -> bool:
        """Return whether it is sent to this URL of its host (RFC 6265, 5.4)."""
        place = url.raw_path or "/"
        if place != self.path and not place.startswith(self.path if self.path.endswith("/") else f"{self.path}/"):
            return False
        if self.secure and url.scheme not in ("https", "wss"):
            return False
        return self.same_site in allowed and not self.is_over(now)

    def is_over(self, now: float) -> bool:
        """Return whether it has expired."""
        return self.expires is not None and self.expires <= now


@dataclass(frozen=True, slots=True)
class Jar:
    """The cookies of one jar, in the order in which they were set last. Times are in seconds since the epoch."""

    cookies: tuple[Cookie, ...] = ()

    def field(self, url: str, now: float, allowed: frozenset[str] = ANY_SITE) -> Headers:
        """Return the `cookie` field of a request to `url`, if there is something to send.

        `allowed` are the values of `SameSite` with which cookies are sent.
        """
        pairs = [f"{cookie.name}={cookie.value}" for cookie in self._matching(url, now, allowed)]
        size, sent = 0, []
        for pair in pairs:
            size += len(pair) + 2
            if size <= SENT:
                sent.append(pair)
        return (("cookie", "; ".join(sent)),) if sent else ()

    def visible(self, url: str, now: float) -> str:
        """Return the cookies that scripts of the page at `url` may read, as `document.cookie` does."""
        hidden = self._http_only()
        cookies = [cookie for cookie in self._matching(url, now, ANY_SITE) if cookie.name not in hidden]
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in cookies)

    def secrets(self) -> list[str]:
        """Return the values, as sent and as decoded, of the cookies that scripts must not read (`HttpOnly`)."""
        hidden = [cookie.value for cookie in self.cookies if cookie.http_only]
        return [*dict.fromkeys(text for value in hidden for text in (value, SimpleCookie().value_decode(value)[0]))]

    def with_fields(self, key: JarKey, url: str, fields: Sequence[str], now: float, *, of_page: bool = False) -> Jar:
        """Return the jar after `set-cookie` fields of an answer from `url`; of its own host alone, without `Domain`.

        Those `of_page`, which scripts have set, neither create `HttpOnly` cookies, nor replace any.
        """
        if any(len(field) > LONGEST for field in fields):
            _COOKIES.report(key.principal)
        hidden = self._http_only() if of_page else set()
        left = {(cookie.path, cookie.name): cookie for cookie in self.cookies if not cookie.is_over(now)}
        for field in fields:
            cookie = _read(field, URL(url, encoded=True), now)
            if cookie is None or (of_page and (cookie.http_only or cookie.name in hidden)):
                continue
            left.pop((cookie.path, cookie.name), None)
            if not cookie.is_over(now):
                left[cookie.path, cookie.name] = cookie
        if len(left) > COOKIES:
            _COOKIES.report(key.principal)
        return Jar(tuple(left.values())[-COOKIES:])

    def _matching(self, url: str, now: float, allowed: frozenset[str]) -> list[Cookie]:
        parsed = URL(url, encoded=True)
        return sorted(
            (cookie for cookie in self.cookies if cookie.matches(parsed, now, allowed)), key=lambda one: -len(one.path)
        )

    def _http_only(self) -> set[str]:
        return {cookie.name for cookie in self.cookies if cookie.http_only}


class CookieJars(Protocol):
    """The jars of all callers. Each method raises OSError while the store is down.

    What `keep` and `empty_person` returned is true for every process that asks afterwards.
    """

    async def load(self, key: JarKey) -> Jar:
        """Return a jar as it is now; an empty one if there is none."""
        ...

    async def keep(self, key: JarKey, url: str, fields: Sequence[str], *, of_page: bool = False) -> Jar:
        """Store `set-cookie` fields as `Jar.with_fields` does, and return the jar.

        Concurrent changes are merged cookie by cookie. Beyond the bounds, the least recently used jar is evicted.
        """
        ...

    async def empty_person(self, person: str, credential: str | None = None) -> None:
        """Delete the jars of a person at each of their clients: all (a logout), or those of one account."""
        ...


def _read(field: str, url: URL, now: float) -> Cookie | None:
    """Return the cookie of a `set-cookie` field (RFC 6265, 5.2 and 5.3), or None if it is not accepted."""
    if len(field) > LONGEST or not field.isascii() or not field.isprintable():
        return None
    pair, *parts = field.split(";")
    name, equals, value = (part.strip() for part in pair.partition("="))
    if not name or not equals:
        return None
    attributes: dict[str, str] = {}
    for part in parts:
        key, _, text = part.partition("=")
        key, text = key.strip().lower(), text.strip()
        if key == "domain" and text:
            return None
        if key == "max-age" and not re.fullmatch(r"-?\d+", text):
            continue
        if key == "expires" and _date(text) is None:
            continue
        attributes[key] = text
    path = attributes.get("path", "")
    site = attributes.get("samesite", "").lower()
    return Cookie(
        name,
        value,
        path if path.startswith("/") else (url.raw_path.rpartition("/")[0] or "/"),
        _expires(attributes, now),
        "secure" in attributes,
        "httponly" in attributes,
        site if site in ANY_SITE else "lax",
    )


def _expires(attributes: dict[str, str], now: float) -> float | None:
    age, date = attributes.get("max-age"), _date(attributes.get("expires", ""))
    if age is not None:
        return now + min(int(age), _MAX_AGE) if int(age) > 0 else 0.0
    return min(date, now + _MAX_AGE) if date is not None else None


def _date(text: str) -> float | None:
    """Return the time of a cookie's date (RFC 6265, 5.1.1); None for an invalid one."""
    time = day = month = year = None
    for token in _SEPARATORS.split(text):
        if time is None and (match := _TIME.match(token)):
            time = match
        elif day is None and (match := _DAY.match(token)):
            day = int(match[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (match := _YEAR.match(token)):
            year = int(match[1])
    if time is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    try:
        return datetime(year, month, day, int(time[1]), int(time[2]), int(time[3]), tzinfo=UTC).timestamp()
    except ValueError:
        return None
