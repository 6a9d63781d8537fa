"""The requests and answers of cases, as far as they are common to all doors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
WAIT = 60.0
"""Seconds after which an answer is given up; long, as a busy machine is no failure."""
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "attack", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": UI,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The HTTP answer of a case, and all bytes of the door's answer.

    `status` 0 means that there is no HTTP answer: `error` is the door's message instead.
    """

    status: int
    reason: str | None
    headers: dict[str, str]
    body: Any
    raw: bytes
    error: str | None = None


class Place(Protocol):
    """The address of a gateway with the app `target`."""

    @property
    def port(self) -> int: ...

    @property
    def hosts(self) -> dict[str, str]:
        """The `Host` of each site."""
        ...


class AttackedDoor(Protocol):
    """One way into the gateway."""

    async def ask(self, case: dict[str, Any]) -> Answer:
        """Send the request of a case, as far as this door can express it."""
        ...


def arguments_text(case: dict[str, Any]) -> str:
    """The arguments of `http_request` as JSON text: verbatim if the case has `text`."""
    return str(case["text"]) if "text" in case else json.dumps(request_of(case))


def request_of(case: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `http_request`."""
    if "ask" in case:
        return dict(case["ask"])
    named = ("url", "method", "headers", "body", "bodyType", "redirect", "credentials", "timeoutMs", "stream")
    return {name: case[name] for name in named if name in case}


def with_proof(text: str, proof: str) -> str:
    """The arguments with a view proof as their first member; text that is not an object stays unchanged."""
    if not text.startswith("{"):
        return text
    rest = text[1:].lstrip()
    return f'{{"_view":{json.dumps(proof)}{"" if rest.startswith("}") else ","}{rest}'


def of_call(message: dict[str, Any], raw: bytes) -> Answer:
    """The answer in a JSON-RPC message."""
    if "error" in message:
        return Answer(0, None, {}, None, raw, f"{message['error']['code']}: {message['error']['message']}")
    content = message["result"].get("structuredContent")
    if not isinstance(content, dict) or "status" not in content:
        return Answer(0, None, {}, content, raw, "a tool result that is no HTTP answer")
    headers = content["headers"]
    return Answer(content["status"], headers.get("gateway-reason"), headers, content.get("body"), raw)
