/** Says on the page's console that its `Authorization` field did not reach the backend. */

import { withIdentityOf } from "../wrap";

export function tellDropped(fetch: typeof window.fetch): typeof window.fetch {
  let told = false;
  const look = ({ headers, url }: Response): void => {
    if (told || !headers.has("gateway-dropped")) return;
    told = true;
    console.warn(`webmcp-gateway: the Authorization header of ${url} was dropped. Write \`authorization: pass\` or \`vault\` at its backend in the policy: docs/policy.md, "The app's own login".`);
  };
  return withIdentityOf(fetch, function (this: unknown, ...given: Parameters<typeof fetch>) {
    const answer = fetch.apply(this, given);
    answer.then(look, () => undefined);
    return answer;
  });
}
