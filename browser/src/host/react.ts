/** Types of `<mcp-app>` and `<mcp-app-item>` in JSX of React 19, which sets properties and listens to events by their names. */
import type { ClassAttributes, HTMLAttributes } from "react";
import type { McpApp } from "./element";
import type { McpAppEvents } from "./element/events";
import type { McpAppItem, McpAppItemElement, McpAppItemOptions } from "./items";

export * from "./index";

type Listeners = { [Name in keyof McpAppEvents as `on${Name}`]?: (event: CustomEvent<McpAppEvents[Name]>) => void };

/** The properties of `McpApp` that a host sets. */
type Settings = Pick<
  McpApp,
  | "gateway" | "app" | "upstream" | "resourceUri" | "resourceHtml" | "resourceMeta" | "sandboxUrl" | "tools" | "displayModes"
  | "fallbackText" | "mcpAppId" | "toolCallId" | "toolName" | "toolInput" | "toolResult" | "hostContext" | "allowedLinks"
  | "capabilities" | "sizing" | "timeout" | "labels" | "onCallTool" | "onReadResource" | "onListResources"
  | "onListResourceTemplates" | "onListPrompts" | "onFallbackRequest" | "onMessage" | "onUpdateModelContext" | "token" | "getToken"
  | "showsApprovals" | "hostInfo"
>;

type Partially<Given> = { [Name in keyof Given]?: Given[Name] | undefined };

type Common<Element> = ClassAttributes<Element> & Omit<HTMLAttributes<Element>, "title"> & Listeners;

export type McpAppProps = Common<McpApp> & Partially<Settings> & { title: string; displayMode?: string | undefined };

export type McpAppItemProps = Common<McpAppItemElement> & { item: McpAppItem; options?: McpAppItemOptions | undefined };

declare module "react" {
  namespace JSX {
    interface IntrinsicElements {
      "mcp-app": McpAppProps;
      "mcp-app-item": McpAppItemProps;
    }
  }
}
