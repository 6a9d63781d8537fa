/** Builds, for each framework, a page of a chat with one item, from the packed package as a user has it. */
import { compile } from "svelte/compiler";
import { writeFileSync } from "node:fs";
import { rolldown } from "rolldown";

const REACT = `
import { createElement, useState } from "react";
import { createRoot } from "react-dom/client";
import "webmcp-gateway-host";

function Chat() {
  const [item, setItem] = useState(window.first);
  window.setItem = setItem;
  // New objects and functions at each rendering, as in most apps.
  return createElement("mcp-app-item", { item, options: { ...window.settings, onCallTool: () => ({ content: [] }) } });
}
createRoot(document.querySelector("main")).render(createElement(Chat));`;

const VUE = `
import { createApp, h, ref } from "vue";
import "webmcp-gateway-host";

const item = ref(window.first);
window.setItem = (next) => (item.value = next);
createApp({ render: () => h("mcp-app-item", { item: item.value, options: { ...window.settings } }) }).mount("main");`;

const SVELTE = `
<script>
  import "webmcp-gateway-host";
  let item = $state.raw(window.first);
  window.setItem = (next) => (item = next);
</script>
<mcp-app-item {item} options={{ ...window.settings }}></mcp-app-item>`;

const MOUNT = `
import { mount } from "svelte";
import Chat from "./chat.svelte.js";
mount(Chat, { target: document.querySelector("main") });`;

writeFileSync("react.js", REACT);
writeFileSync("vue.js", VUE);
writeFileSync("chat.svelte.js", compile(SVELTE, { generate: "client" }).js.code);
writeFileSync("svelte.js", MOUNT);
for (const name of ["react", "vue", "svelte"]) {
  const build = await rolldown({ input: `${name}.js`, platform: "browser", transform: { define: { "process.env.NODE_ENV": '"production"' } } });
  await build.write({ file: `dist/${name}.js`, format: "iife", name: "chat" });
}
