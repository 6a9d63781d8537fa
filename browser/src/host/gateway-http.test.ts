import { afterEach, expect, it, vi } from "vitest";
import { gatewayHttp } from "./gateway-http";

afterEach(() => void vi.unstubAllGlobals());

it.each<[string, number, object, "Blob" | "ArrayBuffer"]>([
  ["short bytes as a buffer", 10, { "content-length": "10" }, "ArrayBuffer"],
  ["long bytes as a blob, which passes by the page", 600_000, { "content-length": "600000" }, "Blob"],
  ["bytes whose length is not known yet as a blob", 10, {}, "Blob"],
])("takes %s", async (_, size, headers, kind) => {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(new Uint8Array(size), { headers: { ...headers } })));
  const taken = await gatewayHttp(new URL("https://gateway.example/"), "csrf").takeBytes("x");
  expect([taken.constructor.name, (await new Response(taken).arrayBuffer()).byteLength]).toEqual([kind, size]);
});
