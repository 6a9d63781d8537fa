"""Reads `tools`, `links` and `external`: what a model may call in the page, and what the page may open and load."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from gateway.documents import Section
from gateway.jsontext.writing import sorted_compact_json
from gateway.policy import paths
from gateway.policy.conditions import parse_condition
from gateway.policy.confirm import LINK_MESSAGE, TOOL_MESSAGE, read_confirm
from gateway.policy.destinations import canonical_origin, canonical_url, parse_origin
from gateway.policy.facts import Vocabulary
from gateway.policy.obligations import parse_text, read_quotas, read_rates
from gateway.policy.rules import Confirm, ToolRule
from gateway.policy.templates import Template, parse_template

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}", re.ASCII)
_PIN = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_VOCABULARY = Vocabulary(None)


def read_tools(top: Section) -> dict[str, ToolRule]:
    """Read all tool rules of the file by the page's names of the tools."""
    return {
        name: read_tool(name, section, file=_part(top, section))
        for name, section in top.named_sections("tools").items()
    }


def _part(top: Section, section: Section) -> str:
    """Return the part that a section comes from; empty for the policy's own file."""
    return "" if section.node.file == top.node.file else section.node.file


def tool_pin(
    name: str,
    *,
    title: str,
    description: str,
    input_schema: Mapping[str, object],
    annotations: Mapping[str, object],
    output_schema: Mapping[str, object] | None = None,
) -> str:
    """Return the `pin` for a tool as the page offers it: a digest of everything that a model sees."""
    parts: list[object] = [name, title, description, input_schema, annotations]
    if output_schema is not None:  # many tools have none
        parts.append(output_schema)
    text = sorted_compact_json(parts)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def read_tool(name: str, section: Section, scope: str = "", *, file: str = "") -> ToolRule:
    """Read one rule; `scope` begins the scopes of its limits, `file` is the part that it comes from."""
    label = f"{scope} tool {name}".strip()
    if not _NAME.fullmatch(name):
        section.problem(f'"{name[:40]}" is not the name of a WebMCP tool (1 to 128 of A-Z a-z 0-9 _ . -)')
    rule = ToolRule(
        name=name,
        line=section.node.line,
        deny=section.text("deny") or None,
        confirm=read_confirm(section, _VOCABULARY, TOOL_MESSAGE),
        limits=read_rates(section, label),
        description=section.text("description") or None,
        quotas=read_quotas(section, label),
        pin=section.text("pin") or None,
        timeout=section.duration("timeout") or None,
        when=parse_text(section, "when", lambda text: parse_condition(text, _VOCABULARY), section.text("when")),
        file=file,
    )
    if rule.pin is not None and not _PIN.fullmatch(rule.pin):
        section.problem('must be "sha256:" and 64 hex digits, as the gateway logs it', "pin")
    if rule.deny is not None:
        alone(section, "deny", "description")
    return rule


def alone(section: Section, *keys: str) -> None:
    """Report each key that has no meaning beside `deny`."""
    for key in section:
        if key not in keys and section.get(key) is not None:
            section.problem('has no meaning beside "deny": leave it out', key)


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


_LINK_VOCABULARY: Final = Vocabulary(None, ("link",))
NO_LINKS: Final = Links()


def read_links(top: Section) -> Links:
    """Read the links of the file."""
    section = top.section("links")
    patterns = (parse_text(section, "allow", _pattern, text) for text in section.texts("allow"))
    allowed = tuple(pattern for pattern in patterns if pattern is not None)
    confirm = read_confirm(section, _LINK_VOCABULARY, LINK_MESSAGE)
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


KINDS: Final = ("fonts", "images", "styles", "connect")
"""The kinds of `external` that are lists of origins; `scripts` are URLs with their digests."""

_INTEGRITY: Final = re.compile(r"sha(256-[A-Za-z0-9+/]{43}=|384-[A-Za-z0-9+/]{64}|512-[A-Za-z0-9+/]{86}==)")
"""One digest (SRI, 3.5)."""

_CSP_URL: Final = re.compile(r"https?://[A-Za-z0-9.:-]+/[A-Za-z0-9/._~@+%-]+")
"""A URL that can be part of a content security policy as it is."""


@dataclass(frozen=True, slots=True)
class External:
    """The other sites that a page may use: origins by kind, and scripts by URL, each with its digest."""

    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.scripts) or any(self.origins.values())

    def allows(self, url: str, *kinds: str) -> bool:
        """Return whether the absolute `url` may be loaded as one of `kinds`."""
        origin = origin_of(url)
        return any(origin in self.origins.get(kind, ()) for kind in kinds)

    def opening(self, url: str) -> list[str]:
        """Return the entries that let a page's browser load the absolute `url` by itself, as a policy names them."""
        origin = origin_of(re.sub("^ws", "http", url))
        origins = [f"{kind}: {origin}" for kind in KINDS if origin and origin in self.origins.get(kind, ())]
        return origins + [f"scripts: {script}" for script in self.scripts if script == url]

    def entries(self) -> list[str]:
        """Return every entry as a policy names it, with its kind."""
        origins_found = [f"{kind}: {origin}" for kind in KINDS for origin in self.origins.get(kind, ())]
        return origins_found + [f"scripts: {url} ({integrity})" for url, integrity in self.scripts.items()]

    def connects(self) -> list[str]:
        """Return the origins that requests may go to, those of sockets included."""
        origins = self.origins.get("connect", ())
        return [*origins, *(re.sub("^http", "ws", origin) for origin in origins)]

    def resources(self) -> list[str]:
        """Return the origins of files for `resourceDomains` (MCP Apps), which has no kinds."""
        origins_found = [origin for kind in ("fonts", "images", "styles") for origin in self.origins.get(kind, ())]
        return [*dict.fromkeys((*origins_found, *(origin_of(url) for url in self.scripts)))]


NO_EXTERNAL: Final = External()


def origin_of(url: str) -> str:
    """Return the canonical origin of a URL; empty if it has none."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return ""
    return canonical_origin(parts.scheme or "https", parts.netloc) if parts.netloc else ""


def csp_origin(text: str) -> str:
    """Return an origin that can be part of a content security policy. Raises ValueError."""
    origin = parse_origin(text)
    if re.search(r"[\[_]", origin):
        raise ValueError(f'"{text[:80]}" cannot be part of a content security policy: use letters, digits and -')
    return origin


def read_external(top: Section) -> External:
    """Read `external` of the file."""
    section = top.section("external")
    origins = {
        kind: tuple(
            origin
            for text in section.texts(kind)
            if (origin := parse_text(section, kind, _secure_origin, text)) is not None
        )
        for kind in KINDS
    }
    scripts: dict[str, str] = {}
    for one in section.sections("scripts"):
        one.require("url", "integrity")
        url = parse_text(one, "url", _script_url, one.text("url")) if "url" in one else None
        integrity = one.text("integrity")
        if "integrity" in one and not _INTEGRITY.fullmatch(integrity):
            one.problem(
                f'"{integrity[:80]}" is no digest: write one such as sha384-… (openssl dgst -sha384 -binary | base64)',
                "integrity",
            )
        elif url is not None:
            scripts[url] = integrity
    return External({kind: origins_found for kind, origins_found in origins.items() if origins_found}, scripts)


def _secure_origin(text: str) -> str:
    if "*" in text:
        raise ValueError(f'"{text[:80]}" is a pattern: name each origin, such as https://fonts.example.com')
    origin = csp_origin(text)
    if not _is_secure(origin):
        raise ValueError(f'"{text[:80]}" is not https: what it sends could be changed on the way')
    return origin


def _script_url(text: str) -> str:
    if not _CSP_URL.fullmatch(text):
        raise ValueError(
            f'"{text[:80]}" is not the URL of a script without query, such as https://cdn.example.com/x.js'
        )
    url = csp_origin("/".join(text.split("/", 3)[:3])) + "/" + text.split("/", 3)[3]
    if not _is_secure(url):
        raise ValueError(f'"{text[:80]}" is not https: what it sends could be changed on the way')
    return url


def _is_secure(url: str) -> bool:
    """Return whether what is loaded cannot be changed on the way (Secure Contexts, 3.1)."""
    host = urlsplit(url).hostname or ""
    return url.startswith("https:") or host in ("localhost", "127.0.0.1") or host.endswith(".localhost")
