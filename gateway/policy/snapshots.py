"""Reads `snapshot` of a route: its answers that are packed into the page, for hosts that carry no requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.documents import Section
from gateway.policy import paths
from gateway.policy.rules import Route, route_shown
from gateway.policy.templates import Template

MAX_URLS: Final = 64
"""URLs per route: a snapshot is the initial content of a page, not a copy of the backend."""

Find = Callable[[str, str, str | None], Route | None]


def read_snapshot(section: Section, template: Template, methods: frozenset[str] | None) -> tuple[str, ...]:
    """Read the canonical URLs of a route's snapshot: its own path, or those that it lists."""
    node = section.get("snapshot")
    if node is None or node.value is False:
        return ()
    if methods is not None and "GET" not in methods:
        section.problem("a snapshot is made of GET requests, which this route does not take", "snapshot")
    for key in ("when", "confirm"):
        if key in section:
            section.problem(f"a snapshot is made with no person there, so that `{key}` cannot hold", "snapshot")
    if node.value is True:
        return _own_path(section, template)
    urls = section.texts("snapshot")
    if len(urls) > MAX_URLS:
        section.problem(f"at most {MAX_URLS} URLs, not {len(urls)}", "snapshot")
    return tuple(url for text in urls if (url := _url(section, template, text)) is not None)


def check_reached(section: Section, route: Route, find: Find) -> None:
    """Report each URL of the snapshot that another route decides."""
    for url in route.snapshot:
        found = find("GET", url.partition("?")[0], route.backend)
        if found is not route and found is not None:
            shown = route_shown(found.methods, found.template, found.line)
            section.problem(f"{url} is decided by the route {shown}, which comes first", "snapshot")


def _own_path(section: Section, template: Template) -> tuple[str, ...]:
    if None in template.segments:
        section.problem("the path has parameters: list the URLs, such as [/api/products/1]", "snapshot")
        return ()
    return ("/" + "/".join(segment or "" for segment in template.segments),)


def _url(section: Section, template: Template, text: str) -> str | None:
    path, mark, query = text.partition("?")
    try:
        url = f"{paths.canonical_path(path)}{mark}{paths.canonical_query(query)}"
    except ValueError as error:
        section.problem(f"{text[:80]!r}: {error}", "snapshot")
        return None
    if "#" in text or not template.matches(url.partition("?")[0]):
        section.problem(f"{text[:80]!r} does not match the path of the route, {template.text}", "snapshot")
        return None
    return url
