"""Reads the first page of a running site with its scripts and style sheets, to tell what kind of app it is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urljoin, urlsplit

import aiohttp
from yarl import URL

from gateway.backends.connect import Connections
from gateway.backends.connect import Network as Addresses
from gateway.errors import Refusal

SECONDS: Final = 15.0
"""Seconds for one file."""

LARGEST: Final = 4 * 1024 * 1024
"""Bytes of one file."""

MOST: Final = 24
"""Files beside the page."""

REDIRECTS: Final = 5

_SCRIPT = re.compile(r"""<script\b[^>]{0,1000}?\bsrc\s*=\s*["']?([^"'\s>]{1,1000})""", re.IGNORECASE)
_CODE = re.compile(r"<(script|style|template|head)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_LINK = re.compile(r"""<a\b[^>]{0,1000}?\bhref\s*=\s*["']?([^"'\s>#]{1,1000})""", re.IGNORECASE)
_FORM = re.compile(r"<form\b([^>]{0,2000})>", re.IGNORECASE)
_ACTION = re.compile(r"""\baction\s*=\s*["']?([^"'\s>]{0,1000})""", re.IGNORECASE)
_POSTS = re.compile(r"""<form\b[^>]{0,1000}\bmethod\s*=\s*["']?post""", re.IGNORECASE)

RENDERED: Final = 200
"""Characters of text from which a page counts as one that the server has rendered."""


@dataclass(frozen=True, slots=True)
class SitePage:
    """The page at `url`, after redirects, and the scripts of its own site by their paths.

    `foreign` are the URLs of scripts of other sites, `cookies` the names of the cookies that it set, `missing` the
    files that could not be read, with the reason.
    """

    url: str
    status: int
    html: str
    texts: Mapping[str, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def server_rendered(self) -> bool:
        """Return whether the page itself has content, rather than being built by its scripts."""
        return bool(_POSTS.search(self.html)) or len(" ".join(_CODE.sub(" ", self.html).split())) >= RENDERED

    @property
    def pages(self) -> list[str]:
        """The paths of this page and of those of the same site to which it links."""
        return [*dict.fromkeys([urlsplit(self.url).path or "/", *self._own(_LINK.findall(self.html))])]

    @property
    def posts(self) -> list[str]:
        """The paths to which its forms post."""
        forms = [one for one in _FORM.findall(self.html) if _POSTS.match(f"<form{one}")]
        actions = [match[1] if (match := _ACTION.search(one)) is not None else "" for one in forms]
        return [*dict.fromkeys(self._own(actions))]

    def _own(self, urls: Iterable[str]) -> list[str]:
        places = [urlsplit(absolute(self.url, url)) for url in urls]
        site = urlsplit(self.url)
        return [one.path or "/" for one in places if (one.scheme, one.netloc) == (site.scheme, site.netloc)]


def absolute(base: str, link: str) -> str:
    """Return a link of the page at `base` as an absolute URL; empty if it is not a URL, such as `http://[`."""
    try:
        url = urljoin(base, link)
        urlsplit(url)
    except ValueError:
        return ""
    return url


async def read_site(connections: Connections, network: Addresses, url: str) -> SitePage:
    """Read the page at `url`. Raises `ValueError` with the reason if there is none."""
    at = url
    cookies: dict[str, None] = {}
    for _ in range(REDIRECTS + 1):
        status, location, body, names = await _get(connections, network, at)
        cookies |= dict.fromkeys(names)
        if location is None:
            break
        if not (target := absolute(at, location)):
            raise ValueError(f"{at} redirects to {location[:80]!r}, which is not a URL")
        if urlsplit(target).netloc != urlsplit(url).netloc:
            raise ValueError(f"{at} redirects to another site, {target}: a view cannot follow it there")
        at = target
    else:
        raise ValueError(f"{url} redirects more than {REDIRECTS} times")
    if status >= 400:
        raise ValueError(f"{at} answers {status}: name the address of a page with --start, or start the backend")
    html = body.decode("utf-8", "replace")
    scripts = [url for script in dict.fromkeys(_SCRIPT.findall(html)) if (url := absolute(at, script))]
    own = [one for one in scripts if urlsplit(one).netloc == urlsplit(at).netloc]
    texts: dict[str, str] = {}
    missing: list[str] = []
    for script in own[:MOST]:
        try:
            answered, _, code, _ = await _get(connections, network, script)
        except ValueError as error:
            missing.append(str(error))
            continue
        if answered >= 400:
            missing.append(f"{script} answers {answered}")
        else:
            texts[urlsplit(script).path] = code.decode("utf-8", "replace")
    foreign = tuple(one for one in scripts if one not in own and one.startswith(("http:", "https:")))
    return SitePage(at, status, html, texts, foreign, tuple(cookies), tuple(missing))


async def _get(connections: Connections, network: Addresses, url: str) -> tuple[int, str | None, bytes, list[str]]:
    """Return status, target of a redirect, body and names of cookies. Raises `ValueError`."""
    try:
        async with (
            asyncio.timeout(SECONDS),
            connections.open(network).get(
                URL(url), headers={"accept": "text/html,*/*"}, allow_redirects=False
            ) as answer,
        ):
            names = [*answer.cookies]
            if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
                return answer.status, answer.headers["location"], b"", names
            body = bytearray()
            async for part in answer.content.iter_chunked(65536):
                body += part
                if len(body) > LARGEST:
                    raise ValueError(f"{url} is larger than {LARGEST // 2**20} MiB")
            return answer.status, None, bytes(body), names
    except (Refusal, OSError, TimeoutError, aiohttp.ClientError) as error:
        why = error.detail if isinstance(error, Refusal) else str(error) or f"no answer within {SECONDS:g} seconds"
        raise ValueError(f"{url}: {why}") from error
