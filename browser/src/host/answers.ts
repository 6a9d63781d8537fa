/** How the host answers what a page asks in the ui protocol: by the gateway, or by the page around it. */
import type { AppBridge } from "@modelcontextprotocol/ext-apps/app-bridge";
import type { JsonObject } from "../mux";
import { BridgeError, type BridgeView, type CallOptions } from "./bridge-view";
import type { MountOptions } from "./view";

type Context = Parameters<NonNullable<AppBridge["oncalltool"]>>[1];
type Answers = Pick<MountOptions, "onopenlink" | "onmessage" | "onupdatemodelcontext" | "ondownloadfile" | "onlog">;

/** Set the handlers of `apps`; `view` gives the view at the moment of a call. */
export function answerPage(apps: AppBridge, view: () => BridgeView | null, options: Answers): void {
  async function ask<Result>(method: string, params: object | undefined, context: Context): Promise<Result> {
    const open = view();
    if (!open) throw new BridgeError(-32000, "connection-lost");
    return (await open.call(method, { ...params } as JsonObject, optionsOf(context))) as Result;
  }
  apps.oncalltool = (params, context) => ask("tools/call", params, context);
  apps.onreadresource = (params, context) => ask("resources/read", params, context);
  apps.onlistresources = (params, context) => ask("resources/list", params, context);
  apps.onlistresourcetemplates = (params, context) => ask("resources/templates/list", params, context);
  apps.onlistprompts = (params, context) => ask("prompts/list", params, context);
  apps.onloggingmessage = (params) => options.onlog?.(params);
  answerForPerson(apps, options);
}

function answerForPerson(apps: AppBridge, answers: Answers): void {
  const { onopenlink, onmessage, onupdatemodelcontext, ondownloadfile } = answers;
  if (onopenlink) {
    apps.onopenlink = async ({ url }) => {
      const link = URL.canParse(url) ? new URL(url) : null;
      const isWeb = link?.protocol === "https:" || link?.protocol === "http:";
      return { isError: !(link && isWeb && (await onopenlink(link))) };
    };
  }
  if (onmessage) apps.onmessage = async (params) => ({ isError: !(await onmessage(params)) });
  if (ondownloadfile) apps.ondownloadfile = async (params) => ({ isError: !(await ondownloadfile(params)) });
  if (onupdatemodelcontext) {
    apps.onupdatemodelcontext = async (params) => {
      await onupdatemodelcontext(params);
      return {};
    };
  }
}

/** Cancellation goes on to the gateway, progress back to the page under the token that the page chose. */
function optionsOf({ mcpReq }: Context): CallOptions {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return { signal: mcpReq.signal };
  const onprogress = (params: JsonObject): void => {
    const notice = { method: "notifications/progress", params: { ...params, progressToken } };
    void mcpReq.notify(notice as unknown as Parameters<typeof mcpReq.notify>[0]);
  };
  return { signal: mcpReq.signal, onprogress };
}
