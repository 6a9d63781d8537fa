"""Session resumption for handshake protocols: keeps what the client sent, to replay it in a new session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Message: TypeAlias = dict[str, Any]

INITIALIZED: Final = "notifications/initialized"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_CHANGED: Final = ("tools", "prompts", "resources")


@dataclass(slots=True)
class PipeSession:
    """The current session: `id` and `version` are the gateway's latest, empty before the handshake."""

    id: str = ""
    version: str = ""
    opening: bytes = b""
    _said: dict[str, bytes] = field(default_factory=dict)

    def keep(self, message: Message, line: bytes) -> None:
        """Keep the client's messages that change the session's state."""
        params = message.get("params")
        match message.get("method"):
            case "initialize":
                self.opening = line
                self._said.clear()
            case "logging/setLevel" | "notifications/initialized" as method:
                self._said[method] = line
            case "resources/subscribe" if isinstance(params, dict):
                self._said[f"resource {params.get('uri')}"] = line
            case "resources/unsubscribe" if isinstance(params, dict):
                self._said.pop(f"resource {params.get('uri')}", None)
            case _:
                pass

    def again(self) -> Iterator[tuple[Message, bytes]]:
        """Yield the messages to replay after the opening of a new session."""
        for line in list(self._said.values()):
            yield json.loads(line), line

    def opened(self, id: str, text: str) -> bool:
        """Read the answer to an opening; return whether there is a session now."""
        try:
            version = str(json.loads(text)["result"]["protocolVersion"])
        except (ValueError, KeyError, TypeError):
            return False
        self.id, self.version = id, version
        return True


def changes(text: str) -> Iterator[str]:
    """Yield the notifications for a client whose session was replaced by a new one, opened with the answer `text`."""
    capabilities = json.loads(text)["result"].get("capabilities", {})
    for kind in _CHANGED:
        offered = capabilities.get(kind)
        if isinstance(offered, dict) and offered.get("listChanged") is True:
            yield json.dumps({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})


def missed_changes(acknowledged: Message) -> Iterator[str]:
    """Yield the notifications for changes that a client may have missed while its stream was closed."""
    match acknowledged.get("params"):
        case {"_meta": meta, "notifications": {**told}}:
            for kind in _CHANGED:
                if told.get(f"{kind}ListChanged") is True:
                    yield _notification(f"notifications/{kind}/list_changed", {"_meta": meta})
            uris = told.get("resourceSubscriptions")
            for uri in uris if isinstance(uris, list) else ():
                yield _notification("notifications/resources/updated", {"uri": uri, "_meta": meta})
        case _:
            pass


def _notification(method: str, params: Message) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params})
