/** Loading what an app needs before its element is inserted. */
import { prepareFrame } from "../frames";
import { gatewayAt, gatewayBase, type Access } from "./gateway";
import { withHost } from "./session";

/** The source of an app, as an element has it. */
export interface PreloadOptions extends Access {
  gateway?: string;
  app?: string;
  upstream?: string;
  resourceUri?: string;
  sandboxUrl?: string;
}

/**
 * Connect to the gateway, and load the sandbox proxy for the next element that shows this app: it then starts faster.
 *
 * Rejects if the gateway refuses. The proxy of an upstream's app is loaded once it was shown for the first time.
 */
export async function preloadMcpApp({ gateway, app, upstream, resourceUri, sandboxUrl, ...access }: PreloadOptions): Promise<void> {
  if (gateway === undefined) {
    if (sandboxUrl) prepareFrame({ url: withHost(sandboxUrl), allow: "" });
    return;
  }
  if (app) await gatewayAt(gatewayBase(gateway), access).preload({ app });
  else if (upstream && resourceUri) await gatewayAt(gatewayBase(gateway), access).preload({ upstream, resource: resourceUri });
  else throw new TypeError("app: it is missing; or `upstream` with `resourceUri`");
}
