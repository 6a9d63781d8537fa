"""The offer of an upstream to a principal without a connected account: one tool, which leads there."""

from __future__ import annotations

from gateway.config import UpstreamSettings
from gateway.errors import Reason, Refusal
from gateway.mcp.upstreams.catalog.listing import KEYS
from gateway.mcp.upstreams.transport.conversation import Message

CONNECT = "connect_account"


def is_missing(refusal: Refusal) -> bool:
    """Whether the refusal requires that a person connects an account."""
    return refusal.reason is Reason.CREDENTIAL_NEEDED


def instructions(spec: UpstreamSettings) -> str:
    """Return the instructions that replace the upstream's own."""
    return f"No account is connected for {spec.name} yet. Call {CONNECT}: its own tools are listed afterwards."


def listed(spec: UpstreamSettings, method: str) -> Message:
    """Return an empty list, or the one tool."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    about = f"Connects this person's account at {spec.name}. Its own tools are listed afterwards."
    tool = {"name": CONNECT, "description": about, "inputSchema": schema}
    return {KEYS[method]: [tool] if method == "tools/list" else []}


def connected(spec: UpstreamSettings) -> Message:
    """Return the result of the tool."""
    text = f"The account is connected. The tools of {spec.name} are listed now."
    return {"content": [{"type": "text", "text": text}], "isError": False}
