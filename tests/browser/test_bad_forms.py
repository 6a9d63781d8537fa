"""Forms as tools on pages that interfere: each call has an answer, and is handled once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from tests.browser.runtime_host import Host, echoing_host
from tests.browser.test_webmcp import call_tool, open_page, wait_listed

NAMES = ["hasty", "held", "lost", "named", "shady", "stopped"]

PAGE = """<!doctype html><script>
  window.handled = [];
  for (const place of [window, document]) {
    place.addEventListener("webmcp-gateway-response", (event) => event.stopImmediatePropagation(), true);
    place.addEventListener("submit", (event) => {
      const { id } = event.target;
      if (id === "stopped") event.stopImmediatePropagation();
      if (id !== "held" && id !== "hasty") return;
      event.preventDefault();
      event.stopImmediatePropagation();
      handled.push(id);
      if (id === "hasty") event.target.submit();
      else event.respondWith("held by " + event.agentInvoked);
    }, true);
  }
</script>
<form id=held toolname=held tooldescription=d></form>
<form id=hasty toolname=hasty tooldescription=d action=/api/hasty></form>
<form id=stopped toolname=stopped tooldescription=d action=/api/stopped></form>
<form id=lost toolname=lost tooldescription=d action=http://[></form>
<form id=named toolname=named tooldescription=d action=/api/named><input name=submit><input name=method></form>
<div id=place></div><script>
  place.attachShadow({ mode: "closed" }).innerHTML = "<form toolname=shady tooldescription=d action=/api/shady></form>";
</script>"""


@pytest.fixture
async def host(page: Page) -> AsyncIterator[Host]:
    """A plain host on a real server, whose answers repeat the requested URL."""
    async with echoing_host(page) as echoing:
        yield echoing


async def test_each_call_is_answered_and_handled_once(host: Host, tmp_path: Path) -> None:
    """Listeners that stop events, pages that submit the form themselves, and invalid URLs do not prevent that."""
    frame = await open_page(host, tmp_path, PAGE, NAMES)
    await wait_listed(host, *NAMES)

    async def said(name: str) -> tuple[Any, str]:
        result = (await call_tool(host, name))["result"]
        return result.get("isError"), result["content"][0]["text"]

    assert await said("held") == (None, "held by true")
    assert await said("hasty") == (None, "/api/hasty")
    assert await said("stopped") == (None, "/api/stopped")
    assert await said("shady") == (None, "/api/shady")
    failed, words = await said("lost")
    assert failed
    assert "Invalid URL" in words
    assert await said("named") == (None, "/api/named?submit=&method=")
    assert await frame.evaluate("handled") == ["held", "hasty"]
