"""Scripts of a packed page that wait until the part of the view runtime that loads its storage starts them."""

from __future__ import annotations

from gateway.apps.markup import Element, parse
from gateway.apps.places import Splice, Text, splice

WAITS = "webmcp-gateway-waits"
"""The type of such a script, which no browser runs, and the attribute with the type that it had."""

RUN = frozenset({"", "text/javascript", "application/javascript", "application/x-javascript", "text/ecmascript"})
"""The types of classic scripts."""


def waiting(packed: str, after: int) -> str:
    """`packed` with each script that begins behind `after` waiting."""
    found = parse(Text("", packed)).elements
    return splice(packed, [_waiting(element) for element in found if element.start >= after and _runs(element)])


def _runs(element: Element) -> bool:
    return element.name == "script" and not element.inert and _type(element) in RUN | {"module"}


def _type(element: Element) -> str:
    return (element.get("type") or "").strip().lower()


def _waiting(element: Element) -> Splice:
    # Of two attributes of one name the first counts (HTML, 13.2.5.33).
    kind = "module" if _type(element) == "module" else ""
    place = element.start + len("<script")
    return Splice(place, place, f' type="{WAITS}" {WAITS}="{kind}"')
