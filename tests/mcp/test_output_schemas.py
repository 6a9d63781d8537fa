"""The output schema that a page declares for a tool, as a model's client receives it."""

import asyncio
import base64
import hashlib
import hmac

import pytest
from mcp import Client

from tests.mcp.mounts import MODES, as_app
from tests.world import World

TOTAL = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
TOOL = {"name": "get_cart", "inputSchema": {"type": "object"}, "outputSchema": TOTAL}


@pytest.mark.parametrize("mode", MODES)
async def test_the_output_schema_of_a_page_reaches_the_model_with_its_structured_content(
    world: World, mode: str
) -> None:
    """The client checks the answer against the schema that it received; `list_view_tools` has it, too."""
    async with as_app(f"{world.url}/mcp/cart", mode) as app, Client(f"{world.url}/mcp/cart", mode=mode) as client:
        attached = (await app.call_tool("webmcp_attach", {})).structured_content
        assert attached is not None
        proofs = iter(range(1, 9))

        def proof() -> str:
            number = str(next(proofs))
            signed = hmac.digest(base64.urlsafe_b64decode(attached["key"] + "="), number.encode(), hashlib.sha256)
            return f"{attached['view']}.{number}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"

        await app.call_tool("webmcp_poll", {"after": 0, "wait": 0, "tools": [TOOL], "_view": proof()})
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        shown = (await client.call_tool("list_view_tools", {})).structured_content or {}
        calling = asyncio.create_task(client.call_tool("cart_get_cart", {}))
        polled = await app.call_tool("webmcp_poll", {"after": 0, "wait": 5000, "_view": proof()})
        ((event,)) = (polled.structured_content or {})["events"]
        answer = {"content": [{"type": "text", "text": "3"}], "structuredContent": {"total": 3}}
        await app.call_tool("webmcp_result", {"call": event["call"], "result": answer, "_view": proof()})
        result = await calling
    assert listed["cart_get_cart"].output_schema == TOTAL
    (view,) = shown["views"]
    assert [tool["outputSchema"] for tool in view["tools"]] == [TOTAL]
    assert (result.is_error, result.structured_content) == (False, {"total": 3})
