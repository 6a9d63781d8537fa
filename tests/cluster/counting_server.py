"""An MCP server on standard input and output that has state: it counts its calls, and asks its client.

Its arguments are the file to which each start adds its process id, and the greeting in its results.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

TOOLS = {
    "count": "Returns how often it was called in this process.",
    "ask": "Asks the client for a word, and returns it.",
    "wait": "Returns after so many seconds.",
    "change": "Says that the tools have changed.",
}
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}

_writing = threading.Lock()
_waiting: dict[str, tuple[threading.Event, dict[str, Any]]] = {}
_calls: list[str] = []


def write(message: dict[str, Any]) -> None:
    """Send a message."""
    with _writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def run_tool(name: str, arguments: dict[str, Any], token: Any) -> dict[str, Any]:
    """Return the structured result of a tool."""
    if name == "ask":
        id = f"question-{os.urandom(4).hex()}"
        answered, box = _waiting[id] = (threading.Event(), {})
        schema = {"type": "object", "properties": {"word": {"type": "string"}}}
        params = {"message": "A word?", "requestedSchema": schema}
        write({"id": id, "method": "elicitation/create", "params": params})
        answered.wait(60)
        return {"pid": os.getpid(), "answer": box}
    if name == "wait":
        if token is not None:
            write({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        time.sleep(arguments.get("seconds", 1))
    if name == "change":
        write({"method": "notifications/tools/list_changed"})
        for uri in _followed:
            write({"method": "notifications/resources/updated", "params": {"uri": uri}})
    _calls.append(name)
    return {"pid": os.getpid(), "count": len(_calls)}


_followed: set[str] = set()


def answer(message: dict[str, Any]) -> None:
    """Answer a request."""
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        info = {"name": "counting", "version": "1"}
        result: dict[str, Any] = {
            "protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": info
        }  # fmt: skip
    elif method == "tools/list":
        schema = {"type": "object"}
        result = {"tools": [{"name": name, "description": text, "inputSchema": schema} for name, text in TOOLS.items()]}
    elif method == "tools/call":
        token = params.get("_meta", {}).get("progressToken")
        values = run_tool(params["name"], params.get("arguments", {}), token)
        result = {"content": [{"type": "text", "text": json.dumps(values)}]}
    elif method == "resources/list":
        result = {"resources": [{"uri": "counting:it", "name": "it"}]}
    elif method in ("resources/subscribe", "resources/unsubscribe"):
        (_followed.add if method == "resources/subscribe" else _followed.discard)(params["uri"])
        result = {}
    elif method in ("ping", "logging/setLevel"):
        result = {}
    else:
        write({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        return
    write({"id": message["id"], "result": result})


def main() -> None:
    """Serve until the input ends."""
    with open(sys.argv[1], "a", encoding="utf-8") as starts:
        starts.write(f"{os.getpid()}\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            answered, box = _waiting.pop(message["id"])
            box.update(message.get("result", message))
            answered.set()
        elif "id" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
