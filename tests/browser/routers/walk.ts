/** A walk through an app with a router, and what the page sees on its way. */

const later = (milliseconds = 0): Promise<void> => new Promise((go) => setTimeout(go, milliseconds));
const heard: unknown[] = [];

addEventListener("popstate", ({ state }) => heard.push(["popstate", location.pathname, state === history.state]));
addEventListener("hashchange", ({ oldURL, newURL }) => heard.push(["hashchange", oldURL, newURL, newURL === location.href]));

/** What the page reads of its place. */
function place(): unknown[] {
  const { href, pathname, search, hash } = location;
  const link = document.createElement("a");
  link.href = "near?a=1#b";
  const { history: entries, location: own } = window;
  return [
    document.querySelector("main")?.textContent?.replace(/\s+/g, " "), href, pathname, search, hash, String(own) === href, document.location === own,
    own instanceof Location, { ...location }.host === location.host, document.URL === href, document.baseURI, new URL("near", document.baseURI).href,
    link.href, link.pathname, link.search, link.hash, link.origin === location.origin, `${link}`, new Request("near").url, entries.length > 0,
    typeof entries.state,
  ];
}

/** Steps that bring the app nowhere: it shows the place before. */
const STAYS = ["start", "an entry of the page's own", "its state", "of another site", "what cannot be kept"];

/** Whether the page is at another place than before, and the app shows it; `/old` only leads on. */
function arrived(before: string): boolean {
  const shown = document.querySelector("main i")?.textContent ?? "";
  const { href, pathname, search, hash } = location;
  return href !== before && pathname !== "/old" && [pathname, search, hash.slice(1)].every((part) => shown.includes(part));
}

async function settled(): Promise<void> {
  for (let before = ""; before !== (before = document.body.innerHTML + location.href + heard.length); ) await later(40);
}

async function moved(move: () => void): Promise<void> {
  const popped = new Promise((go) => addEventListener("popstate", go, { once: true }));
  move();
  await popped;
}

const click = (id: string) => (): void => document.getElementById(id)!.click();

const STEPS: { [name: string]: () => unknown } = {
  start: () => undefined,
  "a link with a parameter": click("order"),
  "a call": click("call"),
  "a query": click("query"),
  "a redirect": click("old"),
  "no route": click("nowhere"),
  back: () => moved(() => history.back()),
  "back twice": () => moved(() => history.go(-2)),
  forward: () => moved(() => history.forward()),
  replaced: click("replace"),
  "a fragment": () => moved(() => (location.hash = "below")),
  "a fragment by its address": () => moved(() => location.assign("#lower")),
  "a fragment in place of one": () => moved(() => location.replace("#lowest")),
  "back to a fragment": () => moved(() => history.back()),
  "an entry of the page's own": () => history.pushState({ own: [new Date(0)] }, "", "?own#entry"),
  "its state": () => [(history.state as { own: Date[] }).own[0] instanceof Date, history.state === history.state],
  "of another site": () => {
    try {
      history.pushState(null, "", "https://other.example/");
    } catch (error) {
      return [(error as DOMException).name, error instanceof DOMException];
    }
  },
  "what cannot be kept": () => {
    try {
      history.replaceState(() => 0, "", "/never");
    } catch (error) {
      return (error as DOMException).name;
    }
  },
  home: click("home"),
};

Object.assign(window, {
  async walk() {
    const seen: unknown[] = [];
    for (const [name, step] of Object.entries(STEPS)) {
      const { href } = location;
      const value = await step();
      // Where the machine is busy an app shows a place long after the page is there.
      for (let looks = 0; !STAYS.includes(name) && !arrived(href) && looks < 125; looks++) await later(40);
      await settled();
      seen.push([name, value, ...place()]);
    }
    return [...seen, ...heard];
  },
});
