"""The transports by which the gateway reaches an upstream, each as in gateway.yaml."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.interop.serving import over_http, over_sse, over_websocket

KINDS: Final = ("url", "json", "sse", "websocket", "command", "server")
ROOT: Final = Path(__file__).parents[2]


@asynccontextmanager
async def upstream(kind: str, of: ModuleType) -> AsyncIterator[str]:
    """Yield the `server` of a module, which can also be run as a program, as an upstream in gateway.yaml."""
    match kind:
        case "url" | "json":
            async with over_http(of.server(), json_response=kind == "json") as url:
                yield f'{{url: "{url}", network: private}}'
        case "sse":
            async with over_sse(of.server()) as url:
                yield f'{{sse: "{url}", network: private}}'
        case "websocket":
            async with over_websocket(of.server()) as url:
                yield f'{{websocket: "{url}", network: private}}'
        case "command":
            yield json.dumps({"command": [sys.executable, "-m", of.__name__], "cwd": str(ROOT)})
        case _:
            yield f'{{server: "{of.__name__}:server"}}'
