/** The gateway's REST interface, as the console uses it. */
import { isObject, text } from "./json";
import { create, touch } from "./touch";
import type { Account, Accounts, Advice, Answer, GatewayState, JsonObject, LinkDecision, Nodes, SecurityKey } from "./types";

/** An error answer of the gateway; `status` 0 means that there was no answer. */
export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "ApiError";
    this.status = status;
  }
}

export class Api {
  readonly root: string;
  /** Seconds by which the gateway's clock is ahead of this machine's; 0 if they agree within two seconds. */
  clockOffset = 0;
  /** The CSRF token of calls that change something; known after `state()`. */
  csrf = "";

  constructor(root: string) {
    this.root = root;
  }

  url(path: string): string {
    return new URL(path, this.root).href;
  }

  async state(signal?: AbortSignal): Promise<GatewayState> {
    const response = await this.send("api/state", signal ? { signal } : {});
    const state = (await response.json()) as GatewayState;
    this.csrf = state.csrf;
    this.clockOffset = offset(response.headers.get("date"), Date.now());
    return state;
  }

  /** Answer a question; `grant` approves all calls under its rule for a while. A yes may require the touch of a key. */
  async answer(approval: string, answer: Answer, grant = false): Promise<void> {
    const place = `api/approvals/${encodeURIComponent(approval)}`;
    const needed = answer === "approve" ? (await this.postJson(`${place}/touch`, { grant }))["touch"] : null;
    const assertion = isObject(needed) ? await touch(needed) : null;
    await this.postJson(place, { answer, ...(grant && { grant }), ...(assertion && { assertion }) });
  }

  async revoke(grant: string): Promise<void> {
    await this.postJson(`api/grants/${encodeURIComponent(grant)}/revoke`, {});
  }

  /** Whether an approval requires the touch of a key, and the person's keys. */
  async keys(): Promise<{ presence: boolean; keys: SecurityKey[] }> {
    return (await (await this.send("api/keys", {})).json()) as { presence: boolean; keys: SecurityKey[] };
  }

  /** Add a key; a person who has one touches it first. */
  async addKey(name: string): Promise<void> {
    const begun = await this.postJson("api/keys/begin", {});
    const assertion = isObject(begun["touch"]) ? await touch(begun["touch"]) : null;
    const credential = await create(begun["create"] as JsonObject);
    await this.postJson("api/keys", { name, credential, assertion });
  }

  async removeKey(key: string): Promise<void> {
    const place = `api/keys/${encodeURIComponent(key)}`;
    const assertion = await touch(await this.postJson(`${place}/begin`, {}));
    await this.postJson(`${place}/remove`, { assertion });
  }

  async advice(app: string): Promise<Advice> {
    return (await (await this.send(`api/apps/${encodeURIComponent(app)}/advice`, {})).json()) as Advice;
  }

  async nodes(): Promise<Nodes> {
    return (await (await this.send("api/nodes", {})).json()) as Nodes;
  }

  /** Close a view, at whichever node it is. */
  async closeView(view: string): Promise<void> {
    await this.postJson(`api/views/${encodeURIComponent(view)}/close`, {});
  }

  async connections(): Promise<Accounts> {
    return (await (await this.send("api/connections", {})).json()) as Accounts;
  }

  async connect(name: string, audience: string): Promise<{ location: string; secret: string }> {
    const response = await this.send(`api/connections/${encodeURIComponent(name)}`, this.post({ for: audience }));
    return (await response.json()) as { location: string; secret: string };
  }

  async finish(secret: string, answer: Record<string, string>): Promise<Account> {
    return (await (await this.send("api/connections/finish", this.post({ secret, answer }))).json()) as Account;
  }

  /** Returns whether the service was notified, too. */
  async disconnect(name: string): Promise<boolean> {
    const response = await this.send(`api/connections/${encodeURIComponent(name)}/disconnect`, this.post({}));
    return ((await response.json()) as { revoked: boolean }).revoked;
  }

  /** Whether the app of `view` may open `url`; `answered` is the person's answer if the decision was `ask`. */
  async link(view: string, url: string, answered?: boolean): Promise<LinkDecision> {
    const response = await this.send("api/links", this.post({ view, url, ...(answered !== undefined && { answered }) }));
    return (await response.json()) as LinkDecision;
  }

  /** Records which files of `view` were offered, and whether the person saves them. */
  async download(view: string, files: readonly { name: string; blob: Blob }[], answered: boolean): Promise<void> {
    const named = files.map(({ name, blob }) => ({ name, size: blob.size }));
    await this.send("api/downloads", this.post({ view, files: named, answered }));
  }

  /** The login URL, with the way back to the current page. */
  loginUrl({ pathname, search, hash }: Pick<Location, "pathname" | "search" | "hash">): string {
    return `${this.url("login")}?to=${encodeURIComponent(pathname + search + hash)}`;
  }

  /** The same for a person who is logged in, and must log in again. */
  freshLoginUrl(here: Pick<Location, "pathname" | "search" | "hash">): string {
    return `${this.loginUrl(here)}&fresh=1`;
  }

  /** End the login of this browser; returns the URL to go to, and those at which apps' stored data is deleted. */
  async logout(): Promise<{ to: string; clear: string[] }> {
    const said = await this.postJson("api/logout", {});
    const clear = Array.isArray(said["clear"]) ? said["clear"].filter((url): url is string => typeof url === "string") : [];
    return { to: this.url(text(said["to"]) || "/"), clear };
  }

  /** The current time of the gateway's clock, in seconds. */
  now(): number {
    return Date.now() / 1000 + this.clockOffset;
  }

  private async postJson(path: string, body: JsonObject): Promise<JsonObject> {
    const said: unknown = await (await this.send(path, this.post(body))).json();
    return isObject(said) ? said : {};
  }

  private post(body: object): RequestInit {
    const headers = { "content-type": "application/json", "webmcp-gateway-csrf": this.csrf };
    return { method: "POST", headers, body: JSON.stringify(body) };
  }

  private async send(path: string, init: RequestInit): Promise<Response> {
    const response = await fetch(this.url(path), { cache: "no-store", credentials: "same-origin", ...init }).catch(
      (cause: unknown) => {
        throw new ApiError(0, "The gateway does not answer.", { cause });
      },
    );
    if (!response.ok) throw new ApiError(response.status, await problemText(response));
    return response;
  }
}

/** The error text of an answer, from a `problem+json` body if there is one. */
export async function problemText(response: Response): Promise<string> {
  const body: unknown = await response.json().catch(() => undefined);
  const said = isObject(body) ? (text(body["detail"]) ?? text(body["title"])) : undefined;
  return said ?? `The gateway answered ${response.status}.`;
}

function offset(date: string | null, now: number): number {
  const seconds = date ? (Date.parse(date) - now) / 1000 : 0;
  return Number.isFinite(seconds) && Math.abs(seconds) > 2 ? seconds : 0;
}
