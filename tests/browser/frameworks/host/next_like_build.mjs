/** Bundles the site for the browser and for the server, and prints what the server renders at `/`. */
import { writeFileSync } from "node:fs";
import { rolldown } from "rolldown";

const CLIENT = `
import { createElement } from "react";
import { hydrateRoot } from "react-dom/client";
import { Site } from "./next_like.mjs";
Object.assign(window, { events: [], saved: [] });
hydrateRoot(document.querySelector("#root"), createElement(Site, { start: location.pathname, settings }), {
  onRecoverableError: (error) => console.error(error),
});`;

const SERVER = `
import { createElement } from "react";
import { renderToString } from "react-dom/server";
import { Site } from "./next_like.mjs";
process.stdout.write(renderToString(createElement(Site, { start: process.argv[2] ?? "/", settings: {} })));`;

writeFileSync("client.mjs", CLIENT);
writeFileSync("server.mjs", SERVER);
const build = await rolldown({ input: "client.mjs", platform: "browser", transform: { define: { "process.env.NODE_ENV": '"development"' } } });
await build.write({ file: "dist/next_like.js", format: "es" });
await import("./server.mjs");
