/** The element `<mcp-app>`, defined where there is a browser. */
import type { McpAppEvents } from "./events";
import { defineMcpApp, type McpApp } from "./mcp-app";

export { defineMcpApp, McpApp } from "./mcp-app";
export { preloadMcpApp, type PreloadOptions } from "./preload";
export { buildMcpHostContext, STYLE_VARIABLES, type Placement } from "./host-context";
export type { ErrorCode, EventName, McpAppEvents, Respond } from "./events";
export type { HandlerContext, Handlers } from "./handlers";
export { ATTRIBUTES, DISPLAY_MODES, type DisplayMode, type ListedTool } from "./options";

defineMcpApp();

type Events = { [Name in keyof McpAppEvents]: CustomEvent<McpAppEvents[Name]> };

declare global {
  interface HTMLElementTagNameMap {
    "mcp-app": McpApp;
  }
  interface HTMLElementEventMap extends Events {}
}
