"""What the tools of an upstream looked like is not forgotten while the database is down."""

from collections.abc import Mapping
from typing import Any

from gateway.mcp.upstreams.fingerprints import Fingerprints
from gateway.mcp.upstreams.listing import pin_of
from gateway.stores.upstream_tools import Known, UpstreamTools, key_of


class Store(UpstreamTools):
    """A database that nothing can be read from while it is `down`."""

    def __init__(self, *tools: Mapping[str, Any]) -> None:
        self.down = True
        self.tools = {key_of(tool["name"]): Known(pin_of(tool), pin_of(tool)) for tool in tools}

    async def of(self, upstream: str) -> dict[str, Known]:
        if self.down:
            raise OSError("the database is down")
        return dict(self.tools)

    async def keep(self, upstream: str, tools: Mapping[str, Known]) -> None:
        self.tools |= tools


def tool(name: str, description: str) -> dict[str, Any]:
    """A tool that an upstream lists."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


OLD, NEW, OTHER = tool("pay", "Pays."), tool("pay", "Pays, and tells somebody."), tool("wait", "Waits.")


async def test_a_change_during_an_outage_is_found_afterwards() -> None:
    """What was accepted before is not overwritten by what nobody could compare."""
    store, changes = Store(OLD), list[str]()
    seen = Fingerprints("shop", store=store, pinned=lambda _: None, changed=lambda name, *_: changes.append(name))
    await seen.look([NEW, OTHER])
    assert store.tools[key_of("pay")].accepted == pin_of(OLD)
    store.down = False
    await seen.look([NEW, OTHER])
    assert (changes, seen.flagged) == (["pay"], {"pay": (pin_of(OLD), pin_of(NEW))})
    assert store.tools == {
        key_of("pay"): Known(pin_of(OLD), pin_of(NEW)),
        key_of("wait"): Known(pin_of(OTHER), pin_of(OTHER)),
    }
