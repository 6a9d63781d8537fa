/** Writes a page of the backend into the document of its frame: the view runtime first, then what the backend wrote. */

import type { Loaded } from "./load";
import { preparePage } from "./markup";
import { admitsScript, framePolicy, readPolicies, sourcesOf, type PagePolicy } from "./page-policy";
import type { PageFacts } from "./protocol";

/** The values for each page in a frame. */
export interface InnerConfig {
  /** The view runtime of a page, with all its parts. */
  script: string;
  about: { app: string; title: string; [name: string]: unknown };
  /** The origin at which the pages find themselves. */
  origin: string;
}

/** Written into the shell by the gateway; nothing in it depends on the caller. */
export interface ShellConfig extends InnerConfig {
  /** The app's own site. */
  site: string;
  start: string;
  /** The permissions policy of the frames. */
  allow: string;
}

const HASHES = { sha256: "SHA-256", sha384: "SHA-384", sha512: "SHA-512" };

/** The digests of the inline scripts of a page whose policy names any, by their texts. */
async function digestsOf(html: string, policies: PagePolicy[]): Promise<(start: number, end: number) => string[]> {
  const named = policies.some((policy) => sourcesOf(policy, "script-src-elem", "script-src", "default-src")?.some((one) => /^'sha/i.test(one)));
  const known = new Map<string, string[]>();
  if (named && crypto.subtle) {
    for (const [, text = ""] of html.matchAll(/<script\b[^>]*>([^]*?)<\/script/gi)) {
      const bytes = new TextEncoder().encode(text);
      const all = Object.entries(HASHES).map(async ([name, algorithm]) => `${name}-${btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.digest(algorithm, bytes))))}`);
      known.set(text, await Promise.all(all));
    }
  }
  return (start, end) => known.get(html.slice(start, end)) ?? [];
}

const attribute = (text: string): string => text.replace(/&/g, "&amp;").replace(/"/g, "&quot;").replace(/</g, "&lt;");

/** The path of a `<base href>`: one of another site counts as its path on the app's own. */
function baseOf(written: string | undefined, url: URL): string {
  const base = URL.parse(written ?? "", url.href) ?? url;
  return /^https?:$/.test(base.protocol) ? new URL(base.pathname + base.search, url.origin).href : url.href;
}

export async function writePage(config: InnerConfig, { url, html, policy }: Loaded, facts: Pick<PageFacts, "referrer" | "cookies" | "above">): Promise<{ html: string; described: string }> {
  const declared = [policy, ...[...html.matchAll(/<meta[^>]+http-equiv\s*=\s*["']?content-security-policy["']?[^>]*>/gi)].map(([tag]) => /\bcontent\s*=\s*"([^"]*)"/i.exec(tag)?.[1] ?? /\bcontent\s*=\s*'([^']*)'/i.exec(tag)?.[1] ?? "")];
  const policies = readPolicies(declared);
  const digests = await digestsOf(html, policies);
  const own = framePolicy(policies);
  const made = preparePage(html, {
    head: ({ base }) => {
      const page: PageFacts = {
        ...facts, url: url.href, base: baseOf(base, url), origin: config.origin, state: null,
        formAction: policies.flatMap((one) => one.has("form-action") ? [one.get("form-action")!] : []),
      };
      const about = { ...config.about, base: page.base, page };
      const rule = own && `<meta http-equiv="content-security-policy" content="${attribute(own)}">`;
      return `<meta name="webmcp-gateway" content="${attribute(JSON.stringify(about))}"><script>${config.script}</script>${rule}`;
    },
    admits: ({ src, nonce, start, end }) => policies.every((one) => admitsScript(one, url, { src: src === undefined ? undefined : (URL.parse(src, baseOf(undefined, url)) ?? url), nonce, digests: src === undefined ? digests(start, end) : [] })),
  });
  return { html: made.html, described: html };
}
