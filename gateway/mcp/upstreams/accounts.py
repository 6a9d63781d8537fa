"""What is offered of an upstream to who has no account connected for it yet: one tool, which sends them there."""

from __future__ import annotations

from gateway.config import Upstream
from gateway.errors import Reason, Refusal
from gateway.mcp.upstreams.conversation import Message
from gateway.mcp.upstreams.listing import KEYS

CONNECT = "connect_account"


def is_missing(refusal: Refusal) -> bool:
    """Whether somebody has to connect an account first."""
    return refusal.reason is Reason.CREDENTIAL_NEEDED


def instructions(spec: Upstream) -> str:
    """What a client is told instead of the upstream's own words."""
    return f"No account is connected for {spec.name} yet. Call {CONNECT}: its own tools are listed afterwards."


def listed(spec: Upstream, method: str) -> Message:
    """The result of a list: nothing, and of tools the one."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    about = f"Connects this person's account at {spec.name}. Its own tools are listed afterwards."
    tool = {"name": CONNECT, "description": about, "inputSchema": schema}
    return {KEYS[method]: [tool] if method == "tools/list" else []}


def connected(spec: Upstream) -> Message:
    """The result of the tool."""
    text = f"The account is connected. The tools of {spec.name} are listed now."
    return {"content": [{"type": "text", "text": text}], "isError": False}
