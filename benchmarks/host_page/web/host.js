/** Shows the app in turns: over the gateway's bridge, and with HTTP posts to the page's own back end. */
import { preloadMcpApp } from "/host/mcp-app.js";

const query = new URLSearchParams(location.search);
/** Milliseconds between two turns. */
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

async function run(way) {
  const app = Object.assign(document.createElement("mcp-app"), { title: "App", ...WAYS[way] });
  const problem = new Promise((_, reject) => app.addEventListener("mcp-app-error", ({ detail }) => reject(new Error(detail.message))));
  const measured = new Promise((resolve) => app.addEventListener("mcp-app-log", ({ detail }) => resolve(detail)));
  const inserted = performance.timeOrigin + performance.now();
  document.body.append(app);
  const { level, data } = await Promise.race([measured, problem]);
  if (level === "error") throw new Error(data);
  await app.teardown();
  app.remove();
  await new Promise((go) => setTimeout(go, PAUSE)); // the next frame is prepared two seconds after one was used
  return { way, start: data.first - inserted, calls: data.calls };
}

for (const source of Object.values(WAYS)) await preloadMcpApp(source);
for (let round = -1; round < Number(query.get("rounds")); round++) {
  for (const way of ["bridge", "posts"]) {
    let result;
    try {
      result = await run(way);
    } catch (error) {
      result = { way, error: String(error) };
    }
    await fetch("/result", { method: "POST", body: JSON.stringify({ round, ...result }) });
  }
}
