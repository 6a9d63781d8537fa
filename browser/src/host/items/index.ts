/** Apps as items of messages: their check, their display modes, and adapters for the streams of chat SDKs. */
export { activityItems, MCP_APPS_ACTIVITY } from "./ag-ui";
export { toolPartItems } from "./ai-sdk";
export { isMcpAppItem, McpAppItemError, parseMcpAppItem, type ItemProblem, type McpAppItem } from "./item";
export { defineMcpAppItem, McpAppItemElement, renderMcpAppItem, type McpAppItemOptions } from "./mcp-app-item";
export { toolCallItems } from "./openai";
export { parsePartialObject } from "./partial-json";
export type { CloseReason, OpenReason, SurfaceEvent } from "./surface";
export type { SurfaceLabels } from "./surface-view";
export { toToolResult, type AdapterOptions, type ItemSource, type McpTool } from "./tool-calls";

import { defineMcpAppItem } from "./mcp-app-item";

defineMcpAppItem();
