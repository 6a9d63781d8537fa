"""Holds back scripts of a packed page until a part of the view runtime starts them: for storage, or in order."""

from __future__ import annotations

from gateway.apps.markup import Element, parse
from gateway.apps.places import Splice, Text, splice

WAITS = "webmcp-gateway-waits"
"""The type of such a script, which no browser runs, and the attribute with its kind: a module, deferred, or neither."""

OF_BACKEND = "webmcp-gateway-"
"""The prefix of its `src` if it is a file of the backend, which the runtime loads."""

RUN = frozenset({"", "text/javascript", "application/javascript", "application/x-javascript", "text/ecmascript"})
"""The types of classic scripts."""


def waiting(packed: str, after: int) -> str:
    """Hold back each script of `packed` that begins behind `after`."""
    found = parse(Text("", packed)).elements
    runs = [element for element in found if element.start >= after and _runs(element)]
    return splice(packed, [change for element in runs for change in _waiting(element)])


def _runs(element: Element) -> bool:
    return element.name == "script" and not element.inert and _type(element) in RUN | {"module"}


def _type(element: Element) -> str:
    return (element.get("type") or "").strip().lower()


def _waiting(element: Element) -> list[Splice]:
    # Of two attributes of one name the first counts (HTML, 13.2.5.33).
    kind = "module" if _type(element) == "module" else "defer" if _deferred(element) else ""
    place = element.start + len("<script")
    found = [Splice(place, place, f' type="{WAITS}" {WAITS}="{kind}"')]
    if (source := element.attributes.get("src")) is not None:
        found.append(Splice(source.start, source.start, OF_BACKEND))
    return found


def _deferred(element: Element) -> bool:
    return "src" in element.attributes and not {"defer", "async"}.isdisjoint(element.attributes)
