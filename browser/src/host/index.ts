/** The API for a host page to show apps: a bridge to the gateway, and apps mounted on it. */
export { connectBridge, type Bridge, type BridgeOptions, type BridgeState } from "./bridge";
export { BridgeError, type BridgeView, type ViewEvents } from "./bridge-view";
export { mountApp, type Ending, type MountedApp, type MountOptions } from "./view";
export type { ToolNotice } from "./tool-notices";
export * from "./element";
export * from "./items";
