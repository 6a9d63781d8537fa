/** Says on the page's console that its `Authorization` field did not reach the backend. */

import { withIdentityOf } from "../wrap";

export function tellDropped(fetch: typeof window.fetch): typeof window.fetch {
  let told = false;
  return withIdentityOf(fetch, async (...given: Parameters<typeof fetch>) => {
    const response = await fetch(...given);
    if (!told && response.headers.has("gateway-dropped")) {
      told = true;
      console.warn(`webmcp-gateway: the Authorization header of ${response.url} was dropped. Write \`authorization: pass\` or \`vault\` at its backend in the policy: docs/policy.md, "The app's own login".`);
    }
    return response;
  });
}
