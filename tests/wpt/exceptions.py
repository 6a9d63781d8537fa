"""The named exceptions: why a subtest that passes natively cannot pass in a view. docs/app-authors.md lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

REASONS: Final = {
    "frames and windows": "A frame in a view is of another origin, and no window opens: what a test reads there is not "
    "to be had. This is also how most tests of forms see what was sent.",
    "workers": "Hosts forbid them.",
    "synchronous requests": "No script of a page can wait for its host.",
    "other origins": "CORS, opaque answers and the modes of a request belong to a browser: the policy says what may be "
    "reached.",
    "`Origin` and `Referer`": "The address of a view means nothing to a backend, and is not sent.",
    "HTTP cache": "A view has none, and the gateway stores no answer.",
    "network errors": "Most of what a browser calls a network error, a sixth redirect among it, is an answer of the "
    "gateway: 502 with `gateway-reason`.",
    "answers that are not HTTP": "RFC 9112 has no lines that end in LF alone, and RFC 9110 no "
    "status above 599: such an answer is 502.",
    "requests sent twice": "A request that may change something is sent once, also where 421 answers it.",
    "methods and header fields": "Credentials, other methods, overrides of the method, control characters and the case "
    "of names do not pass a policy.",
    "the page's content policy": "Requests that the gateway carries are the policy's matter.",
    "`document.domain`": "Sandboxed frames may not set it.",
    "trusted events": "No event that a script dispatches is one.",
    "`blob:` URLs": "They name the origin of the frame, which has none.",
    "other encodings": "Forms are sent in UTF-8: scripts have no encoder for others.",
}
"""Why, by the name of the class."""


@dataclass(frozen=True, slots=True)
class Exempt:
    """Subtests of a class, by patterns for the URL, the page with its scripts, and a subtest's name and why."""

    name: str
    url: str = ""
    page: str = ""
    said: str = ""

    def holds(self, url: str, page: str, said: str) -> bool:
        """Whether this subtest is one of them."""
        found = ((self.url, url), (self.page, page), (self.said, said))
        return all(re.search(pattern, text, re.IGNORECASE | re.DOTALL) for pattern, text in found)


EXEMPT: Final = (
    Exempt("other encodings", url=r"iso-2022|windows-1252\.|x-user-defined|url-parsing"),
    Exempt(
        "frames and windows", page=r"<iframe|createElement\(.iframe|window\.open|targetted-form|send-file-form-helper"
    ),
    Exempt("frames and windows", url="/forms/form-submission", page="helper|rel-.*-target"),
    Exempt("frames and windows", url="/forms/", said='^<form rel="'),
    Exempt("frames and windows", said=r"cross-origin frame|<iframe src> of a file|reading '(body|document)'"),
    Exempt("workers", said="worker"),
    Exempt("synchronous requests", url="/xhr/", said="NetworkError|sync"),
    Exempt(
        "other origins", said=r"cross.origin|other origin|\bcors|no-cors|same-origin mode|opaque|bad port|got 403|www\d"
    ),
    Exempt("`Origin` and `Referer`", said="origin header|header origin|referr?er"),
    Exempt("`Origin` and `Referer`", url="refer", said="refer|status is 200"),
    Exempt("HTTP cache", url="request-cache|conditional|cache-control"),
    Exempt("network errors", url="redirect|null-byte|network-error|bad-chunk", said="should have rejected|got 502"),
    Exempt("requests sent twice", url="request-upload", said="421"),
    Exempt("answers that are not HTTP", url="header-value-combining|getresponseheader.any"),
    Exempt("answers that are not HTTP", said="got 502.*699|699.*got 502|gateway-reason: backend-"),
    Exempt("methods and header fields", url="authentic|authoriz", said="401|Basic|none"),
    Exempt("methods and header fields", said=r"method-override|x-http-method|expected 200 but got 400|chicken"),
    Exempt("methods and header fields", url="headers-case|header-values", said=r"THIS-|%0|%1|\\x01"),
    Exempt("the page's content policy", url="csp-blocked"),
    Exempt("`document.domain`", said="document.domain|'domain' property"),
    Exempt("trusted events", said="trusted"),
    Exempt("`blob:` URLs", said="blob URL.*got .null"),
)


def exempt(url: str, page: str, said: str) -> str | None:
    """The name of the class that a subtest belongs to; None where it should pass."""
    return next((each.name for each in EXEMPT if each.holds(url, page, said)), None)
