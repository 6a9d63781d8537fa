const e = location, { location: { pathname: t } } = window;
const n = (r = self.location) => r;
export const reads = [e.pathname, t, n().pathname, globalThis["location"].pathname, [window][0].location.pathname, ((o) => o)(document).location.pathname];
class Router { #at = location; get at() { return this.#at.pathname; } }
reads.push(new Router().at, new URL("x", e).pathname, `${location}`.endsWith("/modules"));
