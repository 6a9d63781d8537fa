/** The content security policy of the backend, as far as it concerns its own page: ours comes from elsewhere. */

/** Sources by directive; of two with one name the first counts (CSP, 2.2.1). */
export type PagePolicy = Map<string, string[]>;

export function readPolicies(headers: (string | null)[]): PagePolicy[] {
  return headers.flatMap((header) => (header ?? "").split(",")).filter((text) => text.trim()).map((text) => {
    const policy: PagePolicy = new Map();
    for (const part of text.split(";")) {
      const [name = "", ...sources] = part.trim().split(/\s+/);
      if (name && !policy.has(name.toLowerCase())) policy.set(name.toLowerCase(), sources);
    }
    return policy;
  });
}

/** The sources of the first of `names` that the policy has; undefined if it restricts none of them. */
export function sourcesOf(policy: PagePolicy, ...names: string[]): string[] | undefined {
  for (const name of names) if (policy.has(name)) return policy.get(name);
  return undefined;
}

/** Whether a URL matches a source list, for a page at `self` (CSP, 6.7.2). */
export function matchesSources(url: URL, sources: string[], self: URL): boolean {
  return sources.some((written) => {
    const source = written.toLowerCase();
    if (source === "'self'") return url.origin === self.origin;
    if (source === "*") return /^(https?|wss?):$/.test(url.protocol);
    if (/^[a-z][a-z0-9+.-]*:$/.test(source)) return url.protocol === source;
    const [, scheme, host = "", port, path = ""] = /^(?:([a-z][a-z0-9+.-]*):\/\/)?([^/:'][^/:]*)(?::(\d+|\*))?(\/.*)?$/.exec(written) ?? [];
    if (!host) return false;
    if (scheme ? url.protocol !== `${scheme.toLowerCase()}:` : url.protocol !== self.protocol && url.protocol !== "https:") return false;
    const name = host.toLowerCase();
    const fits = name === "*" || (name.startsWith("*.") ? url.hostname.endsWith(name.slice(1)) : url.hostname === name);
    const ports = port === "*" || (port ?? "") === url.port;
    return fits && ports && (!path || (path.endsWith("/") ? url.pathname.startsWith(path) : url.pathname === path));
  });
}

/** Whether a script in the markup of the page may run: an inline one by its nonce or digest, or one of a URL. */
export function admitsScript(
  policy: PagePolicy, self: URL, { src, nonce, digests }: { src: URL | undefined; nonce: string; digests: string[] },
): boolean {
  const sources = sourcesOf(policy, "script-src-elem", "script-src", "default-src");
  if (!sources || (nonce && sources.includes(`'nonce-${nonce}'`))) return true;
  const strict = sources.some((one) => /^'strict-dynamic'$/i.test(one));
  if (src) return !strict && matchesSources(src, sources, self);
  if (digests.some((digest) => sources.includes(`'${digest}'`))) return true;
  const keyed = strict || sources.some((one) => /^'(nonce-|sha(256|384|512)-)/i.test(one));
  return !keyed && sources.some((one) => /^'unsafe-inline'$/i.test(one));
}

/** The policy for the frame of the page: what a browser itself can still enforce there, where all files are inline. */
export function framePolicy(policies: PagePolicy[]): string {
  const found: string[] = [];
  for (const policy of policies) {
    const handlers = sourcesOf(policy, "script-src-attr", "script-src", "default-src");
    const keyed = handlers?.some((one) => /^'(nonce-|sha(256|384|512)-|strict-dynamic)/i.test(one));
    if (handlers && (keyed || !handlers.some((one) => /^'unsafe-(inline|hashes)'$/i.test(one)))) found.push("script-src-attr 'none'");
    const styles = sourcesOf(policy, "style-src-attr", "style-src", "default-src");
    if (styles && !styles.some((one) => /^'unsafe-(inline|hashes)'$/i.test(one))) found.push("style-src-attr 'none'");
  }
  return [...new Set(found)].join("; ");
}
