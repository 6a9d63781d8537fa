"""The test pages of a checkout, and those that are left out, by class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.policy.headers import DEFAULT_RESPONSE, never_in_response

AREAS: Final = ("fetch/api/", "xhr/", "eventsource/", "FileAPI/", "html/semantics/forms/", "webstorage/")
"""The default folders."""

LEFT_OUT: Final = {
    "of workers alone": re.compile(r"worker", re.I),
    "done by hand": re.compile(r"-manual\.|/manual/|prompt-"),
    "crash tests and references, without subtests": re.compile(r"/crashtests/|-ref\.|-expected\."),
    "between origins": re.compile(r"cors|access-control|cross-origin|non-same-origin", re.I),
    "that outlive their window": re.compile(r"keepalive"),
    "of HTTP/2": re.compile(r"\.h2\."),
    "of https alone": re.compile(r"\.https\."),
    "drafts of proposals": re.compile(r"tentative"),
}
"""Pages that are not run, by a pattern for their path."""

UNUSED: Final = {
    "with a driver that types and clicks": re.compile(r"testdriver"),
    "of service workers": re.compile(r"service-worker|serviceWorker"),
}
"""Pages that are not run, by a pattern for their content."""

_KINDS = (".any.js", ".window.js")
_MARKUP = (".html", ".htm", ".xhtml", ".xht")
_ASIDE = frozenset({"resources", "support", "tools"})
_VARIANT = re.compile(r"""<meta\s+name=["']?variant["']?\s+content=["']([^"']*)|^// META: variant=(\S+)""", re.M)
_GLOBALS = re.compile(r"^// META: global=(\S+)", re.M)
_SENT = re.compile(
    r"""headers?\.(?:set|append|update)\(\s*b?["']([\w-]+)|header\(([\w-]+)|\(b?["']([\w-]+)["']\s*,|^([\w-]+):""", re.M
)


@dataclass(frozen=True, slots=True)
class Case:
    """A page of the checkout: its URL, and its file there."""

    url: str
    file: Path


def cases_of(checkout: Path, prefixes: tuple[str, ...]) -> tuple[list[Case], dict[str, list[str]]]:
    """Return the pages below these prefixes, in order, and those left out by class."""
    cases: list[Case] = []
    left_out: dict[str, list[str]] = {}
    for file in sorted(_files(checkout, prefixes)):
        name = file.relative_to(checkout).as_posix()
        text = file.read_text("utf-8", "replace")
        if not (name.endswith(_KINDS) or "testharness.js" in text):
            continue
        reasons = [
            *(reason for reason, pattern in LEFT_OUT.items() if pattern.search(name)),
            *(reason for reason, pattern in UNUSED.items() if pattern.search(text)),
        ]
        if name.endswith(".any.js") and (found := _GLOBALS.search(text)) and not _in_windows(found[1]):
            reasons.append("of workers alone")
        if reasons:
            left_out.setdefault(reasons[0], []).append(name)
            continue
        page = re.sub(r"\.js$", ".html", name)
        variants = ["".join(each) for each in _VARIANT.findall(text)] or [""]
        cases += [Case(f"/{page}{variant}", file) for variant in dict.fromkeys(variants)]
    return cases, left_out


def _in_windows(scopes: str) -> bool:
    return bool({"window", "default", "!worker"} & set(scopes.split(",")))


def _files(checkout: Path, prefixes: tuple[str, ...]) -> Iterator[Path]:
    folders = {prefix: checkout / prefix.rpartition("/")[0] for prefix in prefixes}
    for prefix, folder in folders.items():
        for file in folder.rglob("*"):
            inside = file.relative_to(checkout)
            if not inside.as_posix().startswith(prefix) or _ASIDE & set(inside.parts[:-1]):
                continue
            if file.name.endswith((*_KINDS, *_MARKUP)) and file.is_file():
                yield file


def sent_headers(checkout: Path, prefixes: tuple[str, ...]) -> list[str]:
    """Return the names of all headers that the servers of these tests may send: the policy admits them."""
    names: set[str] = set()
    for prefix in prefixes:
        for file in (checkout / prefix.rpartition("/")[0]).rglob("*"):
            if file.suffix in {".py", ".headers", ".asis", ".js", ".htm", ".html"} and file.is_file():
                for found in _SENT.findall(file.read_text("utf-8", "replace")):
                    names |= {name.lower() for name in found if re.fullmatch(r"[A-Za-z][\w-]*", name)}
    asked = {f"x-request-{name}" for name in (*names, *_ASKED)}
    return sorted(
        name for name in DEFAULT_RESPONSE | names | asked | {"foo", "server", "date"} if not never_in_response(name)
    )


_ASKED = (
    *("accept", "accept-language", "content-type", "content-length", "origin", "referer", "user-agent", "cookie"),
    *("method", "x-test"),
)
