/** The shell of an app whose pages a backend renders: a script after the runtime, in a page of configuration alone. */

import type { PageSide } from "../host/tiers";
import { startShell } from "../shell/shell";
import type { ShellConfig } from "../shell/write-page";

addEventListener("DOMContentLoaded", () => {
  const written = document.getElementById("webmcp-gateway-shell")!;
  const config = JSON.parse(written.textContent!) as ShellConfig;
  written.remove();
  if (window.parent === window) document.body.textContent = "This page shows an app inside a host of MCP Apps.";
  else startShell(config, (window as unknown as { webmcpGateway: PageSide }).webmcpGateway);
}, { once: true });
