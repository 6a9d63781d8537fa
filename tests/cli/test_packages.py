"""The command `serve` loads only the parts of large packages that it uses, and all others once they are asked for."""

from __future__ import annotations

import subprocess
import sys

_SERVE = "from gateway.cli import main; main.get_command(None, 'serve'); import sys; "


def _output_of(program: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", _SERVE + program], capture_output=True, text=True, timeout=120, check=True
    )
    return ended.stdout.strip()


def test_the_gateway_loads_no_part_that_it_does_not_use() -> None:
    """No client and no high-level server of the SDK, no object-relational mapper, nothing that is not configured."""
    unused = [
        "mcp.client",
        "mcp.server.mcpserver",
        "httpx2",
        "sqlalchemy.orm",
        "sqlalchemy.dialects.postgresql",
        "asyncpg",
        "webauthn",
        "rich",
        "cel",
        "opentelemetry.sdk",
    ]
    assert _output_of(f"print([name for name in {unused} if name in sys.modules])") == "[]"


def test_the_rest_of_a_package_is_there_when_it_is_asked_for() -> None:
    """A plugin may use the whole package, by any form of import."""
    program = "from mcp import Client; import mcp, mcp.types; print(Client.__module__, mcp.ClientSession.__name__); "
    program += "from mcp.server import MCPServer; print(MCPServer.__name__, mcp.types.Tool.__name__); "
    program += "from sqlalchemy.ext.asyncio import AsyncSession; print(AsyncSession.__name__); "
    program += "print(hasattr(mcp, 'nothing'), hasattr(mcp, '__nothing__'))"
    assert _output_of(program).split() == [
        *("mcp.client.client", "ClientSession", "MCPServer", "Tool", "AsyncSession", "False", "False"),
    ]


def test_models_are_built_at_their_first_use() -> None:
    """A deferred model validates and serializes as any other, and models of others are not deferred."""
    program = "import mcp_types, pydantic; before = mcp_types.Tool.__pydantic_complete__; "
    program += "tool = mcp_types.Tool.model_validate({'name': 'x', 'inputSchema': {}}); "
    program += "mine = type('Mine', (pydantic.BaseModel,), {}); "
    program += "print(before, tool.model_dump_json(by_alias=True, exclude_none=True), mine.__pydantic_complete__)"
    assert _output_of(program) == 'False {"name":"x","inputSchema":{}} True'
