"""MCP messages of attack cases, valid and invalid, and the check of their answers."""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.cli.attack.cases import CaseData

VERSION: Final = "2026-07-28"
UI: Final = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
_OPENS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def meta(*, shows_apps: bool = True) -> dict[str, Any]:
    """Return the `_meta` of a message of protocol 2026-07-28."""
    return {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "webmcp-gateway attack", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": UI if shows_apps else {},
    }


def message(case: CaseData) -> tuple[dict[str, str], Any]:
    """Return header fields and body of a case: `rpc` is a message to be completed, `mcp` a raw body."""
    headers = {**_OPENS, "mcp-protocol-version": VERSION}
    if "mcp" in case:
        return headers, case["mcp"]
    whole = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}, **case["rpc"]}
    params = whole["params"]
    if isinstance(params, dict):
        given, own = params.get("_meta", {}), meta(shows_apps=case.get("shows_apps", True))
        whole["params"] = {**params, "_meta": {**own, **given} if isinstance(given, dict) else given}
        headers["mcp-name"] = str(params.get("name", params.get("uri", "")))
    headers["mcp-method"] = str(whole["method"])
    return headers, {name: value for name, value in whole.items() if value != "$none"}


def answer_in(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON-RPC response in a body, which is JSON or an event stream."""
    for line in (raw, *raw.splitlines()):
        try:
            value = json.loads(line.removeprefix(b"data:").strip())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and ("result" in value or "error" in value):
            return value
    return None


def held(case: CaseData, status: int, raw: bytes) -> bool:
    """Return whether an answer is as the case expects: with its message's exact id, or a refusal."""
    expected, answer = case["expect"], answer_in(raw)
    if isinstance(expected, dict) and "id" in expected:
        return answer is not None and _same(answer.get("id"), expected["id"]) if status == 200 else status < 500
    statuses = expected.get("status", []) if isinstance(expected, dict) else expected
    if answer is None or "error" in answer:
        return 200 <= status < 500
    return 200 in (statuses if isinstance(statuses, list) else [statuses]) and _says_no(answer["result"])


def _same(found: Any, wanted: Any) -> bool:
    return type(found) is type(wanted) and bool(found == wanted)


def _says_no(result: Any) -> bool:
    """Return whether a result is a tool error, or contains an HTTP answer that refuses."""
    if not isinstance(result, dict):
        return False
    content = result.get("structuredContent")
    status = content.get("status") if isinstance(content, dict) else None
    return result.get("isError") is True or (isinstance(status, int) and status >= 400)
