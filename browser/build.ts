/**
 * Builds the bundles of the browser side into `gateway/static/`: those that the command names (`node build.ts view`), or all
 * but the npm modules.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { minify } from "terser";
import { build, minifySync, type InlineConfig, type Plugin } from "vite";

/** Property names that only modules of the runtime use, and that may be shortened: no protocol, page or browser API has them. */
const INTERNAL = [
  "abortCalls", "cancelTimer", "isRunning", "randomBytes", "whenLoaded", "calling", "acceptsBlobs", "acknowledge", "activity", "addresses", "announce", "answer", "appTools", "attach", "begin",
  "beginCall", "callOwnTool", "calls", "callTool", "can", "canCallServer", "cancelFromPage", "crypto", "definitions", "dispatch",
  "embedFiles", "envelope", "eventMessage", "eventOrigin", "eventPorts", "eventSource", "failed", "fromHost", "fromPage",
  "fromWire", "gesture", "gestures", "giveWay", "handshake", "hasFile", "host", "http", "hurry", "inFlight", "isActivated",
  "isHidden", "isInUse", "isMember", "isOffered", "isOpen", "kind", "later", "listen", "maxMessageSize", "model", "needsBackend",
  "notice", "notify", "notifyChange", "offline", "onFirstRequest", "onOpen", "onProgress", "onReported",
  "onSend", "ours", "own", "ownProperty", "page", "pageClients", "pageHasTools", "pageTools", "post", "postToParent", "prefix",
  "proof", "read", "readAnswer", "readNext", "receive", "receiveAnswer", "receiveInitialize", "receiveInitialized",
  "receiveProgress", "registry", "relay", "replaceDefault", "reports", "requests", "reset", "resolveOwn", "rest", "restart",
  "runIfClosed", "save", "seen", "send", "sendFromPage", "setLaunchValue", "settle", "showFailure", "showsApprovals", "stop",
  "storeNotification", "take", "timeout", "toHost", "onSettled", "toPage", "toWire", "unload", "unwritten", "update", "watch",
  "whenSettled", "why", "withdraw",
];

/** Classes that a page may replace by a polyfill, which may lack what the scripts of the view use: these keep the browser's. */
const CAPTURED = ["Promise", "Map", "Set", "WeakMap"].join();

/**
 * Minifies a script of the view by two minifiers in turn, since its size counts in every view; Vite's own runs last.
 *
 * Without `internal`, reads of properties count as having side effects, and classes are those of the page: parts are
 * loaded after its scripts, and the text of some functions runs in workers.
 */
async function minifyTwice(code: string, internal?: string[]): Promise<string> {
  const given = internal ? `((${CAPTURED}) => {${code}\n})(${CAPTURED});` : code;
  const terse = async (given: string, properties: boolean | object): Promise<string> =>
    (await minify(given, {
      ecma: 2020,
      compress: { passes: 3, inline: 1, negate_iife: false, hoist_funs: true, unsafe_proto: true, keep_fargs: false, unsafe_arrows: true, pure_getters: !!internal },
      mangle: { properties },
    })).code!;
  const { code: first } = minifySync("runtime.js", given, { compress: { target: "es2022" } });
  return terse(await terse(first, false), internal ? { builtins: true, regex: new RegExp(`^(${internal.join("|")})$`) } : false);
}

/** Escapes characters that are not ASCII: a page without a declared encoding, which contains these scripts, is not read as UTF-8. */
const ascii: Plugin = {
  name: "ascii",
  generateBundle: (_, bundle) => {
    for (const one of Object.values(bundle))
      if (one.type === "chunk")
        one.code = one.code.replace(/[^\0-\x7f]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
  },
};

/** Moves the script of an HTML page into it, at its end. */
const inlineScript: Plugin = {
  name: "inline-script",
  enforce: "post",
  generateBundle: (_, bundle) => {
    const script = Object.values(bundle).find((one) => one.type === "chunk");
    const page = Object.values(bundle).find((one) => one.fileName.endsWith(".html"));
    if (script?.type !== "chunk" || page?.type !== "asset" || script.code.includes("</script")) throw new Error("one page with one script");
    const html = String(page.source).replace(/\s*<script[^>]*><\/script>/, "");
    page.source = html.replace("</body>", () => `<script type="module">${script.code.trim()}</script></body>`);
    delete bundle[script.fileName];
  },
};

/** A script without imports and exports, which follows the runtime. */
const part = (entry: string, name: string): InlineConfig => ({
  build: {
    outDir: `../gateway/static/${name}`,
    target: "es2022",
    lib: { entry: `src/view/${entry}.ts`, formats: ["iife"], name: "webmcpGatewayPart", fileName: () => `${name}.js` },
    rolldownOptions: { checks: { pluginTimings: false } },
  },
  plugins: [{ name: "minify", renderChunk: (code) => minifyTwice(code) }, ascii],
});

/** Writes the declarations of a module; Node resolves only complete file names, also in types. */
function writeTypes(config: string, folder: string): void {
  execFileSync("node_modules/.bin/tsc", ["-p", config], { stdio: "inherit" });
  for (const file of globSync(`${folder}/**/*.d.ts`)) {
    const complete = (_: string, before: string, path: string): string => {
      const isFolder = existsSync(resolve(dirname(file), path, "index.d.ts"));
      return `${before}"${path}${isFolder ? "/index" : ""}.js"`;
    };
    writeFileSync(file, readFileSync(file, "utf8").replace(/(from |import\()"(\.[^"]*)"/g, complete));
  }
}

/** The bundles of npm modules, which `npm pack` makes. */
const PACKED = ["module", "host-module"];

const bundles: Record<string, InlineConfig> = {
  /** One script without imports: it is inlined first into the head of every packed app. */
  view: {
    build: {
      outDir: "../gateway/static/view",
      target: "es2022",
      lib: { entry: "src/view/index.ts", formats: ["iife"], name: "webmcpGatewayRuntime", fileName: () => "runtime.js" },
      rolldownOptions: { checks: { pluginTimings: false } }, // as for its parts: two minifiers take longer
    },
    plugins: [
      { name: "minify", renderChunk: (code) => minifyTwice(code, INTERNAL) },
      ascii,
      {
        name: "tight-css",
        transform: (code, id) =>
          id.endsWith("/notice-style.ts")
            ? code.replace(/`\n[^`]*`/, (css) => css.replace(/\s+/g, " ").replace(/;? ([{}]) | ?([,;{}]) |(:) | ([!+]) ?/g, "$1$2$3$4").replace(/;}/g, "}"))
            : undefined,
      },
    ],
  },
  /** Parts of the runtime that the packer adds to some pages: to those with WebMCP, */
  tools: part("parts/model-context-part", "tools"),
  /** with declarative forms, */
  forms: part("tools/form-tools", "forms"),
  /** with `EventSource`, */
  events: part("parts/event-source-part", "events"),
  /** with rarely used features, */
  seldom: part("parts/seldom-part", "seldom"),
  /** with forms that have files, */
  files: part("parts/form-data-part", "files"),
  /** with subresource integrity, */
  integrity: part("parts/integrity-part", "integrity"),
  /** with passwords or `Authorization` fields, */
  logins: part("parts/logins-part", "logins"),
  /** with `indexedDB`, */
  indexeddb: part("../libraries/indexeddb-part", "indexeddb"),
  /** with bodies read as one buffer, */
  buffers: part("parts/buffers-part", "buffers"),
  /** with `XMLHttpRequest`, */
  xhr: part("parts/xhr-part", "xhr"),
  /** with `WebSocket`, */
  sockets: part("parts/sockets-part", "sockets"),
  /** with modules that the packer has not linked, */
  modules: part("../libraries/modules-part", "modules"),
  /** with workers or WebAssembly, */
  workers: part("parts/workers-part", "workers"),
  /** with `alert`, `confirm` or `prompt`, */
  dialogs: part("parts/dialogs-part", "dialogs"),
  /** with code in strings, */
  code: part("parts/code-part", "code"),
  /** with `location`, */
  location: part("parts/location-part", "location"),
  /** with other pages of the app, */
  pages: part("parts/pages-part", "pages"),
  /** with storage, cookies or the history, */
  shims: part("parts/shims-part", "shims"),
  /** with rules of style sheets, */
  sheets: part("parts/sheets-part", "sheets"),
  /** with images and style sheets of the backend, for use outside of a host, */
  alone: part("parts/alone-part", "alone"),
  /** with code that rewrites the document, */
  rewritten: part("parts/rewritten-part", "rewritten"),
  /** that may load files of other sites, */
  external: part("parts/external-part", "external"),
  /** with frames of its own, */
  frames: part("parts/frames-part", "frames"),
  /** with scripts of the backend, */
  late: part("parts/late-part", "late"),
  /** The shell of apps whose pages a backend renders, */
  shell: part("parts/shell-part", "shell"),
  /** each of their pages, */
  paged: part("parts/paged-part", "paged"),
  /** and of apps whose storage the gateway saves. */
  storage: part("parts/storage-part", "storage"),
  /** Not a part of the runtime: the script that runs first in documents on an origin of their own. */
  dedicated: part("../host/dedicated-part", "dedicated"),
  /** The npm module `webmcp-gateway-view`; its runtime is the view's, for apps that are not packed. */
  module: {
    build: {
      outDir: "dist",
      target: "es2022",
      lib: { entry: { index: "src/module/index.ts", react: "src/module/react.ts", runtime: "src/module/runtime.ts" }, formats: ["es"] },
      rolldownOptions: { external: ["react"] },
    },
    plugins: [
      {
        name: "with-css-types-and-license",
        closeBundle() {
          cpSync("src/module/fallback.css", "dist/fallback.css");
          cpSync("../LICENSE", "dist/LICENSE");
          writeTypes("tsconfig.module.json", "dist/types");
          writeFileSync("dist/types/fallback.css.d.ts", "export {};\n");
        },
      },
    ],
  },
  /** The npm module `webmcp-gateway-host`, with the sandbox proxy for those who host it themselves. */
  "host-module": {
    build: {
      outDir: "packages/host/dist",
      target: "es2022",
      lib: { entry: { index: "src/host/index.ts", react: "src/host/react.ts" }, formats: ["es"] },
      rolldownOptions: {
        // The components import the other file, so that a page which uses both has one of each class.
        external: (id, importer) => /^(@modelcontextprotocol\/|react$)/.test(id) || (id === "./index" && importer?.endsWith("/host/react.ts") === true),
        output: { banner: ({ name }) => (name === "react" ? '"use client";' : "") },
      },
    },
    plugins: [
      { name: "whole-names", renderChunk: (code) => code.replace('from "./index"', 'from "./index.js"') },
      {
        name: "with-proxy-types-and-license",
        closeBundle() {
          execFileSync(process.execPath, ["build.ts", "sandbox"], { stdio: "inherit" });
          cpSync("../gateway/static/sandbox", "packages/host/dist/sandbox", { recursive: true });
          cpSync("../LICENSE", "packages/host/dist/LICENSE");
          writeTypes("tsconfig.host.json", "packages/host/dist/types");
        },
      },
    ],
  },
  /** For host pages of others: one module with `<mcp-app>`, `connectBridge` and `mountApp`. */
  host: {
    build: {
      outDir: "../gateway/static/host",
      target: "es2022",
      lib: { entry: "src/host/index.ts", formats: ["es"], fileName: () => "mcp-app.js" },
    },
  },
  /** Not for pages: the module linker that the packer runs with Node, and its library. */
  pack: {
    build: {
      outDir: "../gateway/static/pack",
      target: "node20",
      ssr: true,
      rolldownOptions: {
        input: ["src/pack/bundle.ts", "src/pack/location.ts"],
        output: { entryFileNames: "[name].mjs", chunkFileNames: "[name].mjs", paths: { "@rollup/wasm-node": "./rollup/es/rollup.js" } },
      },
    },
    ssr: { noExternal: ["acorn"] },
    plugins: [
      {
        name: "with-rollup",
        closeBundle: () => {
          const from = "node_modules/@rollup/wasm-node";
          for (const part of ["es", "wasm-node", "native.js"]) cpSync(`${from}/dist/${part}`, `../gateway/static/pack/rollup/${part}`, { recursive: true });
          cpSync(`${from}/LICENSE.md`, "../gateway/static/pack/rollup/LICENSE.md");
          cpSync("node_modules/acorn/LICENSE", "../gateway/static/pack/LICENSE.acorn");
        },
      },
    ],
  },
  /** One file with its script, since an app waits for it; apps need the permission for inline scripts anyway. */
  sandbox: {
    root: "src/host/sandbox",
    base: "./",
    build: {
      outDir: "../../../../gateway/static/sandbox",
      target: "es2022",
      modulePreload: false,
      rolldownOptions: { input: "src/host/sandbox/proxy.html" },
    },
    plugins: [inlineScript],
  },
  /** Relative addresses, so that the console works under the prefix of an embedding application too. */
  console: {
    root: "src/console",
    base: "./",
    build: { outDir: "../../../gateway/static/console", target: "es2022", modulePreload: { polyfill: false } },
  },
};

// `npm pack` runs it in the folder of a package.
process.chdir(import.meta.dirname);
const names = process.argv.slice(2);
for (const name of names.length ? names : Object.keys(bundles).filter((each) => !PACKED.includes(each))) {
  const bundle = bundles[name];
  if (!bundle) throw new Error(`no bundle "${name}"; there are ${Object.keys(bundles).join(", ")}`);
  await build({
    ...bundle,
    mode: "production",
    configFile: false,
    publicDir: false,
    logLevel: "warn",
    define: { "process.env.NODE_ENV": JSON.stringify("production") },
    build: { minify: true, ...bundle.build, emptyOutDir: true, sourcemap: false },
  });
}
