"""Reads `links` of a policy file: the URLs that an app may open in the person's browser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.documents import Section
from gateway.policy import paths
from gateway.policy.confirm import LINK_MESSAGE, read_confirm
from gateway.policy.destinations import canonical_url
from gateway.policy.facts import Vocabulary
from gateway.policy.obligations import parse_text
from gateway.policy.rules import Confirm
from gateway.policy.templates import Template, parse_template

_URL = re.compile(r"([A-Za-z]+://[^/?#\\]*)(/[^?#]*)?(\?[^#]*)?(#.*)?", re.ASCII)
MAX_URL: Final = 2048


@dataclass(frozen=True, slots=True)
class LinkPattern:
    """An origin with a path template, such as `https://shop.example.com/**`."""

    text: str
    origin: str
    template: Template

    def allows(self, origin: str, path: str) -> bool:
        """Return whether a URL with that origin and canonical path matches."""
        return origin == self.origin and self.template.matches(path)


@dataclass(frozen=True, slots=True)
class Links:
    """The allowed links; without patterns no link is opened, without `confirm` no approval is needed."""

    allow: tuple[LinkPattern, ...] = ()
    confirm: Confirm | None = None

    def find(self, url: str) -> LinkPattern | None:
        """Return the first pattern that allows `url`; None if none does, or if it is ambiguous."""
        match = _URL.fullmatch(url)
        if match is None or len(url) > MAX_URL or not url.isascii() or not url.isprintable() or "\\" in url:
            return None
        try:
            origin, path = canonical_url(match[1]), paths.canonical_path(match[2] or "/")
        except ValueError:
            return None
        return next((pattern for pattern in self.allow if pattern.allows(origin, path)), None)


_VOCABULARY: Final = Vocabulary(None, ("link",))
NO_LINKS: Final = Links()


def read_links(top: Section) -> Links:
    """Read the links of the file."""
    section = top.section("links")
    patterns = (parse_text(section, "allow", _pattern, text) for text in section.texts("allow"))
    allowed = tuple(pattern for pattern in patterns if pattern is not None)
    confirm = read_confirm(section, _VOCABULARY, LINK_MESSAGE)
    if confirm is not None and confirm.grant is not None:
        section.problem("a link is asked about each time: leave grant out", "confirm")
    if confirm is not None and confirm.timeout is not None:
        section.problem("a link is asked about for as long as its page waits: leave timeout out", "confirm")
    return Links(allowed, confirm)


def _pattern(text: str) -> LinkPattern:
    match = _URL.fullmatch(text)
    if match is None or match[3] or match[4]:
        raise ValueError(f'"{text[:80]}" is not an origin with a path, such as https://shop.example.com/**')
    return LinkPattern(text, canonical_url(match[1]), parse_template(match[2] or "/"))
