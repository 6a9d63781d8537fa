"""The named exceptions: subtests that pass natively and cannot pass in a view. docs/app-authors.md has the reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

REASONS: Final = {
    "frames and windows": "A frame in a view has another origin, and no window opens, so a test cannot read what is "
    "in them. Most tests of forms read in that way what was sent.",
    "workers": "Hosts forbid them.",
    "synchronous requests": "No script of a page can wait for its host.",
    "other origins": "CORS, opaque answers and the modes of a request are a browser's rules; in a view the policy "
    "defines which URLs may be requested.",
    "`Origin` and `Referer`": "The address of a view has no meaning for a backend, and is not sent.",
    "the page's address": "It is that of the app; a test that expects the address of its server fails.",
    "cookies": "A frame of an opaque origin has none: cookies that a page writes stay in the page, and those of a "
    "backend in the jar of the gateway.",
    "HTTP cache": "A view has none, and the gateway stores no answer.",
    "network errors": "If a backend cannot be reached, or its answer is not HTTP, the gateway answers 502 with "
    "`gateway-reason`.",
    "answers that are not HTTP": "A head without the empty line at its end is incomplete (RFC 9112, 8; Chromium takes "
    "it over http, not over https), and no script can make a `Response` with a status above 599 (Fetch, 5.5): such an "
    "answer is 502.",
    "lengths of bodies": "The gateway decodes and may mask what a backend sends. A length is that of the body as the "
    "page gets it, not that of the compressed one, and it is known for each body that is not streamed.",
    "short timeouts": "A request passes host and gateway, which takes 10 ms on a machine at rest and longer on a busy "
    "one; a timeout that leaves little time for that may end it.",
    "pages in XML": "Hosts show HTML: the resource of an MCP App is `text/html`.",
    "requests sent twice": "A request that may change something is sent once, even if the answer is 421.",
    "methods and header fields": "Credentials, `User-Agent`, trailers, other methods, overrides of the method, "
    "control characters and the case of names do not pass a policy.",
    "the page's content policy": "The policy governs the requests that the gateway forwards, not the page's content "
    "security policy.",
    "`document.domain`": "Sandboxed frames may not set it.",
    "trusted events": "Events that a script dispatches are not trusted.",
    "`blob:` URLs": "They contain the origin of the frame, which has none.",
    "other encodings": "A packed page is UTF-8, and so is what its forms send: scripts have no encoder for others.",
}
"""The reason by the name of the class."""

_FILE: Final = Path(__file__).with_name("exceptions.txt")


@dataclass(frozen=True, slots=True)
class Exempt:
    """The subtests of a page in a class, by a pattern for their names: by default all."""

    reason: str
    url: str
    pattern: str = "*"

    def holds(self, url: str, subtest: str) -> bool:
        """Return whether this subtest is one of them."""
        return url == self.url and _pattern(self.pattern).fullmatch(subtest) is not None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def read_exceptions(text: str) -> tuple[Exempt, ...]:
    """Read a file of exceptions.

    A line in brackets names a class, one that begins with a slash a page, and those below it, after two spaces,
    subtests, in which a star matches any characters. Without any, all subtests of a page are exempt.
    """
    found: list[Exempt] = []
    reason = ""
    for line in filter(None, text.splitlines()):
        if line[0] == "[":
            reason = line[1:-1]
        elif line[0] == "/":
            found.append(Exempt(reason, line))
        else:
            url = found[-1].url
            if found[-1].pattern == "*":
                del found[-1]
            found.append(Exempt(reason, url, line[2:]))
    return tuple(found)


EXEMPT: Final = read_exceptions(_FILE.read_text("utf-8"))


def exempt(url: str, subtest: str) -> str | None:
    """Return the class that a subtest belongs to; None if it should pass."""
    return next((each.reason for each in EXEMPT if each.holds(url, subtest)), None)


def needless(differing: Mapping[str, Iterable[str]]) -> list[Exempt]:
    """Return the exceptions of these pages that match none of the differing subtests."""
    pages = {url: [*names] for url, names in differing.items()}
    return [
        each for each in EXEMPT if each.url in pages and not any(each.holds(each.url, name) for name in pages[each.url])
    ]
