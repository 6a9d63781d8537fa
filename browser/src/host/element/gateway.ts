/** The connections of a page's elements to gateways: one bridge for each gateway, which all of them share. */
import type { AppSource } from "../../mux";
import { connectBridge, type Bridge } from "../bridge";
import { BridgeError, type BridgeView, type ViewEvents } from "../bridge-view";
import { callGateway, gatewayHttp, GatewayRefusal, notifying } from "../gateway-http";
import type { SavedFile } from "../files";
import { prepareFrame, type FrameAddress } from "../frames";

/** The identification of the person at a page of another origin than the gateway: a token, or a callback that returns a current one. */
export interface Access {
  token?: string | null | undefined;
  getToken?: (() => string | Promise<string>) | null | undefined;
}

/** The gateway's offer to this page. */
interface Offer {
  version?: string;
  csrf?: string;
  /** The origin of the sandbox proxy. */
  sandbox: string;
  apps: readonly { id: string; sandbox_url: string }[];
  /** The address of the sandbox proxy for apps of an upstream that declare no sites, for pages of another origin. */
  upstreams?: Readonly<Record<string, string>>;
  ticket?: string;
}

export type LinkDecision = { decision: "open" | "declined" } | { decision: "ask"; message: string };

/** A token in a header (RFC 6750, 2.1). */
const TOKEN = /^[\w.~+/-]+=*$/;
const REFUSED = -32000;

const connections = new Map<string, GatewayConnection>();
const callbacks = new WeakMap<object, number>();
let counted = 0;

/** The gateway's URL, with the slash at its end; the empty text is the page's own folder. */
export function gatewayBase(gateway: string): URL {
  const base = new URL(gateway || "./", document.baseURI);
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  return base;
}

/** The connection to the gateway at `base`, with the page's own session or a token. */
export function gatewayAt(base: URL, access: Access): GatewayConnection {
  const { token, getToken } = access;
  if (getToken && !callbacks.has(getToken)) callbacks.set(getToken, (counted += 1));
  const key = JSON.stringify([base.href, getToken ? callbacks.get(getToken) : (token ?? null)]);
  let connection = connections.get(key);
  if (!connection) connections.set(key, (connection = new GatewayConnection(base, access)));
  return connection;
}

export class GatewayConnection {
  private readonly base: URL;
  private readonly access: Access;
  private readonly bridges: { bridge: Bridge; names: ReadonlySet<string> }[] = [];
  private readonly addresses = new Map<string, FrameAddress>();
  private readonly preloaded = new Set<string>();
  private offered: Promise<Offer> | undefined;
  private hadToken = false;
  /** The only bridge of a page of another origin. */
  private bridge: Bridge | undefined;
  private csrf = "";

  constructor(base: URL, access: Access) {
    this.base = base;
    this.access = access;
  }

  /** The gateway's offer, requested once. Rejects with GatewayRefusal, or TypeError if the gateway is unreachable. */
  offer(): Promise<Offer> {
    this.offered ??= (this.base.origin === location.origin ? this.requestOffer() : this.connect()).catch((error: unknown) => {
      this.offered = undefined;
      throw error;
    });
    return this.offered;
  }

  /**
   * The sandbox proxy of an app, and the expected address of its frame: the last one, or that of an app which declares
   * nothing. Rejects with BridgeError for an unknown app.
   */
  async sandboxFor(source: AppSource): Promise<{ url: string; expected: FrameAddress | null }> {
    const { apps, upstreams, sandbox } = await this.offer();
    const signed = "app" in source ? apps.find(({ id }) => id === source.app)?.sandbox_url : upstreams?.[source.upstream];
    if ("app" in source && signed === undefined) {
      throw new BridgeError(REFUSED, `The gateway has no app ${JSON.stringify(source.app)} for this person.`);
    }
    const expected = this.addresses.get(keyOf(source)) ?? (signed === undefined ? null : { url: signed, allow: "" });
    return { url: signed ?? new URL("/proxy.html", sandbox).href, expected };
  }

  /** Open a view. Rejects with BridgeError if the gateway refuses, such as HTML that is not its own. */
  async open(source: AppSource, events: ViewEvents): Promise<BridgeView> {
    const offer = await this.offer();
    return this.bridgeFor("app" in source ? source.app : source.upstream, offer).open(source, events);
  }

  remember(source: AppSource, address: FrameAddress): void {
    this.addresses.set(keyOf(source), address);
    if (this.preloaded.delete(keyOf(source))) prepareFrame(address);
  }

  /** Connect, and load the frame of an app before it is shown; that of an upstream's app once its address is known. */
  async preload(source: AppSource): Promise<void> {
    const offer = await this.offer();
    this.bridgeFor("app" in source ? source.app : source.upstream, offer);
    const { expected } = await this.sandboxFor(source);
    if (expected) prepareFrame(expected);
    else this.preloaded.add(keyOf(source));
  }

  /** The gateway's decision about a link of a view; `answered` is the person's. */
  async decideLink(view: string, url: string, answered?: boolean): Promise<LinkDecision> {
    const response = await this.post("api/links", { view, url, ...(answered !== undefined && { answered }) });
    return (await response.json()) as LinkDecision;
  }

  /** Record which files of a view were offered, and whether the person saves them. */
  async recordFiles(view: string, files: readonly SavedFile[], answered: boolean): Promise<void> {
    await this.post("api/downloads", { view, files: files.map(({ name, blob }) => ({ name, size: blob.size })), answered });
  }

  private post(path: string, body: object): Promise<Response> {
    return callGateway(this.base, () => this.headers(), path, { method: "POST", body: JSON.stringify(body) });
  }

  private async headers(): Promise<Record<string, string>> {
    const bearer = await this.bearer();
    return bearer ? { authorization: `Bearer ${bearer}` } : { "webmcp-gateway-csrf": this.csrf };
  }

  /** The person's token. Rejects with an error that names `token` or `getToken` if there is something else in its place. */
  private async bearer(): Promise<string | null | undefined> {
    const { token, getToken } = this.access;
    const name = getToken ? "getToken" : "token";
    const bearer: unknown = getToken ? await attempt(getToken) : token;
    this.hadToken = Boolean(bearer);
    if (!bearer) return null;
    // Otherwise `fetch` refuses the header, or the gateway a token that is a page of an error or "[object Object]".
    if (typeof bearer !== "string") throw new Error(`${name} is no text but ${Array.isArray(bearer) ? "an array" : `a value of the type ${typeof bearer}`}.`);
    if (!TOKEN.test(bearer)) throw new Error(`${name} is no token but a text that begins with ${JSON.stringify(bearer.slice(0, 40))}.`);
    return bearer;
  }

  private async requestOffer(): Promise<Offer> {
    const response = await callGateway(this.base, () => this.headers(), "api/state", {});
    const offer = (await response.json()) as Offer;
    this.csrf = offer.csrf ?? "";
    return offer;
  }

  /** Connect from another origin: each ticket comes with the current offer, and is for everything in it. */
  private connect(): Promise<Offer> {
    const first = Promise.withResolvers<Offer>();
    const http = gatewayHttp(this.base, () => this.headers());
    const ticket = async (_: unknown, sent?: () => void): Promise<string> => {
      const init = { method: "POST", body: JSON.stringify({ state: true }) };
      const response = await callGateway(this.base, () => this.headers(), "bridge/tickets", init, notifying(sent));
      const offer = (await response.json()) as Offer & { ticket: string };
      this.offered = Promise.resolve(offer);
      first.resolve(offer);
      return offer.ticket;
    };
    const refuse = async (error: unknown): Promise<never> => {
      first.reject(this.explain(error));
      // Such a refusal lasts: after a few of them, the bridge ends its views with these words.
      if (error instanceof TypeError && (await this.isRunning())) throw new GatewayRefusal(403, `\`hosts\` in its gateway.yaml does not name ${location.origin}.`);
      throw error;
    };
    const bridge = connectBridge({ apps: [], csrf: "", base: this.base, http: { ...http, ticket: (...given) => ticket(...given).catch(refuse) } });
    this.bridge = bridge;
    return first.promise.catch((error: unknown) => {
      bridge.close();
      this.bridge = undefined;
      throw error;
    });
  }

  /** Whether the gateway serves a file that pages of all origins may read. */
  private isRunning(): Promise<boolean> {
    return fetch(new URL("host/mcp-app.js", this.base), { method: "HEAD", cache: "no-store" }).then(({ ok }) => ok, () => false);
  }

  /** The error with its remedy: a page of another origin is named in the gateway's configuration, and has a token. */
  private explain(error: unknown): unknown {
    const { token, getToken } = this.access;
    // The browser does not tell a page why it may not read an answer.
    if (error instanceof TypeError) return new TypeError(`${this.base.origin} does not answer this page: is it running, and does \`hosts\` in its gateway.yaml name ${location.origin}?`);
    if (!(error instanceof GatewayRefusal) || error.status !== 401 || token) return error;
    const remedy = getToken ? "`getToken` has returned none." : "Set `token` or `getToken`.";
    return getToken && this.hadToken ? error : new TypeError(`${this.base.origin} needs a token of this page's person. ${remedy}`);
  }

  private bridgeFor(name: string, offer: Offer): Bridge {
    if (this.bridge) return this.bridge;
    const known = this.bridges.find(({ names }) => names.has(name));
    if (known) return known.bridge;
    const names = new Set([name, ...(this.bridges.length ? [] : offer.apps.map(({ id }) => id))]);
    const http = gatewayHttp(this.base, () => this.headers());
    const bridge = connectBridge({
      apps: [...names],
      csrf: "",
      base: this.base,
      http: { ...http, ticket: (apps) => http.ticket(apps).catch((error: unknown) => this.retryTicket(error, () => http.ticket(apps))) },
    });
    this.bridges.push({ bridge, names });
    return bridge;
  }

  /** A restarted gateway may have another CSRF token. */
  private async retryTicket(error: unknown, again: () => Promise<string>): Promise<string> {
    if (!(error instanceof GatewayRefusal) || error.status !== 403 || !this.csrf) throw error;
    this.offered = undefined;
    await this.offer();
    return again();
  }
}

function keyOf(source: AppSource): string {
  return "app" in source ? source.app : `${source.upstream} ${source.resource}`;
}

async function attempt(getToken: () => unknown): Promise<unknown> {
  try {
    return await getToken();
  } catch (error) {
    throw new Error(`getToken failed: ${error instanceof Error ? error.message : String(error)}`);
  }
}
