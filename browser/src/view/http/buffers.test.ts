import { afterEach, expect, it, vi } from "vitest";
import { withJoinedBuffers } from "./buffers";
import { createResponse, type Answer } from "./response";

const MIB = 1 << 20;

async function response(size: number, headers: [string, string][] = [], signal?: AbortSignal): Promise<Response> {
  const part = (at: number, bytes: number): Answer => ({
    status: 200,
    statusText: "",
    headers,
    body: new Uint8Array(bytes).fill(at),
    url: "",
    redirected: false,
    stream: at < 2 ? `part-${at + 1}` : undefined,
  });
  const parts = { readNext: (id: string) => Promise.resolve(part(Number(id.slice(5)), size)), cancel: () => undefined };
  return withJoinedBuffers(() => Promise.resolve(createResponse(part(0, size), "https://app.invalid/", signal, parts)))("/");
}

/** The first byte of each part, and the total length. */
const seen = (bytes: Uint8Array, size: number): number[] => [bytes[0]!, bytes[size]!, bytes[2 * size]!, bytes.length];

afterEach(() => void vi.unstubAllGlobals());

it.each<[string, number, [string, string][]]>([
  ["a long body of which nothing is known", 2 * MIB, []],
  ["a long body whose length is told", 2 * MIB, [["content-length", `${6 * MIB}`]]],
  ["a short one", 10, [["content-length", "30"]]],
])("gives %s whole, and once", async (_, size, headers) => {
  const whole = await response(size, headers);
  expect(seen(new Uint8Array(await whole.arrayBuffer()), size)).toEqual([0, 1, 2, 3 * size]);
  expect(whole.bodyUsed).toBe(true);
  await expect(whole.arrayBuffer()).rejects.toThrow(TypeError);
});

it("gives the bytes of both clones", async () => {
  const whole = await response(2 * MIB);
  const clone = whole.clone();
  expect(seen(await whole.bytes(), 2 * MIB)).toEqual([0, 1, 2, 6 * MIB]);
  expect(seen(await clone.bytes(), 2 * MIB)).toEqual([0, 1, 2, 6 * MIB]);
});

it("fails as the browser's own does where somebody else reads the body", async () => {
  const whole = await response(2 * MIB);
  whole.body!.getReader();
  await expect(whole.arrayBuffer()).rejects.toThrow(TypeError);
});

it("fails with the reason of the signal", async () => {
  const controller = new AbortController();
  const whole = await response(2 * MIB, [], controller.signal);
  controller.abort("enough");
  await expect(whole.arrayBuffer()).rejects.toBe("enough");
});

it("is a fetch by its name and length, and hands on all that it is given", async () => {
  const given: unknown[] = [];
  const fetch = withJoinedBuffers((...all) => Promise.resolve(new Response(`${given.push(...all)}`)));
  expect([fetch.name, fetch.length]).toEqual(["fetch", 1]);
  const more = [{}, { progress: true }] as unknown as [RequestInit];
  expect((await (await fetch("/x", ...more)).arrayBuffer()).byteLength).toBe(1);
  expect(given).toEqual(["/x", ...more]);
});

it("gives nothing where there is no body", async () => {
  const empty = await withJoinedBuffers(() => Promise.resolve(new Response(null)))("/");
  expect((await empty.arrayBuffer()).byteLength).toBe(0);
});

it("needs no timer: a page may replace it, and a hidden one has slow ones", async () => {
  const made = response(2 * MIB);
  vi.stubGlobal("setTimeout", () => 0);
  expect((await (await made).arrayBuffer()).byteLength).toBe(6 * MIB);
});
