/**
 * `<mcp-app>` and `<mcp-app-item>` as components of React 19, which can be rendered on a server.
 *
 * React sets no property of a custom element that it hydrates, and adds a function whose name begins with `on` as a
 * listener. So these components set the properties themselves.
 */
import { createElement, useImperativeHandle, useLayoutEffect, useRef, type HTMLAttributes, type ReactElement, type Ref } from "react";
import type { McpApp as AppElement } from "./element";
import type { McpAppEvents } from "./element/events";
import type { McpAppItem as Item, McpAppItemElement, McpAppItemOptions } from "./items";

export * from "./index";

type Listeners = { [Name in keyof McpAppEvents as `on${Name}`]?: ((event: CustomEvent<McpAppEvents[Name]>) => void) | undefined };

/** The properties of the element that a host sets. */
const SETTINGS = [
  "gateway", "app", "upstream", "resourceUri", "resourceHtml", "resourceMeta", "sandboxUrl", "tools", "displayModes",
  "fallbackText", "mcpAppId", "toolCallId", "toolName", "toolInput", "toolResult", "hostContext", "allowedLinks",
  "capabilities", "sizing", "timeout", "labels", "onCallTool", "onReadResource", "onListResources",
  "onListResourceTemplates", "onListPrompts", "onFallbackRequest", "onMessage", "onUpdateModelContext", "token", "getToken",
  "showsApprovals", "hostInfo",
] as const satisfies readonly (keyof AppElement)[];

type Settings = { [Name in (typeof SETTINGS)[number]]?: AppElement[Name] | undefined };

type Common<Element> = Omit<HTMLAttributes<Element>, "title"> & Listeners & { ref?: Ref<Element> | undefined };

export type McpAppProps = Common<AppElement> & Settings & { title: string; displayMode?: string | undefined };

export type McpAppItemProps = Common<McpAppItemElement> & { item: Item; options?: McpAppItemOptions | undefined };

/** The element of a component. */
export type McpApp = AppElement;
export type McpAppItem = Item;

/** An MCP App, with the properties and events of `<mcp-app>`. */
export const McpApp = (props: McpAppProps): ReactElement => useCustomElement("mcp-app", [...SETTINGS, "displayMode"], props);

/** An item of a message, with the properties of `<mcp-app-item>` and the events of its app. */
export const McpAppItem = (props: McpAppItemProps): ReactElement => useCustomElement("mcp-app-item", ["item", "options"], props);

const IS_EVENT = /^onmcp-app-/;

/** Render a custom element with the HTML attributes among `given`; its `properties` and listeners are set in the browser. */
function useCustomElement(tag: string, properties: readonly string[], given: object): ReactElement {
  const { ref, ...props } = given as Record<string, unknown>;
  const element = useRef<HTMLElement>(null);
  const applied = useRef<Record<string, unknown>>({});
  const isHidden = useRef(false);
  useImperativeHandle(ref as Ref<HTMLElement>, () => element.current!, []);
  const listeners = Object.entries(props).filter(([name, value]) => IS_EVENT.test(name) && typeof value === "function");
  useLayoutEffect(() => {
    const target = element.current!;
    for (const [name, listener] of listeners) target.addEventListener(name.slice(2), listener as EventListener);
    return () => {
      for (const [name, listener] of listeners) target.removeEventListener(name.slice(2), listener as EventListener);
    };
  });
  useLayoutEffect(() => {
    const target = element.current as unknown as Record<string, unknown>;
    for (const name of properties) {
      if (props[name] === applied.current[name]) continue;
      target[name] = applied.current[name] = props[name];
    }
    element.current!.removeAttribute("data-hydrating");
  });
  useLayoutEffect(() => {
    const app = (): AppElement | null => appOf(element.current);
    if (isHidden.current) app()?.retry();
    return () => {
      isHidden.current = true;
      void app()?.teardown(); // React removes the element after this, by means that end its frame at once
    };
  }, []);
  const isAttribute = ([name]: [string, unknown]): boolean => !properties.includes(name) && !IS_EVENT.test(name);
  return createElement(tag, { ...Object.fromEntries(Object.entries(props).filter(isAttribute)), "data-hydrating": "", ref: element });
}

function appOf(element: HTMLElement | null): AppElement | null {
  return element && "app" in element && element.localName === "mcp-app-item" ? (element as McpAppItemElement).app : (element as AppElement | null);
}
