/** The host's answers to a page's requests in the ui protocol: by the gateway, or by the page around it. */
import type {
  AppBridge,
  McpUiDownloadFileRequest,
  McpUiMessageRequest,
  McpUiUpdateModelContextRequest,
} from "@modelcontextprotocol/ext-apps/app-bridge";
import type { JsonObject } from "../mux";
import { BridgeError, type BridgeView, type CallOptions } from "./bridge-view";

type Context = Parameters<NonNullable<AppBridge["oncalltool"]>>[1];

/** The services of the page around an app; omitted ones are not offered to the app. */
export interface PersonAnswers {
  /** Shows a link, http or https; false if it was not opened. Without it, the page is informed that links do not open. */
  onopenlink?: (url: URL) => boolean | Promise<boolean>;
  /** The page speaks for the person; false if the message was refused. */
  onmessage?: (params: McpUiMessageRequest["params"]) => boolean | Promise<boolean>;
  onupdatemodelcontext?: (params: McpUiUpdateModelContextRequest["params"]) => void | Promise<void>;
  ondownloadfile?: (params: McpUiDownloadFileRequest["params"]) => boolean | Promise<boolean>;
  onlog?: (params: { level: string; logger?: string | undefined; data?: unknown }) => void;
}

/** Set the handlers of `apps`; `view` returns the current view. */
export function answerPage(apps: AppBridge, view: () => BridgeView | null, options: PersonAnswers): void {
  async function callGateway<Result>(method: string, params: object | undefined, context: Context): Promise<Result> {
    const open = view();
    if (!open) throw new BridgeError(-32000, "connection-lost");
    return (await open.call(method, { ...params } as JsonObject, toCallOptions(context))) as Result;
  }
  apps.oncalltool = (params, context) => callGateway("tools/call", params, context);
  apps.onreadresource = (params, context) => callGateway("resources/read", params, context);
  apps.onlistresources = (params, context) => callGateway("resources/list", params, context);
  apps.onlistresourcetemplates = (params, context) => callGateway("resources/templates/list", params, context);
  apps.onlistprompts = (params, context) => callGateway("prompts/list", params, context);
  apps.setRequestHandler("prompts/get", ({ params }, context) => callGateway("prompts/get", params, context));
  apps.setRequestHandler("completion/complete", ({ params }, context) => callGateway("completion/complete", params, context));
  apps.onloggingmessage = (params) => options.onlog?.(params);
  answerForPerson(apps, options);
}

function answerForPerson(apps: AppBridge, answers: PersonAnswers): void {
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

/** Cancellation is forwarded to the gateway, progress to the page under its own token. */
function toCallOptions({ mcpReq }: Context): CallOptions {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return { signal: mcpReq.signal };
  const onprogress = (params: JsonObject): void => {
    const notice = { method: "notifications/progress", params: { ...params, progressToken } };
    void mcpReq.notify(notice as unknown as Parameters<typeof mcpReq.notify>[0]);
  };
  return { signal: mcpReq.signal, onprogress };
}
