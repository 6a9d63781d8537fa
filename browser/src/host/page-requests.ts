/** The host's answers to a page's requests in the ui protocol: by the gateway, or by the page around it. */
import type {
  AppBridge,
  McpUiDisplayMode,
  McpUiDownloadFileRequest,
  McpUiHostCapabilities,
  McpUiMessageRequest,
  McpUiResourceMeta,
  McpUiUpdateModelContextRequest,
} from "@modelcontextprotocol/ext-apps/app-bridge";
import { isObject, type JsonObject } from "../mux";
import { attempt } from "../view/attempt";
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
  /** The page asks for a display mode; returns the mode that it is shown in now. Without it, the mode does not change. */
  onrequestdisplaymode?: (mode: McpUiDisplayMode) => McpUiDisplayMode | Promise<McpUiDisplayMode>;
}

/** The methods that a server behind the host may answer. */
export const SERVER_METHODS = [
  "tools/call",
  "resources/read",
  "resources/list",
  "resources/templates/list",
  "prompts/list",
  "prompts/get",
  "completion/complete",
] as const;

/** JSON-RPC 2.0: an error without a code of its own. */
const INTERNAL = -32603;
/** Characters of the message of an error. */
const MAX_MESSAGE = 4000;

export type ServerMethod = (typeof SERVER_METHODS)[number];

/** The answers to the page's requests to the server. */
export interface GatewayRequests {
  /** False if there is no gateway: the host page itself answers. */
  isBridged?: boolean;
  /** The answered methods; by default all of them. The page is informed of no others. */
  methods?: ReadonlySet<ServerMethod>;
  /** Answers or refuses (throws) a request before the server does; undefined leaves it to the server. */
  onrequest?: (method: ServerMethod, params: JsonObject, signal: AbortSignal) => Promise<JsonObject | undefined>;
  /** Answers requests of all other methods, such as a vendor's own. */
  onfallback?: (method: string, params: JsonObject, signal: AbortSignal) => Promise<JsonObject>;
}

/** Set the handlers of `apps`; `view` returns the current view. */
export function answerPage(apps: AppBridge, view: () => Pick<BridgeView, "call"> | null, options: PersonAnswers & GatewayRequests): void {
  for (const method of SERVER_METHODS) {
    if (options.methods?.has(method) === false) continue;
    const answer = (params: object | undefined, context: Context): Promise<object> =>
      answered(async () => {
        const given = withoutMark({ ...params } as JsonObject);
        const own = await options.onrequest?.(method, given, context.mcpReq.signal);
        if (own) return own;
        const open = view();
        if (!open) throw new BridgeError(-32000, "connection-lost");
        return open.call(method, given, toCallOptions(context));
      });
    setHandler(apps, method, answer);
  }
  const { onfallback } = options;
  if (onfallback) {
    apps.fallbackRequestHandler = ({ method, params }, { mcpReq }) => answered(() => onfallback(method, { ...params } as JsonObject, mcpReq.signal));
  }
  apps.onloggingmessage = (params) => options.onlog?.(params);
  answerForPerson(apps, options);
}

/** The answer of `answer`, whatever a host's handler throws: without an error that can be sent, the page would wait for ever. */
async function answered<Answer>(answer: () => Promise<Answer>): Promise<Answer> {
  try {
    return await answer();
  } catch (error) {
    throw sendable(error);
  }
}

function sendable(error: unknown): BridgeError {
  const read = (name: string): unknown => attempt(() => (error as Record<string, unknown>)[name]);
  const [message, code] = [typeof error === "string" ? error : read("message"), read("code")];
  const text = typeof message === "string" && message ? message.slice(0, MAX_MESSAGE) : "Internal error";
  const data = attempt(() => JSON.stringify(read("data")) as string | undefined);
  return new BridgeError(Number.isSafeInteger(code) ? (code as number) : INTERNAL, text, data === undefined ? undefined : JSON.parse(data));
}

/** The `_meta` key by which a host page asks the gateway for the tools of the page in its view. */
export const OF_PAGE = "webmcp-gateway/page";

/** The page's own request does not have the mark of the host. */
function withoutMark(params: JsonObject): JsonObject {
  const meta = params["_meta"];
  if (!isObject(meta) || !(OF_PAGE in meta)) return params;
  const { [OF_PAGE]: _, ...rest } = meta;
  return { ...params, _meta: rest };
}

function setHandler(apps: AppBridge, method: ServerMethod, answer: (params: object | undefined, context: Context) => Promise<object>): void {
  const typed = <Result>(params: object | undefined, context: Context): Promise<Result> => answer(params, context) as Promise<Result>;
  switch (method) {
    case "tools/call":
      return void (apps.oncalltool = typed);
    case "resources/read":
      return void (apps.onreadresource = typed);
    case "resources/list":
      return void (apps.onlistresources = typed);
    case "resources/templates/list":
      return void (apps.onlistresourcetemplates = typed);
    case "prompts/list":
      return void (apps.onlistprompts = typed);
    case "prompts/get":
      return apps.setRequestHandler("prompts/get", ({ params }, context) => typed(params, context));
    case "completion/complete":
      return apps.setRequestHandler("completion/complete", ({ params }, context) => typed(params, context));
  }
}

/** The actual capabilities of a host; a page does not use others. */
export function capabilitiesOf(options: PersonAnswers & GatewayRequests, meta: McpUiResourceMeta): McpUiHostCapabilities {
  const { isBridged = true } = options;
  const answers = (method: ServerMethod): boolean => options.methods?.has(method) !== false;
  const listChanged = isBridged && { listChanged: true };
  return {
    ...(answers("tools/call") && { serverTools: { ...listChanged } }),
    ...(answers("resources/read") && { serverResources: { ...listChanged } }),
    logging: {},
    sandbox: { ...(meta.csp && { csp: meta.csp }), ...(meta.permissions && !isBridged && { permissions: meta.permissions }) },
    ...(options.onopenlink && { openLinks: {} }),
    ...(options.ondownloadfile && { downloadFile: {} }),
    ...(options.onmessage && { message: { text: {} } }),
    ...(options.onupdatemodelcontext && { updateModelContext: { text: {}, structuredContent: {} } }),
  };
}

function answerForPerson(apps: AppBridge, answers: PersonAnswers): void {
  const { onopenlink, onmessage, onupdatemodelcontext, ondownloadfile, onrequestdisplaymode } = answers;
  if (onopenlink) {
    apps.onopenlink = ({ url }) => {
      const link = URL.canParse(url) ? new URL(url) : null;
      const isWeb = link?.protocol === "https:" || link?.protocol === "http:";
      return answered(async () => ({ isError: !(link && isWeb && (await onopenlink(link))) }));
    };
  }
  if (onmessage) apps.onmessage = (params) => answered(async () => ({ isError: !(await onmessage(params)) }));
  if (ondownloadfile) apps.ondownloadfile = (params) => answered(async () => ({ isError: !(await ondownloadfile(params)) }));
  if (onrequestdisplaymode) apps.onrequestdisplaymode = ({ mode }) => answered(async () => ({ mode: await onrequestdisplaymode(mode) }));
  if (onupdatemodelcontext) apps.onupdatemodelcontext = (params) => answered(async () => (await onupdatemodelcontext(params), {}));
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
