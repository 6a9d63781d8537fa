/** Shows the app in turns: over the gateway's bridge, and with HTTP posts to the page's own back end. */
import { preloadMcpApp } from "/host/mcp-app.js";

const query = new URLSearchParams(location.search);
/** Milliseconds before a turn: the next frame is prepared two seconds after one was used, and the page is at rest. */
const PAUSE = 2500;
const RESOURCE = "ui://host-page/app.html";
const html = await (await fetch("/web/app.html")).text();
const sandboxUrl = `http://sandbox.localhost:${location.port}/sandbox/proxy.html`;

const WAYS = {
  bridge: { gateway: query.get("gateway"), upstream: "page", resourceUri: RESOURCE },
  posts: {
    sandboxUrl,
    resourceHtml: html,
    onCallTool: async ({ name, arguments: given }) =>
      (await fetch("/call", { method: "POST", body: JSON.stringify({ name, arguments: given }) })).json(),
  },
};

/** Milliseconds since the element was inserted, by the step of its start that was done then. */
let steps = {};
let inserted = 0;
const mark = (step) => (steps[step] ??= performance.now() - inserted);

const { fetch: ask, WebSocket: Socket } = window;
window.fetch = async (url, ...rest) => {
  const answer = await ask(url, ...rest);
  mark(new URL(url, location.href).pathname);
  return answer;
};
window.WebSocket = class extends Socket {
  constructor(...given) {
    super(...given);
    this.addEventListener("open", () => mark("socket open"));
    this.addEventListener("message", ({ data }) => mark(data.startsWith('{"opened"') ? "view opened" : "page read"));
  }
};

const wait = (time) => new Promise((go) => setTimeout(go, time));

async function run(way) {
  await wait(PAUSE);
  const app = Object.assign(document.createElement("mcp-app"), { title: "App", ...WAYS[way] });
  const problem = new Promise((_, reject) => app.addEventListener("mcp-app-error", ({ detail }) => reject(new Error(detail.message))));
  const measured = new Promise((resolve) => app.addEventListener("mcp-app-log", ({ detail }) => resolve(detail)));
  app.addEventListener("mcp-app-sandbox-resource-ready", () => mark("page passed to the frame"));
  steps = {};
  inserted = performance.now();
  document.body.append(app);
  const { level, data } = await Promise.race([measured, problem]);
  const measuredSteps = steps;
  if (level === "error") throw new Error(data);
  await app.teardown();
  app.remove();
  return { way, start: data.first - performance.timeOrigin - inserted, calls: data.calls, steps: measuredSteps };
}

async function report(way, round, preloaded) {
  let result;
  try {
    result = await run(way);
  } catch (error) {
    result = { way, error: String(error) };
  }
  await fetch("/result", { method: "POST", body: JSON.stringify({ round, preloaded, ...result }) });
}

/** Show the app once in each of the page's loads: it knows nothing of the gateway then, and has no frame for the app. */
async function runFresh(turn) {
  const ways = Object.keys(WAYS);
  await report(ways[turn % 2], Math.floor(turn / 2) - 1, false);
  if (turn + 1 < (rounds + 1) * ways.length) goTo(turn + 1);
}

function goTo(turn) {
  query.set("turn", String(turn));
  location.search = query;
}

const rounds = Number(query.get("rounds"));
if (query.has("turn")) await runFresh(Number(query.get("turn")));
else {
  for (const source of Object.values(WAYS)) await preloadMcpApp(source);
  for (let round = -1; round < rounds; round++) for (const way of Object.keys(WAYS)) await report(way, round, true);
  goTo(0);
}
