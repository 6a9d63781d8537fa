/** `webmcp-gateway-view/react`: thin bindings. */

import { useCallback, useEffect, useRef, useSyncExternalStore, type ReactNode } from "react";
import { getTier, onTierChange, reportInteraction, type Interaction, type Tier } from "./tiers";

/** The tier of this page, undefined until the host has answered; `standalone` on a server. */
export function useHostTier(): Tier | undefined {
  return useSyncExternalStore(onTierChange, getTier, () => "standalone" as const);
}

export interface InteractiveGateProps {
  /** The tiers in which the children are usable; by default all but `static`. */
  tiers?: readonly Tier[];
  /** Shown in their place elsewhere. */
  fallback?: ReactNode;
  children?: ReactNode;
}

const INTERACTIVE: readonly Tier[] = ["full", "context-synced", "standalone"];

/** Shows its children only in tiers where they are usable. */
export function InteractiveGate({ tiers = INTERACTIVE, fallback = null, children }: InteractiveGateProps): ReactNode {
  const tier = useHostTier();
  return tier !== undefined && tiers.includes(tier) ? children : fallback;
}

/** A tool as WebMCP registers it. */
export interface WebMcpTool<Input = Record<string, unknown>> {
  name: string;
  title?: string;
  description: string;
  inputSchema?: object;
  annotations?: object;
  execute(input: Input, client: { signal: AbortSignal }): unknown;
}

interface ModelContext {
  registerTool(tool: object, options: { signal: AbortSignal }): unknown;
}

/** Offers `tool` while the component is mounted. It is registered again only when its definition changes. */
export function useWebMCP<Input = Record<string, unknown>>(tool: WebMcpTool<Input>): void {
  const latest = useRef(tool);
  useEffect(() => {
    latest.current = tool;
  });
  const { execute: _, ...definition } = tool;
  const written = JSON.stringify(definition);
  useEffect(() => {
    const context = (document as { modelContext?: ModelContext }).modelContext;
    if (!context) return;
    const controller = new AbortController();
    const execute = (input: Input, client: { signal: AbortSignal }): unknown => latest.current.execute(input, client);
    const given = { ...(JSON.parse(written) as object), execute };
    Promise.resolve(context.registerTool(given, { signal: controller.signal })).catch((error: unknown) => console.warn(error));
    return () => controller.abort();
  }, [written]);
}

/** `reportInteraction` with the common fields of a component's reports. */
export function useReportInteraction(common: Partial<Interaction> = {}): (interaction: Interaction) => Promise<boolean> {
  const latest = useRef(common);
  useEffect(() => {
    latest.current = common;
  });
  return useCallback((interaction: Interaction) => reportInteraction({ ...latest.current, ...interaction }), []);
}
