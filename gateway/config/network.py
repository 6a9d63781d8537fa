"""Reads `network` of a server that the gateway connects to: its allowed addresses."""

from __future__ import annotations

from gateway.documents import Section
from gateway.policy import Network, parse_network


def network(section: Section, default: str) -> Network:
    """Read `public`, `private`, or a list of these and CIDRs, under the key `network`."""
    node = section.get("network")
    listed = node is not None and isinstance(node.value, tuple)
    words = section.texts("network") if listed else (section.text("network", default),)
    try:
        return parse_network(words)
    except ValueError as error:
        section.problem(str(error), "network")
        return Network()
