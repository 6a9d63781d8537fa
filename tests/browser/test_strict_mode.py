"""React pages in StrictMode, in a view: effects that run twice leave nothing behind, and have no double effect."""

import subprocess
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.runtime_host import ROOT, Host, pack_html
from tests.browser.test_single_owner import complaints
from tests.browser.test_webmcp import call_tool, wait_listed

BROWSER = ROOT / "browser"


def page_of(folder: Path, package: str) -> str:
    """The page, built for development with this `useApp`."""
    source = (Path(__file__).parent / "pages" / "strict.ts").read_text("utf-8").replace("EXT_APPS", package)
    entry = BROWSER / "node_modules" / ".cache" / "strict.ts"
    entry.parent.mkdir(exist_ok=True)
    entry.write_text(source.replace("../src/", f"{BROWSER}/src/"), "utf-8")
    command = [BROWSER / "node_modules" / ".bin" / "rolldown", entry, "--file", folder / "page.js", "--format", "esm"]
    options = ["--platform", "browser", "--transform.define", 'process.env.NODE_ENV:"development"']
    subprocess.run([*map(str, command), *options], check=True, cwd=BROWSER, capture_output=True)
    script = (folder / "page.js").read_text("utf-8").replace("</script", "<\\/script")
    return pack_html(
        folder / "app", f"<!doctype html><body><div id=root></div><script type=module>{script}</script></body>"
    )


@pytest.mark.parametrize("package", ["@modelcontextprotocol/ext-apps", "ext-apps-1"])
async def test_a_page_in_strict_mode(host: Host, tmp_path: Path, package: str) -> None:
    """There is one handshake, each tool once, with the React bindings and the hook of ext-apps."""
    errors = complaints(host.page)
    await host.attaches("count", "own")
    frame = await host.show(page_of(tmp_path, package))
    await frame.wait_for_function("() => window.connected")
    await wait_listed(host, "count", "own")
    assert (await call_tool(host, "count", {"by": 2}))["result"]["structuredContent"] == {"was": 0}
    await expect(frame.locator("#count")).to_have_text("2")
    await frame.evaluate("() => new Promise((go) => requestAnimationFrame(() => setTimeout(go)))")  # its effects, too
    assert (await call_tool(host, "count"))["result"]["structuredContent"] == {"was": 2}
    assert (await call_tool(host, "own"))["result"]["content"][0]["text"] == "own"
    await expect(frame.locator("#root")).to_have_text("full\n\n3", use_inner_text=True)
    await frame.evaluate("show(false)")
    await wait_listed(host, "own")
    await frame.evaluate("show(true)")
    await wait_listed(host, "count", "own")
    await frame.click("#count")
    await frame.wait_for_function("() => ran.includes('told false')")
    assert await frame.evaluate("[begun, ran, window.problem]") == [2, ["count", "count", "own", "told false"], None]
    assert await host.run("() => host.of('ui/initialize').length") == 1
    assert errors == []
