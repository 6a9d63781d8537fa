/** `webmcp-gateway-view`: HTTP of a page over the tool calls of its `App`, and the view runtime's API for pages. */

export { initMcpFetch, initMcpHttp, initMcpXhr } from "./http";
export type { McpApp, McpFetchHandle, McpFetchOptions, McpHandle, McpHttpBaseOptions, McpHttpHandle, McpHttpOptions, McpXhrHandle, McpXhrOptions } from "./http";
export { getTier, onTierChange, reportInteraction, safeCallTool } from "./tiers";
export type { Interaction, PageSide, Tier, ToolResult } from "./tiers";
