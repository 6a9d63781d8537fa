/**
 * `localStorage`, and IndexedDB where it is in memory, that the gateway stores for the person and the app. The page's own
 * scripts wait until they are loaded.
 *
 * A separate script after the runtime, for apps that are configured for it; it uses only `webmcpGateway`.
 */

import type { Params } from "../host/json-rpc";
import { DATABASES, type Databases } from "../page/part-keys";
import { createKeptStorage, DATABASE, type Kept, type StoredItems } from "../page/saved-storage";
import { startScripts } from "../page/late-scripts";
import { answerOf } from "../tools/results";
import type { PageSide } from "../host/tiers";

const TOOL = "webmcp_storage";
/** The longest that a page waits for the stored items, in milliseconds. */
const LOAD_TIMEOUT = 10000;

const delay = (milliseconds: number): Promise<undefined> => new Promise((go) => setTimeout(go, milliseconds));

async function load(page: PageSide): Promise<StoredItems | string> {
  if (!page.tier) await new Promise((go) => document.addEventListener("tierchange", go, { once: true }));
  // In other tiers, the call might be reported to the model.
  if (page.tier !== "full") return `this host carries no tool calls`;
  const { items, quota, reason, detail } = answerOf(await page.safeCallTool(TOOL)) ?? {};
  return typeof quota === "number" ? { items: items as Params, quota } : `${reason}: ${detail}`;
}

/** Reasons that may pass. */
const TRANSIENT = /^(undefined|backend-unavailable|rate-limited)$/;

/** False if the save should be retried. */
async function save(page: PageSide, args: Params): Promise<boolean> {
  const result = await page.safeCallTool(TOOL, args);
  if (!result["isError"]) return true;
  const { reason, detail } = answerOf(result) ?? {};
  if (TRANSIENT.test(String(reason))) return false;
  console.warn(`webmcp-gateway: localStorage was not kept: ${reason}: ${detail}`);
  return true;
}

async function start(): Promise<void> {
  const { webmcpGateway: page } = window as unknown as { webmcpGateway: PageSide };
  const found = await Promise.race([load(page), delay(LOAD_TIMEOUT)]);
  if (typeof found !== "object") return console.warn(`webmcp-gateway: localStorage lasts as long as this page: ${found ?? "the gateway did not answer"}`);
  // Even if the frame has its own: that is the host's, and may be shared with others.
  const kept = createKeptStorage(found, (args) => save(page, args), delay);
  Object.defineProperty(window, "localStorage", { value: kept.storage, configurable: true });
  await keepDatabases(found.items, kept);
}

/** Restores the databases, and saves each that changes, whole. */
async function keepDatabases(items: Params, { keepDatabase }: Kept): Promise<void> {
  const databases = (window as { [DATABASES]?: Databases })[DATABASES];
  Reflect.deleteProperty(window, DATABASES);
  if (!databases) return;
  const told = new Set<string>();
  const warn = (name: string, why: unknown): void => {
    if (!told.has(name)) console.warn(`webmcp-gateway: the database ${name} lasts as long as this page: ${why}`);
    told.add(name);
  };
  for (const [key, text] of Object.entries(items)) {
    if (!key.startsWith(DATABASE)) continue;
    const name = key.slice(DATABASE.length);
    await databases.restore(name, String(text)).catch((why: unknown) => warn(name, why));
  }
  databases.watch((name, text) => {
    if (!keepDatabase(name, text)) warn(name, "it is larger than what the gateway keeps");
  }, warn);
}

startScripts(window.parent === window ? Promise.resolve() : start());
