"""The output schema of a tool of a page's own client reaches a model at `/mcp`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from mcp import Client
from playwright.async_api import Page

from tests.browser import stock_host, test_main_job
from tests.browser.stock_host import bundle_hosts
from tests.browser.test_main_job import tool
from tests.browser.test_own_client import page_with_app
from tests.world import running

TOTAL = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
PAGE = page_with_app(
    """
  const schema = {type: "object", properties: {total: {type: "integer"}}, required: ["total"]};
  const output = {"~standard": {version: 1, vendor: "test", validate: (value) => ({value}),
    jsonSchema: {input: () => schema, output: () => schema}}};
  const app = new App({name: "own", version: "1"}, {tools: {listChanged: true}}, {autoResize: false});
  for (const [name, total] of [["sum", 3], ["wrong", "three"]])
    app.registerTool(name, {description: "Adds up.", outputSchema: output},
      async () => ({content: [{type: "text", text: `${total}`}], structuredContent: {total}}));
  await app.connect();
"""
).replace("<p>", "<p id=page>")
POLICY = """version: 1
backends: {shop: {url: "http://127.0.0.1:9401", network: [127.0.0.0/8]}}
tools: {sum: {}, wrong: {}}
"""


@pytest.mark.parametrize("way", ["bridge", "relay"])
async def test_the_output_schema_of_a_registered_app_tool_reaches_the_model(
    page: Page, tmp_path: Path, way: str
) -> None:
    """The model's client checks the structured content; an answer that does not fit is an error with a message."""
    source = tmp_path / "page"
    source.mkdir()
    (source / "index.html").write_text(PAGE, "utf-8")
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(running(tmp_path, policy=POLICY, source=source))
        if way == "bridge":
            await test_main_job.show_app(page, world, "#page")
        else:
            script = bundle_hosts(tmp_path)
            await stack.enter_async_context(stock_host.show_cart(page, world, script, landmark="#page"))
        client = await stack.enter_async_context(Client(f"{world.url}/mcp/cart", mode="2026-07-28"))
        listed = await tool(client, "cart_sum")
        right, wrong = [await client.call_tool(name, {}) for name in ("cart_sum", "cart_wrong")]
    assert listed["output_schema"] == TOTAL
    assert (right.is_error, right.structured_content) == (False, {"total": 3})
    assert wrong.is_error
    assert "total" in str(wrong.content)
