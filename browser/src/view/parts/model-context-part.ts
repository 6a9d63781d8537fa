/**
 * `document.modelContext` for pages that contain it: a separate script before the runtime, which passes it the page's
 * tools.
 *
 * Other pages have only the tools of their own client.
 */

import { createModelContext, installModelContext } from "../tools/model-context";
import { mirrorNatively, type NativeContext } from "../tools/native-mirror";
import { installSubmitEvent } from "../tools/tool-events";
import type { TakeTools } from "../tools/tool-part";

const native = (document as { modelContext?: NativeContext & EventTarget }).modelContext;

const take: TakeTools = (registry, framed) => {
  // An ordinary web site uses the browser's own tools, if there are any.
  const context = (!framed && native) || createModelContext(registry, window);
  if (context !== native) {
    installModelContext(context);
    installSubmitEvent(window);
  }
  // Its place in earlier drafts; libraries that build on it replace it.
  Object.defineProperty(navigator, "modelContext", { value: context, configurable: true, enumerable: true, writable: true });
  return native && ((offered, began) => mirrorNatively(registry, native, offered, began));
};
Object.assign(window, { webmcpGatewayTools: take });
