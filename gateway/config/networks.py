"""`network` of a server that gateway.yaml names: which addresses it may have."""

from __future__ import annotations

from gateway.config.settings import DEFAULTS
from gateway.documents import Section
from gateway.policy import Network, parse_network


def network(section: Section) -> Network:
    """`public`, `private`, or a list of blocks."""
    node = section.get("network")
    listed = node is not None and isinstance(node.value, tuple)
    words = section.texts("network") if listed else (section.text("network", DEFAULTS["credentials.<name>.network"]),)
    try:
        return parse_network(words)
    except ValueError as error:
        section.problem(str(error), "network")
        return Network()
